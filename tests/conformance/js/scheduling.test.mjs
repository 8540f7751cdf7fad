import assert from "node:assert/strict";
import { describe, test } from "node:test";

import Long from "long";

import { KINDS, NOTHING, bodies, receiveAll, withQueue } from "./bus.mjs";

// How much later than its moment a message may come.
const LATE_MS = 1_000;
const DAY_MS = 86_400_000;

function soon(ms) {
  return new Date(Date.now() + ms);
}

function peekFirst(receiver, count) {
  return receiver.peekMessages(count, { fromSequenceNumber: Long.ONE });
}

for (const kind of KINDS) {
  describe(`scheduling in a ${kind} queue`, { concurrency: true }, () => {
    test("a scheduled message comes at its moment with a new number", () =>
      withQueue(kind, async ({ client, queue }) => {
        const receiver = client.createReceiver(queue);
        const moment = soon(1_500);
        const [number] = await client.createSender(queue).scheduleMessages({ body: "later" }, moment);
        const [peeked] = await peekFirst(receiver, 1);
        const [message] = await receiveAll(receiver, 1);
        await receiver.completeMessage(message);

        assert.ok(peeked.sequenceNumber.equals(number));
        assert.equal(peeked.state, "scheduled");
        assert.equal(peeked.scheduledEnqueueTimeUtc.getTime(), moment.getTime());
        assert.ok(peeked.enqueuedTimeUtc < moment);
        assert.ok(message.enqueuedTimeUtc >= moment);
        assert.ok(message.enqueuedTimeUtc - moment <= LATE_MS);
        assert.ok(message.sequenceNumber.greaterThan(number));
        assert.equal(message.state, "scheduled");
        assert.deepEqual(await peekFirst(receiver, 1), []);
      }));

    test("many messages are scheduled at once and can all be cancelled", () =>
      withQueue(kind, async ({ administration, client, queue }) => {
        const sender = client.createSender(queue);
        const messages = Array.from({ length: 40 }, (_, number) => ({ body: number }));
        const numbers = await sender.scheduleMessages(messages, soon(DAY_MS));
        const during = await administration.getQueueRuntimeProperties(queue);
        await sender.cancelScheduledMessages(numbers[0]);
        await sender.cancelScheduledMessages(numbers.slice(1));
        const after = await administration.getQueueRuntimeProperties(queue);

        assert.equal(new Set(numbers.map(String)).size, 40);
        assert.deepEqual([during.scheduledMessageCount, during.activeMessageCount], [40, 0]);
        assert.equal(after.totalMessageCount, 0);
        await assert.rejects(sender.cancelScheduledMessages(numbers[0]), { code: "MessageNotFound" });
      }));

    test("a message may carry the time itself, alone and in a batch", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        const receiver = client.createReceiver(queue);
        const scheduledEnqueueTimeUtc = soon(2_000);
        const batch = await sender.createMessageBatch();
        batch.tryAddMessage({ body: "in a batch", scheduledEnqueueTimeUtc });
        batch.tryAddMessage({ body: "of now" });
        await sender.sendMessages(batch);
        await sender.sendMessages({ body: "alone", scheduledEnqueueTimeUtc });
        const early = await receiveAll(receiver, 1);
        assert.deepEqual(await receiver.receiveMessages(1, NOTHING), []);
        const late = await receiveAll(receiver, 2);

        assert.deepEqual(bodies(early), ["of now"]);
        assert.deepEqual(bodies(late).sort(), ["alone", "in a batch"]);
        assert.ok(late.every((message) => message.enqueuedTimeUtc >= scheduledEnqueueTimeUtc));
      }));

    test("a scheduled message makes its session available", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const moment = soon(1_200);
          const message = { body: "later", sessionId: "timed" };
          await client.createSender(queue).scheduleMessages(message, moment);
          const session = await client.acceptNextSession(queue);
          const acceptedAt = Date.now();

          assert.equal(session.sessionId, "timed");
          assert.ok(acceptedAt >= moment);
          const [received] = await receiveAll(session, 1);
          assert.deepEqual([received.body, received.state], ["later", "scheduled"]);
          await session.close();
        },
        { requiresSession: true },
      ));
  });
}
