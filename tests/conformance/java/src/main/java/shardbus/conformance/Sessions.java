package shardbus.conformance;

import static shardbus.conformance.World.claim;
import static shardbus.conformance.World.none;
import static shardbus.conformance.World.one;
import static shardbus.conformance.World.receive;
import static shardbus.conformance.World.refused;
import static shardbus.conformance.World.same;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import shardbus.conformance.Main.Feature;

/** Sessions, one at a time. */
final class Sessions {
    static List<Feature> all() {
        return List.of(
            new Feature("session-accept", Features.onBoth(Sessions::accept)),
            new Feature("session-next", Features.onBoth(Sessions::next)),
            new Feature("session-state", Features.onBoth(Sessions::state)),
            new Feature("session-renew", Sessions::renew),
            new Feature("session-list", null));
    }

    static String queue(World world, boolean isPartitioned, String... ids) {
        String queue = world.queue(isPartitioned, options -> options.setSessionRequired(true));
        ServiceBusSenderClient sender = world.sender(queue);
        for (String id : ids) {
            sender.sendMessage(new ServiceBusMessage(id).setSessionId(id));
        }
        return queue;
    }

    private static void accept(World world, boolean isPartitioned) {
        String queue = queue(world, isPartitioned, "a", "b", "a");
        ServiceBusReceiverClient session = world.sessions(queue).acceptSession("a");
        same("id", session.getSessionId(), "a");
        for (ServiceBusReceivedMessage message : receive(session, 2)) {
            same("session", message.getSessionId(), "a");
            session.complete(message);
        }
        none(session);
        session.close();
        world.sessions(queue).acceptSession("A").close();
    }

    private static void next(World world, boolean isPartitioned) {
        String queue = queue(world, isPartitioned, "a", "b");
        Set<String> seen = new HashSet<>();
        for (int times = 0; times < 2; times++) {
            ServiceBusReceiverClient session = world.sessions(queue).acceptNextSession();
            seen.add(session.getSessionId());
            session.complete(one(session));
            session.close();
        }
        same("sessions", seen, Set.of("a", "b"));
        AmqpRetryOptions once = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(2));
        ServiceBusSessionReceiverClient impatient =
            world.keep(World.builder().retryOptions(once).sessionReceiver().queueName(queue).buildClient());
        refused(impatient::acceptNextSession);
    }

    private static void state(World world, boolean isPartitioned) {
        String queue = queue(world, isPartitioned, "a");
        ServiceBusReceiverClient session = world.sessions(queue).acceptSession("a");
        same("first state", session.getSessionState(), null);
        session.setSessionState("half way".getBytes());
        session.close();
        // The client that closed the session would hand out the link that it is closing.
        session = world.sessions(queue).acceptSession("a");
        same("state", new String(session.getSessionState()), "half way");
        session.setSessionState(null);
        same("cleared state", session.getSessionState(), null);
        session.close();
    }

    private static String renew(World world) throws InterruptedException {
        String queue = world.queue(false, options -> options.setSessionRequired(true).setLockDuration(Duration.ofSeconds(5)));
        ServiceBusReceiverClient session = world.sessions(queue).acceptSession("a");
        OffsetDateTime before = OffsetDateTime.MIN;
        for (int times = 0; times < 3; times++) {
            OffsetDateTime until = session.renewSessionLock();
            claim(until.isAfter(before), "the lock did not get longer");
            before = until;
            Thread.sleep(2000);
        }
        session.setSessionState("kept".getBytes());
        session.close();
        return "a lock of 5 s held for 6 s";
    }

    private Sessions() {}
}
