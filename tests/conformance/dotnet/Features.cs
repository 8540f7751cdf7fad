using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using System.Transactions;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;
using static Conformance.World;

namespace Conformance
{
    static partial class Features
    {
        public static IEnumerable<Feature> All() => new[]
        {
            new Feature("administration", AdministrationOfAll),
            new Feature("send", OnBoth(SendOne)),
            new Feature("batch", OnBoth(SendBatch)),
            new Feature("keyed", Keyed),
            new Feature("schedule", OnBoth(Schedule)),
            new Feature("receive", OnBoth(ReceiveInBothModes)),
            new Feature("settle", OnBoth(Settle)),
            new Feature("deferred", OnBoth(Deferred)),
            new Feature("dead-letters", OnBoth(DeadLetters)),
            new Feature("session-accept", OnBoth(SessionAccept)),
            new Feature("session-next", OnBoth(SessionNext)),
            new Feature("session-state", OnBoth(SessionState)),
            new Feature("session-renew", SessionRenew),
            new Feature("session-list", null),
            new Feature("peek", OnBoth(Peek)),
            new Feature("renew", OnBoth(Renew)),
            new Feature("auto-renew", AutoRenew),
            new Feature("prefetch", OnBoth(Prefetch)),
            new Feature("async", Async),
            new Feature("push", OnBoth(Push)),
            new Feature("session-push", OnBoth(SessionPush)),
            new Feature("rules", Rules),
            new Feature("rule-manager", OnBoth(RuleManager)),
            new Feature("transaction", OnBoth(Transaction)),
            new Feature("transaction-across", OnBoth(TransactionAcross)),
            new Feature("duplicates", OnBoth(Duplicates)),
            new Feature("large", Large),
            new Feature("websocket", OverWebSocket),
            new Feature("tls", OverTls),
        };

        /// A scenario on a conventional and on a partitioned entity.
        static Func<World, Task<string>> OnBoth(Func<World, bool, Task> scenario) => async world =>
        {
            await scenario(world, false);
            await scenario(world, true);
            return "conventional and partitioned";
        };

        static ServiceBusMessage Text(string body) => new ServiceBusMessage(body);

        static string Bodies(IEnumerable<ServiceBusReceivedMessage> messages) =>
            string.Join(" ", messages.Select(each => each.Body.ToString()).OrderBy(each => each, StringComparer.Ordinal));

        static async Task AdministrationOf(World world, bool isPartitioned)
        {
            var manager = world.Administration;
            var queue = await world.Queue(isPartitioned);
            QueueProperties found = await manager.GetQueueAsync(queue);
            Same("EnablePartitioning", found.EnablePartitioning, isPartitioned);
            Same("LockDuration", found.LockDuration, TimeSpan.FromSeconds(10));
            found.LockDuration = TimeSpan.FromSeconds(20);
            found = await manager.UpdateQueueAsync(found);
            Same("LockDuration after the change", found.LockDuration, TimeSpan.FromSeconds(20));
            QueueRuntimeProperties runtime = await manager.GetQueueRuntimePropertiesAsync(queue);
            Same("messages", runtime.TotalMessageCount, 0L);
            var topic = world.NewName();
            await manager.CreateTopicAsync(new CreateTopicOptions(topic) { EnablePartitioning = isPartitioned });
            await manager.CreateSubscriptionAsync(topic, "all");
            TopicRuntimeProperties of = await manager.GetTopicRuntimePropertiesAsync(topic);
            Same("subscriptions", of.SubscriptionCount, 1);
            var times = 0;
            await foreach (var each in manager.GetQueuesAsync())
            {
                times += each.Name == queue ? 1 : 0;
            }
            Same("times listed", times, 1);
            await manager.DeleteQueueAsync(queue);
            Same("a deleted queue", (await manager.QueueExistsAsync(queue)).Value, false);
            await Refused(ServiceBusFailureReason.MessagingEntityNotFound, () => manager.GetQueueAsync(queue));
        }

        static async Task<string> AdministrationOfAll(World world)
        {
            await AdministrationOf(world, false);
            await AdministrationOf(world, true);
            NamespaceProperties space = await world.Administration.GetNamespacePropertiesAsync();
            Same("tier", space.MessagingSku, MessagingSku.Standard);
            return "queues, topics and subscriptions: create, get, update, list by pages, delete";
        }

        static async Task SendOne(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            var sent = new ServiceBusMessage("hello")
            {
                MessageId = "m1",
                Subject = "greeting",
                ContentType = "text/plain",
                TimeToLive = TimeSpan.FromHours(1),
                ApplicationProperties =
                {
                    ["long"] = 7L, ["text"] = "x", ["true"] = true, ["real"] = 1.5, ["decimal"] = 2.5m,
                    ["time"] = TimeSpan.FromMinutes(5), ["uri"] = new Uri("http://localhost/"), ["null"] = null,
                },
            };
            await client.CreateSender(queue).SendMessageAsync(sent);
            var receiver = client.CreateReceiver(queue);
            var got = await world.One(receiver);
            Same("body", got.Body.ToString(), "hello");
            Same("id", got.MessageId, "m1");
            Same("subject", got.Subject, "greeting");
            Same("TTL", got.TimeToLive, TimeSpan.FromHours(1));
            foreach (var each in sent.ApplicationProperties)
            {
                Same(each.Key, got.ApplicationProperties[each.Key], each.Value);
            }
            await receiver.CompleteMessageAsync(got);
            await world.None(receiver);
        }

        static async Task SendBatch(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            using var batch = await sender.CreateMessageBatchAsync();
            while (batch.TryAddMessage(new ServiceBusMessage(new byte[2000]))) { }
            await sender.SendMessagesAsync(batch);
            var receiver = client.CreateReceiver(queue);
            foreach (var message in await world.Receive(receiver, batch.Count))
            {
                await receiver.CompleteMessageAsync(message);
            }
            await world.None(receiver);
            var tooLarge = new ServiceBusMessage(new byte[batch.MaxSizeInBytes + 10]);
            await Refused(ServiceBusFailureReason.MessageSizeExceeded, () => sender.SendMessageAsync(tooLarge));
        }

        static async Task<string> Keyed(World world)
        {
            var queue = await world.Queue(true);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            for (var number = 0; number < 12; number++)
            {
                await sender.SendMessageAsync(new ServiceBusMessage($"{number:00}") { PartitionKey = $"key-{number % 3}" });
            }
            var fragments = new Dictionary<string, long>();
            var last = new Dictionary<string, string>();
            var receiver = client.CreateReceiver(queue);
            foreach (var message in await world.Receive(receiver, 12))
            {
                var (key, fragment) = (message.PartitionKey, message.SequenceNumber >> 48);
                Same("fragment of " + key, fragment, fragments.GetValueOrDefault(key, fragment));
                Same("order of " + key, string.CompareOrdinal(last.GetValueOrDefault(key, ""), message.Body.ToString()) < 0, true);
                (fragments[key], last[key]) = (fragment, message.Body.ToString());
                await receiver.CompleteMessageAsync(message);
            }
            return "one fragment and one order for each key";
        }

        static async Task Schedule(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            var receiver = client.CreateReceiver(queue);
            var soon = DateTimeOffset.UtcNow.AddSeconds(1.5);
            await sender.ScheduleMessageAsync(Text("soon"), soon);
            var cancelled = await sender.ScheduleMessagesAsync(
                new[] { Text("a"), Text("b") }, DateTimeOffset.UtcNow.AddHours(1));
            var peeked = await receiver.PeekMessageAsync(cancelled[0]);
            Same("state", peeked.State, ServiceBusMessageState.Scheduled);
            await sender.CancelScheduledMessagesAsync(cancelled);
            var got = await world.One(receiver);
            Same("body", got.Body.ToString(), "soon");
            Same("too early", DateTimeOffset.UtcNow < soon.AddMilliseconds(-50), false);
            await receiver.CompleteMessageAsync(got);
            Same("left", (await receiver.PeekMessagesAsync(10)).Count, 0);
        }

        static async Task ReceiveInBothModes(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            await sender.SendMessagesAsync(new[] { Text("1"), Text("2"), Text("3"), Text("4") });
            await using (var deleting = client.CreateReceiver(queue, new ServiceBusReceiverOptions
            {
                ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete,
            }))
            {
                Same("bodies", Bodies(await world.Receive(deleting, 4)), "1 2 3 4");
            }
            await sender.SendMessageAsync(Text("5"));
            var receiver = client.CreateReceiver(queue);
            var locked = await world.One(receiver);
            Same("deliveries", locked.DeliveryCount, 1);
            await world.None(client.CreateReceiver(queue));
            await receiver.CompleteMessageAsync(locked);
            Same("left", (await receiver.PeekMessagesAsync(10)).Count, 0);
        }

        static async Task Settle(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            var receiver = client.CreateReceiver(queue);
            await sender.SendMessageAsync(Text("complete"));
            var completed = await world.One(receiver);
            await receiver.CompleteMessageAsync(completed);
            await Refused(ServiceBusFailureReason.MessageLockLost, () => receiver.CompleteMessageAsync(completed));
            await sender.SendMessageAsync(Text("abandon"));
            var tried = new Dictionary<string, object> { ["tried"] = "once" };
            await receiver.AbandonMessageAsync(await world.One(receiver), tried);
            var again = await world.One(receiver);
            Same("deliveries", again.DeliveryCount, 2);
            Same("changed property", again.ApplicationProperties["tried"], "once");
            await receiver.CompleteMessageAsync(again);
            await sender.SendMessageAsync(Text("defer"));
            await receiver.DeferMessageAsync(await world.One(receiver));
            await sender.SendMessageAsync(Text("dead-letter"));
            await receiver.DeadLetterMessageAsync(await world.One(receiver));
            QueueRuntimeProperties runtime = await world.Administration.GetQueueRuntimePropertiesAsync(queue);
            Same("active (deferred ones count)", runtime.ActiveMessageCount, 1L);
            Same("dead letters", runtime.DeadLetterMessageCount, 1L);
        }

        static async Task Deferred(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            var receiver = client.CreateReceiver(queue);
            await client.CreateSender(queue).SendMessageAsync(Text("later"));
            var got = await world.One(receiver);
            await receiver.DeferMessageAsync(got);
            await world.None(receiver);
            Same("state", (await receiver.PeekMessageAsync()).State, ServiceBusMessageState.Deferred);
            var found = await receiver.ReceiveDeferredMessageAsync(got.SequenceNumber);
            Same("body", found.Body.ToString(), "later");
            await receiver.CompleteMessageAsync(found);
            await Refused(ServiceBusFailureReason.MessageNotFound,
                () => receiver.ReceiveDeferredMessageAsync(got.SequenceNumber));
        }

        static async Task DeadLetters(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            var receiver = client.CreateReceiver(queue);
            await sender.SendMessageAsync(Text("bad"));
            await receiver.DeadLetterMessageAsync(await world.One(receiver), "reason", "description");
            await sender.SendMessageAsync(Text("often"));
            for (var time = 0; time < 3; time++)
            {
                await receiver.AbandonMessageAsync(await world.One(receiver));
            }
            var dead = client.CreateReceiver(queue, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
            var reasons = new Dictionary<string, string>();
            foreach (var message in await world.Receive(dead, 2))
            {
                reasons[message.Body.ToString()] = message.DeadLetterReason;
                await dead.CompleteMessageAsync(message);
            }
            Same("reason", reasons["bad"], "reason");
            Same("reason of the bus", reasons["often"], "MaxDeliveryCountExceeded");
            await world.None(receiver);
        }

        static async Task Peek(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            await client.CreateSender(queue).SendMessagesAsync(Enumerable.Range(0, 300).Select(each => Text($"{each:000}")));
            var receiver = client.CreateReceiver(queue);
            var seen = new HashSet<long>();
            for (var page = await receiver.PeekMessagesAsync(100); page.Count > 0; page = await receiver.PeekMessagesAsync(100))
            {
                seen.UnionWith(page.Select(each => each.SequenceNumber));
            }
            Same("messages over all pages", seen.Count, 300);
            var first = await world.One(receiver);
            var from = await receiver.PeekMessageAsync(first.SequenceNumber);
            Same("from a number", from.SequenceNumber, first.SequenceNumber);
        }

        static async Task Renew(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned, options => options.LockDuration = TimeSpan.FromSeconds(5));
            var client = world.Client();
            await client.CreateSender(queue).SendMessageAsync(Text("slow"));
            var receiver = client.CreateReceiver(queue);
            var got = await world.One(receiver);
            for (var time = 0; time < 2; time++)
            {
                await Task.Delay(3000);
                var before = got.LockedUntil;
                await receiver.RenewMessageLockAsync(got);
                Same("longer", got.LockedUntil > before, true);
            }
            await receiver.CompleteMessageAsync(got);
        }

        static async Task Prefetch(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            await client.CreateSender(queue).SendMessagesAsync(Enumerable.Range(0, 50).Select(each => Text($"{each}")));
            await using (var receiver = client.CreateReceiver(queue, new ServiceBusReceiverOptions { PrefetchCount = 50 }))
            {
                for (var number = 0; number < 20; number++)
                {
                    await receiver.CompleteMessageAsync(await world.One(receiver));
                }
            }
            var rest = client.CreateReceiver(queue);
            foreach (var message in await world.Receive(rest, 30))
            {
                await rest.CompleteMessageAsync(message);
            }
            await world.None(rest);
        }

        static async Task<string> Async(World world)
        {
            var queue = await world.Queue(false);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            await Task.WhenAll(Enumerable.Range(0, 100).Select(each => sender.SendMessageAsync(Text($"{each}"))));
            var receiver = client.CreateReceiver(queue);
            var found = await world.Receive(receiver, 100);
            await Task.WhenAll(found.Select(each => receiver.CompleteMessageAsync(each)));
            using var giveUp = new CancellationTokenSource(500);
            try
            {
                await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(60), giveUp.Token);
                throw new Failure("a receive was not given up");
            }
            catch (TaskCanceledException) { }
            await sender.SendMessageAsync(Text("after"));
            Same("deliveries", (await world.One(receiver)).DeliveryCount, 1);
            return "there is no other; a receive that is given up takes nothing along";
        }

        static async Task Duplicates(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned, options => options.RequiresDuplicateDetection = true);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            foreach (var id in new[] { "a", "b", "a", "a" })
            {
                await sender.SendMessageAsync(new ServiceBusMessage(id) { MessageId = id });
            }
            var receiver = client.CreateReceiver(queue);
            Same("bodies", Bodies(await world.Receive(receiver, 2)), "a b");
            await world.None(receiver);
        }

        static async Task<string> Large(World world)
        {
            var queue = world.NewName();
            await new ServiceBusAdministrationClient(PremiumString).CreateQueueAsync(
                new CreateQueueOptions(queue) { MaxMessageSizeInKilobytes = 20480 });
            var client = world.Client(PremiumString);
            var sender = client.CreateSender(queue);
            var receiver = client.CreateReceiver(queue);
            var body = new byte[10 << 20];
            new Random(7).NextBytes(body);
            await sender.SendMessageAsync(new ServiceBusMessage(body));
            var got = await world.One(receiver);
            Same("body", body.AsSpan().SequenceEqual(got.Body.ToMemory().Span), true);
            await receiver.CompleteMessageAsync(got);
            await Refused(ServiceBusFailureReason.MessageSizeExceeded,
                () => sender.SendMessageAsync(new ServiceBusMessage(new byte[21 << 20])));
            return "10 MiB in Premium; 21 MiB is refused where 20 MiB are allowed";
        }

        /// The SDK takes the port from the address that is given beside the name.
        static ServiceBusClient Encrypted(World world, ServiceBusTransportType transport)
        {
            var endpoint = ServiceBusConnectionStringProperties.Parse(TlsString).Endpoint;
            return world.Client(TlsString, new ServiceBusClientOptions
            {
                TransportType = transport,
                CustomEndpointAddress = endpoint,
            });
        }

        static async Task<string> OverWebSocket(World world)
        {
            await RoundTrip(world, Encrypted(world, ServiceBusTransportType.AmqpWebSockets));
            return "wss, with the subprotocol AMQPWSB10";
        }

        static async Task<string> OverTls(World world)
        {
            await RoundTrip(world, Encrypted(world, ServiceBusTransportType.AmqpTcp));
            return "trusted by SSL_CERT_FILE";
        }

        static async Task RoundTrip(World world, ServiceBusClient client)
        {
            var queue = await world.Queue(false);
            var body = string.Concat(Enumerable.Repeat("round trip ", 10_000));
            await client.CreateSender(queue).SendMessageAsync(Text(body));
            var receiver = client.CreateReceiver(queue);
            var got = await world.One(receiver);
            Same("length", got.Body.ToString().Length, body.Length);
            await receiver.CompleteMessageAsync(got);
        }
    }
}
