import assert from "node:assert/strict";
import { describe, test } from "node:test";

import Long from "long";

import { DELIVERY_COUNT_MAX, KINDS, NOTHING, bodies, fragmentOf, receiveAll, sendEach, withQueue } from "./bus.mjs";

/** Receives so many messages and defers them; gives their numbers. */
async function defer(receiver, count) {
  const messages = await receiveAll(receiver, count);
  for (const message of messages) await receiver.deferMessage(message);
  return messages.map((message) => message.sequenceNumber);
}

for (const kind of KINDS) {
  describe(`deferring in a ${kind} queue`, { concurrency: true }, () => {
    test("a deferred message comes only to who asks for its number, with its new properties", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sent = { body: "later", messageId: "m-1", applicationProperties: { own: 1 } };
        await client.createSender(queue).sendMessages(sent);
        const receiver = client.createReceiver(queue);
        const [first] = await receiveAll(receiver, 1);
        await receiver.deferMessage(first, { step: "one" });
        assert.deepEqual(await receiver.receiveMessages(1, NOTHING), []);
        const [peeked] = await receiver.peekMessages(1, { fromSequenceNumber: Long.ONE });
        const [message] = await receiver.receiveDeferredMessages(first.sequenceNumber);
        await receiver.completeMessage(message);

        assert.equal(peeked.state, "deferred");
        assert.deepEqual([message.body, message.messageId], ["later", "m-1"]);
        assert.deepEqual(message.applicationProperties, { own: 1, step: "one" });
        assert.equal(message.deliveryCount, 1);
        assert.deepEqual(await receiver.peekMessages(1, { fromSequenceNumber: Long.ONE }), []);
      }));

    test("deferring a deferred message again counts, too", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "again" });
        const receiver = client.createReceiver(queue);
        const [number] = await defer(receiver, 1);
        const [message] = await receiver.receiveDeferredMessages(number);
        await receiver.deferMessage(message);
        const [again] = await receiver.receiveDeferredMessages(number);
        await receiver.completeMessage(again);

        assert.deepEqual([message.deliveryCount, again.deliveryCount], [1, 2]);
      }));

    test("several deferred messages come at once from all fragments", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sent = Array.from({ length: 20 }, (_, number) => ({ body: number }));
        await sendEach(client.createSender(queue), sent);
        const receiver = client.createReceiver(queue);
        const numbers = await defer(receiver, 20);
        const messages = await receiver.receiveDeferredMessages(numbers);
        for (const message of messages) await receiver.completeMessage(message);

        assert.deepEqual(
          bodies(messages).sort((one, other) => one - other),
          bodies(sent),
        );
        const fragments = new Set(messages.map(fragmentOf));
        assert.equal(fragments.size, kind === "partitioned" ? 16 : 1);
        assert.deepEqual(await receiver.peekMessages(1, { fromSequenceNumber: Long.ONE }), []);
      }));

    test("an unknown number is not found and the others stay unlocked", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "known" });
        const receiver = client.createReceiver(queue);
        const [number] = await defer(receiver, 1);

        await assert.rejects(
          receiver.receiveDeferredMessages([number, Long.fromNumber(4_000_000)]),
          { code: "MessageNotFound" },
        );
        const [message] = await receiver.receiveDeferredMessages(number);
        assert.equal(message.body, "known");
      }));

    test("an abandoned deferred message stays deferred until it failed too often", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "hard" });
        const receiver = client.createReceiver(queue);
        const [number] = await defer(receiver, 1);
        for (let attempt = 1; attempt < DELIVERY_COUNT_MAX; attempt += 1) {
          const [message] = await receiver.receiveDeferredMessages(number);
          assert.equal(message.deliveryCount, attempt);
          await receiver.abandonMessage(message, { attempt });
        }
        const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
        const [message] = await receiveAll(dead, 1);

        await assert.rejects(receiver.receiveDeferredMessages(number), { code: "MessageNotFound" });
        assert.equal(message.deadLetterReason, "MaxDeliveryCountExceeded");
        assert.equal(message.applicationProperties.attempt, DELIVERY_COUNT_MAX - 1);
      }));

    test("a deferred message can be renewed, dead-lettered, and deferred there again", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "moved" });
        const receiver = client.createReceiver(queue);
        const [number] = await defer(receiver, 1);
        const [message] = await receiver.receiveDeferredMessages(number);
        const until = await receiver.renewMessageLock(message);
        await receiver.deadLetterMessage(message, { deadLetterReason: "Moved" });
        const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
        const [again] = await defer(dead, 1);
        const [found] = await dead.receiveDeferredMessages(again);
        await dead.completeMessage(found);

        assert.ok(until > Date.now());
        assert.deepEqual([found.body, found.deadLetterReason], ["moved", "Moved"]);
        assert.equal(found.deliveryCount, 1);
        assert.deepEqual(await dead.peekMessages(1, { fromSequenceNumber: Long.ONE }), []);
      }));
  });
}
