// rhea, a general AMQP 1.0 client, against a bus: one line of JSON for each feature on standard output.
//
//   node rhea_features.mjs [NAME...]
//
// The bus is named by variables, and the test has made the entities: plain AMQP cannot. What rhea could do
// and no scenario tries is not told, so the table says that it was not run.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { parseServiceBusConnectionString } from "@azure/service-bus";
import rhea from "rhea";
import WebSocket from "ws";

const TIMEOUT_MS = 20_000;
const PUSHED = 10;
const NOT_OFFERED = [
  "administration", "batch", "schedule", "deferred", "session-accept", "session-next", "session-state",
  "session-renew", "session-list", "peek", "renew", "auto-renew", "session-push", "rule-manager",
  "transaction", "transaction-across",
];
const ca = readFileSync(process.env.SHARDBUS_CA_FILE);
const entity = (kind) => `${process.env.SHARDBUS_PREFIX}-${kind}`;

/** The context of the first such event; rejects when one of `failures` comes before, or nothing. */
function event(emitter, name, failures = []) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => end(reject, new Error(`no ${name}`)), TIMEOUT_MS);
    const good = (context) => end(resolve, context);
    const bad = (context) => end(reject, context.error ?? emitter.error ?? new Error("ended"));
    const end = (settle, value) => {
      clearTimeout(timer);
      emitter.removeListener(name, good);
      for (const failure of failures) emitter.removeListener(failure, bad);
      settle(value);
    };
    emitter.on(name, good);
    for (const failure of failures) emitter.on(failure, bad);
  });
}

/** Runs a scenario with a connection that shows the key of a connection string itself. */
async function connected(text, how, scenario) {
  const { endpoint, sharedAccessKeyName, sharedAccessKey } = parseServiceBusConnectionString(text);
  const { hostname, port } = new URL(endpoint.replace("sb:", "http:"));
  const container = rhea.create_container();
  const secure = { transport: "tls", ca };
  const socket = {
    connection_details: container.websocket_connect(WebSocket)(
      `wss://${hostname}:${port}/$servicebus/websocket`, ["AMQPWSB10"], { ca },
    ),
  };
  const connection = container.connect({
    host: hostname,
    port: Number(port),
    username: sharedAccessKeyName,
    password: sharedAccessKey,
    reconnect: false,
    ...(how === "tls" ? secure : how === "websocket" ? socket : {}),
  });
  // Unheard, an error is an exception of the process.
  connection.on("error", () => {});
  connection.on("disconnected", () => {});
  await event(connection, "connection_open", ["connection_error", "disconnected"]);
  try {
    return await scenario(connection);
  } finally {
    connection.close();
    await event(connection, "connection_close", ["disconnected"]);
  }
}

const direct = (scenario) => connected(process.env.SHARDBUS_CONNECTION_STRING, "", scenario);

async function send(connection, address, ...messages) {
  const link = connection.open_sender({ target: { address } });
  await event(link, "sendable", ["sender_error", "sender_close"]);
  for (const message of messages) {
    const settled = event(link, "settled", ["sender_error", "sender_close"]);
    link.send(message);
    assert.equal((await settled).delivery.remote_state.constructor.composite_type, "accepted");
  }
}

async function receiver(connection, address, options = {}) {
  const link = connection.open_receiver({
    source: { address },
    snd_settle_mode: 0,
    autoaccept: false,
    credit_window: 0,
    ...options,
  });
  await event(link, "receiver_open", ["receiver_error", "receiver_close"]);
  return link;
}

/** The next message, for which a credit is given. */
function next(link) {
  const message = event(link, "message", ["receiver_error", "receiver_close"]);
  link.add_credit(1);
  return message;
}

async function sendOne(kind) {
  await direct(async (connection) => {
    const sent = { body: "hello", message_id: "id-1", subject: "subject", application_properties: { number: 7 } };
    await send(connection, entity(kind), sent);
    const { message, delivery } = await next(await receiver(connection, entity(kind)));
    delivery.accept();
    assert.deepEqual([message.body, message.message_id, message.subject], ["hello", "id-1", "subject"]);
  });
}

async function keyed() {
  await direct(async (connection) => {
    const numbers = [...Array(12).keys()];
    await send(connection, entity("partitioned"), ...numbers.map((number) => ({
      body: `${number % 3} ${number}`,
      message_annotations: { "x-opt-partition-key": String(number % 3) },
    })));
    const link = await receiver(connection, entity("partitioned"));
    const last = {};
    for (const _ of numbers) {
      const { message, delivery } = await next(link);
      delivery.accept();
      const [key, number] = message.body.split(" ");
      assert.ok((last[key] ?? -1) < Number(number), `${number} of ${key} comes after ${last[key]}`);
      last[key] = Number(number);
    }
  });
  return "one order for each key";
}

async function receive(kind) {
  await direct(async (connection) => {
    await send(connection, entity(kind), { body: "locked" });
    const link = await receiver(connection, entity(kind));
    const locked = await next(link);
    locked.delivery.accept();
    assert.equal(locked.message.body, "locked");
    await send(connection, entity(kind), { body: "deleted" });
    const { message, delivery } = await next(await receiver(connection, entity(kind), { snd_settle_mode: 1 }));
    assert.deepEqual([message.body, delivery.remote_settled], ["deleted", true]);
  });
}

async function settle(kind) {
  await direct(async (connection) => {
    await send(connection, entity(kind), { body: "x" });
    const link = await receiver(connection, entity(kind));
    (await next(link)).delivery.release();
    const released = await next(link);
    assert.equal(released.message.delivery_count ?? 0, 0);
    released.delivery.modified({ delivery_failed: true });
    const { message, delivery } = await next(link);
    assert.equal(message.delivery_count, 1);
    delivery.accept();
  });
}

async function deadLetters(kind) {
  await direct(async (connection) => {
    await send(connection, entity(kind), { body: "bad" });
    (await next(await receiver(connection, entity(kind)))).delivery.reject({
      condition: "com.microsoft:dead-letter",
      info: { DeadLetterReason: "unreadable" },
    });
    const { message, delivery } = await next(await receiver(connection, `${entity(kind)}/$DeadLetterQueue`));
    delivery.accept();
    assert.deepEqual([message.body, message.application_properties.DeadLetterReason], ["bad", "unreadable"]);
  });
}

/** Messages that are handed to a callback, as far as the credit window allows. */
async function push(kind) {
  await direct(async (connection) => {
    const numbers = [...Array(PUSHED).keys()];
    await send(connection, entity(kind), ...numbers.map((body) => ({ body })));
    const link = connection.open_receiver({
      source: entity(kind), snd_settle_mode: 0, credit_window: 4, autoaccept: true,
    });
    const found = [];
    link.on("message", ({ message }) => found.push(message.body));
    while (found.length < PUSHED) await event(link, "message", ["receiver_error", "receiver_close"]);
    assert.deepEqual(found.sort((a, b) => a - b), numbers);
  });
}

async function rules() {
  await direct(async (connection) => {
    const colours = ["red", "blue", "red"];
    await send(connection, entity("topic"), ...colours.map((colour) => ({
      body: colour, application_properties: { colour },
    })));
    const link = await receiver(connection, `${entity("topic")}/Subscriptions/red`);
    for (const _ of [1, 2]) {
      const { message, delivery } = await next(link);
      delivery.accept();
      assert.equal(message.body, "red");
    }
  });
  return "what a rule of the subscription selects";
}

async function large() {
  await connected(process.env.SHARDBUS_PREMIUM_CONNECTION_STRING, "", async (connection) => {
    await send(connection, entity("large"), { body: rhea.message.data_section(Buffer.alloc(10 << 20)) });
    const { message, delivery } = await next(await receiver(connection, entity("large")));
    delivery.accept();
    assert.equal(message.body.content.length, 10 << 20);
  });
  return "10 MiB in Premium";
}

const over = (how) => async () => {
  await connected(process.env.SHARDBUS_TLS_CONNECTION_STRING, how, async (connection) => {
    await send(connection, entity("results"), { body: how });
    const { message, delivery } = await next(await receiver(connection, entity("results")));
    delivery.accept();
    assert.equal(message.body, how);
  });
  return how === "tls" ? "amqps" : "wss, with the subprotocol AMQPWSB10";
};

const onBoth = (scenario) => async () => {
  for (const kind of ["conventional", "partitioned"]) await scenario(kind);
  return "conventional and partitioned";
};

const FEATURES = {
  send: onBoth(sendOne),
  keyed,
  receive: onBoth(receive),
  settle: onBoth(settle),
  "dead-letters": onBoth(deadLetters),
  prefetch: onBoth(push),
  push: onBoth(push),
  rules,
  large,
  websocket: over("websocket"),
  tls: over("tls"),
};

function tell(feature, outcome, detail) {
  process.stdout.write(`${JSON.stringify({ feature, outcome, detail })}\n`);
}

const wanted = process.argv.slice(2);
const isWanted = (name) => wanted.length === 0 || wanted.includes(name);
for (const [name, scenario] of Object.entries(FEATURES)) {
  if (!isWanted(name)) continue;
  try {
    tell(name, "passed", await scenario());
  } catch (failure) {
    tell(name, "failed", String(failure));
  }
}
for (const name of NOT_OFFERED.filter(isWanted)) tell(name, "not offered", "plain AMQP has no such call");
process.exit(0);
