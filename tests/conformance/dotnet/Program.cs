// The .NET SDK, unmodified, against a bus: one line of JSON for each feature on standard output.
//
//     conformance features [NAME...]   all features, or those that are named
//     conformance load NAME QUEUE      sends and completes until standard input ends
//     conformance sign-in HOST ADMINISTRATION TOKEN
//     conformance application QUEUE    as it would be written for the cloud
//
// The bus is named by variables; tests/conformance/test_sdks.py sets them.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Conformance
{
    /// What a scenario throws when the bus does not do what is promised.
    sealed class Failure : Exception
    {
        public Failure(string text) : base(text) { }
    }

    sealed class Feature
    {
        public readonly string Name;
        public readonly Func<World, Task<string>> Run;

        public Feature(string name, Func<World, Task<string>> run)
        {
            Name = name;
            Run = run;
        }
    }

    static class Program
    {
        // How many features are tried at a time, and how long one may take.
        const int AtATime = 6;
        static readonly TimeSpan Limit = TimeSpan.FromSeconds(90);

        static async Task<int> Main(string[] words)
        {
            if (words.Length > 2 && words[0] == "load")
            {
                await Tell(new Feature(words[1], world => Load.Run(world, words[2])), TimeSpan.FromHours(1));
                return 0;
            }
            if (words.Length > 3 && words[0] == "sign-in")
            {
                await Application.SignIn(words[1], words[3]);
                return 0;
            }
            if (words.Length > 1 && words[0] == "application")
            {
                await Application.Run(words[1]);
                return 0;
            }
            var wanted = words.Skip(1).ToList();
            var turns = new SemaphoreSlim(AtATime);
            await Task.WhenAll(Features.All()
                .Where(each => wanted.Count == 0 || wanted.Contains(each.Name))
                .Select(async each =>
                {
                    await turns.WaitAsync();
                    try { await Tell(each, Limit); }
                    finally { turns.Release(); }
                }));
            return 0;
        }

        static async Task Tell(Feature each, TimeSpan longest)
        {
            var (outcome, detail) = await Attempt(each, longest);
            var line = JsonSerializer.Serialize(new Dictionary<string, string>
            {
                ["feature"] = each.Name,
                ["outcome"] = outcome,
                ["detail"] = detail,
            });
            lock (Console.Out)
            {
                Console.WriteLine(line);
            }
        }

        static async Task<(string, string)> Attempt(Feature each, TimeSpan longest)
        {
            if (each.Run == null)
            {
                return ("not offered", "the SDK has no such call");
            }
            await using var world = new World(each.Name);
            try
            {
                var running = each.Run(world);
                if (await Task.WhenAny(running, Task.Delay(longest)) != running)
                {
                    return ("failed", $"not done after {longest.TotalSeconds} s");
                }
                return ("passed", await running);
            }
            catch (Exception broken)
            {
                return ("failed", $"{broken.GetType().Name}: {broken.Message}");
            }
        }
    }

    /// The clients of one feature, closed at its end, and the names of its entities.
    sealed class World : IAsyncDisposable
    {
        public static readonly string ConnectionString = Variable("SHARDBUS_CONNECTION_STRING");
        public static readonly string TlsString = Variable("SHARDBUS_TLS_CONNECTION_STRING");
        public static readonly string PremiumString = Variable("SHARDBUS_PREMIUM_CONNECTION_STRING");
        // How long to wait for what must not come.
        static readonly TimeSpan Nothing = TimeSpan.FromMilliseconds(500);
        static readonly string Prefix = Variable("SHARDBUS_PREFIX");

        public readonly ServiceBusAdministrationClient Administration =
            new ServiceBusAdministrationClient(ConnectionString);
        readonly List<ServiceBusClient> clients = new List<ServiceBusClient>();
        readonly string name;
        int count;

        public World(string name) => this.name = name;

        static string Variable(string name) => Environment.GetEnvironmentVariable(name) ?? "";

        public async ValueTask DisposeAsync()
        {
            foreach (var client in clients)
            {
                await client.DisposeAsync();
            }
        }

        public ServiceBusClient Client(string text = null, ServiceBusClientOptions options = null)
        {
            var client = new ServiceBusClient(text ?? ConnectionString, options ?? new ServiceBusClientOptions());
            clients.Add(client);
            return client;
        }

        public string NewName() => $"{Prefix}-{name}-{Interlocked.Increment(ref count)}";

        /// A queue with locks of ten seconds and three deliveries, unless told otherwise.
        public async Task<string> Queue(bool isPartitioned, Action<CreateQueueOptions> more = null)
        {
            var options = new CreateQueueOptions(NewName())
            {
                EnablePartitioning = isPartitioned,
                LockDuration = TimeSpan.FromSeconds(10),
                MaxDeliveryCount = 3,
            };
            more?.Invoke(options);
            await Administration.CreateQueueAsync(options);
            return options.Name;
        }

        public Task<string> SessionQueue(bool isPartitioned) =>
            Queue(isPartitioned, options => options.RequiresSession = true);

        public async Task<List<ServiceBusReceivedMessage>> Receive(ServiceBusReceiver receiver, int wanted)
        {
            var found = new List<ServiceBusReceivedMessage>();
            while (found.Count < wanted)
            {
                found.AddRange(await receiver.ReceiveMessagesAsync(wanted - found.Count));
            }
            return found;
        }

        public async Task<ServiceBusReceivedMessage> One(ServiceBusReceiver receiver) =>
            (await Receive(receiver, 1))[0];

        public async Task None(ServiceBusReceiver receiver) =>
            Same("messages", (await receiver.ReceiveMessagesAsync(1, Nothing)).Count, 0);

        public static void Same<T>(string what, T found, T wanted)
        {
            if (!Equals(found, wanted))
            {
                throw new Failure($"{what}: {found} instead of {wanted}");
            }
        }

        /// What a call must be refused with.
        public static async Task Refused(ServiceBusFailureReason reason, Func<Task> call)
        {
            try
            {
                await call();
            }
            catch (ServiceBusException refused)
            {
                Same("reason", refused.Reason, reason);
                return;
            }
            throw new Failure($"not refused with {reason}");
        }
    }
}
