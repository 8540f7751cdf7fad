package shardbus.conformance;

import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import java.net.MalformedURLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import reactor.core.publisher.Mono;

/** The clients of one feature, all closed at its end, and the words that scenarios are made of. */
final class World implements AutoCloseable {
    static final int AT_A_TIME = 6;
    static final String CONNECTION_STRING = System.getenv("SHARDBUS_CONNECTION_STRING");
    static final String TLS_STRING = System.getenv("SHARDBUS_TLS_CONNECTION_STRING");
    static final String PREMIUM_STRING = System.getenv("SHARDBUS_PREMIUM_CONNECTION_STRING");
    static final Duration WAIT = Duration.ofSeconds(20);
    static final Duration NOTHING = Duration.ofMillis(500);

    private static final String PREFIX = System.getenv("SHARDBUS_PREFIX");
    private static final Pattern PORT = Pattern.compile("sb://[^:;/]+:(\\d+)");

    private final String name;
    private final List<AutoCloseable> open = new ArrayList<>();
    private int count;

    World(String name) {
        this.name = name;
    }

    @Override
    public void close() {
        for (AutoCloseable each : open) {
            try {
                each.close();
            } catch (Exception ignored) {
                // A client of a feature that failed may be in any state.
            }
        }
    }

    <T extends AutoCloseable> T keep(T client) {
        open.add(client);
        return client;
    }

    static ServiceBusClientBuilder builder() {
        return new ServiceBusClientBuilder().connectionString(CONNECTION_STRING);
    }

    /** The administration client: it knows no port but 443, so a policy of ours names the right one. */
    static ServiceBusAdministrationClient administration(String connectionString) {
        Matcher found = PORT.matcher(connectionString);
        if (!found.find()) {
            throw new IllegalStateException("no port in " + connectionString);
        }
        return new ServiceBusAdministrationClientBuilder()
            .connectionString(connectionString)
            .addPolicy(new AtPort(Integer.parseInt(found.group(1))))
            .buildClient();
    }

    static ServiceBusAdministrationClient administration() {
        return administration(CONNECTION_STRING);
    }

    /** Sends requests to another port. */
    record AtPort(int port) implements HttpPipelinePolicy {
        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            try {
                UrlBuilder url = UrlBuilder.parse(context.getHttpRequest().getUrl());
                context.getHttpRequest().setUrl(url.setPort(port).toUrl());
            } catch (MalformedURLException broken) {
                return Mono.error(broken);
            }
            return next.process();
        }
    }

    String newName() {
        count++;
        return PREFIX + "-" + name + "-" + count;
    }

    String queue(boolean isPartitioned) {
        return queue(isPartitioned, options -> { });
    }

    /** Creates a queue with locks of ten seconds and three deliveries, unless told otherwise. */
    String queue(boolean isPartitioned, Consumer<CreateQueueOptions> more) {
        CreateQueueOptions options = new CreateQueueOptions()
            .setPartitioningEnabled(isPartitioned)
            .setLockDuration(Duration.ofSeconds(10))
            .setMaxDeliveryCount(3);
        more.accept(options);
        String queue = newName();
        administration().createQueue(queue, options);
        return queue;
    }

    ServiceBusSenderClient sender(String queue) {
        return keep(builder().sender().queueName(queue).buildClient());
    }

    ServiceBusReceiverClient receiver(String queue) {
        return keep(builder().receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    ServiceBusSessionReceiverClient sessions(String queue) {
        return keep(builder().sessionReceiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    static void send(ServiceBusSenderClient sender, String... bodies) {
        for (String body : bodies) {
            sender.sendMessage(new ServiceBusMessage(body));
        }
    }

    /** Waits until so many messages have come; fewer when no more come. */
    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int wanted) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        while (found.size() < wanted) {
            int before = found.size();
            receiver.receiveMessages(wanted - before, WAIT).forEach(found::add);
            if (found.size() == before) {
                break;
            }
        }
        same("messages", found.size(), wanted);
        return found;
    }

    static ServiceBusReceivedMessage one(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    static void none(ServiceBusReceiverClient receiver) {
        same("messages", receiver.receiveMessages(1, NOTHING).stream().count(), 0L);
    }

    static String bodies(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(each -> each.getBody().toString()).sorted().collect(Collectors.joining(" "));
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

    /** Something of the SDK that has to fail; returns what it threw. */
    static Exception refused(Runnable call) {
        try {
            call.run();
        } catch (RuntimeException refusal) {
            return refusal;
        }
        throw new AssertionError("it was not refused");
    }
}
