package shardbus.conformance;

import static shardbus.conformance.World.administration;
import static shardbus.conformance.World.bodies;
import static shardbus.conformance.World.builder;
import static shardbus.conformance.World.claim;
import static shardbus.conformance.World.none;
import static shardbus.conformance.World.one;
import static shardbus.conformance.World.receive;
import static shardbus.conformance.World.refused;
import static shardbus.conformance.World.same;
import static shardbus.conformance.World.send;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import shardbus.conformance.Main.Feature;

/** Rules of subscriptions, and transactions. */
final class Selected {
    static List<Feature> all() {
        return List.of(
            new Feature("rules", Features.onBoth(Selected::rules)),
            new Feature("rule-manager", Features.onBoth(Selected::ruleManager)),
            new Feature("transaction", Features.onBoth(Selected::transaction)),
            new Feature("transaction-across", Features.onBoth(Selected::across)));
    }

    private static String topic(World world, boolean isPartitioned) {
        String topic = world.newName();
        administration().createTopic(topic, new CreateTopicOptions().setPartitioningEnabled(isPartitioned));
        administration().createSubscription(topic, "some");
        return topic;
    }

    private static CreateRuleOptions sql() {
        return new CreateRuleOptions(new SqlRuleFilter("amount > 20")).setAction(new SqlRuleAction("SET seen = 'yes'"));
    }

    private static CreateRuleOptions correlation() {
        CorrelationRuleFilter filter = new CorrelationRuleFilter().setLabel("red");
        filter.getProperties().put("size", "L");
        return new CreateRuleOptions(filter);
    }

    private static String names(Stream<RuleProperties> rules) {
        return rules.map(RuleProperties::getName).sorted().collect(Collectors.joining(" "));
    }

    private static void rules(World world, boolean isPartitioned) {
        String topic = topic(world, isPartitioned);
        ServiceBusAdministrationClient manager = administration();
        manager.deleteRule(topic, "some", "$Default");
        manager.createRule(topic, "sql", "some", sql());
        manager.createRule(topic, "correlation", "some", correlation());
        same("rules", names(manager.listRules(topic, "some").stream()), "correlation sql");
        RuleProperties found = manager.getRule(topic, "some", "sql");
        same("filter", ((SqlRuleFilter) found.getFilter()).getSqlExpression(), "amount > 20");
        manager.updateRule(topic, "some", found.setFilter(new SqlRuleFilter("amount > 22")));
        selects(world, topic);
    }

    private static void ruleManager(World world, boolean isPartitioned) {
        String topic = topic(world, isPartitioned);
        ServiceBusRuleManagerClient manager =
            world.keep(builder().ruleManager().topicName(topic).subscriptionName("some").buildClient());
        manager.createRule("sql", sql());
        manager.createRule("correlation", correlation());
        same("rules", names(manager.listRules().stream()), "$Default correlation sql");
        manager.deleteRule("$Default");
        RuleProperties found = manager.listRules().stream().filter(rule -> rule.getName().equals("sql")).findAny().orElseThrow();
        same("filter", ((SqlRuleFilter) found.getFilter()).getSqlExpression(), "amount > 20");
        same("action", ((SqlRuleAction) found.getAction()).getSqlExpression(), "SET seen = 'yes'");
        refused(() -> manager.createRule("sql", sql()));
        refused(() -> manager.deleteRule("none"));
        selects(world, topic);
    }

    private static void selects(World world, String topic) {
        ServiceBusSenderClient sender = world.keep(builder().sender().topicName(topic).buildClient());
        ServiceBusMessage much = new ServiceBusMessage("much");
        much.getApplicationProperties().put("amount", 25);
        ServiceBusMessage little = new ServiceBusMessage("little");
        little.getApplicationProperties().put("amount", 15);
        ServiceBusMessage red = new ServiceBusMessage("red").setSubject("red");
        red.getApplicationProperties().put("size", "L");
        sender.sendMessages(List.of(much, little, red));
        ServiceBusReceiverClient receiver =
            world.keep(builder().receiver().topicName(topic).subscriptionName("some").buildClient());
        List<ServiceBusReceivedMessage> found = receive(receiver, 2);
        same("selected", bodies(found), "much red");
        for (ServiceBusReceivedMessage message : found) {
            boolean isMuch = message.getBody().toString().equals("much");
            same("set by the action", message.getApplicationProperties().get("seen"), isMuch ? "yes" : null);
            receiver.complete(message);
        }
        none(receiver);
    }

    private static void shortly(CreateQueueOptions options) {
        options.setLockDuration(Duration.ofSeconds(5));
    }

    private static ServiceBusMessage keyed(String body) {
        return new ServiceBusMessage(body).setPartitionKey("key");
    }

    private static void transaction(World world, boolean isPartitioned) {
        String queue = world.queue(isPartitioned, Selected::shortly);
        ServiceBusSenderClient sender = world.sender(queue);
        ServiceBusReceiverClient receiver = world.receiver(queue);
        ServiceBusTransactionContext sent = sender.createTransaction();
        sender.sendMessage(keyed("1"), sent);
        sender.sendMessages(List.of(keyed("2"), keyed("3")), sent);
        sender.scheduleMessage(keyed("4"), OffsetDateTime.now().plusSeconds(1), sent);
        none(receiver);
        sender.commitTransaction(sent);
        List<ServiceBusReceivedMessage> four = receive(receiver, 4);
        same("committed", bodies(four), "1 2 3 4");

        ServiceBusTransactionContext settled = receiver.createTransaction();
        receiver.complete(four.get(0), new CompleteOptions().setTransactionContext(settled));
        receiver.abandon(four.get(1), new AbandonOptions().setTransactionContext(settled));
        receiver.defer(four.get(2), new DeferOptions().setTransactionContext(settled));
        receiver.deadLetter(four.get(3), new DeadLetterOptions().setTransactionContext(settled));
        receiver.commitTransaction(settled);
        same("messages left", administration().getQueueRuntimeProperties(queue).getTotalMessageCount(), 3L);

        ServiceBusReceivedMessage again = one(receiver);
        ServiceBusTransactionContext undone = receiver.createTransaction();
        receiver.complete(again, new CompleteOptions().setTransactionContext(undone));
        receiver.rollbackTransaction(undone);
        // The SDK takes the message for settled: it comes again when its lock has run out.
        receiver.complete(one(receiver));
        ServiceBusTransactionContext dropped = sender.createTransaction();
        sender.sendMessage(keyed("never"), dropped);
        sender.rollbackTransaction(dropped);
        none(receiver);
    }

    private static void across(World world, boolean isPartitioned) {
        String from = world.queue(isPartitioned, Selected::shortly);
        String to = world.queue(isPartitioned);
        world.sender(from).sendMessages(List.of(keyed("work"), keyed("more")));
        ServiceBusClientBuilder shared = builder().enableCrossEntityTransactions();
        ServiceBusReceiverClient receiver =
            world.keep(shared.receiver().queueName(from).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        List<ServiceBusReceivedMessage> work = receive(receiver, 2);
        ServiceBusSenderClient sender = world.keep(shared.sender().queueName(to).buildClient());

        ServiceBusTransactionContext undone = receiver.createTransaction();
        receiver.complete(work.get(0), new CompleteOptions().setTransactionContext(undone));
        sender.sendMessage(keyed("never"), undone);
        receiver.rollbackTransaction(undone);

        ServiceBusTransactionContext done = receiver.createTransaction();
        receiver.complete(work.get(1), new CompleteOptions().setTransactionContext(done));
        sender.sendMessage(keyed("result"), done);
        receiver.commitTransaction(done);
        receiver.complete(one(receiver));

        ServiceBusReceiverClient results = world.receiver(to);
        same("result", one(results).getBody().toString(), "result");
        none(results);
        claim(world.receiver(from).peekMessages(10).stream().count() == 0, "the work was not completed");
    }

    private Selected() {}
}
