import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { KINDS, NOTHING, bodies, receiveAll, withQueue } from "./bus.mjs";

for (const kind of KINDS) {
  describe(`expiry and dead letters of a ${kind} queue`, { concurrency: true }, () => {
    test("expired messages are dead-lettered where the queue says so", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          await client.createSender(queue).sendMessages({ body: "late", messageId: "m", timeToLive: 500 });
          const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
          const [message] = await receiveAll(dead, 1);

          assert.deepEqual([message.body, message.messageId], ["late", "m"]);
          assert.equal(message.deadLetterReason, "TTLExpiredException");
          assert.equal(message.deadLetterErrorDescription, "The message expired and was dead lettered.");
          assert.equal(message.deadLetterSource, undefined);
        },
        { deadLetteringOnMessageExpiration: true },
      ));

    test("messages expire by the life that their queue gives them", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          await client.createSender(queue).sendMessages({ body: "x", timeToLive: 3_600_000 });
          const receiver = client.createReceiver(queue);
          const [peeked] = await receiver.peekMessages(1);
          await sleep(1_400);

          assert.equal(peeked.expiresAtUtc - peeked.enqueuedTimeUtc, 1_000);
          assert.deepEqual(await receiver.receiveMessages(1, NOTHING), []);
        },
        { defaultMessageTimeToLive: "PT1S" },
      ));

    test("a deferred message that expires is gone and not dead-lettered", () =>
      withQueue(
        kind,
        async ({ administration, client, queue }) => {
          await client.createSender(queue).sendMessages({ body: "x", timeToLive: 800 });
          const receiver = client.createReceiver(queue);
          const [message] = await receiveAll(receiver, 1);
          await receiver.deferMessage(message);
          await sleep(1_500);

          await assert.rejects(receiver.receiveDeferredMessages(message.sequenceNumber), {
            code: "MessageNotFound",
          });
          const found = await administration.getQueueRuntimeProperties(queue);
          assert.equal(found.totalMessageCount, 0);
        },
        { deadLetteringOnMessageExpiration: true },
      ));

    test("a dead letter is resubmitted by sending it again", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        const receiver = client.createReceiver(queue);
        await sender.sendMessages({ body: { retry: true }, messageId: "m" });
        const [first] = await receiveAll(receiver, 1);
        await receiver.deadLetterMessage(first, { deadLetterReason: "Later" });
        const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
        const [letter] = await receiveAll(dead, 1);
        await sender.sendMessages({ body: letter.body, messageId: letter.messageId });
        await dead.completeMessage(letter);
        const [again] = await receiveAll(receiver, 1);

        assert.deepEqual(bodies([again]), [{ retry: true }]);
        assert.equal(again.messageId, "m");
        assert.equal(again.deadLetterReason, undefined);
        assert.deepEqual(await dead.peekMessages(1), []);
      }));
  });
}
