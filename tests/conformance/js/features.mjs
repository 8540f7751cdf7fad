// The JavaScript SDK, unmodified, against a bus: one line of JSON for each feature on standard output.
//
//   node features.mjs [NAME...]
//
// The bus is named by variables; tests/conformance/test_sdks.py sets them. What the SDK does in detail
// is tested in the files beside this one; here it does what the other SDKs do.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import WebSocket from "ws";

const { SHARDBUS_CONNECTION_STRING, SHARDBUS_TLS_CONNECTION_STRING } = process.env;
const { SHARDBUS_PREMIUM_CONNECTION_STRING, SHARDBUS_PREFIX } = process.env;
const WAIT = { maxWaitTimeInMs: 20_000 };
const NOTHING = { maxWaitTimeInMs: 500 };
const AT_A_TIME = 6;
const IN_WORK = 30;

class World {
  #count = 0;
  #clients = [];

  constructor(feature) {
    this.feature = feature;
    this.administration = new ServiceBusAdministrationClient(SHARDBUS_CONNECTION_STRING);
  }

  client(connectionString = SHARDBUS_CONNECTION_STRING, options = {}) {
    const client = new ServiceBusClient(connectionString, options);
    this.#clients.push(client);
    return client;
  }

  newName() {
    this.#count += 1;
    return `${SHARDBUS_PREFIX}-${this.feature}-${this.#count}`;
  }

  /** Creates a queue with locks of ten seconds and three deliveries, unless told otherwise. */
  async queue(isPartitioned, options = {}) {
    const queue = this.newName();
    await this.administration.createQueue(queue, {
      enablePartitioning: isPartitioned,
      lockDuration: "PT10S",
      maxDeliveryCount: 3,
      ...options,
    });
    return queue;
  }

  async open(isPartitioned, options = {}) {
    const queue = await this.queue(isPartitioned, options);
    const client = this.client();
    return { queue, client, sender: client.createSender(queue), receiver: client.createReceiver(queue) };
  }

  async end() {
    for (const client of this.#clients) await client.close().catch(() => {});
  }
}

const onBoth = (scenario) => async (world) => {
  for (const isPartitioned of [false, true]) await scenario(world, isPartitioned);
  return "conventional and partitioned";
};

async function receive(receiver, wanted) {
  const found = [];
  while (found.length < wanted) {
    const more = await receiver.receiveMessages(wanted - found.length, WAIT);
    assert.notEqual(more.length, 0, `${wanted - found.length} messages did not come`);
    found.push(...more);
  }
  return found;
}

const one = async (receiver) => (await receive(receiver, 1))[0];
const none = async (receiver) => assert.equal((await receiver.receiveMessages(1, NOTHING)).length, 0);
const bodies = (messages) => messages.map((message) => message.body).sort();

async function sendAll(sender, ...contents) {
  for (const body of contents) await sender.sendMessages({ body });
}

async function administration(world) {
  const manager = world.administration;
  for (const isPartitioned of [false, true]) {
    const queue = await world.queue(isPartitioned);
    const found = await manager.getQueue(queue);
    assert.equal(found.enablePartitioning, isPartitioned);
    await manager.updateQueue({ ...found, lockDuration: "PT20S" });
    assert.equal((await manager.getQueue(queue)).lockDuration, "PT20S");
    assert.equal((await manager.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
    const topic = world.newName();
    await manager.createTopic(topic, { enablePartitioning: isPartitioned });
    await manager.createSubscription(topic, "all");
    assert.equal((await manager.getTopicRuntimeProperties(topic)).subscriptionCount, 1);
    let listed = 0;
    for await (const page of manager.listQueues().byPage({ maxPageSize: 50 })) {
      listed += page.filter((each) => each.name === queue).length;
    }
    assert.equal(listed, 1);
    await manager.deleteQueue(queue);
    assert.equal(await manager.queueExists(queue), false);
    await manager.deleteTopic(topic);
  }
  assert.equal((await manager.getNamespaceProperties()).messagingSku, "Standard");
  return "queues, topics and subscriptions: create, get, update, list by pages, delete";
}

async function sendOne(world, isPartitioned) {
  const { sender, receiver } = await world.open(isPartitioned);
  const properties = { long: 7, text: "x", real: 1.5, true: true };
  await sender.sendMessages({
    body: "hello", messageId: "m1", subject: "greeting", timeToLive: 3_600_000, applicationProperties: properties,
  });
  const got = await one(receiver);
  assert.equal(got.body, "hello");
  assert.equal(got.messageId, "m1");
  assert.equal(got.subject, "greeting");
  assert.deepEqual(got.applicationProperties, properties);
  assert.equal(got.timeToLive, 3_600_000);
  await receiver.completeMessage(got);
  await none(receiver);
}

async function sendBatch(world, isPartitioned) {
  const { sender, receiver } = await world.open(isPartitioned);
  const batch = await sender.createMessageBatch();
  while (batch.tryAddMessage({ body: Buffer.alloc(2000) }));
  await sender.sendMessages(batch);
  for (const message of await receive(receiver, batch.count)) await receiver.completeMessage(message);
  await none(receiver);
}

async function keyed(world) {
  const { sender, receiver } = await world.open(true);
  for (let number = 0; number < 12; number += 1) {
    await sender.sendMessages({ body: number, partitionKey: `key-${number % 3}` });
  }
  const fragments = new Map();
  const last = new Map();
  for (const message of await receive(receiver, 12)) {
    const fragment = message.sequenceNumber.shiftRightUnsigned(48).toNumber();
    assert.equal(fragments.get(message.partitionKey) ?? fragment, fragment);
    assert.ok((last.get(message.partitionKey) ?? -1) < message.body);
    fragments.set(message.partitionKey, fragment);
    last.set(message.partitionKey, message.body);
  }
  return "one fragment and one order for each key";
}

async function schedule(world, isPartitioned) {
  const { sender, receiver } = await world.open(isPartitioned);
  const soon = new Date(Date.now() + 1500);
  await sender.scheduleMessages({ body: "soon" }, soon);
  const later = new Date(Date.now() + 3_600_000);
  await sender.cancelScheduledMessages(await sender.scheduleMessages([{ body: "a" }, { body: "b" }], later));
  const got = await one(receiver);
  assert.equal(got.body, "soon");
  assert.ok(Date.now() >= soon.getTime() - 50);
  await receiver.completeMessage(got);
  assert.equal((await receiver.peekMessages(10)).length, 0);
}

async function receiveInBothModes(world, isPartitioned) {
  const { client, queue, sender, receiver } = await world.open(isPartitioned);
  await sendAll(sender, "1", "2", "3", "4");
  const deleting = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receive(deleting, 4)), ["1", "2", "3", "4"]);
  await deleting.close();
  await sendAll(sender, "5");
  const locked = await one(receiver);
  await none(client.createReceiver(queue));
  await receiver.completeMessage(locked);
  assert.equal((await receiver.peekMessages(10)).length, 0);
}

async function settle(world, isPartitioned) {
  const { queue, sender, receiver } = await world.open(isPartitioned);
  await sendAll(sender, "complete");
  await receiver.completeMessage(await one(receiver));
  await sendAll(sender, "abandon");
  await receiver.abandonMessage(await one(receiver), { tried: "once" });
  const again = await one(receiver);
  assert.equal(again.deliveryCount, 1);
  assert.equal(again.applicationProperties.tried, "once");
  await receiver.completeMessage(again);
  await sendAll(sender, "defer");
  await receiver.deferMessage(await one(receiver));
  await sendAll(sender, "dead-letter");
  await receiver.deadLetterMessage(await one(receiver));
  const counts = await world.administration.getQueueRuntimeProperties(queue);
  assert.equal(counts.activeMessageCount, 1, "deferred ones count as active");
  assert.equal(counts.deadLetterMessageCount, 1);
}

async function deferred(world, isPartitioned) {
  const { sender, receiver } = await world.open(isPartitioned);
  await sendAll(sender, "later");
  const got = await one(receiver);
  await receiver.deferMessage(got);
  await none(receiver);
  const [found] = await receiver.receiveDeferredMessages(got.sequenceNumber);
  assert.equal(found.body, "later");
  await receiver.completeMessage(found);
  await assert.rejects(receiver.receiveDeferredMessages(got.sequenceNumber), { code: "MessageNotFound" });
}

async function deadLetters(world, isPartitioned) {
  const { client, queue, sender, receiver } = await world.open(isPartitioned);
  await sendAll(sender, "bad");
  const why = { deadLetterReason: "reason", deadLetterErrorDescription: "description" };
  await receiver.deadLetterMessage(await one(receiver), why);
  await sendAll(sender, "often");
  for (let times = 0; times < 3; times += 1) await receiver.abandonMessage(await one(receiver));
  const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const found = await receive(dead, 2);
  const reasons = Object.fromEntries(found.map((message) => [message.body, message.deadLetterReason]));
  assert.deepEqual(reasons, { bad: "reason", often: "MaxDeliveryCountExceeded" });
  await none(receiver);
}

async function sessionQueue(world, isPartitioned, ...ids) {
  const queue = await world.queue(isPartitioned, { requiresSession: true });
  const client = world.client(SHARDBUS_CONNECTION_STRING, { retryOptions: { maxRetries: 0, timeoutInMs: 4000 } });
  const sender = client.createSender(queue);
  for (const id of ids) await sender.sendMessages({ body: id, sessionId: id });
  return { queue, client };
}

async function sessionAccept(world, isPartitioned) {
  const { client, queue } = await sessionQueue(world, isPartitioned, "a", "b", "a");
  const session = await client.acceptSession(queue, "a");
  for (const message of await receive(session, 2)) {
    assert.equal(message.sessionId, "a");
    await session.completeMessage(message);
  }
  await none(session);
  await assert.rejects(client.acceptSession(queue, "a"), { code: "SessionCannotBeLocked" });
  await session.close();
  await (await client.acceptSession(queue, "a")).close();
}

async function sessionNext(world, isPartitioned) {
  const { client, queue } = await sessionQueue(world, isPartitioned, "a", "b");
  const seen = new Set();
  for (let times = 0; times < 2; times += 1) {
    const session = await client.acceptNextSession(queue);
    seen.add(session.sessionId);
    await session.completeMessage(await one(session));
    await session.close();
  }
  assert.deepEqual([...seen].sort(), ["a", "b"]);
  await assert.rejects(client.acceptNextSession(queue), { code: "ServiceTimeout" });
}

async function sessionState(world, isPartitioned) {
  const { client, queue } = await sessionQueue(world, isPartitioned, "a");
  let session = await client.acceptSession(queue, "a");
  assert.ok(!(await session.getSessionState()));
  await session.setSessionState("half way");
  await session.close();
  session = await client.acceptSession(queue, "a");
  assert.equal(await session.getSessionState(), "half way");
  await session.setSessionState(null);
  assert.ok(!(await session.getSessionState()));
  await session.close();
}

async function sessionRenew(world) {
  const queue = await world.queue(false, { requiresSession: true, lockDuration: "PT5S" });
  const session = await world.client().acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
  for (let times = 0; times < 3; times += 1) {
    const before = session.sessionLockedUntilUtc;
    await sleep(2000);
    assert.ok((await session.renewSessionLock()) > before);
  }
  await session.setSessionState("kept");
  return "a lock of 5 s held for 6 s";
}

async function peek(world, isPartitioned) {
  const { sender, receiver } = await world.open(isPartitioned);
  const many = await sender.createMessageBatch();
  for (let number = 0; number < 300; number += 1) assert.ok(many.tryAddMessage({ body: number }));
  await sender.sendMessages(many);
  const seen = new Set();
  for (;;) {
    const page = await receiver.peekMessages(100);
    if (page.length === 0) break;
    for (const message of page) seen.add(message.sequenceNumber.toString());
  }
  assert.equal(seen.size, 300);
}

async function renew(world, isPartitioned) {
  const { sender, receiver } = await world.open(isPartitioned, { lockDuration: "PT5S" });
  await sendAll(sender, "slow");
  const got = await one(receiver);
  for (let times = 0; times < 2; times += 1) {
    const before = got.lockedUntilUtc;
    await sleep(3000);
    assert.ok((await receiver.renewMessageLock(got)) > before);
  }
  await receiver.completeMessage(got);
}

/** Subscribes until so many messages were handled; returns what went wrong. */
async function handled(receiver, wanted, handle, options) {
  const errors = [];
  let left = wanted;
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${left} messages did not come: ${errors}`)), 60_000).unref();
    receiver.subscribe(
      {
        processMessage: async (message) => {
          await handle(message);
          // By itself the SDK completes after this, and a receiver that is closed then cannot.
          await receiver.completeMessage(message);
          left -= 1;
          if (left === 0) resolve();
        },
        processError: async ({ error }) => errors.push(error),
      },
      { autoCompleteMessages: false, ...options },
    );
  });
  // What the SDK reports of a receiver that is being closed is no error of the bus.
  const found = [...errors];
  await receiver.close();
  return found;
}

async function autoRenew(world, isPartitioned) {
  const { queue, sender, receiver } = await world.open(isPartitioned, { lockDuration: "PT10S", maxDeliveryCount: 1 });
  await sender.sendMessages(Array.from({ length: IN_WORK }, (_, body) => ({ body })));
  const slowly = () => sleep(14000);
  assert.deepEqual(await handled(receiver, IN_WORK, slowly, { maxConcurrentCalls: IN_WORK }), []);
  assert.equal((await world.administration.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
}

async function push(world, isPartitioned) {
  const { sender, receiver } = await world.open(isPartitioned);
  await sender.sendMessages(Array.from({ length: 40 }, (_, body) => ({ body })));
  assert.deepEqual(await handled(receiver, 40, async () => {}, { maxConcurrentCalls: 4 }), []);
}

async function sessionPush(world, isPartitioned) {
  const { client, queue } = await sessionQueue(world, isPartitioned, "a", "a", "a", "a");
  const numbers = [];
  const session = await client.acceptSession(queue, "a");
  const note = async (message) => numbers.push(message.sequenceNumber.toString());
  assert.deepEqual(await handled(session, 4, note, {}), []);
  assert.deepEqual(numbers, [...numbers].sort((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1)));
}

async function selects(world, topic) {
  const client = world.client();
  const sender = client.createSender(topic);
  await sender.sendMessages({ body: "much", applicationProperties: { amount: 25 } });
  await sender.sendMessages({ body: "little", applicationProperties: { amount: 15 } });
  await sender.sendMessages({ body: "red", subject: "red", applicationProperties: { size: "L" } });
  const receiver = client.createReceiver(topic, "some");
  const found = await receive(receiver, 2);
  assert.deepEqual(bodies(found), ["much", "red"]);
  assert.equal(found.find((message) => message.body === "much").applicationProperties.seen, "yes");
  await none(receiver);
}

const SQL = { sqlExpression: "amount > 20" };
const ACTION = { sqlExpression: "SET seen = 'yes'" };
const RED = { subject: "red", applicationProperties: { size: "L" } };

async function rules(world, isPartitioned) {
  const topic = world.newName();
  const manager = world.administration;
  await manager.createTopic(topic, { enablePartitioning: isPartitioned });
  await manager.createSubscription(topic, "some");
  await manager.deleteRule(topic, "some", "$Default");
  await manager.createRule(topic, "some", "sql", SQL, ACTION);
  await manager.createRule(topic, "some", "correlation", RED);
  const names = [];
  for await (const rule of manager.listRules(topic, "some")) names.push(rule.name);
  assert.deepEqual(names.sort(), ["correlation", "sql"]);
  await selects(world, topic);
}

async function ruleManager(world, isPartitioned) {
  const topic = world.newName();
  await world.administration.createTopic(topic, { enablePartitioning: isPartitioned });
  await world.administration.createSubscription(topic, "some");
  const manager = world.client().createRuleManager(topic, "some");
  await manager.deleteRule("$Default");
  await manager.createRule("sql", SQL, ACTION);
  await manager.createRule("correlation", RED);
  const names = [];
  for await (const rule of manager.listRules()) names.push(rule.name);
  assert.deepEqual(names, ["correlation", "sql"]);
  await selects(world, topic);
}

async function duplicates(world, isPartitioned) {
  const { sender, receiver } = await world.open(isPartitioned, { requiresDuplicateDetection: true });
  for (const id of ["a", "b", "a", "a"]) await sender.sendMessages({ body: id, messageId: id });
  assert.deepEqual(bodies(await receive(receiver, 2)), ["a", "b"]);
  await none(receiver);
}

async function large(world) {
  const queue = world.newName();
  const manager = new ServiceBusAdministrationClient(SHARDBUS_PREMIUM_CONNECTION_STRING);
  await manager.createQueue(queue, { maxMessageSizeInKilobytes: 20480 });
  const client = world.client(SHARDBUS_PREMIUM_CONNECTION_STRING);
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  const body = Buffer.alloc(10 * 2 ** 20, "0123456789abcdef");
  await sender.sendMessages({ body });
  const got = await one(receiver);
  assert.ok(body.equals(got.body));
  await receiver.completeMessage(got);
  await assert.rejects(sender.sendMessages({ body: Buffer.alloc(21 * 2 ** 20) }), { code: "MessageSizeExceeded" });
  return "10 MiB in Premium; 21 MiB is refused where 20 MiB are allowed";
}

async function roundTrip(client, queue) {
  const receiver = client.createReceiver(queue);
  const body = "round trip ".repeat(10_000);
  await client.createSender(queue).sendMessages({ body });
  const got = await one(receiver);
  assert.equal(got.body.length, body.length);
  await receiver.completeMessage(got);
}

async function overWebSocket(world) {
  const client = world.client(SHARDBUS_CONNECTION_STRING, { webSocketOptions: { webSocket: WebSocket } });
  await roundTrip(client, await world.queue(false));
  return "wss, with the package ws";
}

async function overTls(world) {
  await roundTrip(world.client(SHARDBUS_TLS_CONNECTION_STRING), await world.queue(false));
  return "trusted by NODE_EXTRA_CA_CERTS";
}

const FEATURES = {
  administration,
  send: onBoth(sendOne),
  batch: onBoth(sendBatch),
  keyed,
  schedule: onBoth(schedule),
  receive: onBoth(receiveInBothModes),
  settle: onBoth(settle),
  deferred: onBoth(deferred),
  "dead-letters": onBoth(deadLetters),
  "session-accept": onBoth(sessionAccept),
  "session-next": onBoth(sessionNext),
  "session-state": onBoth(sessionState),
  "session-renew": sessionRenew,
  "session-list": null,
  peek: onBoth(peek),
  renew: onBoth(renew),
  "auto-renew": onBoth(autoRenew),
  prefetch: null,
  async: onBoth(sendOne),
  push: onBoth(push),
  "session-push": onBoth(sessionPush),
  rules: onBoth(rules),
  "rule-manager": onBoth(ruleManager),
  transaction: null,
  "transaction-across": null,
  duplicates: onBoth(duplicates),
  large,
  websocket: overWebSocket,
  tls: overTls,
};

function tell(feature, outcome, detail) {
  process.stdout.write(`${JSON.stringify({ feature, outcome, detail })}\n`);
}

async function attempt(name) {
  const scenario = FEATURES[name];
  if (scenario === null) {
    tell(name, "not offered", "the SDK has no such call");
    return;
  }
  const world = new World(name);
  try {
    tell(name, "passed", await scenario(world));
  } catch (failure) {
    tell(name, "failed", String(failure));
  } finally {
    await world.end();
  }
}

const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(FEATURES);
const turn = async () => {
  for (let name = wanted.shift(); name !== undefined; name = wanted.shift()) await attempt(name);
};
await Promise.all(Array.from({ length: AT_A_TIME }, turn));
process.exit(0);
