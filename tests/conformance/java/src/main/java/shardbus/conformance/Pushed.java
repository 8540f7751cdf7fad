package shardbus.conformance;

import static shardbus.conformance.World.builder;
import static shardbus.conformance.World.claim;
import static shardbus.conformance.World.same;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import reactor.core.publisher.Flux;
import shardbus.conformance.Main.Feature;

/** What the SDK drives itself: asynchronous clients, processors, locks that it renews. */
final class Pushed {
    // The SDK has ten threads for each processor; it renews what has a thread.
    private static final int IN_WORK = 10;

    static List<Feature> all() {
        return List.of(
            new Feature("async", Features.onBoth(Pushed::async)),
            new Feature("push", Features.onBoth(Pushed::processor)),
            new Feature("session-push", Features.onBoth(Pushed::sessionProcessor)),
            new Feature("auto-renew", Features.onBoth(Pushed::renewedByItself)));
    }

    private static List<ServiceBusMessage> messages(int count) {
        List<ServiceBusMessage> found = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            found.add(new ServiceBusMessage(String.format("%03d", number)));
        }
        return found;
    }

    private static void async(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned);
        ServiceBusSenderAsyncClient sender = world.keep(builder().sender().queueName(queue).buildAsyncClient());
        ServiceBusReceiverAsyncClient receiver =
            world.keep(builder().receiver().queueName(queue).disableAutoComplete().buildAsyncClient());
        Flux.fromIterable(messages(20)).flatMap(sender::sendMessage, 8).blockLast(World.WAIT);
        long count = receiver.receiveMessages()
            .flatMap(message -> receiver.complete(message).thenReturn(message), 4).take(20).count().block(World.WAIT);
        same("messages", count, 20L);
        same("left", receiver.peekMessages(10).count().block(World.WAIT), 0L);
    }

    private static void processor(World world, boolean isPartitioned) throws InterruptedException {
        String queue = world.queue(isPartitioned);
        world.sender(queue).sendMessages(messages(40));
        CountDownLatch left = new CountDownLatch(40);
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        ServiceBusProcessorClient processor = world.keep(builder().processor().queueName(queue).maxConcurrentCalls(4)
            .processMessage(context -> left.countDown())
            .processError(context -> errors.add(context.getException())).buildProcessorClient());
        processor.start();
        claim(left.await(World.WAIT.toSeconds(), TimeUnit.SECONDS), left.getCount() + " messages did not come");
        // What was processed last is completed after the handler has returned.
        for (int times = 0; times < 50 && waiting(queue) > 0; times++) {
            Thread.sleep(100);
        }
        processor.close();
        claim(errors.isEmpty(), "errors: " + errors);
        same("left", waiting(queue), 0L);
    }

    private static long waiting(String queue) {
        return World.administration().getQueueRuntimeProperties(queue).getTotalMessageCount();
    }

    private static void sessionProcessor(World world, boolean isPartitioned) throws InterruptedException {
        String[] ids = {"a", "b", "c", "a", "b", "c", "a", "b", "c", "d"};
        String queue = Sessions.queue(world, isPartitioned, ids);
        CountDownLatch left = new CountDownLatch(ids.length);
        Map<String, List<Long>> numbers = new ConcurrentHashMap<>();
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        ServiceBusProcessorClient processor = world.keep(builder().sessionProcessor().queueName(queue)
            .maxConcurrentSessions(3).sessionIdleTimeout(Duration.ofSeconds(1))
            .processMessage(context -> {
                ServiceBusReceivedMessage message = context.getMessage();
                numbers.computeIfAbsent(message.getSessionId(), id -> new ArrayList<>()).add(message.getSequenceNumber());
                left.countDown();
            })
            .processError(context -> errors.add(context.getException())).buildProcessorClient());
        processor.start();
        claim(left.await(World.WAIT.toSeconds(), TimeUnit.SECONDS), left.getCount() + " messages did not come");
        processor.close();
        claim(errors.isEmpty(), "errors: " + errors);
        for (List<Long> session : numbers.values()) {
            same("order", session, session.stream().sorted().toList());
        }
    }

    private static void renewedByItself(World world, boolean isPartitioned) throws InterruptedException {
        String queue = world.queue(isPartitioned, options -> options.setLockDuration(Duration.ofSeconds(5)).setMaxDeliveryCount(1));
        world.sender(queue).sendMessages(messages(IN_WORK));
        CountDownLatch left = new CountDownLatch(IN_WORK);
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        ServiceBusProcessorClient processor = world.keep(builder().processor().queueName(queue).maxConcurrentCalls(IN_WORK)
            .maxAutoLockRenewDuration(Duration.ofMinutes(1)).disableAutoComplete()
            .processMessage(context -> {
                try {
                    Thread.sleep(8000);
                    context.complete();
                    left.countDown();
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            })
            .processError(context -> errors.add(context.getException())).buildProcessorClient());
        processor.start();
        claim(left.await(25, TimeUnit.SECONDS), left.getCount() + " messages were not completed: " + errors);
        processor.close();
        claim(errors.isEmpty(), "errors: " + errors);
        same("left", waiting(queue), 0L);
    }

    private Pushed() {}
}
