package shardbus.conformance;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import org.apache.qpid.jms.JmsMessageConsumer;

/**
 * Sends and completes over connections that fail over.
 *
 * <p>An acknowledgement of JMS is not answered, a commit is: so the receiver is transacted. What the client sends again
 * by itself has the id it had, and the queue detects duplicates.
 *
 * <p>The client confirms two kinds of commits without messages that it has handed out before them. Those that it
 * released itself: if a commit fails, it releases all that it has in its buffer, but still hands it out. So a consumer
 * whose commit failed is replaced. And those that it handed out before it failed over and acknowledged afterwards, to a
 * link that is gone, which sends nothing. So a commit is certain only if the consumer has had one link all along.
 */
final class Load extends Endurance {
    // Locks last ten seconds: of a thousand that the client would hold, most would end before their commit.
    private static final int PREFETCHED = 20;

    private final Session sending;
    private final MessageProducer producer;
    private final Session receiving;
    private final String queue;
    private final int atOnce;
    private MessageConsumer consumer;

    Load(World world, String name, String queue) throws JMSException {
        this.queue = queue;
        // Messages of several fragments cannot be in one transaction, here or in the cloud.
        atOnce = name.endsWith("-partitioned") ? 1 : 20;
        Matcher found = World.fields("SHARDBUS_CONNECTION_STRING");
        String url = "failover:(amqp://" + found.group(1) + ":" + found.group(2) + ")?failover.maxReconnectAttempts=-1"
            + "&failover.maxReconnectDelay=500&jms.sendTimeout=20000&jms.requestTimeout=20000"
            + "&jms.prefetchPolicy.all=" + PREFETCHED;
        receiving = world.connectTo(url, found).createSession(true, Session.SESSION_TRANSACTED);
        sending = World.session(world.connectTo(url, found));
        producer = World.producer(sending, queue);
    }

    @Override
    void send(String body) throws JMSException {
        World.send(sending, producer, body);
    }

    @Override
    boolean receive() throws JMSException {
        if (consumer == null) {
            consumer = World.consumer(receiving, queue);
        }
        List<String> ids = new ArrayList<>();
        Object link = link();
        Message message = consumer.receive(1000);
        for (; message != null; message = ids.size() < atOnce ? consumer.receiveNoWait() : null) {
            received(message.getJMSMessageID(), ((TextMessage) message).getText());
            ids.add(message.getJMSMessageID());
        }
        commit();
        if (link == link()) {
            ids.forEach(this::completed);
        }
        return !ids.isEmpty();
    }

    private void commit() throws JMSException {
        try {
            receiving.commit();
        } catch (JMSException failed) {
            MessageConsumer replaced = consumer;
            consumer = null;
            replaced.close();
            throw failed;
        }
    }

    /** The link that the consumer has now; it gets another when the client has failed over. */
    private Object link() {
        return ((JmsMessageConsumer) consumer).getConsumerId().getProviderHint();
    }
}
