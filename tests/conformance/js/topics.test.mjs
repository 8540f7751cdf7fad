import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  DELIVERY_COUNT_MAX,
  KINDS,
  LOCK_SHORT_MS,
  NOTHING,
  bodies,
  newAdministration,
  newClient,
  newName,
  receiveAll,
  sendEach,
} from "./bus.mjs";

const DEFAULT_RULE = "$Default";
const EVERYTHING = { sqlExpression: "1=1" };

/** Runs `scenario` with a client and a fresh topic; whatever happens, both are gone afterwards. */
async function withTopic(kind, scenario, options = {}) {
  const administration = newAdministration();
  const topic = newName();
  await administration.createTopic(topic, {
    enablePartitioning: kind === "partitioned",
    ...options,
  });
  const client = newClient();
  const subscribe = (name, chosen = {}) =>
    administration.createSubscription(topic, name, {
      lockDuration: `PT${LOCK_SHORT_MS / 1000}S`,
      maxDeliveryCount: DELIVERY_COUNT_MAX,
      ...chosen,
    });
  try {
    await scenario({ client, topic, administration, subscribe });
  } finally {
    await client.close();
    await administration.deleteTopic(topic);
  }
}

/** What a subscription has, at most `wanted`, and taken out. */
async function taken(client, topic, subscription, wanted) {
  const receiver = client.createReceiver(topic, subscription, { receiveMode: "receiveAndDelete" });
  const messages = wanted > 0 ? await receiveAll(receiver, wanted) : [];
  messages.push(...(await receiver.receiveMessages(10, NOTHING)));
  await receiver.close();
  return messages;
}

async function ruleNames(manager) {
  const names = [];
  // Where there are none the SDK gives a rule that is undefined.
  for await (const rule of manager.listRules()) if (rule !== undefined) names.push(rule.name);
  return names;
}

for (const kind of KINDS) {
  describe(`a ${kind} topic`, { concurrency: true }, () => {
    test("every subscription gets every message and settles it by itself", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("one");
        await subscribe("two");
        const sender = client.createSender(topic);
        const batch = await sender.createMessageBatch();
        for (const body of ["a", "b"]) assert.ok(batch.tryAddMessage({ body, partitionKey: "k" }));
        await sender.sendMessages(batch);
        await sendEach(sender, [{ body: "c" }, { body: "d" }]);
        const receiver = client.createReceiver(topic, "one");
        const messages = await receiveAll(receiver, 4);
        for (const message of messages) await receiver.completeMessage(message);

        assert.deepEqual(bodies(messages).sort(), ["a", "b", "c", "d"]);
        assert.deepEqual(await receiver.peekMessages(10), []);
        assert.equal((await taken(client, topic, "two", 4)).length, 4);
      }));

    test("rules are added, listed and removed by the rule manager", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("s");
        const manager = client.createRuleManager(topic, "s");
        await manager.createRule("red", { sqlExpression: "color = 'red' AND n > 1" });
        await manager.createRule(
          "changed",
          { sqlExpression: "n = 1" },
          { sqlExpression: "SET n = n + 1; SET sys.Label = 'changed'" },
        );
        await manager.createRule("label", {
          subject: "wanted",
          correlationId: "c",
          applicationProperties: { text: "x", flag: true, n: 5 },
        });
        await manager.deleteRule(DEFAULT_RULE);
        const rules = [];
        for await (const rule of manager.listRules()) rules.push(rule);
        const sender = client.createSender(topic);
        await sendEach(sender, [
          { body: "red", applicationProperties: { color: "red", n: 2 } },
          { body: "one", applicationProperties: { n: 1 } },
          {
            body: "matched",
            subject: "wanted",
            correlationId: "c",
            applicationProperties: { text: "x", flag: true, n: 5 },
          },
          {
            body: "not quite",
            subject: "wanted",
            correlationId: "c",
            applicationProperties: { text: "X", flag: true, n: 5 },
          },
          { body: "unknown" },
        ]);
        const messages = await taken(client, topic, "s", 3);

        assert.deepEqual(
          rules.map((rule) => rule.name),
          ["changed", "label", "red"],
        );
        assert.deepEqual(rules[2].filter, { sqlExpression: "color = 'red' AND n > 1" });
        assert.deepEqual(rules[2].action, {});
        assert.deepEqual(rules[0].action, {
          sqlExpression: "SET n = n + 1; SET sys.Label = 'changed'",
        });
        assert.equal(rules[1].filter.subject, "wanted");
        assert.equal(rules[1].filter.correlationId, "c");
        assert.deepEqual(rules[1].filter.applicationProperties, { text: "x", flag: true, n: 5 });
        assert.deepEqual(bodies(messages).sort(), ["matched", "one", "red"]);
        const copy = messages.find((message) => message.body === "one");
        assert.equal(copy.subject, "changed");
        assert.deepEqual(copy.applicationProperties, { n: 2, RuleName: "changed" });
      }));

    test("rules are in effect when the rule manager answers", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("s");
        const manager = client.createRuleManager(topic, "s");
        const sender = client.createSender(topic);
        await manager.deleteRule(DEFAULT_RULE);
        await sendEach(sender, [{ body: "nobody's" }]);
        await manager.createRule("all", EVERYTHING);
        await sendEach(sender, [{ body: "mine" }]);
        await manager.deleteRule("all");
        await sendEach(sender, [{ body: "nobody's" }]);

        assert.deepEqual(await ruleNames(manager), []);
        assert.deepEqual(bodies(await taken(client, topic, "s", 1)), ["mine"]);
      }));

    test("rules that cannot be are refused with the reason", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("s");
        const manager = client.createRuleManager(topic, "s");

        await assert.rejects(manager.createRule("bad", { sqlExpression: "color =" }), (error) => {
          assert.match(error.message, /column 8/);
          return true;
        });
        await assert.rejects(manager.createRule(DEFAULT_RULE, EVERYTHING), (error) => {
          assert.equal(error.code, "MessagingEntityAlreadyExists");
          return true;
        });
        await assert.rejects(manager.deleteRule("missing"), (error) => {
          assert.equal(error.code, "MessagingEntityNotFound");
          return true;
        });
        assert.deepEqual(await ruleNames(manager), [DEFAULT_RULE]);
      }));

    test("many rules are listed page by page", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("s");
        const manager = client.createRuleManager(topic, "s");
        const wanted = Array.from({ length: 12 }, (_, number) => `rule ${number}`);
        for (const name of wanted) await manager.createRule(name, { sqlExpression: "1=0" });
        const pages = [];
        for await (const page of manager.listRules().byPage({ maxPageSize: 5 })) {
          pages.push(page.map((rule) => rule.name));
        }

        assert.deepEqual(pages.flat(), [DEFAULT_RULE, ...wanted.sort()]);
        assert.deepEqual(
          pages.map((page) => page.length),
          [5, 5, 3],
        );
      }));

    test("rules of the administration client are those of the rule manager", () =>
      withTopic(kind, async ({ client, topic, administration, subscribe }) => {
        await subscribe("s", {
          defaultRuleOptions: { name: "mine", filter: { correlationId: "c" } },
        });
        await administration.createRule(topic, "s", "sql", { sqlExpression: "n = 1" });
        const manager = client.createRuleManager(topic, "s");

        assert.deepEqual(await ruleNames(manager), ["mine", "sql"]);
        await manager.deleteRule("mine");
        const names = [];
        for await (const rule of administration.listRules(topic, "s")) names.push(rule.name);
        assert.deepEqual(names, ["sql"]);
      }));

    test("a subscription has sessions", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("s", { requiresSession: true });
        const sender = client.createSender(topic);
        await sendEach(sender, [
          { body: "red 0", sessionId: "red" },
          { body: "red 1", sessionId: "red" },
          { body: "blue", sessionId: "blue" },
          { body: "none" },
        ]);
        const red = await client.acceptSession(topic, "s", "red");
        const messages = await receiveAll(red, 2);
        for (const message of messages) await red.completeMessage(message);
        await red.setSessionState("state");
        const next = await client.acceptNextSession(topic, "s");
        const dead = client.createReceiver(topic, "s", { subQueueType: "deadLetter" });
        const [without] = await receiveAll(dead, 1);

        assert.deepEqual(bodies(messages), ["red 0", "red 1"]);
        assert.equal(await red.getSessionState(), "state");
        assert.equal(next.sessionId, "blue");
        assert.equal(without.deadLetterReason, "Session id is null.");
        await Promise.all([red, next].map((session) => session.close()));
      }));

    test("a subscription has deferral and dead letters of its own", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("one");
        await subscribe("two");
        await client.createSender(topic).sendMessages({ body: "m" });
        const one = client.createReceiver(topic, "one");
        const [message] = await receiveAll(one, 1);
        await one.deferMessage(message);
        const [deferred] = await one.receiveDeferredMessages(message.sequenceNumber);
        await one.deadLetterMessage(deferred, { deadLetterReason: "Reason" });
        const dead = client.createReceiver(topic, "one", { subQueueType: "deadLetter" });
        const [letter] = await receiveAll(dead, 1);
        await dead.completeMessage(letter);

        assert.equal(letter.deadLetterReason, "Reason");
        assert.deepEqual(bodies(await taken(client, topic, "two", 1)), ["m"]);
      }));

    test("what is scheduled at a topic comes at its moment, unless it is cancelled", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("s");
        const sender = client.createSender(topic);
        const receiver = client.createReceiver(topic, "s");
        const tomorrow = new Date(Date.now() + 86_400_000);
        const [never] = await sender.scheduleMessages({ body: "never" }, tomorrow);
        assert.deepEqual(await receiver.peekMessages(10), []);
        await sender.cancelScheduledMessages(never);
        const moment = new Date(Date.now() + 1_500);
        await sender.scheduleMessages({ body: "soon" }, moment);

        const [message] = await receiveAll(receiver, 1);
        assert.equal(message.body, "soon");
        assert.ok(message.enqueuedTimeUtc >= moment);
        assert.deepEqual(await receiver.receiveMessages(1, NOTHING), []);
      }));

    test("a duplicate reaches no subscription", () =>
      withTopic(
        kind,
        async ({ client, topic, subscribe }) => {
          await subscribe("s");
          await sendEach(client.createSender(topic), [
            { body: "first", messageId: "one" },
            { body: "copy", messageId: "one" },
          ]);

          assert.deepEqual(bodies(await taken(client, topic, "s", 1)), ["first"]);
        },
        { requiresDuplicateDetection: true },
      ));

    test("a topic gives nothing and a subscription takes nothing", () =>
      withTopic(kind, async ({ client, topic, subscribe }) => {
        await subscribe("s");
        const receiver = client.createReceiver(topic);
        const sender = client.createSender(`${topic}/Subscriptions/s`);

        await assert.rejects(receiver.receiveMessages(1, NOTHING), /InvalidOperationError/);
        await assert.rejects(sender.sendMessages({ body: "m" }), /InvalidOperationError/);
      }));
  });
}
