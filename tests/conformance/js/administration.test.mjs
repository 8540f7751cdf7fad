// Every call of the administration client, with every option it has (R29, R31, R34, R35).

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

import { connectionString, KINDS, newAdministration, newName } from "./bus.mjs";

const CALLS = [
  "getNamespaceProperties",
  "createQueue", "getQueue", "getQueueRuntimeProperties", "listQueues",
  "listQueuesRuntimeProperties", "updateQueue", "deleteQueue", "queueExists",
  "createTopic", "getTopic", "getTopicRuntimeProperties", "listTopics",
  "listTopicsRuntimeProperties", "updateTopic", "deleteTopic", "topicExists",
  "createSubscription", "getSubscription", "getSubscriptionRuntimeProperties",
  "listSubscriptions", "listSubscriptionsRuntimeProperties", "updateSubscription",
  "deleteSubscription", "subscriptionExists",
  "createRule", "getRule", "listRules", "updateRule", "deleteRule", "ruleExists",
];
const METADATA = "made by a test & <kept> as 'it' is: ä";
const NO_ENTITY = { code: "MessageEntityNotFoundError" };
const EXISTS = { code: "MessageEntityAlreadyExistsError" };

/** Runs `scenario` with a client and a name; entities of that name are gone afterwards. */
async function withNames(scenario) {
  const administration = newAdministration();
  const name = newName();
  try {
    await scenario({ administration, name });
  } finally {
    for (const one of [name, `${name}-target`]) {
      if (await administration.queueExists(one)) await administration.deleteQueue(one);
      if (await administration.topicExists(one)) await administration.deleteTopic(one);
    }
  }
}

async function all(list) {
  const found = [];
  for await (const one of list) found.push(one);
  return found;
}

function pick(found, wanted) {
  return Object.fromEntries(Object.keys(wanted).map((key) => [key, found[key]]));
}

function clientWith(keyName, key) {
  const endpoint = connectionString.split(";")[0];
  return new ServiceBusAdministrationClient(
    `${endpoint};SharedAccessKeyName=${keyName};SharedAccessKey=${key}`,
    { retryOptions: { maxRetries: 0 } },
  );
}

test("no call of the client is forgotten", async () => {
  const file = "node_modules/@azure/service-bus/types/latest/service-bus.d.ts";
  const types = await readFile(new URL(file, import.meta.url), "utf8");
  const [, client] = types.split("export declare class ServiceBusAdministrationClient");
  const [body] = client.split("\n}");
  const calls = [...body.matchAll(/^ {4}(\w+)\(/gm)].map((match) => match[1]);
  const known = new Set(calls.filter((name) => name !== "constructor"));
  assert.deepEqual([...known].sort(), [...CALLS].sort());
});

test("the namespace describes itself", async () => {
  const found = await newAdministration().getNamespaceProperties();
  assert.equal(found.messagingSku, "Standard");
  assert.ok(found.name);
  assert.ok(found.createdAt <= new Date());
  assert.deepEqual(found.modifiedAt, found.createdAt);
});

for (const kind of KINDS) {
  const enablePartitioning = kind === "partitioned";
  const fragments = enablePartitioning ? 16 : 1;

  test(`a ${kind} queue has every option`, () =>
    withNames(async ({ administration, name }) => {
      const options = {
        lockDuration: "PT45S",
        maxSizeInMegabytes: 3072,
        requiresDuplicateDetection: true,
        requiresSession: true,
        defaultMessageTimeToLive: "P2DT3S",
        deadLetteringOnMessageExpiration: true,
        duplicateDetectionHistoryTimeWindow: "PT3M",
        maxDeliveryCount: 7,
        enableBatchedOperations: false,
        status: "ReceiveDisabled",
        userMetadata: METADATA,
        autoDeleteOnIdle: "PT2H",
        enablePartitioning,
        enableExpress: false,
        availabilityStatus: "Available",
      };
      const whole = { ...options, maxSizeInMegabytes: 3072 * fragments };
      const made = await administration.createQueue(name, options);
      const found = await administration.getQueue(name);
      assert.deepEqual(pick(made, whole), whole);
      assert.deepEqual(pick(found, whole), whole);
      assert.equal(found.maxMessageSizeInKilobytes, 256);

      const change = {
        lockDuration: "PT5M",
        defaultMessageTimeToLive: "P9D",
        deadLetteringOnMessageExpiration: false,
        maxDeliveryCount: 1,
        enableBatchedOperations: true,
        status: "Active",
        userMetadata: "other",
        autoDeleteOnIdle: "PT5M",
      };
      await administration.updateQueue({ ...found, ...change });
      const changed = await administration.getQueue(name);
      assert.deepEqual(pick(changed, { ...whole, ...change }), { ...whole, ...change });
      const listed = await all(administration.listQueues());
      const { _response: hidden, ...shown } = changed;
      assert.deepEqual(listed.find((one) => one.name === name), shown);
    }));

  test(`a ${kind} topic has every option, and so has its subscription`, () =>
    withNames(async ({ administration, name }) => {
      const options = {
        defaultMessageTimeToLive: "P2DT3S",
        maxSizeInMegabytes: 2048,
        requiresDuplicateDetection: true,
        duplicateDetectionHistoryTimeWindow: "PT3M",
        enableBatchedOperations: false,
        status: "SendDisabled",
        userMetadata: METADATA,
        supportOrdering: true,
        autoDeleteOnIdle: "PT2H",
        enablePartitioning,
        enableExpress: false,
        availabilityStatus: "Available",
      };
      const whole = { ...options, maxSizeInMegabytes: 2048 * fragments };
      const made = await administration.createTopic(name, options);
      assert.deepEqual(pick(made, whole), whole);
      await administration.updateTopic({ ...made, status: "Active", userMetadata: "other" });
      const changed = { ...whole, status: "Active", userMetadata: "other" };
      assert.deepEqual(pick(await administration.getTopic(name), changed), changed);
      assert.ok((await all(administration.listTopics())).some((one) => one.name === name));

      const below = {
        lockDuration: "PT45S",
        requiresSession: true,
        defaultMessageTimeToLive: "P2DT3S",
        deadLetteringOnMessageExpiration: true,
        deadLetteringOnFilterEvaluationExceptions: false,
        maxDeliveryCount: 7,
        enableBatchedOperations: false,
        status: "ReceiveDisabled",
        userMetadata: METADATA,
        autoDeleteOnIdle: "PT2H",
        availabilityStatus: "Available",
      };
      const subscription = await administration.createSubscription(name, "s", below);
      assert.deepEqual(pick(subscription, below), below);
      await administration.updateSubscription({ ...subscription, maxDeliveryCount: 1 });
      const again = await administration.getSubscription(name, "s");
      assert.deepEqual(pick(again, below), { ...below, maxDeliveryCount: 1 });
      const [listed] = await all(administration.listSubscriptions(name));
      assert.deepEqual(pick(listed, below), pick(again, below));
    }));

  test(`access rules of a ${kind} queue and topic get keys that open them`, () =>
    withNames(async ({ administration, name }) => {
      const rule = { claimType: "SharedAccessKey", keyName: "manager", accessRights: ["Manage"] };
      const options = { enablePartitioning, authorizationRules: [rule] };
      await administration.createQueue(name, options);
      const topic = await administration.createTopic(`${name}-target`, options);
      const queue = await administration.getQueue(name);
      const [made] = queue.authorizationRules;
      assert.deepEqual(made.accessRights, ["Manage", "Send", "Listen"]);
      assert.equal(Buffer.from(made.primaryKey, "base64").length, 32);
      assert.notEqual(made.primaryKey, topic.authorizationRules[0].primaryKey);
      assert.equal((await clientWith("manager", made.secondaryKey).getQueue(name)).name, name);

      await assert.rejects(
        clientWith("manager", made.primaryKey).getTopic(`${name}-target`),
        { code: "UnauthorizedRequestError" },
      );
      const mine = { ...rule, primaryKey: "mine", secondaryKey: "too" };
      await administration.updateQueue({ ...queue, authorizationRules: [mine] });
      assert.deepEqual((await administration.getQueue(name)).authorizationRules, [
        { ...mine, accessRights: ["Manage", "Send", "Listen"] },
      ]);
    }));

  test(`a ${kind} queue and a subscription forward with a second token`, () =>
    withNames(async ({ administration, name }) => {
      const target = `${name}-target`;
      await administration.createQueue(target, { enablePartitioning });
      await administration.createTopic(name, { enablePartitioning });
      await administration.createSubscription(name, "s", {
        forwardTo: target,
        forwardDeadLetteredMessagesTo: target,
      });
      const found = await administration.getSubscription(name, "s");
      assert.match(found.forwardTo, new RegExp(`^sb://[^/]+/${target}$`));
      assert.equal(found.forwardDeadLetteredMessagesTo, found.forwardTo);
      await administration.updateSubscription({ ...found, forwardTo: undefined });
      const changed = await administration.getSubscription(name, "s");
      assert.equal(changed.forwardTo, undefined);
      assert.equal(changed.forwardDeadLetteredMessagesTo, found.forwardTo);
    }));

  test(`what is counted of ${kind} entities is the same alone and in lists`, () =>
    withNames(async ({ administration, name }) => {
      const target = `${name}-target`;
      await administration.createQueue(target, { enablePartitioning });
      await administration.createTopic(name, { enablePartitioning });
      await administration.createSubscription(name, "s");
      for (const [alone, list, isIt] of [
        [
          administration.getQueueRuntimeProperties(target),
          administration.listQueuesRuntimeProperties(),
          (one) => one.name === target,
        ],
        [
          administration.getTopicRuntimeProperties(name),
          administration.listTopicsRuntimeProperties(),
          (one) => one.name === name,
        ],
        [
          administration.getSubscriptionRuntimeProperties(name, "s"),
          administration.listSubscriptionsRuntimeProperties(name),
          (one) => one.subscriptionName === "s",
        ],
      ]) {
        const { _response: hidden, ...found } = await alone;
        assert.deepEqual((await all(list)).find(isIt), found);
        assert.ok(found.createdAt <= found.modifiedAt);
      }
    }));
}

test("lists go on after the first hundred", () =>
  withNames(async ({ administration, name }) => {
    await administration.createTopic(name, { enablePartitioning: false });
    const names = Array.from({ length: 101 }, (_, at) => `s-${String(at).padStart(3, "0")}`);
    for (const one of names) await administration.createSubscription(name, one);
    const listed = await all(administration.listSubscriptions(name));
    assert.deepEqual(listed.map((one) => one.subscriptionName), names);
    for (const one of names) await administration.createRule(name, "s-000", one);
    const rules = await all(administration.listRules(name, "s-000"));
    assert.deepEqual(rules.map((rule) => rule.name), ["$Default", ...names]);
    const pages = [];
    for await (const page of administration.listRules(name, "s-000").byPage({ maxPageSize: 40 })) {
      pages.push(page.length);
    }
    assert.deepEqual(pages, [40, 40, 22]);
  }));

test("refusals have the codes that users look for", () =>
  withNames(async ({ administration, name }) => {
    await administration.createTopic(name);
    await administration.createSubscription(name, "s");
    await assert.rejects(administration.createTopic(name), EXISTS);
    await assert.rejects(administration.createQueue(name), EXISTS);
    await assert.rejects(administration.createSubscription(name, "S"), EXISTS);
    await assert.rejects(administration.createRule(name, "s", "$Default"), EXISTS);
    await assert.rejects(administration.getQueue("missing"), NO_ENTITY);
    await assert.rejects(administration.deleteQueue("missing"), NO_ENTITY);
    await assert.rejects(administration.getTopic("missing"), NO_ENTITY);
    await assert.rejects(administration.getSubscription(name, "missing"), NO_ENTITY);
    await assert.rejects(administration.getRule(name, "s", "missing"), NO_ENTITY);
    await assert.rejects(administration.createSubscription("missing", "s"), NO_ENTITY);
    await assert.rejects(
      administration.createQueue(`${name}-target`, { lockDuration: "PT6M" }),
      /LockDuration/,
    );
    await assert.rejects(clientWith("RootManageSharedAccessKey", "wrong").getTopic(name), {
      code: "UnauthorizedRequestError",
    });
    assert.equal(await administration.queueExists(name), false);
    assert.equal(await administration.topicExists(`${name}-target`), false);
    assert.equal(await administration.ruleExists(name, "s", "$Default"), true);
    await administration.deleteRule(name, "s", "$Default");
    assert.equal(await administration.ruleExists(name, "s", "$Default"), false);
    await administration.deleteSubscription(name, "s");
    assert.equal(await administration.subscriptionExists(name, "s"), false);
  }));
