using System;
using System.Collections.Concurrent;
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
    /// Sessions, handlers, rules and transactions.
    static partial class Features
    {
        static async Task<(string, ServiceBusClient)> Sessions(World world, bool isPartitioned, params string[] ids)
        {
            var queue = await world.SessionQueue(isPartitioned);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            foreach (var id in ids)
            {
                await sender.SendMessageAsync(new ServiceBusMessage(id) { SessionId = id });
            }
            return (queue, client);
        }

        static async Task SessionAccept(World world, bool isPartitioned)
        {
            var (queue, client) = await Sessions(world, isPartitioned, "a", "b", "a");
            var session = await client.AcceptSessionAsync(queue, "a");
            Same("id", session.SessionId, "a");
            foreach (var message in await world.Receive(session, 2))
            {
                Same("session", message.SessionId, "a");
                await session.CompleteMessageAsync(message);
            }
            await world.None(session);
            var other = world.Client(null, new ServiceBusClientOptions { RetryOptions = { MaxRetries = 0 } });
            await Refused(ServiceBusFailureReason.SessionCannotBeLocked, () => other.AcceptSessionAsync(queue, "a"));
            await session.DisposeAsync();
            await (await client.AcceptSessionAsync(queue, "a")).DisposeAsync();
        }

        static async Task SessionNext(World world, bool isPartitioned)
        {
            var (queue, client) = await Sessions(world, isPartitioned, "a", "b");
            var seen = new HashSet<string>();
            for (var time = 0; time < 2; time++)
            {
                await using var session = await client.AcceptNextSessionAsync(queue);
                seen.Add(session.SessionId);
                await session.CompleteMessageAsync(await world.One(session));
            }
            Same("sessions", seen.Count, 2);
            var hasty = world.Client(null, new ServiceBusClientOptions
            {
                RetryOptions = { MaxRetries = 0, TryTimeout = TimeSpan.FromSeconds(2) },
            });
            await Refused(ServiceBusFailureReason.ServiceTimeout, () => hasty.AcceptNextSessionAsync(queue));
        }

        static async Task SessionState(World world, bool isPartitioned)
        {
            var (queue, client) = await Sessions(world, isPartitioned, "a");
            await using (var session = await client.AcceptSessionAsync(queue, "a"))
            {
                Same("first state", await session.GetSessionStateAsync(), null);
                await session.SetSessionStateAsync(new BinaryData("half way"));
            }
            await using var later = await client.AcceptSessionAsync(queue, "a");
            Same("state", (await later.GetSessionStateAsync()).ToString(), "half way");
            await later.SetSessionStateAsync(null);
            Same("cleared state", await later.GetSessionStateAsync(), null);
        }

        static async Task<string> SessionRenew(World world)
        {
            var queue = await world.Queue(false, options =>
                (options.RequiresSession, options.LockDuration) = (true, TimeSpan.FromSeconds(5)));
            var session = await world.Client().AcceptSessionAsync(queue, "a");
            for (var time = 0; time < 3; time++)
            {
                var before = session.SessionLockedUntil;
                await Task.Delay(2000);
                await session.RenewSessionLockAsync();
                Same("longer", session.SessionLockedUntil > before, true);
            }
            await session.SetSessionStateAsync(new BinaryData("kept"));
            return "a lock of 5 s held for 6 s";
        }

        static async Task Push(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            await client.CreateSender(queue).SendMessagesAsync(Enumerable.Range(0, 40).Select(each => Text($"{each}")));
            var (seen, errors) = (new ConcurrentDictionary<string, int>(), new ConcurrentQueue<Exception>());
            await using var processor = client.CreateProcessor(queue, new ServiceBusProcessorOptions { MaxConcurrentCalls = 5 });
            processor.ProcessMessageAsync += call =>
            {
                seen.AddOrUpdate(call.Message.Body.ToString(), 1, (_, times) => times + 1);
                return Task.CompletedTask;
            };
            processor.ProcessErrorAsync += call => { errors.Enqueue(call.Exception); return Task.CompletedTask; };
            await processor.StartProcessingAsync();
            await Until(() => seen.Count == 40);
            await processor.StopProcessingAsync();
            Same("errors", string.Join(" ", errors), "");
            Same("handled twice", seen.Values.Count(times => times > 1), 0);
            await world.None(client.CreateReceiver(queue));
        }

        static async Task SessionPush(World world, bool isPartitioned)
        {
            var (queue, client) = await Sessions(world, isPartitioned, "a", "b", "c", "a", "b", "c", "a");
            var (seen, errors) = (new ConcurrentQueue<string>(), new ConcurrentQueue<Exception>());
            var options = new ServiceBusSessionProcessorOptions { SessionIdleTimeout = TimeSpan.FromSeconds(1) };
            await using var processor = client.CreateSessionProcessor(queue, options);
            processor.ProcessMessageAsync += async call =>
            {
                await call.SetSessionStateAsync(new BinaryData(call.SessionId));
                seen.Enqueue(call.Message.SessionId);
            };
            processor.ProcessErrorAsync += call => { errors.Enqueue(call.Exception); return Task.CompletedTask; };
            await processor.StartProcessingAsync();
            await Until(() => seen.Count == 7);
            await processor.StopProcessingAsync();
            Same("errors", string.Join(" ", errors), "");
            Same("sessions", string.Concat(seen.OrderBy(each => each, StringComparer.Ordinal)), "aaabbcc");
        }

        static async Task<string> AutoRenew(World world)
        {
            var queue = await world.Queue(false, options => options.LockDuration = TimeSpan.FromSeconds(5));
            var client = world.Client();
            await client.CreateSender(queue).SendMessagesAsync(Enumerable.Range(0, 20).Select(each => Text($"{each}")));
            var (deliveries, errors) = (new ConcurrentQueue<int>(), new ConcurrentQueue<Exception>());
            await using var processor = client.CreateProcessor(queue, new ServiceBusProcessorOptions { MaxConcurrentCalls = 20 });
            processor.ProcessMessageAsync += async call =>
            {
                await Task.Delay(12_000);
                deliveries.Enqueue(call.Message.DeliveryCount);
            };
            processor.ProcessErrorAsync += call => { errors.Enqueue(call.Exception); return Task.CompletedTask; };
            await processor.StartProcessingAsync();
            await Until(() => deliveries.Count == 20);
            await processor.StopProcessingAsync();
            Same("errors", string.Join(" ", errors), "");
            Same("deliveries", deliveries.Max(), 1);
            return "20 messages of 5 s held for 12 s by a processor";
        }

        static async Task Until(Func<bool> isDone)
        {
            while (!isDone())
            {
                await Task.Delay(50);
            }
        }

        static async Task Subscribe(World world, bool isPartitioned, string topic)
        {
            await world.Administration.CreateTopicAsync(new CreateTopicOptions(topic) { EnablePartitioning = isPartitioned });
            await world.Administration.CreateSubscriptionAsync(topic, "some");
        }

        static CreateRuleOptions SqlRule() => new CreateRuleOptions("sql")
        {
            Filter = new SqlRuleFilter("amount > @least") { Parameters = { ["@least"] = 10L } },
            Action = new SqlRuleAction("SET seen = 'yes'"),
        };

        static CreateRuleOptions CorrelationRule() => new CreateRuleOptions("correlation")
        {
            Filter = new CorrelationRuleFilter { Subject = "red", ApplicationProperties = { ["size"] = "L" } },
        };

        static async Task<string> Rules(World world)
        {
            foreach (var isPartitioned in new[] { false, true })
            {
                var (manager, topic) = (world.Administration, world.NewName());
                await Subscribe(world, isPartitioned, topic);
                await manager.DeleteRuleAsync(topic, "some", "$Default");
                await manager.CreateRuleAsync(topic, "some", SqlRule());
                await manager.CreateRuleAsync(topic, "some", CorrelationRule());
                RuleProperties sql = await manager.GetRuleAsync(topic, "some", "sql");
                Same("parameter", ((SqlRuleFilter)sql.Filter).Parameters["@least"], (object)10L);
                sql.Filter = new SqlRuleFilter("amount > 20");
                await manager.UpdateRuleAsync(topic, "some", sql);
                await Select(world, topic);
            }
            return "by the administration client";
        }

        static async Task RuleManager(World world, bool isPartitioned)
        {
            var topic = world.NewName();
            await Subscribe(world, isPartitioned, topic);
            await using var manager = world.Client().CreateRuleManager(topic, "some");
            await manager.DeleteRuleAsync("$Default");
            var sql = SqlRule();
            sql.Filter = new SqlRuleFilter("amount > 20");
            await manager.CreateRuleAsync(sql);
            await manager.CreateRuleAsync(CorrelationRule());
            var names = new List<string>();
            await foreach (var rule in manager.GetRulesAsync())
            {
                names.Add(rule.Name);
            }
            Same("rules", string.Join(" ", names), "correlation sql");
            await Refused(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => manager.CreateRuleAsync(SqlRule()));
            await Refused(ServiceBusFailureReason.MessagingEntityNotFound, () => manager.DeleteRuleAsync("none"));
            await Select(world, topic);
        }

        static async Task Select(World world, string topic)
        {
            var client = world.Client();
            await client.CreateSender(topic).SendMessagesAsync(new[]
            {
                new ServiceBusMessage("much") { ApplicationProperties = { ["amount"] = 25L } },
                new ServiceBusMessage("little") { ApplicationProperties = { ["amount"] = 15L } },
                new ServiceBusMessage("red") { Subject = "red", ApplicationProperties = { ["size"] = "L" } },
            });
            var receiver = client.CreateReceiver(topic, "some");
            var found = await world.Receive(receiver, 2);
            Same("selected", Bodies(found), "much red");
            var much = found.Single(each => each.Body.ToString() == "much");
            Same("set by the action", much.ApplicationProperties["seen"], "yes");
            await world.None(receiver);
        }

        static async Task Transaction(World world, bool isPartitioned)
        {
            var queue = await world.Queue(isPartitioned);
            var client = world.Client();
            var sender = client.CreateSender(queue);
            var receiver = client.CreateReceiver(queue);
            ServiceBusMessage Of(string body) => new ServiceBusMessage(body) { PartitionKey = "key" };
            await sender.SendMessageAsync(Of("first"));
            var first = await world.One(receiver);
            await Within(false, async () =>
            {
                await sender.SendMessageAsync(Of("never"));
                await receiver.CompleteMessageAsync(first);
            });
            await world.None(receiver);
            await Within(true, async () =>
            {
                await sender.SendMessageAsync(Of("second"));
                await receiver.CompleteMessageAsync(first);
            });
            var second = await world.One(receiver);
            Same("body", second.Body.ToString(), "second");
            await receiver.CompleteMessageAsync(second);
            if (isPartitioned)
            {
                await OfTwoPartitions(world, sender, receiver);
            }
            Same("left", (await receiver.PeekMessagesAsync(10)).Count, 0);
        }

        /// A transaction settles messages of one partition; what it refuses stays locked.
        static async Task OfTwoPartitions(World world, ServiceBusSender sender, ServiceBusReceiver receiver)
        {
            foreach (var key in new[] { "1", "2" })
            {
                await sender.SendMessageAsync(new ServiceBusMessage(key) { PartitionKey = key });
            }
            var both = await world.Receive(receiver, 2);
            await Within(false, async () =>
            {
                await receiver.CompleteMessageAsync(both[0]);
                try
                {
                    await receiver.CompleteMessageAsync(both[1]);
                    throw new Failure("a transaction settles messages of two partitions");
                }
                catch (InvalidOperationException) { }
            });
            foreach (var each in both)
            {
                await receiver.CompleteMessageAsync(each);
            }
        }

        static async Task TransactionAcross(World world, bool isPartitioned)
        {
            var (from, to) = (await world.Queue(isPartitioned), await world.Queue(isPartitioned));
            var client = world.Client(null, new ServiceBusClientOptions { EnableCrossEntityTransactions = true });
            await world.Client().CreateSender(from).SendMessageAsync(new ServiceBusMessage("moves") { PartitionKey = "key" });
            var receiver = client.CreateReceiver(from);
            var got = await world.One(receiver);
            var sender = client.CreateSender(to);
            ServiceBusMessage Copy() =>
                new ServiceBusMessage(got) { PartitionKey = "key", TransactionPartitionKey = "key" };
            var there = world.Client().CreateReceiver(to);
            await Within(false, async () =>
            {
                await receiver.CompleteMessageAsync(got);
                await sender.SendMessageAsync(Copy());
            });
            await world.None(there);
            await Within(true, async () =>
            {
                await receiver.CompleteMessageAsync(got);
                await sender.SendMessageAsync(Copy());
            });
            Same("body", (await world.One(there)).Body.ToString(), "moves");
            await world.None(receiver);
        }

        /// The SDK ends a transaction after its scope was left, so what it did is waited for.
        static async Task Within(bool isKept, Func<Task> work)
        {
            var ended = new TaskCompletionSource<TransactionStatus>(TaskCreationOptions.RunContinuationsAsynchronously);
            using (var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
            {
                System.Transactions.Transaction.Current.TransactionCompleted +=
                    (_, told) => ended.SetResult(told.Transaction.TransactionInformation.Status);
                await work();
                if (isKept)
                {
                    scope.Complete();
                }
            }
            Same("transaction", await ended.Task, isKept ? TransactionStatus.Committed : TransactionStatus.Aborted);
            if (!isKept)
            {
                await Task.Delay(500);
            }
        }
    }
}
