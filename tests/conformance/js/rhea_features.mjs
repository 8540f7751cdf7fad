// rhea, a general AMQP 1.0 client, against a bus: one line of JSON for each feature on standard output.
//
//   node rhea_features.mjs [NAME...]
//
// The bus is named by variables, and the test has made the entities: plain AMQP cannot. What rhea could do
// and no scenario tries is not told, so the table says that it was not run.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

import { parseServiceBusConnectionString } from "@azure/service-bus";
import rhea from "rhea";
import WebSocket from "ws";

import { event, next, receiver } from "./rhea_links.mjs";

const TIMEOUT_MS = 20_000;
const PUSHED = 10;
const PAGE = 2;
// By which the bus lists the sessions that have messages or a state.
const ALL_SESSIONS_MS = 253_402_300_800_000;
const SESSION_FILTER = "com.microsoft:session-filter";
const BATCH_FORMAT = 0x80013700;
const LONG = 0x81;
const UUID = 0x98;
const NO_CALL = "plain AMQP has no such call";
const NO_COORDINATOR = "rhea cannot attach to a coordinator";
const NOT_OFFERED = {
  administration: NO_CALL,
  "auto-renew": NO_CALL,
  "session-push": NO_CALL,
  transaction: NO_COORDINATOR,
  "transaction-across": NO_COORDINATOR,
};
const { types } = rhea;
const ca = readFileSync(process.env.SHARDBUS_CA_FILE);
const entity = (kind) => `${process.env.SHARDBUS_PREFIX}-${kind}`;

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

/** Many messages are sent before the first is answered; two receivers take them at the same time. */
async function atOnce(kind) {
  await direct(async (connection) => {
    const numbers = [...Array(PUSHED).keys()];
    const sender = connection.open_sender({ target: { address: entity(kind) } });
    await event(sender, "sendable", ["sender_error", "sender_close"]);
    let accepted = 0;
    sender.on("accepted", () => { accepted += 1; });
    for (const body of numbers) sender.send({ body });
    while (accepted < PUSHED) await event(sender, "accepted", ["sender_error", "sender_close", "rejected"]);
    const links = [await receiver(connection, entity(kind)), await receiver(connection, entity(kind))];
    const found = [];
    for (let taken = 0; taken < PUSHED; taken += links.length) {
      for (const { message, delivery } of await Promise.all(links.map(next))) {
        delivery.accept();
        found.push(message.body);
      }
    }
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

/** Asks the node $management of an entity, as any AMQP client can. */
class Requests {
  static #count = 0;
  #number = 0;

  static async open(connection, name) {
    const requests = new Requests();
    const address = `${name}/$management`;
    requests.name = `answers-${Requests.#count++}`;
    requests.answers = await receiver(connection, address, {
      target: { address: requests.name }, snd_settle_mode: 1,
    });
    requests.sender = connection.open_sender({ target: { address } });
    await event(requests.sender, "sendable", ["sender_error", "sender_close"]);
    return requests;
  }

  /** The body of the answer, which must be a success; `link` is the receiver of the session meant. */
  async ask(operation, body, link) {
    const message_id = String(this.#number++);
    const answer = next(this.answers);
    this.sender.send({
      message_id,
      reply_to: this.name,
      application_properties: {
        operation: `com.microsoft:${operation}`, ...(link && { "associated-link-name": link.name }),
      },
      body,
    });
    const { message } = await answer;
    assert.equal(message.correlation_id, message_id);
    const { statusCode, statusDescription } = message.application_properties;
    assert.ok([200, 204].includes(statusCode), `${statusCode} ${statusDescription}`);
    return message.body ?? {};
  }

  async peek(start, count) {
    const asked = { "from-sequence-number": types.wrap_long(encoded(start)), "message-count": count };
    return decoded(await this.ask("peek-message", asked));
  }

  /** Nothing tells a receiver that its outcome has arrived. */
  async waitUntilEmpty() {
    const deadline = Date.now() + TIMEOUT_MS;
    for (let left; (left = await this.peek(0, 10)).length > 0; ) {
      assert.ok(Date.now() < deadline, `${left.length} messages are left`);
      await pause(50);
    }
  }
}

const decoded = (answer) => (answer.messages ?? []).map((each) => rhea.message.decode(each.message));

/** Numbers of partitioned entities are larger than a number of JavaScript: rhea gives eight bytes. */
function numberOf(message) {
  const number = message.message_annotations["x-opt-sequence-number"];
  return Buffer.isBuffer(number) ? number.readBigInt64BE() : BigInt(number);
}

function encoded(number) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(number));
  return bytes;
}

const longs = (...numbers) => types.wrap_array(numbers.map(encoded), LONG);

/** Each message is a section of data in one transfer of another format. */
async function batch(kind) {
  await direct(async (connection) => {
    const bodies = ["one", "two", "three"];
    const sections = bodies.map((body) => rhea.message.encode({ body }));
    const link = connection.open_sender({ target: { address: entity(kind) } });
    await event(link, "sendable", ["sender_error", "sender_close"]);
    const settled = event(link, "settled", ["sender_error", "sender_close"]);
    const whole = rhea.message.encode({ body: rhea.message.data_sections(sections) });
    link.send(whole, undefined, BATCH_FORMAT);
    assert.equal((await settled).delivery.remote_state.constructor.composite_type, "accepted");
    const receiving = await receiver(connection, entity(kind));
    const found = [];
    for (const _ of bodies) {
      const { message, delivery } = await next(receiving);
      delivery.accept();
      found.push(message.body);
    }
    assert.deepEqual(found.sort(), bodies.sort());
  });
}

/** By the annotation; $management shows the number, by which it is cancelled. */
async function schedule(kind) {
  await direct(async (connection) => {
    const at = (wait_ms) => ({ "x-opt-scheduled-enqueue-time": types.wrap_timestamp(Date.now() + wait_ms) });
    await send(connection, entity(kind), { body: "never", message_annotations: at(3_600_000) });
    await send(connection, entity(kind), { body: "soon", message_annotations: at(1000) });
    const requests = await Requests.open(connection, entity(kind));
    const never = (await requests.peek(0, 10)).find(({ body }) => body === "never");
    assert.equal(never.message_annotations["x-opt-message-state"], 2);
    await requests.ask("cancel-scheduled-message", { "sequence-numbers": longs(numberOf(never)) });
    const { message, delivery } = await next(await receiver(connection, entity(kind)));
    delivery.accept();
    assert.equal(message.body, "soon");
    await requests.waitUntilEmpty();
  });
}

async function deferred(kind) {
  await direct(async (connection) => {
    await send(connection, entity(kind), { body: "later" });
    const { message, delivery } = await next(await receiver(connection, entity(kind)));
    delivery.modified({ undeliverable_here: true });
    const requests = await Requests.open(connection, entity(kind));
    const answer = await requests.ask("receive-by-sequence-number", {
      "sequence-numbers": longs(numberOf(message)), "receiver-settle-mode": types.wrap_uint(0),
    });
    assert.deepEqual(decoded(answer).map(({ body }) => body), ["later"]);
  });
}

async function peek(kind) {
  await direct(async (connection) => {
    const bodies = ["a", "b", "c", "d", "e"];
    await send(connection, entity(kind), ...bodies.map((body) => ({ body })));
    const requests = await Requests.open(connection, entity(kind));
    const found = [];
    for (let start = 0n, page; (page = await requests.peek(start, PAGE)).length > 0; ) {
      assert.ok(page.length <= PAGE, `${page.length} messages in a page of ${PAGE}`);
      found.push(...page.map(({ body }) => body));
      start = numberOf(page.at(-1)) + 1n;
    }
    assert.deepEqual(found.sort(), bodies);
    const link = await receiver(connection, entity(kind));
    for (const _ of bodies) (await next(link)).delivery.accept();
  });
}

async function renew(kind) {
  await direct(async (connection) => {
    await send(connection, entity(kind), { body: "x" });
    const { message, delivery } = await next(await receiver(connection, entity(kind)));
    const token = message.delivery_annotations["x-opt-lock-token"];
    const requests = await Requests.open(connection, entity(kind));
    const answer = await requests.ask("renew-lock", { "lock-tokens": types.wrap_array([token], UUID) });
    const before = message.message_annotations["x-opt-locked-until"];
    assert.ok(answer.expirations[0] > before, `${answer.expirations[0]} is not after ${before}`);
    delivery.accept();
  });
}

/** A receiver of one session, or with null of the next; and the session that the bus says it has. */
async function accepted(connection, kind, session) {
  const address = entity(`sessions-${kind}`);
  const link = await receiver(connection, address, {
    source: { address, filter: { [SESSION_FILTER]: session } },
  });
  return { link, session: link.source.filter[SESSION_FILTER] };
}

async function sessionAccept(kind) {
  await direct(async (connection) => {
    const sent = ["one", "two"].map((group_id) => ({ body: `of ${group_id}`, group_id }));
    await send(connection, entity(`sessions-${kind}`), ...sent);
    for (const name of ["two", "one"]) {
      const { link, session } = await accepted(connection, kind, name);
      assert.equal(session, name);
      const { message, delivery } = await next(link);
      delivery.accept();
      assert.equal(message.body, `of ${name}`);
    }
  });
}

async function sessionNext(kind) {
  await direct(async (connection) => {
    await send(connection, entity(`sessions-${kind}`), { body: "x", group_id: "any" });
    const { link, session } = await accepted(connection, kind, null);
    assert.equal(session, "any");
    const { message, delivery } = await next(link);
    delivery.accept();
    assert.equal(message.body, "x");
  });
}

async function sessionState(kind) {
  await direct(async (connection) => {
    const { link } = await accepted(connection, kind, "state");
    const requests = await Requests.open(connection, entity(`sessions-${kind}`));
    const session = { "session-id": "state" };
    await requests.ask("set-session-state", { ...session, "session-state": Buffer.from("half") }, link);
    const { "session-state": state } = await requests.ask("get-session-state", session, link);
    assert.equal(String(state), "half");
    await requests.ask("set-session-state", { ...session, "session-state": null }, link);
  });
}

async function sessionRenew(kind) {
  await direct(async (connection) => {
    const { link } = await accepted(connection, kind, "renewed");
    const requests = await Requests.open(connection, entity(`sessions-${kind}`));
    const until = async () =>
      (await requests.ask("renew-session-lock", { "session-id": "renewed" }, link)).expiration;
    const first = await until();
    await pause(50);
    const second = await until();
    assert.ok(second > first && first > new Date(), `${first}, then ${second}`);
  });
}

async function sessionList(kind) {
  await direct(async (connection) => {
    const name = `listed-${rhea.generate_uuid()}`;
    await send(connection, entity(`sessions-${kind}`), { body: "x", group_id: name });
    const requests = await Requests.open(connection, entity(`sessions-${kind}`));
    const asked = { "last-updated-time": types.wrap_timestamp(ALL_SESSIONS_MS), skip: 0, top: 100 };
    assert.deepEqual((await requests.ask("get-message-sessions", asked))["sessions-ids"], [name]);
    (await next((await accepted(connection, kind, name)).link)).delivery.accept();
  });
}

async function ruleManager() {
  await direct(async (connection) => {
    const requests = await Requests.open(connection, `${entity("topic")}/Subscriptions/red`);
    const count = async () => (await requests.ask("enumerate-rules", { skip: 0, top: 100 })).rules.length;
    const description = { "sql-filter": { expression: "colour = 'green'" } };
    await requests.ask("add-rule", { "rule-name": "green", "rule-description": description });
    assert.equal(await count(), 2);
    await requests.ask("remove-rule", { "rule-name": "green" });
    assert.equal(await count(), 1);
  });
  return "rules added, listed and removed by requests";
}

async function duplicates(kind) {
  await direct(async (connection) => {
    const name = entity(`ids-${kind}`);
    const sent = ["same", "same", "other"].map((message_id) => ({ message_id, body: message_id }));
    await send(connection, name, ...sent);
    const link = await receiver(connection, name);
    const found = [];
    for (const _ of [1, 2]) {
      const { message, delivery } = await next(link);
      delivery.accept();
      found.push(message.body);
    }
    assert.deepEqual(found.sort(), ["other", "same"]);
    await (await Requests.open(connection, name)).waitUntilEmpty();
  });
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
  async: onBoth(atOnce),
  push: onBoth(push),
  rules,
  large,
  websocket: over("websocket"),
  tls: over("tls"),
  batch: onBoth(batch),
  schedule: onBoth(schedule),
  deferred: onBoth(deferred),
  peek: onBoth(peek),
  renew: onBoth(renew),
  "session-accept": onBoth(sessionAccept),
  "session-next": onBoth(sessionNext),
  "session-state": onBoth(sessionState),
  "session-renew": onBoth(sessionRenew),
  "session-list": onBoth(sessionList),
  "rule-manager": ruleManager,
  duplicates: onBoth(duplicates),
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
for (const [name, reason] of Object.entries(NOT_OFFERED)) {
  if (isWanted(name)) tell(name, "not offered", reason);
}
process.exit(0);
