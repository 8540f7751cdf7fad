using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Azure.Core;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Conformance
{
    /// A credential as the identity library has them; it notes what it is asked for.
    sealed class SignedIn : TokenCredential
    {
        public readonly HashSet<string> Scopes = new HashSet<string>();
        readonly string token;

        public SignedIn(string token) => this.token = token;

        public override AccessToken GetToken(TokenRequestContext asked, CancellationToken stop)
        {
            lock (Scopes)
            {
                Scopes.UnionWith(asked.Scopes);
            }
            return new AccessToken(token, DateTimeOffset.UtcNow.AddHours(1));
        }

        public override ValueTask<AccessToken> GetTokenAsync(TokenRequestContext asked, CancellationToken stop) =>
            new ValueTask<AccessToken>(GetToken(asked, stop));
    }

    static class Application
    {
        /// Uses a bus with a credential; see test_sign_in.py. The administration client takes no port.
        public static async Task SignIn(string host, string token)
        {
            var credential = new SignedIn(token);
            // One attempt: a token that is refused stays refused.
            var options = new ServiceBusClientOptions { RetryOptions = { MaxRetries = 0 } };
            var body = await OverAmqp(new ServiceBusClient(host, credential, options), "orders", "from .NET");
            Console.WriteLine(JsonSerializer.Serialize(new Dictionary<string, object>
            {
                ["body"] = body,
                ["scopes"] = credential.Scopes.ToArray(),
            }));
        }

        /// Written for the cloud: it knows a connection string and nothing of us. It uses the
        /// administration client, AMQP, and AMQP inside a WebSocket; see test_drop_in.py.
        public static async Task Run(string queue)
        {
            var connecting = Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING");
            var administration = new ServiceBusAdministrationClient(connecting);
            if (!await administration.QueueExistsAsync(queue))
            {
                await administration.CreateQueueAsync(queue);
            }
            var over = new ServiceBusClientOptions { TransportType = ServiceBusTransportType.AmqpWebSockets };
            var one = await OverAmqp(new ServiceBusClient(connecting), queue, "one");
            var two = await OverAmqp(new ServiceBusClient(connecting, over), queue, "two");
            Console.WriteLine($"{one} {two}");
        }

        /// Sends a message, receives and completes it, and returns its body.
        static async Task<string> OverAmqp(ServiceBusClient client, string queue, string body)
        {
            await using (client)
            {
                await client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage(body));
                var receiver = client.CreateReceiver(queue);
                var found = await receiver.ReceiveMessageAsync();
                await receiver.CompleteMessageAsync(found);
                return found.Body.ToString();
            }
        }
    }
}
