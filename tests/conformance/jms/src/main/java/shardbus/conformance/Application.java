package shardbus.conformance;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Session;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Programs that use a bus as one of the cloud: by its name, or with a token. */
final class Application {
    private static final Pattern FIELDS =
        Pattern.compile("Endpoint=sb://([^:;/]+)/?;SharedAccessKeyName=([^;]+);SharedAccessKey=([^;]+)");

    /** A token is the password of the user that the cloud's own JMS library names; see test_sign_in.py. */
    static String signIn(String host, String ignored, String token) throws JMSException {
        String body = sentAndReceived("amqps://" + host + ":5671", "$jwt", token, "orders", "from JMS");
        return "{\"body\":\"" + Main.quoted(body) + "\",\"scopes\":[]}";
    }

    /** Knows a connection string of the cloud and nothing of us; see test_drop_in.py. */
    static String run(String queue) throws JMSException {
        Matcher found = FIELDS.matcher(System.getenv("SERVICEBUS_CONNECTION_STRING"));
        if (!found.find()) {
            throw new IllegalStateException("no name and key in the connection string");
        }
        String direct = "amqps://" + found.group(1) + ":5671";
        String inWebSocket = "amqpwss://" + found.group(1) + ":443/$servicebus/websocket";
        return sentAndReceived(direct, found.group(2), found.group(3), queue, "one")
            + " " + sentAndReceived(inWebSocket, found.group(2), found.group(3), queue, "two");
    }

    private static String sentAndReceived(String url, String user, String password, String queue, String body)
        throws JMSException {
        try (Connection connection = new JmsConnectionFactory(user, password, url).createConnection()) {
            connection.start();
            Session session = World.session(connection);
            World.send(session, World.producer(session, queue), body);
            return World.one(World.consumer(session, queue)).getText();
        }
    }

    private Application() {}
}
