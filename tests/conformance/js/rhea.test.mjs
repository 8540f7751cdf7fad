// Plain AMQP 1.0 with rhea, which knows nothing of the dialect: SASL PLAIN, links, credit and every
// outcome (R32, R34, R36).

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseServiceBusConnectionString } from "@azure/service-bus";
import rhea from "rhea";

import { connectionString, withQueue } from "./bus.mjs";
import { event, next, receiver } from "./rhea_links.mjs";

const { endpoint, sharedAccessKeyName, sharedAccessKey } =
  parseServiceBusConnectionString(connectionString);
const { hostname, port } = new URL(endpoint.replace("sb:", "http:"));
const SMALL_FRAME = 4_096;

async function connect(options = {}) {
  const connection = rhea.create_container().connect({
    host: hostname,
    port: Number(port),
    username: sharedAccessKeyName,
    password: sharedAccessKey,
    reconnect: false,
    ...options,
  });
  // Unheard, an error is an exception of the process.
  connection.on("error", () => {});
  connection.on("disconnected", () => {});
  await event(connection, "connection_open", ["connection_error", "disconnected"]);
  return connection;
}

async function sender(connection, address, options = {}) {
  const link = connection.open_sender({ target: { address }, ...options });
  await event(link, "sendable", ["sender_error", "sender_close"]);
  return link;
}

/** The outcome that the bus settles a message with, and its error if it has one. */
async function send(link, message) {
  const settled = event(link, "settled", ["sender_error", "sender_close"]);
  link.send(message);
  const state = (await settled).delivery.remote_state;
  return { outcome: state.constructor.composite_type, error: state.error };
}

/** The bodies of what there is: ten are asked for, and the bus says when that was all. */
async function drained(link) {
  const bodies = [];
  const note = ({ message }) => bodies.push(message.body);
  link.on("message", note);
  const done = event(link, "receiver_drained", ["receiver_error", "receiver_close"]);
  link.drain = true;
  link.add_credit(10);
  await done;
  link.removeListener("message", note);
  link.drain = false;
  return bodies;
}

/** Runs `scenario` with a connection and the name of a fresh queue. */
async function plain(scenario, { kind = "conventional", ...options } = {}) {
  await withQueue(kind, async ({ queue }) => {
    const connection = await connect(options);
    try {
      await scenario(connection, queue);
    } finally {
      connection.close();
      await event(connection, "connection_close", ["disconnected"]);
    }
  });
}

for (const kind of ["conventional", "partitioned"]) {
  test(`a message is accepted, received and gone in a ${kind} queue`, () =>
    plain(
      async (connection, queue) => {
        const sent = await send(await sender(connection, queue), { body: "hello" });
        assert.equal(sent.outcome, "accepted");

        const link = await receiver(connection, queue);
        const { message, delivery } = await next(link);
        assert.equal(message.body, "hello");
        delivery.accept();
        assert.deepEqual(await drained(link), []);
      },
      { kind },
    ));
}

test("every property comes back as it was sent", () =>
  plain(async (connection, queue) => {
    const properties = {
      message_id: "id-1",
      correlation_id: "answered",
      subject: "order",
      to: "somebody",
      reply_to: "answers",
      content_type: "text/plain",
      content_encoding: "utf-8",
      group_id: "group",
      group_sequence: 7,
      reply_to_group_id: "other group",
    };
    const application_properties = { text: "t", number: 42, flag: true, none: null };
    const link = await sender(connection, queue);
    await send(link, { ...properties, application_properties, priority: 9, body: "x" });

    const { message, delivery } = await next(await receiver(connection, queue));
    delivery.accept();
    for (const [name, value] of Object.entries(properties)) assert.equal(message[name], value, name);
    assert.deepEqual({ ...message.application_properties }, application_properties);
    assert.equal(message.priority, 9);
    assert.ok("x-opt-sequence-number" in message.message_annotations);
  }));

test("ids keep their types", () =>
  plain(async (connection, queue) => {
    const uuid = rhea.string_to_uuid("3f2504e0-4f89-11d3-9a0c-0305e82c3301");
    const link = await sender(connection, queue);
    await send(link, { message_id: uuid, correlation_id: 17, body: "x" });

    const { message, delivery } = await next(await receiver(connection, queue));
    delivery.accept();
    assert.deepEqual(Buffer.from(message.message_id), Buffer.from(uuid));
    assert.equal(message.correlation_id, 17);
  }));

test("data, sequences, lists and maps are bodies", () =>
  plain(async (connection, queue) => {
    const bodies = [
      rhea.message.data_section(Buffer.from([0, 1, 255])),
      rhea.message.sequence_section([1, "two", null]),
      { a: 1, b: ["x"] },
    ];
    const sending = await sender(connection, queue);
    for (const body of bodies) await send(sending, { body });

    const link = await receiver(connection, queue);
    const found = [];
    for (const _ of bodies) {
      const { message, delivery } = await next(link);
      delivery.accept();
      found.push(message.body);
    }
    assert.equal(found[0].typecode, 0x75);
    assert.deepEqual([...found[0].content], [0, 1, 255]);
    assert.equal(found[1].typecode, 0x76);
    assert.deepEqual(found[1].content, [1, "two", null]);
    assert.deepEqual({ ...found[2] }, { a: 1, b: ["x"] });
  }));

test("no more comes than there is credit for", () =>
  plain(async (connection, queue) => {
    const sending = await sender(connection, queue);
    for (const body of ["one", "two", "three"]) await send(sending, { body });

    const link = await receiver(connection, queue);
    const found = [];
    link.on("message", ({ message, delivery }) => {
      found.push(message.body);
      delivery.accept();
    });
    link.add_credit(2);
    while (found.length < 2) await event(link, "message");
    // A request that is answered after whatever was on its way.
    await send(sending, { body: "four" });
    assert.deepEqual(found, ["one", "two"]);

    link.add_credit(2);
    while (found.length < 4) await event(link, "message");
    assert.deepEqual(found, ["one", "two", "three", "four"]);
  }));

test("a drain brings what there is and takes the credit back", () =>
  plain(async (connection, queue) => {
    const sending = await sender(connection, queue);
    for (const body of ["one", "two"]) await send(sending, { body });

    const link = await receiver(connection, queue);
    assert.deepEqual(await drained(link), ["one", "two"]);
    assert.equal(link.credit, 0);
  }));

test("a released message comes back uncounted", () =>
  plain(async (connection, queue) => {
    await send(await sender(connection, queue), { body: "x" });
    const link = await receiver(connection, queue);

    (await next(link)).delivery.release();
    const { message, delivery } = await next(link);
    assert.equal(message.delivery_count ?? 0, 0);
    delivery.accept();
  }));

test("a message modified as failed comes back counted, with what was changed", () =>
  plain(async (connection, queue) => {
    await send(await sender(connection, queue), { body: "x" });
    const link = await receiver(connection, queue);

    (await next(link)).delivery.modified({
      delivery_failed: true,
      message_annotations: { note: "later" },
    });
    const { message, delivery } = await next(link);
    assert.equal(message.delivery_count, 1);
    assert.equal(message.application_properties.note, "later");
    delivery.accept();
  }));

test("a message modified as undeliverable here is not delivered again", () =>
  plain(async (connection, queue) => {
    await send(await sender(connection, queue), { body: "x" });
    const link = await receiver(connection, queue);

    (await next(link)).delivery.modified({ delivery_failed: true, undeliverable_here: true });
    assert.deepEqual(await drained(link), []);
  }));

test("a message that fails too often is a dead letter", () =>
  plain(async (connection, queue) => {
    await send(await sender(connection, queue), { body: "poison" });
    const link = await receiver(connection, queue);
    for (const count of [0, 1, 2]) {
      const { message, delivery } = await next(link);
      assert.equal(message.delivery_count ?? 0, count);
      delivery.modified({ delivery_failed: true });
    }

    const dead = await receiver(connection, `${queue}/$DeadLetterQueue`);
    const { message, delivery } = await next(dead);
    delivery.accept();
    assert.equal(message.body, "poison");
    assert.equal(message.application_properties.DeadLetterReason, "MaxDeliveryCountExceeded");
  }));

test("a rejected message is a dead letter with the reason that was given", () =>
  plain(async (connection, queue) => {
    await send(await sender(connection, queue), { body: "bad" });
    (await next(await receiver(connection, queue))).delivery.reject({
      condition: "com.microsoft:dead-letter",
      info: { DeadLetterReason: "unreadable", DeadLetterErrorDescription: "no JSON" },
    });

    const dead = await receiver(connection, `${queue}/$DeadLetterQueue`);
    const { message, delivery } = await next(dead);
    delivery.accept();
    assert.equal(message.body, "bad");
    assert.equal(message.application_properties.DeadLetterReason, "unreadable");
    assert.equal(message.application_properties.DeadLetterErrorDescription, "no JSON");
  }));

test("what is sent settled arrives, and what is delivered settled is gone", () =>
  plain(async (connection, queue) => {
    const sending = await sender(connection, queue, { snd_settle_mode: 1 });
    sending.send({ body: "x" });

    const deleting = await receiver(connection, queue, { snd_settle_mode: 1 });
    const { message, delivery } = await next(deleting);
    assert.deepEqual([message.body, delivery.remote_settled], ["x", true]);
    assert.deepEqual(await drained(await receiver(connection, queue)), []);
  }));

test("what a link had locked stays locked when the link is gone", () =>
  plain(async (connection, queue) => {
    await send(await sender(connection, queue), { body: "x" });
    const first = await receiver(connection, queue);
    await next(first);
    first.close();
    await event(first, "receiver_close");

    assert.deepEqual(await drained(await receiver(connection, queue)), []);
  }));

test("a message of many frames goes both ways", () =>
  plain(
    async (connection, queue) => {
      const body = "0123456789abcdef".repeat(12_500);
      await send(await sender(connection, queue), { body });

      const { message, delivery } = await next(await receiver(connection, queue));
      delivery.accept();
      assert.equal(message.body, body);
    },
    { max_frame_size: SMALL_FRAME },
  ));

test("a message that the queue cannot take is rejected, and the link goes on", () =>
  plain(async (connection, queue) => {
    const link = await sender(connection, queue);
    const conflicting = {
      body: "x",
      group_id: "one",
      message_annotations: { "x-opt-partition-key": "other" },
    };
    const refused = await send(link, conflicting);
    assert.equal(refused.outcome, "rejected");
    assert.equal(refused.error.condition, "amqp:not-allowed");
    assert.equal((await send(link, { body: "y" })).outcome, "accepted");
  }));

test("a link to what does not exist is closed with not-found", () =>
  plain(async (connection) => {
    const link = connection.open_sender({ target: { address: "nowhere" } });
    const { sender: closed } = await event(link, "sender_error");
    assert.equal(closed.error.condition, "amqp:not-found");
    assert.ok(closed.error.description.includes("nowhere"), closed.error.description);
  }));

test("a wrong key opens nothing", async () => {
  await assert.rejects(connect({ password: "wrong" }));
});
