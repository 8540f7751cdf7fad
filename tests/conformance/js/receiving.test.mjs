import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import {
  DELIVERY_COUNT_MAX,
  KINDS,
  LOCK_SHORT_MS,
  NOTHING,
  WAIT,
  bodies,
  receiveAll,
  withQueue,
} from "./bus.mjs";

for (const kind of KINDS) {
  describe(`receiving from a ${kind} queue`, { concurrency: true }, () => {
    test("an abandoned message comes back with a higher count and its new properties", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "again" });
        const receiver = client.createReceiver(queue);

        const [first] = await receiveAll(receiver, 1);
        await receiver.abandonMessage(first, { tried: "once" });
        const [second] = await receiveAll(receiver, 1);

        assert.equal(first.deliveryCount, 0);
        assert.equal(second.deliveryCount, 1);
        assert.equal(second.applicationProperties.tried, "once");
        assert.ok(second.sequenceNumber.equals(first.sequenceNumber));
        assert.notEqual(second.lockToken, first.lockToken);
      }));

    test("changes of properties add up over several abandons", () =>
      withQueue(kind, async ({ client, queue }) => {
        const applicationProperties = { own: "kept", both: "old" };
        await client.createSender(queue).sendMessages({ body: "x", applicationProperties });
        const receiver = client.createReceiver(queue);
        for (const changes of [{ first: 1, both: "new" }, { first: 2, second: true }]) {
          const [message] = await receiveAll(receiver, 1);
          await receiver.abandonMessage(message, changes);
        }
        const [message] = await receiveAll(receiver, 1);

        const expected = { own: "kept", both: "new", first: 2, second: true };
        assert.deepEqual(message.applicationProperties, expected);
      }));

    test("an abandoned message can be held back for a while", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        const receiver = client.createReceiver(queue);
        await sender.sendMessages({ body: "delayed" });
        const [first] = await receiveAll(receiver, 1);
        const abandonedAt = Date.now();
        await receiver.abandonMessage(first, { "x-shardbus-delay-ms": 1_500, why: "busy" });
        await sender.sendMessages({ body: "next" });
        const [next] = await receiveAll(receiver, 1);
        const [again] = await receiveAll(receiver, 1);

        assert.equal(next.body, "next");
        assert.ok(Date.now() - abandonedAt >= 1_500);
        assert.deepEqual([again.body, again.deliveryCount], ["delayed", 1]);
        assert.deepEqual(again.applicationProperties, { why: "busy" });
      }));

    test("a message abandoned too often is dead-lettered", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "poison" });
        const receiver = client.createReceiver(queue);
        for (let attempt = 0; attempt < DELIVERY_COUNT_MAX; attempt += 1) {
          const [message] = await receiveAll(receiver, 1);
          await receiver.abandonMessage(message);
        }
        assert.deepEqual(await receiver.receiveMessages(1, NOTHING), []);

        const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
        const [message] = await receiveAll(dead, 1);
        await dead.completeMessage(message);

        assert.equal(message.body, "poison");
        assert.equal(message.deadLetterReason, "MaxDeliveryCountExceeded");
        assert.deepEqual(await dead.peekMessages(1), []);
      }));

    test("a dead letter keeps its message and gains a reason", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({
          body: { unreadable: true },
          messageId: "m-1",
          subject: "label",
          applicationProperties: { tries: 3 },
        });
        const receiver = client.createReceiver(queue);
        const [message] = await receiveAll(receiver, 1);
        await receiver.deadLetterMessage(message, {
          deadLetterReason: "NotJson",
          deadLetterErrorDescription: "expected an object",
          seenBy: "a test",
        });

        const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
        const [found] = await receiveAll(dead, 1);

        assert.deepEqual(found.body, { unreadable: true });
        assert.equal(found.messageId, "m-1");
        assert.equal(found.subject, "label");
        assert.equal(found.deadLetterReason, "NotJson");
        assert.equal(found.deadLetterErrorDescription, "expected an object");
        assert.equal(found.applicationProperties.tries, 3);
        assert.equal(found.applicationProperties.seenBy, "a test");
      }));

    test("renewing extends the lock past its first end", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "long work" });
        const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
        const [message] = await receiveAll(receiver, 1);
        const firstEnd = message.lockedUntilUtc;
        await sleep(1_000);

        const renewedEnd = await receiver.renewMessageLock(message);

        assert.ok(renewedEnd - firstEnd >= 1_000);
        await sleep(firstEnd - Date.now() + 200);
        await receiver.completeMessage(message);
        assert.deepEqual(await receiver.peekMessages(1), []);
      }));

    test("an expired lock returns the message and its holder cannot settle it", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "slow" });
        const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
        const [first] = await receiveAll(receiver, 1);
        const [second] = await receiver.receiveMessages(1, {
          maxWaitTimeInMs: LOCK_SHORT_MS + 15_000,
        });

        await assert.rejects(receiver.completeMessage(first), { code: "MessageLockLost" });
        await receiver.completeMessage(second);

        assert.equal(second.deliveryCount, 1);
        assert.deepEqual(await receiver.peekMessages(1), []);
      }));

    test("receive-and-delete takes the message at once", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        for (const body of ["one", "two", "three"]) await sender.sendMessages({ body });

        const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
        const messages = await receiveAll(receiver, 3);

        assert.deepEqual(bodies(messages).sort(), ["one", "three", "two"]);
        assert.deepEqual(await receiver.peekMessages(1), []);
      }));

    test("asking for more than there is drains the link and keeps it usable", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        const receiver = client.createReceiver(queue);
        for (let round = 0; round < 3; round += 1) {
          await sender.sendMessages({ body: round });
          const messages = await receiver.receiveMessages(100, WAIT);
          assert.deepEqual(bodies(messages), [round]);
          await receiver.completeMessage(messages[0]);
        }
        assert.deepEqual(await receiver.receiveMessages(10, NOTHING), []);
      }));

    test("a subscription of the receiver handles every message once", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sent = Array.from({ length: 60 }, (_, number) => number);
        const found = [];
        const failures = [];
        const { promise, resolve } = deferred();
        const receiver = client.createReceiver(queue);
        const handlers = {
          processMessage: async (message) => {
            found.push(message.body);
            if (found.length === sent.length) resolve();
          },
          processError: async ({ error }) => {
            failures.push(error);
            resolve();
          },
        };
        const subscription = receiver.subscribe(handlers, { maxConcurrentCalls: 8 });
        const sender = client.createSender(queue);
        for (const body of sent) await sender.sendMessages({ body });
        await promise;
        await subscription.close();

        assert.deepEqual(failures, []);
        assert.deepEqual(
          found.sort((one, other) => one - other),
          sent,
        );
      }));

    test("an iterator yields messages as they come", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        await sender.sendMessages([{ body: 1 }, { body: 2 }, { body: 3 }]);
        const receiver = client.createReceiver(queue);
        const found = [];
        for await (const message of receiver.getMessageIterator()) {
          found.push(message.body);
          await receiver.completeMessage(message);
          if (found.length === 3) break;
        }

        assert.deepEqual(found.sort(), [1, 2, 3]);
      }));

    test("an expired message is dropped", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        await sender.sendMessages({ body: "brief", timeToLive: 300 });
        await sender.sendMessages({ body: "lasting", timeToLive: 300_000 });
        await sleep(500);

        const messages = await client.createReceiver(queue).receiveMessages(2, {
          maxWaitTimeInMs: 2_000,
        });

        assert.deepEqual(bodies(messages), ["lasting"]);
        assert.equal(messages[0].expiresAtUtc - messages[0].enqueuedTimeUtc, 300_000);
      }));
  });
}

function deferred() {
  let resolve;
  const promise = new Promise((fulfil) => {
    resolve = fulfil;
  });
  return { promise, resolve };
}
