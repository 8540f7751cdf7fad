package shardbus.conformance;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;

/**
 * Sends numbers and completes them over connections that fail over, until standard input ends; then waits for what was
 * accepted.
 *
 * <p>An acknowledgement of JMS is not answered, a commit is: so the receiver is transacted. What the client sends again
 * by itself has the id it had, and the queue detects duplicates.
 */
final class Load {
    private static final long DRAINING_MS = 90_000;
    private static final long PAUSE_MS = 200;

    private final World world;
    private final String queue;
    private final AtomicInteger accepted = new AtomicInteger();
    private volatile boolean isOver;

    Load(World world, String queue) {
        this.world = world;
        this.queue = queue;
    }

    String run() throws Exception {
        Matcher found = World.fields("SHARDBUS_CONNECTION_STRING");
        String url = "failover:(amqp://" + found.group(1) + ":" + found.group(2) + ")?failover.maxReconnectAttempts=-1"
            + "&failover.maxReconnectDelay=500&jms.sendTimeout=20000&jms.requestTimeout=20000";
        Session session = world.connectTo(url, found).createSession(true, Session.SESSION_TRANSACTED);
        Connection sender = world.connectTo(url, found);
        Thread listening = daemon(() -> {
            System.in.readAllBytes();
            isOver = true;
        });
        Thread sending = daemon(() -> sendUntilOver(sender));
        Set<String> completed = new HashSet<>();
        Set<Integer> numbers = new HashSet<>();
        int returned = 0;
        long deadline = Long.MAX_VALUE;
        boolean isEmpty = false;
        MessageConsumer consumer = World.consumer(session, queue);
        while (sending.isAlive() || numbers.size() < accepted.get() || !isEmpty) {
            if (!sending.isAlive() && deadline == Long.MAX_VALUE) {
                deadline = System.currentTimeMillis() + DRAINING_MS;
            }
            World.claim(System.currentTimeMillis() < deadline,
                (accepted.get() - numbers.size()) + " of " + accepted.get() + " accepted messages are lost");
            List<String> ids = new ArrayList<>();
            try {
                Message message = consumer.receive(1000);
                isEmpty = message == null;
                for (; message != null; message = ids.size() < 20 ? consumer.receiveNoWait() : null) {
                    numbers.add(Integer.parseInt(((TextMessage) message).getText()));
                    returned += completed.contains(message.getJMSMessageID()) ? 1 : 0;
                    ids.add(message.getJMSMessageID());
                }
                session.commit();
                completed.addAll(ids);
            } catch (JMSException away) {
                isEmpty = false;
                Thread.sleep(PAUSE_MS);
            }
        }
        listening.join();
        World.same("completed messages that returned", returned, 0);
        return "nothing accepted was lost, nothing completed returned, one client throughout";
    }

    private void sendUntilOver(Connection connection) throws JMSException, InterruptedException {
        Session session = World.session(connection);
        MessageProducer producer = World.producer(session, queue);
        while (!isOver) {
            try {
                World.send(session, producer, String.valueOf(accepted.get()));
                accepted.incrementAndGet();
                Thread.sleep(20);
            } catch (JMSException away) {
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private static Thread daemon(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception broken) {
                throw new IllegalStateException(broken);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
