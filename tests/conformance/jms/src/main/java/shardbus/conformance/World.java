package shardbus.conformance;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.qpid.jms.JmsConnectionFactory;

/** The connections of one feature, all closed at its end, and the words that scenarios are made of. */
final class World implements AutoCloseable {
    /** The features share their entities. */
    static final int AT_A_TIME = 1;
    static final long WAIT_MS = 20_000;
    static final long NOTHING_MS = 500;

    private static final Pattern FIELDS =
        Pattern.compile("Endpoint=sb://([^:;/]+):(\\d+)/?;SharedAccessKeyName=([^;]+);SharedAccessKey=([^;]+)");
    private static final String PREFIX = System.getenv("SHARDBUS_PREFIX");

    private final List<Connection> open = new ArrayList<>();

    World(String ignored) {}

    @Override
    public void close() {
        for (Connection each : open) {
            try {
                each.close();
            } catch (JMSException ignored) {
                // The connection of a feature that failed may be in any state.
            }
        }
    }

    /** An entity that the test has created: JMS cannot. */
    static String entity(String kind) {
        return PREFIX + "-" + kind;
    }

    static Matcher fields(String variable) {
        Matcher found = FIELDS.matcher(System.getenv(variable));
        if (!found.find()) {
            throw new IllegalStateException("no address and key in " + variable);
        }
        return found;
    }

    Connection connect(String options) throws JMSException {
        return connect("amqp", "SHARDBUS_CONNECTION_STRING", options);
    }

    /** A started connection; the key of the connection string is the password. */
    Connection connect(String scheme, String variable, String options) throws JMSException {
        Matcher found = fields(variable);
        return connectTo(scheme + "://" + found.group(1) + ":" + found.group(2) + options, found);
    }

    Connection connectTo(String url, Matcher found) throws JMSException {
        Connection connection = new JmsConnectionFactory(found.group(3), found.group(4), url).createConnection();
        open.add(connection);
        connection.start();
        return connection;
    }

    static Session session(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    static MessageConsumer consumer(Session session, String queue) throws JMSException {
        return session.createConsumer(session.createQueue(queue));
    }

    static MessageProducer producer(Session session, String queue) throws JMSException {
        return session.createProducer(session.createQueue(queue));
    }

    static void send(Session session, MessageProducer producer, String... bodies) throws JMSException {
        for (String body : bodies) {
            producer.send(session.createTextMessage(body));
        }
    }

    static TextMessage one(MessageConsumer consumer) throws JMSException {
        Message found = consumer.receive(WAIT_MS);
        claim(found != null, "no message came");
        return (TextMessage) found;
    }

    static void none(MessageConsumer consumer) throws JMSException {
        claim(consumer.receive(NOTHING_MS) == null, "a message came");
    }

    static void same(String what, Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(what + ": " + found + " instead of " + wanted);
        }
    }

    static void claim(boolean isTrue, String otherwise) {
        if (!isTrue) {
            throw new AssertionError(otherwise);
        }
    }
}
