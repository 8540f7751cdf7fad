package shardbus.conformance;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Sends numbers and completes them with one client, until standard input ends; then waits for what was accepted.
 *
 * <p>A send whose answer was lost may have been stored, so it is repeated, and one number may come twice.
 */
final class Load {
    private static final Duration DRAINING = Duration.ofSeconds(90);
    private static final long PAUSE_MS = 200;

    private final ServiceBusSenderClient sender;
    private final ServiceBusReceiverClient receiver;
    private final AtomicInteger accepted = new AtomicInteger();
    private volatile boolean isOver;

    Load(World world, String queue) {
        // The SDK adds four seconds to every delay, and breaks where that is above the longest.
        AmqpRetryOptions retries = new AmqpRetryOptions()
            .setMaxRetries(100)
            .setDelay(Duration.ofMillis(PAUSE_MS))
            .setMaxDelay(Duration.ofSeconds(6))
            .setTryTimeout(Duration.ofSeconds(10));
        ServiceBusClientBuilder builder = World.builder().retryOptions(retries);
        sender = world.keep(builder.sender().queueName(queue).buildClient());
        receiver = world.keep(builder.receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    String run() throws Exception {
        Thread listening = daemon(() -> {
            System.in.readAllBytes();
            isOver = true;
        });
        Thread sending = daemon(this::sendUntilOver);
        Set<Long> completed = new HashSet<>();
        Set<Integer> numbers = new HashSet<>();
        int returned = 0;
        long deadline = Long.MAX_VALUE;
        boolean isEmpty = false;
        while (sending.isAlive() || numbers.size() < accepted.get() || !isEmpty) {
            if (!sending.isAlive() && deadline == Long.MAX_VALUE) {
                deadline = System.nanoTime() + DRAINING.toNanos();
            }
            World.claim(System.nanoTime() < deadline,
                (accepted.get() - numbers.size()) + " of " + accepted.get() + " accepted messages are lost");
            try {
                isEmpty = true;
                for (ServiceBusReceivedMessage message : receiver.receiveMessages(20, Duration.ofSeconds(1))) {
                    isEmpty = false;
                    numbers.add(Integer.parseInt(message.getBody().toString()));
                    if (completed.contains(message.getSequenceNumber())) {
                        returned++;
                    }
                    receiver.complete(message);
                    completed.add(message.getSequenceNumber());
                }
            } catch (RuntimeException away) {
                isEmpty = false;
                Thread.sleep(PAUSE_MS);
            }
        }
        listening.join();
        World.same("completed messages that returned", returned, 0);
        return "nothing accepted was lost, nothing completed returned, one client throughout";
    }

    private void sendUntilOver() throws InterruptedException {
        while (!isOver) {
            try {
                sender.sendMessage(new ServiceBusMessage(String.valueOf(accepted.get())));
                accepted.incrementAndGet();
                Thread.sleep(20);
            } catch (RuntimeException away) {
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
