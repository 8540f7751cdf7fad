package shardbus.conformance;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.lang.reflect.Proxy;
import java.util.regex.Matcher;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsMessageConsumer;
import org.apache.qpid.jms.tracing.JmsTracer;

/**
 * What commits are worth while the client fails over, one message each; see test_jms_failover.py.
 *
 * <pre>
 * receiving QUEUE            the connection breaks between taking the first message and acknowledging it
 * committing QUEUE           it breaks before the first commit, which fails
 * committing QUEUE replacing the same, and a consumer whose commit failed is replaced
 * </pre>
 *
 * Prints "break" where the connection is to be broken, and what became of each commit.
 */
final class Failover {
    private static final int MESSAGES = 4;
    private static final long WAIT_MS = 8000;

    private final boolean isReplacing;
    private final String queue;
    private final Session session;
    private MessageConsumer consumer;
    private boolean breaksInReceive;

    public static void main(String[] words) {
        int code = 1;
        try {
            run(words);
            code = 0;
        } catch (Exception failed) {
            failed.printStackTrace();
        }
        // The client keeps threads that are not daemons.
        System.exit(code);
    }

    private static void run(String[] words) throws Exception {
        Failover failover = new Failover(words[1], words.length > 2);
        if (words[0].equals("receiving")) {
            failover.breaksInReceive = true;
        } else {
            failover.consumer.receive(WAIT_MS);
            failover.breakConnection();
        }
        while (failover.commitsOne()) {
            System.out.flush();
        }
    }

    private Failover(String queue, boolean isReplacing) throws Exception {
        this.queue = queue;
        this.isReplacing = isReplacing;
        Matcher found = World.fields("SHARDBUS_CONNECTION_STRING");
        String url = "failover:(amqp://" + found.group(1) + ":" + found.group(2) + ")?jms.prefetchPolicy.all=20";
        JmsConnectionFactory factory = new JmsConnectionFactory(found.group(3), found.group(4), url);
        // Of its calls, one is between a message's leaving of the buffer and its acknowledgement.
        factory.setTracer((JmsTracer) Proxy.newProxyInstance(
            Failover.class.getClassLoader(), new Class<?>[] {JmsTracer.class}, (tracer, call, arguments) -> {
                if (breaksInReceive && call.getName().equals("syncReceive")) {
                    breaksInReceive = false;
                    breakConnection();
                }
                return null;
            }));
        var connection = factory.createConnection();
        connection.start();
        session = connection.createSession(true, Session.SESSION_TRANSACTED);
        for (int number = 0; number < MESSAGES; number++) {
            World.send(session, World.producer(session, queue), String.valueOf(number));
        }
        session.commit();
        consumer = World.consumer(session, queue);
    }

    private boolean commitsOne() throws JMSException {
        Object link = link();
        Message message = consumer.receive(WAIT_MS);
        if (message == null) {
            return false;
        }
        try {
            session.commit();
            System.out.println((link == link() ? "committed " : "uncertain ") + message.getJMSMessageID());
        } catch (JMSException failed) {
            System.out.println("failed " + message.getJMSMessageID());
            if (isReplacing) {
                consumer.close();
                consumer = World.consumer(session, queue);
            }
        }
        return true;
    }

    private void breakConnection() throws InterruptedException {
        Object link = link();
        System.out.println("break");
        System.out.flush();
        while (link == link()) {
            Thread.sleep(10);
        }
    }

    private Object link() {
        return ((JmsMessageConsumer) consumer).getConsumerId().getProviderHint();
    }
}
