package shardbus.conformance;

import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * An unmodified SDK against a bus: one line of JSON for each feature on standard output.
 *
 * <pre>
 * features [NAME...]   all features, or those that are named
 * load NAME QUEUE      sends and completes until standard input ends
 * sign-in HOST ADMINISTRATION TOKEN
 * application QUEUE    as it would be written for the cloud
 * </pre>
 *
 * The bus is named by variables; tests/conformance/test_sdks.py sets them. Each SDK has classes {@code World},
 * {@code Features}, {@code Load} and {@code Application} of its own.
 */
public final class Main {
    private static final long LIMIT_S = 90;

    /** What a scenario does; it returns the detail to tell, or throws. */
    public interface Scenario {
        String run(World world) throws Exception;
    }

    /** A feature without a scenario is one that the SDK does not have. */
    public record Feature(String name, Scenario scenario, String reason) {
        public Feature(String name, Scenario scenario) {
            this(name, scenario, "the SDK has no such call");
        }
    }

    public static void main(String[] words) throws InterruptedException {
        if (words[0].equals("sign-in")) {
            speak(() -> Application.signIn(words[1], words[2], words[3]));
        } else if (words[0].equals("application")) {
            speak(() -> Application.run(words[1]));
        } else if (words[0].equals("load")) {
            tell(new Feature(words[1], world -> new Load(world, words[1], words[2]).run()), 3600);
        } else {
            List<String> wanted = List.of(words).subList(1, words.length);
            ExecutorService turns = Executors.newFixedThreadPool(World.AT_A_TIME);
            for (Feature feature : Features.all()) {
                if (wanted.isEmpty() || wanted.contains(feature.name())) {
                    turns.submit(() -> tell(feature, LIMIT_S));
                }
            }
            turns.shutdown();
            turns.awaitTermination(1, TimeUnit.HOURS);
        }
        // The SDK keeps threads that are not daemons.
        System.exit(0);
    }

    /** Prints what a program of its own has to say; a failure is an exit code and a trace of it. */
    private static void speak(Callable<String> program) {
        try {
            System.out.println(program.call());
        } catch (Exception failed) {
            failed.printStackTrace();
            System.exit(1);
        }
    }

    private static void tell(Feature feature, long limitS) {
        if (feature.scenario() == null) {
            print(feature.name(), "not offered", feature.reason());
            return;
        }
        ExecutorService runner = Executors.newSingleThreadExecutor();
        try (World world = new World(feature.name())) {
            String detail = runner.submit(() -> feature.scenario().run(world)).get(limitS, TimeUnit.SECONDS);
            print(feature.name(), "passed", detail);
        } catch (ExecutionException failed) {
            print(feature.name(), "failed", String.valueOf(failed.getCause()));
        } catch (TimeoutException late) {
            print(feature.name(), "failed", "not done in " + limitS + " s");
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            runner.shutdownNow();
        }
    }

    private static synchronized void print(String feature, String outcome, String detail) {
        System.out.printf("{\"feature\":\"%s\",\"outcome\":\"%s\",\"detail\":\"%s\"}%n", feature, outcome, quoted(detail));
        System.out.flush();
    }

    static String quoted(String text) {
        StringBuilder found = new StringBuilder();
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                found.append('\\').append(each);
            } else {
                found.append(each < ' ' ? ' ' : each);
            }
        }
        return found.toString();
    }

    private Main() {}
}
