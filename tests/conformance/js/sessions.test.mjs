import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import {
  DELIVERY_COUNT_MAX,
  KINDS,
  LOCK_SHORT_MS,
  NOTHING,
  bodies,
  receiveAll,
  sendEach,
  withClient,
  withQueue,
} from "./bus.mjs";

const SESSIONS = { requiresSession: true };
// Without it the SDK renews a session's lock by itself.
const NOT_RENEWED = { maxAutoLockRenewalDurationInMs: 0 };
// Well below what a poll, or the end of a wait, would take.
const WOKEN_MS = 3_000;

function numbered(sessionId, count) {
  return Array.from({ length: count }, (_, number) => ({ body: `${sessionId} ${number}`, sessionId }));
}

for (const kind of KINDS) {
  describe(`sessions of a ${kind} queue`, { concurrency: true }, () => {
    test("a session is accepted by its id and gives its own messages in order", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const sender = client.createSender(queue);
          await sendEach(sender, [...numbered("red", 5), ...numbered("blue", 5)]);
          const session = await client.acceptSession(queue, "red");
          const messages = await receiveAll(session, 5);
          for (const message of messages) await session.completeMessage(message);

          assert.equal(session.sessionId, "red");
          assert.deepEqual(bodies(messages), bodies(numbered("red", 5)));
          assert.ok(messages.every((message) => message.sessionId === "red"));
          const remaining = session.sessionLockedUntilUtc - Date.now();
          assert.ok(remaining <= LOCK_SHORT_MS, remaining);
          assert.deepEqual(await session.receiveMessages(1, NOTHING), []);
          await session.close();
        },
        SESSIONS,
      ));

    test("a session id is not case-sensitive, and messages keep theirs", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const names = ["SessionId", "sessionId", "SESSIONID"];
          const sender = client.createSender(queue);
          await sendEach(sender, names.map((name) => ({ body: name, sessionId: name })));
          const session = await client.acceptSession(queue, "sessionId");
          const messages = await receiveAll(session, 3);
          await session.setSessionState("kept");
          await assert.rejects(client.acceptSession(queue, "SESSIONID"), {
            code: "SessionCannotBeLocked",
          });
          await session.close();
          const heir = await client.acceptSession(queue, "SESSIONID");

          assert.equal(session.sessionId, "sessionId");
          assert.equal(heir.sessionId, "SESSIONID");
          assert.deepEqual(messages.map((message) => message.sessionId), names);
          assert.equal(String(await heir.getSessionState()), "kept");
          await heir.close();
        },
        SESSIONS,
      ));

    test("an empty string is a session id, with a partition key that differs", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const sender = client.createSender(queue);
          await sendEach(sender, [
            { body: "one", sessionId: "" },
            { body: "two", sessionId: "", partitionKey: "elsewhere" },
          ]);
          // This client takes an empty id for none, and cannot accept it.
          const receiver = client.createReceiver(queue);
          const messages = await receiver.peekMessages(2);

          assert.deepEqual(bodies(messages), ["one", "two"]);
          assert.deepEqual(messages.map((message) => message.sessionId), ["", ""]);
          assert.equal(messages[1].partitionKey, "elsewhere");
          await receiver.close();
        },
        SESSIONS,
      ));

    test("the next session is one with messages that nobody holds", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const sender = client.createSender(queue);
          await sendEach(sender, [...numbered("one", 1), ...numbered("two", 1)]);
          const held = await client.acceptSession(queue, "empty");
          const first = await client.acceptNextSession(queue);
          const second = await client.acceptNextSession(queue);
          const [message] = await receiveAll(second, 1);

          assert.deepEqual([first.sessionId, second.sessionId].sort(), ["one", "two"]);
          assert.equal(message.body, `${second.sessionId} 0`);
          await Promise.all([held, first, second].map((session) => session.close()));
        },
        SESSIONS,
      ));

    test("a waiting acceptor is woken by the first message of a session", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const sender = client.createSender(queue);
          const accepting = client.acceptNextSession(queue);
          await sleep(500);
          const sentAt = Date.now();
          await sendEach(sender, numbered("new", 1));
          const session = await accepting;

          assert.ok(Date.now() - sentAt < WOKEN_MS);
          assert.equal(session.sessionId, "new");
          assert.deepEqual(bodies(await receiveAll(session, 1)), ["new 0"]);
          await session.close();
        },
        SESSIONS,
      ));

    test("without a session in time the acceptor is told so", () =>
      withQueue(
        kind,
        ({ queue }) =>
          withClient(1_000, async (impatient) => {
            await assert.rejects(impatient.acceptNextSession(queue), { code: "ServiceTimeout" });
          }),
        SESSIONS,
      ));

    test("a session has one holder and is free when that one closes", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          await sendEach(client.createSender(queue), numbered("shared", 2));
          const holder = await client.acceptSession(queue, "shared");
          await receiveAll(holder, 2);
          await assert.rejects(client.acceptSession(queue, "shared"), {
            code: "SessionCannotBeLocked",
          });
          await holder.close();
          const heir = await client.acceptSession(queue, "shared");
          const messages = await receiveAll(heir, 2);

          assert.deepEqual(bodies(messages), ["shared 0", "shared 1"]);
          assert.deepEqual(
            messages.map((message) => message.deliveryCount),
            [0, 0],
          );
          await heir.close();
        },
        SESSIONS,
      ));

    test("the state of a session stays until it is cleared", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const first = await client.acceptSession(queue, "stateful");
          assert.equal(await first.getSessionState(), null);
          await first.setSessionState({ step: 1, text: "ü" });
          assert.deepEqual(await first.getSessionState(), { step: 1, text: "ü" });
          await first.close();
          const second = await client.acceptSession(queue, "stateful");
          assert.deepEqual(await second.getSessionState(), { step: 1, text: "ü" });
          await second.setSessionState(null);
          assert.equal(await second.getSessionState(), null);
          await second.close();
        },
        SESSIONS,
      ));

    test("an abandoned message comes first again, and too often is dead-lettered", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          await sendEach(client.createSender(queue), numbered("ordered", 3));
          const session = await client.acceptSession(queue, "ordered");
          for (let attempt = 0; attempt < DELIVERY_COUNT_MAX; attempt += 1) {
            const [message] = await receiveAll(session, 1);
            assert.deepEqual([message.body, message.deliveryCount], ["ordered 0", attempt]);
            await session.abandonMessage(message);
          }
          const rest = await receiveAll(session, 2);
          const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
          const [found] = await receiveAll(dead, 1);

          assert.deepEqual(bodies(rest), ["ordered 1", "ordered 2"]);
          assert.deepEqual([found.body, found.sessionId], ["ordered 0", "ordered"]);
          assert.equal(found.deadLetterReason, "MaxDeliveryCountExceeded");
          await session.close();
        },
        SESSIONS,
      ));

    test("peeking and deferring stay within the session", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const sender = client.createSender(queue);
          await sendEach(sender, [...numbered("mine", 3), ...numbered("other", 3)]);
          const mine = await client.acceptSession(queue, "mine");
          const other = await client.acceptSession(queue, "other");
          assert.deepEqual(bodies(await mine.peekMessages(10)), bodies(numbered("mine", 3)));
          const [first] = await receiveAll(mine, 1);
          await mine.deferMessage(first);
          assert.deepEqual(bodies(await receiveAll(mine, 1)), ["mine 1"]);
          await assert.rejects(other.receiveDeferredMessages(first.sequenceNumber), {
            code: "MessageNotFound",
          });
          const [deferred] = await mine.receiveDeferredMessages(first.sequenceNumber);
          await mine.completeMessage(deferred);

          assert.equal(deferred.body, "mine 0");
          await Promise.all([mine.close(), other.close()]);
        },
        SESSIONS,
      ));

    test("a session that is not renewed ends and passes to the next", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const sender = client.createSender(queue);
          await sendEach(sender, [...numbered("lost", 2), ...numbered("renewed", 1)]);
          const lost = await client.acceptSession(queue, "lost", NOT_RENEWED);
          const renewed = await client.acceptSession(queue, "renewed", NOT_RENEWED);
          const [first] = await receiveAll(lost, 1);
          const [safe] = await receiveAll(renewed, 1);
          const firstEnd = renewed.sessionLockedUntilUtc;
          await sleep(1_000);
          const renewedEnd = await renewed.renewSessionLock();
          const heir = await client.acceptNextSession(queue);
          const again = await receiveAll(heir, 2);

          assert.ok(renewedEnd - firstEnd >= 900);
          assert.equal(heir.sessionId, "lost");
          assert.deepEqual(bodies(again), ["lost 0", "lost 1"]);
          assert.deepEqual(
            again.map((message) => message.deliveryCount),
            [1, 0],
          );
          await assert.rejects(lost.completeMessage(first), { code: "SessionLockLost" });
          await assert.rejects(lost.renewSessionLock(), { code: "SessionLockLost" });
          await renewed.completeMessage(safe);
          await Promise.all([heir.close(), renewed.close(), lost.close()]);
        },
        SESSIONS,
      ));

    test("a subscription handles a session's messages one after another", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          await sendEach(client.createSender(queue), numbered("streamed", 20));
          const session = await client.acceptNextSession(queue);
          const found = [];
          await new Promise((resolve, reject) => {
            session.subscribe({
              processMessage: async (message) => {
                found.push(message.body);
                if (found.length === 20) resolve();
              },
              processError: async ({ error }) => reject(error),
            });
          });
          await session.close();

          assert.deepEqual(found, bodies(numbered("streamed", 20)));
        },
        SESSIONS,
      ));

    test("receivers and queues must agree about sessions", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          await assert.rejects(client.createReceiver(queue).receiveMessages(1, NOTHING), /requires sessions/);
          await assert.rejects(client.createSender(queue).sendMessages({ body: "x" }), /session/);
        },
        SESSIONS,
      ));

    test("a plain queue has no sessions to accept", () =>
      withQueue(kind, async ({ client, queue }) => {
        await assert.rejects(client.acceptNextSession(queue), /non-sessionful/);
        // For a named session the SDK has one error, whatever the bus says.
        await assert.rejects(client.acceptSession(queue, "any"), { code: "SessionCannotBeLocked" });
      }));
  });
}
