import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { KINDS, bodies, receiveAll, sendEach, withQueue } from "./bus.mjs";

const UNIQUE = { requiresDuplicateDetection: true };

for (const kind of KINDS) {
  describe(`duplicates in a ${kind} queue`, { concurrency: true }, () => {
    test("a second message with the same id is accepted and dropped", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const sender = client.createSender(queue);
          const receiver = client.createReceiver(queue);
          const messages = Array.from({ length: 20 }, (_, number) => ({
            body: number,
            messageId: `id ${number}`,
          }));
          await sendEach(sender, messages);
          const [first] = await receiveAll(receiver, 1);
          await receiver.completeMessage(first);
          await sendEach(sender, messages);
          const found = await receiver.peekMessages(100);

          assert.equal(found.length, 19);
          assert.deepEqual(
            bodies([first, ...found]).sort((one, other) => one - other),
            bodies(messages),
          );
        },
        UNIQUE,
      ));

    test("without an id nothing is a duplicate", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          await sendEach(client.createSender(queue), [{ body: "same" }, { body: "same" }]);

          assert.equal((await client.createReceiver(queue).peekMessages(10)).length, 2);
        },
        UNIQUE,
      ));

    test("a copy with another key is a copy only where fragments are one", () =>
      withQueue(
        kind,
        async ({ client, queue }) => {
          const keys = ["a", "b", "a"];
          const messages = keys.map((key) => ({ body: key, messageId: "same", partitionKey: key }));
          await sendEach(client.createSender(queue), messages);
          const found = bodies(await client.createReceiver(queue).peekMessages(10));

          assert.deepEqual(found.sort(), kind === "partitioned" ? ["a", "b"] : ["a"]);
        },
        UNIQUE,
      ));
  });
}
