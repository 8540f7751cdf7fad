package shardbus.conformance;

import static shardbus.conformance.World.claim;
import static shardbus.conformance.World.consumer;
import static shardbus.conformance.World.entity;
import static shardbus.conformance.World.none;
import static shardbus.conformance.World.one;
import static shardbus.conformance.World.producer;
import static shardbus.conformance.World.same;
import static shardbus.conformance.World.send;
import static shardbus.conformance.World.session;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import shardbus.conformance.Main.Feature;
import shardbus.conformance.Main.Scenario;

/** What JMS does with entities that exist. */
final class Features {
    private static final String NO_CALL = "JMS has no such call";
    private static final String REFUSED = "the dialect has no such thing for plain AMQP";
    // The outcomes of Qpid JMS beyond acknowledging: its documentation calls the property JMS_AMQP_ACK_TYPE.
    private static final String OUTCOME = "JMS_AMQP_ACK_TYPE";
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int FAILED = 4;
    private static final int FAILED_UNDELIVERABLE = 5;

    interface Both {
        void run(World world, String kind) throws Exception;
    }

    static List<Feature> all() {
        return List.of(
            new Feature("administration", null, NO_CALL),
            new Feature("send", onBoth(Features::sendOne)),
            new Feature("batch", null, NO_CALL),
            new Feature("keyed", Features::keyed),
            new Feature("schedule", null, REFUSED),
            new Feature("receive", onBoth(Features::receiveInBothModes)),
            new Feature("settle", onBoth(Features::settle)),
            new Feature("deferred", null, NO_CALL),
            new Feature("dead-letters", onBoth(Features::deadLetters)),
            new Feature("session-accept", null, NO_CALL),
            new Feature("session-next", null, NO_CALL),
            new Feature("session-state", null, NO_CALL),
            new Feature("session-renew", null, NO_CALL),
            new Feature("session-list", null, NO_CALL),
            new Feature("peek", null, REFUSED),
            new Feature("renew", null, NO_CALL),
            new Feature("auto-renew", null, NO_CALL),
            new Feature("prefetch", onBoth(Features::prefetch)),
            new Feature("async", null, NO_CALL),
            new Feature("push", onBoth(Features::listener)),
            new Feature("session-push", null, NO_CALL),
            new Feature("rules", Features::subscription),
            new Feature("rule-manager", null, NO_CALL),
            new Feature("transaction", onBoth(Features::transaction)),
            new Feature("transaction-across", Features::across),
            new Feature("duplicates", null, "JMS gives every message an id of its own"),
            new Feature("large", Features::large),
            new Feature("websocket", Features::overWebSocket),
            new Feature("tls", Features::overTls));
    }

    private static Scenario onBoth(Both scenario) {
        return world -> {
            scenario.run(world, "conventional");
            scenario.run(world, "partitioned");
            return "conventional and partitioned";
        };
    }

    private static void sendOne(World world, String kind) throws JMSException {
        Session session = session(world.connect(""));
        MessageProducer producer = producer(session, entity(kind));
        MessageConsumer consumer = consumer(session, entity(kind));
        TextMessage text = session.createTextMessage("hello");
        text.setJMSCorrelationID("c1");
        text.setJMSType("greeting");
        text.setJMSReplyTo(session.createQueue("answers"));
        text.setLongProperty("long", 7);
        text.setStringProperty("text", "x");
        text.setBooleanProperty("flag", true);
        text.setDoubleProperty("real", 1.5);
        producer.send(text, DeliveryMode.PERSISTENT, 7, 3_600_000);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {1, 2, 3});
        MapMessage map = session.createMapMessage();
        map.setInt("number", 5);
        StreamMessage stream = session.createStreamMessage();
        stream.writeString("first");
        TextMessage got = one(consumer);
        same("text", got.getText(), "hello");
        same("id", got.getJMSMessageID(), text.getJMSMessageID());
        same("correlation", got.getJMSCorrelationID(), "c1");
        same("type", got.getJMSType(), "greeting");
        same("priority", got.getJMSPriority(), 7);
        same("long", got.getLongProperty("long"), 7L);
        same("flag", got.getBooleanProperty("flag"), true);
        same("real", got.getDoubleProperty("real"), 1.5);
        claim(got.getJMSExpiration() > System.currentTimeMillis(), "the message does not say when it expires");
        producer.send(bytes);
        same("bytes", ((BytesMessage) consumer.receive(World.WAIT_MS)).getBodyLength(), 3L);
        producer.send(map);
        same("map", ((MapMessage) consumer.receive(World.WAIT_MS)).getInt("number"), 5);
        producer.send(stream);
        same("stream", ((StreamMessage) consumer.receive(World.WAIT_MS)).readString(), "first");
        none(consumer);
    }

    private static String keyed(World world) throws JMSException {
        Session session = session(world.connect(""));
        MessageProducer producer = producer(session, entity("partitioned"));
        for (int number = 0; number < 12; number++) {
            TextMessage message = session.createTextMessage(String.format("%02d", number));
            message.setStringProperty("JMSXGroupID", "group-" + number % 3);
            producer.send(message);
        }
        Map<String, String> last = new HashMap<>();
        MessageConsumer consumer = consumer(session, entity("partitioned"));
        for (int number = 0; number < 12; number++) {
            TextMessage message = one(consumer);
            String before = last.put(message.getStringProperty("JMSXGroupID"), message.getText());
            claim(before == null || before.compareTo(message.getText()) < 0, "messages of a group out of order");
        }
        return "one order for each group";
    }

    private static void receiveInBothModes(World world, String kind) throws JMSException {
        Session session = session(world.connect(""));
        send(session, producer(session, entity(kind)), "1", "2", "3");
        Connection settled = world.connect("?jms.presettlePolicy.presettleConsumers=true&jms.prefetchPolicy.all=1");
        MessageConsumer deleting = consumer(session(settled), entity(kind));
        List<String> found = new ArrayList<>(List.of(one(deleting).getText(), one(deleting).getText(), one(deleting).getText()));
        found.sort(null);
        same("bodies", found, List.of("1", "2", "3"));
        settled.close();
        send(session, producer(session, entity(kind)), "4");
        Session holding = world.connect("").createSession(false, Session.CLIENT_ACKNOWLEDGE);
        TextMessage locked = one(consumer(holding, entity(kind)));
        MessageConsumer other = consumer(session, entity(kind));
        none(other);
        locked.acknowledge();
        none(other);
    }

    private static void settle(World world, String kind) throws JMSException {
        Session session = session(world.connect("?jms.prefetchPolicy.all=1"));
        MessageProducer producer = producer(session, entity(kind));
        Connection connection = world.connect("?jms.prefetchPolicy.all=1");
        // 101: Qpid's mode in which each message is acknowledged for itself.
        Session holding = connection.createSession(false, 101);
        MessageConsumer consumer = consumer(holding, entity(kind));
        send(session, producer, "complete");
        one(consumer).acknowledge();
        send(session, producer, "release");
        settle(one(consumer), RELEASED);
        TextMessage released = one(consumer);
        same("redelivered after a release", released.getIntProperty("JMSXDeliveryCount"), 1);
        settle(released, FAILED);
        TextMessage abandoned = one(consumer);
        same("deliveries", abandoned.getIntProperty("JMSXDeliveryCount"), 2);
        settle(abandoned, FAILED_UNDELIVERABLE);
        none(consumer);
        send(session, producer, "dead-letter");
        settle(one(consumer), REJECTED);
        same("dead letter", one(consumer(session, entity(kind) + "/$DeadLetterQueue")).getText(), "dead-letter");
        none(consumer);
    }

    private static void settle(Message message, int outcome) throws JMSException {
        message.setIntProperty(OUTCOME, outcome);
        message.acknowledge();
    }

    private static void deadLetters(World world, String kind) throws JMSException {
        Session session = session(world.connect("?jms.prefetchPolicy.all=1"));
        send(session, producer(session, entity(kind)), "often");
        Session holding = world.connect("?jms.prefetchPolicy.all=1").createSession(false, 101);
        MessageConsumer consumer = consumer(holding, entity(kind));
        for (int times = 0; times < 3; times++) {
            settle(one(consumer), FAILED);
        }
        TextMessage dead = one(consumer(session, entity(kind) + "/$DeadLetterQueue"));
        same("body", dead.getText(), "often");
        same("reason", dead.getStringProperty("DeadLetterReason"), "MaxDeliveryCountExceeded");
        none(consumer);
    }

    private static void prefetch(World world, String kind) throws JMSException {
        Session session = session(world.connect("?jms.prefetchPolicy.all=50"));
        MessageProducer producer = producer(session, entity(kind));
        for (int number = 0; number < 100; number++) {
            send(session, producer, String.valueOf(number));
        }
        MessageConsumer consumer = consumer(session, entity(kind));
        for (int number = 0; number < 100; number++) {
            one(consumer);
        }
        none(consumer);
    }

    private static void listener(World world, String kind) throws Exception {
        Session session = session(world.connect(""));
        CountDownLatch left = new CountDownLatch(20);
        consumer(session(world.connect("")), entity(kind)).setMessageListener(message -> left.countDown());
        MessageProducer producer = producer(session, entity(kind));
        for (int number = 0; number < 20; number++) {
            send(session, producer, String.valueOf(number));
        }
        claim(left.await(World.WAIT_MS, TimeUnit.MILLISECONDS), left.getCount() + " messages did not come");
        none(consumer(session, entity(kind)));
    }

    private static String subscription(World world) throws JMSException {
        Session session = session(world.connect(""));
        MessageProducer producer = session.createProducer(session.createTopic(entity("topic")));
        TextMessage red = session.createTextMessage("red");
        red.setStringProperty("colour", "red");
        TextMessage blue = session.createTextMessage("blue");
        blue.setStringProperty("colour", "blue");
        producer.send(red);
        producer.send(blue);
        MessageConsumer consumer = session.createConsumer(session.createTopic(entity("topic") + "/Subscriptions/red"));
        same("selected", one(consumer).getText(), "red");
        none(consumer);
        try {
            session.createConsumer(session.createQueue(entity("conventional")), "colour = 'red'");
        } catch (JMSException refused) {
            return "a topic, and a subscription with a rule; a selector is refused, as it would lose messages";
        }
        throw new AssertionError("a selector was accepted and would not be followed");
    }

    private static void transaction(World world, String kind) throws JMSException {
        Connection connection = world.connect("");
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = producer(session, entity(kind));
        MessageConsumer outside = consumer(session(world.connect("")), entity(kind));
        // A partitioned entity takes one key in a transaction.
        producer.send(grouped(session, "never"));
        session.rollback();
        producer.send(grouped(session, "1"));
        producer.send(grouped(session, "2"));
        none(outside);
        session.commit();
        same("first", one(outside).getText(), "1");
        same("second", one(outside).getText(), "2");
        none(outside);
        outside.close();

        producer.send(grouped(session, "work"));
        session.commit();
        MessageConsumer inside = consumer(session, entity(kind));
        same("work", one(inside).getText(), "work");
        session.rollback();
        TextMessage again = one(inside);
        same("again", again.getText(), "work");
        claim(again.getJMSRedelivered(), "it does not say that it came before");
        session.commit();
        none(inside);
    }

    private static TextMessage grouped(Session session, String body) throws JMSException {
        TextMessage message = session.createTextMessage(body);
        message.setStringProperty("JMSXGroupID", "group");
        return message;
    }

    private static String across(World world) throws JMSException {
        Connection connection = world.connect("");
        Session plain = session(connection);
        send(plain, producer(plain, entity("conventional")), "work");
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = consumer(session, entity("conventional"));
        MessageProducer producer = producer(session, entity("results"));
        MessageConsumer results = consumer(plain, entity("results"));
        one(consumer);
        send(session, producer, "never");
        session.rollback();
        none(results);
        one(consumer);
        send(session, producer, "result");
        session.commit();
        same("result", one(results).getText(), "result");
        none(consumer);
        return "received from one queue and sent to another in one transaction";
    }

    private static String large(World world) throws JMSException {
        Session session = session(world.connect("amqp", "SHARDBUS_PREMIUM_CONNECTION_STRING", ""));
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(new byte[10 << 20]);
        producer(session, entity("large")).send(message);
        BytesMessage got = (BytesMessage) consumer(session, entity("large")).receive(World.WAIT_MS);
        claim(got != null, "no message came");
        same("length", got.getBodyLength(), (long) (10 << 20));
        return "10 MiB in Premium";
    }

    private static String overWebSocket(World world) throws JMSException {
        roundTrip(world.connect("amqpwss", "SHARDBUS_TLS_CONNECTION_STRING", "/$servicebus/websocket"));
        return "wss, with the subprotocol amqp";
    }

    private static String overTls(World world) throws JMSException {
        roundTrip(world.connect("amqps", "SHARDBUS_TLS_CONNECTION_STRING", ""));
        return "trusted by javax.net.ssl.trustStore";
    }

    private static void roundTrip(Connection connection) throws JMSException {
        Session session = session(connection);
        String body = "round trip ".repeat(10_000);
        send(session, producer(session, entity("conventional")), body);
        MessageConsumer consumer = consumer(session, entity("conventional"));
        same("length", one(consumer).getText().length(), body.length());
    }

    private Features() {}
}
