import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { KINDS, receiveAll, withQueue } from "./bus.mjs";

async function through({ client, queue }, message) {
  await client.createSender(queue).sendMessages(message);
  const receiver = client.createReceiver(queue);
  const [received] = await receiveAll(receiver, 1);
  await receiver.completeMessage(received);
  return received;
}

for (const kind of KINDS) {
  describe(`a round trip through a ${kind} queue`, () => {
    test("application properties keep their values", () =>
      withQueue(kind, async (bus) => {
        const applicationProperties = {
          text: "Grüße, 世界",
          empty: "",
          yes: true,
          no: false,
          integer: -5,
          large: 2 ** 40,
          double: 2.5,
          nothing: null,
        };
        const moment = new Date(Date.UTC(2024, 1, 29, 12, 30, 15, 250));

        const received = await through(bus, {
          body: "x",
          applicationProperties: { ...applicationProperties, moment },
        });

        // The SDK shows a moment as its number of milliseconds.
        const expected = { ...applicationProperties, moment: moment.getTime() };
        assert.deepEqual(received.applicationProperties, expected);
      }));

    test("message properties come back as sent", () =>
      withQueue(kind, async (bus) => {
        const sent = {
          body: "x",
          messageId: "id-1",
          correlationId: "correlation-1",
          subject: "subject-1",
          contentType: "application/json",
          replyTo: "somewhere",
          replyToSessionId: "their session",
          to: "someone",
          partitionKey: "pinned",
          timeToLive: 3_600_000,
        };

        const received = await through(bus, sent);

        for (const [name, value] of Object.entries(sent)) assert.equal(received[name], value, name);
        assert.ok(Math.abs(received.enqueuedTimeUtc - Date.now()) < 60_000);
        assert.equal(received.enqueuedSequenceNumber, 0);
      }));

    test("delivery annotations arrive beside the token of the lock", () =>
      withQueue(kind, async (bus) => {
        const deliveryAnnotations = { mine: "Grüße" };

        const received = await through(bus, { body: "x", bodyType: "data", deliveryAnnotations });

        const { "x-opt-lock-token": token, ...others } =
          received._rawAmqpMessage.deliveryAnnotations;
        assert.deepEqual(others, deliveryAnnotations);
        // The SDK shows the bytes of a uuid as the members of an object.
        const hex = Buffer.from(Object.values(token)).toString("hex");
        assert.equal(hex, received.lockToken.replaceAll("-", ""));
      }));

    for (const firstAcquirer of [true, false]) {
      test(`a header comes back as it was sent, first acquirer ${firstAcquirer}`, () =>
        withQueue(kind, async (bus) => {
          const header = { durable: firstAcquirer, firstAcquirer, priority: 5, timeToLive: 100_000 };

          const received = await through(bus, {
            body: "x",
            bodyType: "data",
            header: { ...header, deliveryCount: 3 },
          });

          assert.deepEqual(received._rawAmqpMessage.header, { ...header, deliveryCount: 0 });
        }));
    }

    for (const body of [
      "text",
      42,
      2.5,
      true,
      null,
      { nested: [1, "two", { three: 3 }] },
      [1, 2, 3],
      Buffer.from([0, 1, 255]),
    ]) {
      test(`a body of ${JSON.stringify(body)} comes back`, () =>
        withQueue(kind, async (bus) => {
          const received = await through(bus, { body });

          assert.deepEqual(received.body, body);
        }));
    }

    for (const [bodyType, body] of [
      ["data", Buffer.from("bytes")],
      ["value", { a: 1 }],
      ["sequence", [1, "two", 3.5]],
    ]) {
      test(`a raw ${bodyType} body keeps its kind`, () =>
        withQueue(kind, async (bus) => {
          const received = await through(bus, { bodyType, body });

          assert.equal(received._rawAmqpMessage.bodyType, bodyType);
          assert.deepEqual(received.body, body);
        }));
    }

    test("a large message comes back whole", () =>
      withQueue(kind, async (bus) => {
        const body = Buffer.alloc(250_000, "abc");

        const received = await through(bus, { body });

        assert.ok(body.equals(received.body));
      }));
  });
}
