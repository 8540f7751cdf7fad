package shardbus.conformance;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.credential.AccessToken;
import com.azure.core.credential.TokenCredential;
import com.azure.core.http.policy.FixedDelayOptions;
import com.azure.core.http.policy.RetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.stream.Collectors;
import reactor.core.publisher.Mono;

/** Programs that use a bus as one of the cloud: by its name, or with a credential. */
final class Application {
    private static final Duration WAIT = Duration.ofSeconds(30);

    /** Uses a bus with a credential, which notes the scopes that it is asked for; see test_sign_in.py. */
    static String signIn(String host, String administrationHost, String token) {
        Set<String> scopes = new ConcurrentSkipListSet<>();
        TokenCredential credential = asked -> {
            scopes.addAll(asked.getScopes());
            return Mono.just(new AccessToken(token, OffsetDateTime.now().plusHours(1)));
        };
        String[] parts = administrationHost.split(":");
        ServiceBusAdministrationClient administration = new ServiceBusAdministrationClientBuilder()
            .credential(parts[0], credential)
            .retryOptions(new RetryOptions(new FixedDelayOptions(0, Duration.ofMillis(1))))
            .addPolicy(new World.AtPort(Integer.parseInt(parts[1])))
            .buildClient();
        String queue = administration.getQueue("orders").getName();
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder().credential(host, credential);
        String body = sentAndReceived(builder, queue, "from Java");
        String told = scopes.stream().map(each -> '"' + each + '"').collect(Collectors.joining(","));
        return "{\"body\":\"" + Main.quoted(body) + "\",\"scopes\":[" + told + "]}";
    }

    /** Knows a connection string of the cloud and nothing of us; see test_drop_in.py. */
    static String run(String queue) {
        String connecting = System.getenv("SERVICEBUS_CONNECTION_STRING");
        ServiceBusAdministrationClient administration =
            new ServiceBusAdministrationClientBuilder().connectionString(connecting).buildClient();
        if (!administration.getQueueExists(queue)) {
            administration.createQueue(queue);
        }
        ServiceBusClientBuilder direct = new ServiceBusClientBuilder().connectionString(connecting);
        ServiceBusClientBuilder inWebSocket = new ServiceBusClientBuilder()
            .connectionString(connecting)
            .transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        return sentAndReceived(direct, queue, "one") + " " + sentAndReceived(inWebSocket, queue, "two");
    }

    private static String sentAndReceived(ServiceBusClientBuilder builder, String queue, String body) {
        builder.retryOptions(new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(WAIT));
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient()) {
            sender.sendMessage(new ServiceBusMessage(body));
            ServiceBusReceivedMessage found = receiver.receiveMessages(1, WAIT).iterator().next();
            receiver.complete(found);
            return found.getBody().toString();
        }
    }

    private Application() {}
}
