using System;
using System.Collections.Generic;
using System.IO;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

namespace Conformance
{
    static class Load
    {
        static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(200);
        static readonly TimeSpan Draining = TimeSpan.FromSeconds(90);
        // A call whose connection breaks at the wrong moment may never return, whatever the options
        // say of retries; only its own token ends it.
        static readonly TimeSpan Longest = TimeSpan.FromSeconds(20);

        /// Sends numbers and completes them, with one client, until standard input ends; then waits for
        /// what was accepted, as long as something comes. A send whose answer was lost may have been
        /// stored, so it is repeated, and one number may come twice.
        public static async Task<string> Run(World world, string queue)
        {
            var client = world.Client(null, new ServiceBusClientOptions
            {
                RetryOptions = new ServiceBusRetryOptions
                {
                    MaxRetries = 2,
                    Delay = Pause,
                    MaxDelay = TimeSpan.FromSeconds(1),
                    TryTimeout = TimeSpan.FromSeconds(5),
                },
            });
            using var stop = new CancellationTokenSource();
            var ended = Task.Run(() =>
            {
                Console.OpenStandardInput().CopyTo(Stream.Null);
                stop.Cancel();
            });
            var sending = SendUntil(client.CreateSender(queue), stop.Token);
            var receiver = client.CreateReceiver(queue);
            var numbers = new HashSet<int>();
            var completed = new HashSet<long>();
            var (returned, isEmpty, deadline) = (0, false, DateTime.MaxValue);
            while (!(sending.IsCompleted && numbers.Count >= sending.Result && isEmpty))
            {
                if (sending.IsCompleted && deadline == DateTime.MaxValue)
                {
                    deadline = DateTime.UtcNow + Draining;
                }
                if (DateTime.UtcNow > deadline)
                {
                    throw new Failure($"{sending.Result - numbers.Count} of {sending.Result} accepted messages are lost");
                }
                var found = await Page(receiver);
                isEmpty = found.Count == 0;
                if (!isEmpty && deadline != DateTime.MaxValue)
                {
                    deadline = DateTime.UtcNow + Draining;
                }
                foreach (var message in found)
                {
                    numbers.Add(int.Parse(message.Body.ToString()));
                    returned += completed.Contains(message.SequenceNumber) ? 1 : 0;
                    if (await Complete(receiver, message))
                    {
                        completed.Add(message.SequenceNumber);
                    }
                }
            }
            await ended;
            World.Same("completed messages that returned", returned, 0);
            return "nothing accepted was lost, nothing completed returned, one client throughout";
        }

        /// How many numbers were accepted.
        static async Task<int> SendUntil(ServiceBusSender sender, CancellationToken stop)
        {
            var number = 0;
            while (!stop.IsCancellationRequested)
            {
                using var longest = new CancellationTokenSource(Longest);
                try
                {
                    await sender.SendMessageAsync(new ServiceBusMessage(number.ToString()), longest.Token);
                    number++;
                    await Task.Delay(20);
                }
                catch (Exception broken) when (IsOfTheLine(broken))
                {
                    await Task.Delay(Pause);
                }
            }
            return number;
        }

        static async Task<IReadOnlyList<ServiceBusReceivedMessage>> Page(ServiceBusReceiver receiver)
        {
            using var longest = new CancellationTokenSource(Longest);
            try
            {
                return await receiver.ReceiveMessagesAsync(20, TimeSpan.FromSeconds(2), longest.Token);
            }
            catch (Exception broken) when (IsOfTheLine(broken))
            {
                await Task.Delay(Pause);
                return new ServiceBusReceivedMessage[0];
            }
        }

        static async Task<bool> Complete(ServiceBusReceiver receiver, ServiceBusReceivedMessage message)
        {
            using var longest = new CancellationTokenSource(Longest);
            try
            {
                await receiver.CompleteMessageAsync(message, longest.Token);
                return true;
            }
            catch (ServiceBusException lost) when (lost.Reason == ServiceBusFailureReason.MessageLockLost)
            {
                return false;
            }
            catch (Exception broken) when (IsOfTheLine(broken))
            {
                return false;
            }
        }

        /// The SDK passes some failures of sockets on as they are, once it has given up.
        static bool IsOfTheLine(Exception broken) =>
            broken is ServiceBusException known
                ? known.IsTransient
                : broken is IOException || broken is TimeoutException || broken is OperationCanceledException
                    || broken is System.Net.Sockets.SocketException;
    }
}
