package shardbus.conformance;

import static shardbus.conformance.World.administration;
import static shardbus.conformance.World.bodies;
import static shardbus.conformance.World.builder;
import static shardbus.conformance.World.claim;
import static shardbus.conformance.World.none;
import static shardbus.conformance.World.one;
import static shardbus.conformance.World.receive;
import static shardbus.conformance.World.refused;
import static shardbus.conformance.World.same;
import static shardbus.conformance.World.send;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import shardbus.conformance.Main.Feature;
import shardbus.conformance.Main.Scenario;

/** What the SDK does with one queue; what is pushed, filtered and transacted is in the other files. */
final class Features {
    interface Both {
        void run(World world, boolean isPartitioned) throws Exception;
    }

    static List<Feature> all() {
        List<Feature> found = new ArrayList<>(List.of(
            new Feature("administration", Features::administrationOfAll),
            new Feature("send", onBoth(Features::sendOne)),
            new Feature("batch", onBoth(Features::sendBatch)),
            new Feature("keyed", Features::keyed),
            new Feature("schedule", onBoth(Features::schedule)),
            new Feature("receive", onBoth(Features::receiveInBothModes)),
            new Feature("settle", onBoth(Features::settle)),
            new Feature("deferred", onBoth(Features::deferred)),
            new Feature("dead-letters", onBoth(Features::deadLetters)),
            new Feature("peek", onBoth(Features::peek)),
            new Feature("renew", onBoth(Features::renew)),
            new Feature("prefetch", onBoth(Features::prefetch)),
            new Feature("duplicates", onBoth(Features::duplicates)),
            new Feature("large", Features::large),
            new Feature("websocket", Features::overWebSocket),
            new Feature("tls", Features::overTls)));
        found.addAll(Sessions.all());
        found.addAll(Pushed.all());
        found.addAll(Selected.all());
        return found;
    }

    /** A scenario on a conventional and on a partitioned entity. */
    static Scenario onBoth(Both scenario) {
        return world -> {
            scenario.run(world, false);
            scenario.run(world, true);
            return "conventional and partitioned";
        };
    }

    private static String administrationOfAll(World world) {
        ServiceBusAdministrationClient manager = administration();
        for (boolean isPartitioned : new boolean[] {false, true}) {
            String queue = world.queue(isPartitioned);
            QueueProperties found = manager.getQueue(queue);
            same("partitioned", found.isPartitioningEnabled(), isPartitioned);
            same("lock", found.getLockDuration(), Duration.ofSeconds(10));
            same("changed lock", manager.updateQueue(found.setLockDuration(Duration.ofSeconds(20))).getLockDuration(),
                Duration.ofSeconds(20));
            same("messages", manager.getQueueRuntimeProperties(queue).getTotalMessageCount(), 0L);
            String topic = world.newName();
            manager.createTopic(topic, new CreateTopicOptions().setPartitioningEnabled(isPartitioned));
            manager.createSubscription(topic, "all");
            same("subscriptions", manager.getTopicRuntimeProperties(topic).getSubscriptionCount(), 1);
            same("listed", manager.listSubscriptions(topic).stream().count(), 1L);
            same("times listed", manager.listQueues().stream().filter(each -> each.getName().equals(queue)).count(), 1L);
            manager.deleteQueue(queue);
            claim(!manager.getQueueExists(queue), "a deleted queue is still there");
            manager.deleteTopic(topic);
        }
        same("tier", manager.getNamespaceProperties().getMessagingSku().toString(), "Standard");
        return "queues, topics and subscriptions: create, get, update, list, delete";
    }

    private static void sendOne(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        ServiceBusMessage message = new ServiceBusMessage("hello").setMessageId("m1").setSubject("greeting")
            .setContentType("text/plain").setCorrelationId("c1").setTimeToLive(Duration.ofHours(1));
        OffsetDateTime when = OffsetDateTime.parse("2026-11-17T20:00:00Z");
        message.getApplicationProperties().putAll(Map.of("long", 7L, "text", "x", "true", true, "real", 1.5));
        message.getApplicationProperties().put("when", when);
        world.sender(queue).sendMessage(message);
        ServiceBusReceiverClient receiver = world.receiver(queue);
        ServiceBusReceivedMessage got = one(receiver);
        same("body", got.getBody().toString(), "hello");
        same("id", got.getMessageId(), "m1");
        same("subject", got.getSubject(), "greeting");
        same("long", got.getApplicationProperties().get("long"), 7L);
        same("real", got.getApplicationProperties().get("real"), 1.5);
        same("time", got.getApplicationProperties().get("when"), when);
        same("TTL", got.getTimeToLive(), Duration.ofHours(1));
        receiver.complete(got);
        none(receiver);
    }

    private static void sendBatch(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        ServiceBusSenderClient sender = world.sender(queue);
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        byte[] body = new byte[2000];
        while (batch.tryAddMessage(new ServiceBusMessage(BinaryData.fromBytes(body)))) {
            claim(batch.getCount() < 1000, "a batch has no end");
        }
        sender.sendMessages(batch);
        sender.sendMessages(List.of(new ServiceBusMessage("a"), new ServiceBusMessage("b")));
        ServiceBusReceiverClient receiver = world.receiver(queue);
        receive(receiver, batch.getCount() + 2).forEach(receiver::complete);
        none(receiver);
    }

    private static String keyed(World world) {
        String queue = world.queue(true);
        ServiceBusSenderClient sender = world.sender(queue);
        for (int number = 0; number < 12; number++) {
            sender.sendMessage(new ServiceBusMessage(String.format("%02d", number)).setPartitionKey("key-" + number % 3));
        }
        Map<String, Long> fragments = new HashMap<>();
        Map<String, String> last = new HashMap<>();
        ServiceBusReceiverClient receiver = world.receiver(queue);
        for (ServiceBusReceivedMessage message : receive(receiver, 12)) {
            String key = message.getPartitionKey();
            long fragment = message.getSequenceNumber() >> 48;
            same("fragment of " + key, fragments.getOrDefault(key, fragment), fragment);
            claim(last.getOrDefault(key, "").compareTo(message.getBody().toString()) < 0, "messages of a key out of order");
            fragments.put(key, fragment);
            last.put(key, message.getBody().toString());
            receiver.complete(message);
        }
        return "one fragment and one order for each key";
    }

    private static void schedule(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        ServiceBusSenderClient sender = world.sender(queue);
        OffsetDateTime soon = OffsetDateTime.now().plusNanos(1_500_000_000L);
        sender.scheduleMessage(new ServiceBusMessage("soon"), soon);
        List<ServiceBusMessage> two = List.of(new ServiceBusMessage("a"), new ServiceBusMessage("b"));
        sender.cancelScheduledMessages(sender.scheduleMessages(two, OffsetDateTime.now().plusHours(1)));
        sender.cancelScheduledMessage(sender.scheduleMessage(new ServiceBusMessage("c"), OffsetDateTime.now().plusHours(1)));
        ServiceBusReceiverClient receiver = world.receiver(queue);
        ServiceBusReceivedMessage got = one(receiver);
        same("body", got.getBody().toString(), "soon");
        claim(OffsetDateTime.now().isAfter(soon.minusNanos(50_000_000L)), "a scheduled message came too early");
        receiver.complete(got);
        same("left", receiver.peekMessages(10).stream().count(), 0L);
    }

    private static void receiveInBothModes(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        ServiceBusSenderClient sender = world.sender(queue);
        send(sender, "1", "2", "3", "4");
        ServiceBusReceiverClient deleting = world.keep(builder().receiver().queueName(queue)
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
        same("bodies", bodies(receive(deleting, 4)), "1 2 3 4");
        deleting.close();
        send(sender, "5");
        ServiceBusReceiverClient receiver = world.receiver(queue);
        ServiceBusReceivedMessage locked = one(receiver);
        none(world.receiver(queue));
        receiver.complete(locked);
        same("left", receiver.peekMessages(10).stream().count(), 0L);
    }

    private static void settle(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        ServiceBusSenderClient sender = world.sender(queue);
        ServiceBusReceiverClient receiver = world.receiver(queue);
        send(sender, "complete");
        receiver.complete(one(receiver));
        send(sender, "abandon");
        receiver.abandon(one(receiver), new AbandonOptions().setPropertiesToModify(Map.of("tried", "once")));
        ServiceBusReceivedMessage again = one(receiver);
        same("deliveries", again.getDeliveryCount(), 1L);
        same("changed property", again.getApplicationProperties().get("tried"), "once");
        receiver.complete(again);
        send(sender, "defer");
        receiver.defer(one(receiver));
        send(sender, "dead-letter");
        receiver.deadLetter(one(receiver));
        QueueRuntimeProperties counts = administration().getQueueRuntimeProperties(queue);
        same("active (deferred ones count)", counts.getActiveMessageCount(), 1);
        same("dead letters", counts.getDeadLetterMessageCount(), 1);
    }

    private static void deferred(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        send(world.sender(queue), "later");
        ServiceBusReceiverClient receiver = world.receiver(queue);
        ServiceBusReceivedMessage got = one(receiver);
        receiver.defer(got);
        none(receiver);
        same("state", receiver.peekMessage().getState(), ServiceBusMessageState.DEFERRED);
        ServiceBusReceivedMessage found = receiver.receiveDeferredMessage(got.getSequenceNumber());
        same("body", found.getBody().toString(), "later");
        receiver.complete(found);
        // For one number the SDK throws what it throws for an empty list, so the list is asked for.
        same("gone", receiver.receiveDeferredMessageBatch(List.of(got.getSequenceNumber())).stream().count(), 0L);
    }

    private static void deadLetters(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        ServiceBusSenderClient sender = world.sender(queue);
        ServiceBusReceiverClient receiver = world.receiver(queue);
        send(sender, "bad");
        receiver.deadLetter(one(receiver),
            new DeadLetterOptions().setDeadLetterReason("reason").setDeadLetterErrorDescription("description"));
        send(sender, "often");
        for (int times = 0; times < 3; times++) {
            receiver.abandon(one(receiver));
        }
        ServiceBusReceiverClient dead = world.keep(builder().receiver().queueName(queue)
            .subQueue(SubQueue.DEAD_LETTER_QUEUE).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        Map<String, String> reasons = new HashMap<>();
        for (ServiceBusReceivedMessage message : receive(dead, 2)) {
            reasons.put(message.getBody().toString(), message.getDeadLetterReason());
            dead.complete(message);
        }
        same("reasons", reasons, Map.of("bad", "reason", "often", "MaxDeliveryCountExceeded"));
        none(receiver);
    }

    private static void peek(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        List<ServiceBusMessage> many = new ArrayList<>();
        for (int number = 0; number < 300; number++) {
            many.add(new ServiceBusMessage(String.valueOf(number)));
        }
        world.sender(queue).sendMessages(many);
        ServiceBusReceiverClient receiver = world.receiver(queue);
        Set<Long> seen = new HashSet<>();
        while (true) {
            int before = seen.size();
            receiver.peekMessages(100).forEach(message -> seen.add(message.getSequenceNumber()));
            if (seen.size() == before) {
                break;
            }
        }
        same("messages over all pages", seen.size(), 300);
        long number = one(receiver).getSequenceNumber();
        same("from a number", receiver.peekMessage(number).getSequenceNumber(), number);
    }

    private static void renew(World world, boolean isPartitioned) throws InterruptedException {
        String queue = world.queue(isPartitioned, options -> options.setLockDuration(Duration.ofSeconds(5)));
        send(world.sender(queue), "slow");
        ServiceBusReceiverClient receiver = world.receiver(queue);
        ServiceBusReceivedMessage got = one(receiver);
        for (int times = 0; times < 2; times++) {
            OffsetDateTime before = got.getLockedUntil();
            Thread.sleep(3000);
            claim(receiver.renewMessageLock(got).isAfter(before), "the lock did not get longer");
        }
        receiver.complete(got);
    }

    private static void prefetch(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        List<ServiceBusMessage> many = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            many.add(new ServiceBusMessage(String.valueOf(number)));
        }
        world.sender(queue).sendMessages(many);
        ServiceBusReceiverClient receiver = world.keep(
            builder().receiver().queueName(queue).prefetchCount(50).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        receive(receiver, 100).forEach(receiver::complete);
        same("left", receiver.peekMessages(10).stream().count(), 0L);
    }

    private static void duplicates(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned, options -> options.setDuplicateDetectionRequired(true));
        ServiceBusSenderClient sender = world.sender(queue);
        for (String id : List.of("a", "b", "a", "a")) {
            sender.sendMessage(new ServiceBusMessage(id).setMessageId(id));
        }
        ServiceBusReceiverClient receiver = world.receiver(queue);
        same("bodies", bodies(receive(receiver, 2)), "a b");
        none(receiver);
    }

    private static String large(World world) {
        String queue = world.newName();
        administration(World.PREMIUM_STRING).createQueue(queue, new CreateQueueOptions().setMaxMessageSizeInKilobytes(20480));
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(World.PREMIUM_STRING);
        ServiceBusSenderClient sender = world.keep(builder.sender().queueName(queue).buildClient());
        ServiceBusReceiverClient receiver = world.keep(builder.receiver().queueName(queue).buildClient());
        byte[] body = new byte[10 << 20];
        Arrays.fill(body, (byte) 'x');
        sender.sendMessage(new ServiceBusMessage(BinaryData.fromBytes(body)));
        ServiceBusReceivedMessage got = one(receiver);
        claim(Arrays.equals(got.getBody().toBytes(), body), "another body came back");
        receiver.complete(got);
        Exception refusal = refused(() -> sender.sendMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[21 << 20]))));
        same("reason", ((ServiceBusException) refusal).getReason(), ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED);
        return "10 MiB in Premium; 21 MiB is refused where 20 MiB are allowed";
    }

    private static String overWebSocket(World world) {
        roundTrip(world, new ServiceBusClientBuilder().connectionString(World.TLS_STRING)
            .transportType(AmqpTransportType.AMQP_WEB_SOCKETS), world.queue(false));
        return "wss";
    }

    private static String overTls(World world) {
        roundTrip(world, new ServiceBusClientBuilder().connectionString(World.TLS_STRING), world.queue(false));
        return "trusted by javax.net.ssl.trustStore";
    }

    private static void roundTrip(World world, ServiceBusClientBuilder builder, String queue) {
        ServiceBusSenderClient sender = world.keep(builder.sender().queueName(queue).buildClient());
        ServiceBusReceiverClient receiver = world.keep(builder.receiver().queueName(queue).buildClient());
        String body = "round trip ".repeat(10_000);
        send(sender, body);
        ServiceBusReceivedMessage got = one(receiver);
        same("length", got.getBody().toString().length(), body.length());
        receiver.complete(got);
    }

    private Features() {}
}
