package shardbus.conformance;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Sends and completes with one client.
 *
 * <p>A send whose answer was lost may have been stored, so it is repeated, and one number may come twice.
 */
final class Load extends Endurance {
    private static final long SETTLING_S = 15;

    private final ExecutorService settling = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    });
    private final ServiceBusSenderClient sender;
    private final ServiceBusReceiverClient receiver;

    Load(World world, String ignored, String queue) {
        // The SDK adds four seconds to every delay, and breaks where that is above the longest.
        AmqpRetryOptions retries = new AmqpRetryOptions()
            .setMaxRetries(100)
            .setDelay(Duration.ofMillis(200))
            .setMaxDelay(Duration.ofSeconds(6))
            .setTryTimeout(Duration.ofSeconds(10));
        ServiceBusClientBuilder builder = World.builder().retryOptions(retries);
        sender = world.keep(builder.sender().queueName(queue).buildClient());
        receiver = world.keep(builder.receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    @Override
    void send(String body) {
        sender.sendMessage(new ServiceBusMessage(body));
    }

    @Override
    boolean receive() throws Exception {
        boolean isAny = false;
        for (ServiceBusReceivedMessage message : receiver.receiveMessages(20, Duration.ofSeconds(1))) {
            isAny = true;
            received(message.getSequenceNumber(), message.getBody().toString());
            complete(message);
            completed(message.getSequenceNumber());
        }
        return isAny;
    }

    /**
     * A settlement that begins while its connection is being lost sometimes does not end: the SDK queues it for a link
     * that it is closing, so it is never sent, and the call waits for all retries, 27 minutes here. It is given up, and
     * the message comes again.
     */
    private void complete(ServiceBusReceivedMessage message) throws Exception {
        CompletableFuture.runAsync(() -> receiver.complete(message), settling).get(SETTLING_S, TimeUnit.SECONDS);
    }
}
