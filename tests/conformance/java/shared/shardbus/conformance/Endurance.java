package shardbus.conformance;

import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Sends numbers and completes them until standard input ends; then waits for what was accepted.
 *
 * <p>The server may be killed and connections may break at any moment: a call that fails is made again.
 */
abstract class Endurance {
    private static final Duration DRAINING = Duration.ofSeconds(90);
    private static final long PAUSE_MS = 200;

    private final AtomicInteger accepted = new AtomicInteger();
    private final Set<Integer> numbers = new HashSet<>();
    private final Set<Object> completed = new HashSet<>();
    private int returned;
    private volatile boolean isOver;

    /** Sends a message; returns when it is accepted. */
    abstract void send(String body) throws Exception;

    /**
     * Waits a second for messages, calls {@link #received} for each, completes them, and calls {@link #completed} for
     * each that is certainly completed; false if no message came.
     */
    abstract boolean receive() throws Exception;

    final void received(Object id, String body) {
        numbers.add(Integer.parseInt(body));
        returned += completed.contains(id) ? 1 : 0;
    }

    final void completed(Object id) {
        completed.add(id);
    }

    final String run() throws Exception {
        Thread listening = daemon(() -> {
            System.in.readAllBytes();
            isOver = true;
        });
        Thread sending = daemon(this::sendUntilOver);
        long deadline = Long.MAX_VALUE;
        boolean isEmpty = false;
        while (sending.isAlive() || numbers.size() < accepted.get() || !isEmpty) {
            if (!sending.isAlive() && deadline == Long.MAX_VALUE) {
                deadline = System.nanoTime() + DRAINING.toNanos();
            }
            World.claim(System.nanoTime() < deadline,
                (accepted.get() - numbers.size()) + " of " + accepted.get() + " accepted messages are lost");
            try {
                isEmpty = !receive();
            } catch (Exception away) {
                isEmpty = false;
                Thread.sleep(PAUSE_MS);
            }
        }
        listening.join();
        World.same("completed messages that returned", returned, 0);
        World.claim(!completed.isEmpty(), "no message was certainly completed");
        return "nothing accepted was lost, nothing completed returned, one client throughout";
    }

    private void sendUntilOver() throws InterruptedException {
        while (!isOver) {
            try {
                send(String.valueOf(accepted.get()));
                accepted.incrementAndGet();
                Thread.sleep(20);
            } catch (Exception away) {
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
