import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { KINDS, bodies, receiveAll, withQueue } from "./bus.mjs";

async function walk(receiver, pageSize) {
  const pages = [];
  for (;;) {
    const page = await receiver.peekMessages(pageSize);
    if (page.length === 0) return pages;
    pages.push(page);
    assert.ok(pages.length < 1_000, "the walk does not end");
  }
}

for (const kind of KINDS) {
  describe(`browsing a ${kind} queue`, () => {
    test("walking in pages shows every message once", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        const sent = Array.from({ length: 130 }, (_, number) => number);
        for (let start = 0; start < sent.length; start += 10) {
          await sender.sendMessages(sent.slice(start, start + 10).map((body) => ({ body })));
        }

        const pages = await walk(client.createReceiver(queue), 40);

        assert.deepEqual(
          bodies(pages.flat()).sort((one, other) => one - other),
          sent,
        );
      }));

    test("a page ends at 256 kilobytes and the rest follows", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        for (let number = 0; number < 12; number += 1) {
          await sender.sendMessages({ body: "x".repeat(60_000) });
        }

        const pages = await walk(client.createReceiver(queue), 100);

        assert.equal(pages.flat().length, 12);
        assert.ok(pages.every((page) => page.length <= 4));
      }));

    test("peeking locks nothing and shows locked messages", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "seen" });
        const receiver = client.createReceiver(queue);
        const [before] = await receiver.peekMessages(1);
        const [message] = await receiveAll(receiver, 1);
        const fromSequenceNumber = before.sequenceNumber;
        const [during] = await receiver.peekMessages(1, { fromSequenceNumber });

        assert.deepEqual(bodies([before, message, during]), ["seen", "seen", "seen"]);
        assert.equal(before.state, "active");
        assert.equal(before.lockToken, undefined);
        assert.equal(message.deliveryCount, 0);
      }));

    test("peeking shows deferred and scheduled messages with their states", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        const receiver = client.createReceiver(queue);
        await sender.sendMessages({ body: "deferred" });
        const [message] = await receiveAll(receiver, 1);
        await receiver.deferMessage(message);
        await sender.sendMessages({ body: "active" });
        const tomorrow = new Date(Date.now() + 86_400_000);
        await sender.sendMessages({ body: "scheduled", scheduledEnqueueTimeUtc: tomorrow });
        const shown = (await walk(client.createReceiver(queue), 2)).flat();

        for (const { body, state } of shown) assert.equal(state, body);
        assert.deepEqual(bodies(shown).sort(), ["active", "deferred", "scheduled"]);
      }));
  });
}
