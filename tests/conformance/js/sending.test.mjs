import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { KINDS, bodies, connectionString, fragmentOf, newClient, receiveAll, withQueue } from "./bus.mjs";

for (const kind of KINDS) {
  describe(`sending to a ${kind} queue`, () => {
    test("one message arrives and a completed one is gone", () =>
      withQueue(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "hello" });

        const receiver = client.createReceiver(queue);
        const [message] = await receiveAll(receiver, 1);
        await receiver.completeMessage(message);

        assert.equal(message.body, "hello");
        assert.equal(message.deliveryCount, 0);
        assert.deepEqual(await receiver.peekMessages(1), []);
      }));

    test("a list arrives whole and in order in its fragment", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sent = Array.from({ length: 50 }, (_, number) => `message ${number}`);
        await client.createSender(queue).sendMessages(sent.map((body) => ({ body })));

        const messages = await receiveAll(client.createReceiver(queue), sent.length);
        messages.sort((one, other) => one.sequenceNumber.compare(other.sequenceNumber));

        assert.deepEqual(bodies(messages), sent);
        assert.equal(new Set(messages.map(fragmentOf)).size, 1);
      }));

    test("a batch fills up to the size of the link", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        const batch = await sender.createMessageBatch();
        while (batch.tryAddMessage({ body: "x".repeat(20_000) }));
        await sender.sendMessages(batch);

        assert.equal(batch.maxSizeInBytes, 262_144);
        assert.equal(batch.count, 13);
        const messages = await receiveAll(client.createReceiver(queue), batch.count);
        assert.equal(messages.length, batch.count);
      }));

    test("messages with one key share a fragment and their order", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        for (let number = 0; number < 20; number += 1) {
          await sender.sendMessages({ body: number, partitionKey: `key ${number % 4}` });
        }

        const messages = await receiveAll(client.createReceiver(queue), 20);

        for (const key of ["key 0", "key 1", "key 2", "key 3"]) {
          const ofKey = messages.filter((message) => message.partitionKey === key);
          const numbers = bodies(ofKey);
          assert.equal(ofKey.length, 5);
          assert.equal(new Set(ofKey.map(fragmentOf)).size, 1);
          assert.deepEqual(numbers, [...numbers].sort((one, other) => one - other));
        }
      }));

    test("messages without a key are spread evenly", () =>
      withQueue(kind, async ({ client, queue }) => {
        const sender = client.createSender(queue);
        for (let number = 0; number < 32; number += 1) {
          await sender.sendMessages({ body: number });
        }

        const messages = await receiveAll(client.createReceiver(queue), 32);

        const fragments = kind === "partitioned" ? 16 : 1;
        for (let fragment = 0; fragment < fragments; fragment += 1) {
          const share = messages.filter((message) => fragmentOf(message) === fragment);
          assert.equal(share.length, 32 / fragments);
        }
      }));
  });
}

test("an unknown queue is not found", async () => {
  const client = newClient();
  try {
    await assert.rejects(client.createSender("nowhere").sendMessages({ body: "x" }), {
      code: "MessagingEntityNotFound",
    });
    await assert.rejects(client.createReceiver("nowhere").receiveMessages(1), {
      code: "MessagingEntityNotFound",
    });
  } finally {
    await client.close();
  }
});

test("a batch of many keys arrives whole, in the order of each key", () =>
  withQueue("partitioned", async ({ client, queue }) => {
    const keys = Array.from({ length: 20 }, (_, number) => `key ${number}`);
    const messages = [0, 1, 2].flatMap((number) =>
      keys.map((key) => ({ body: `${key}/${number}`, partitionKey: key })),
    );

    await client.createSender(queue).sendMessages(messages);

    const peeked = await client.createReceiver(queue).peekMessages(100);
    assert.equal(peeked.length, messages.length);
    for (const key of keys) {
      const mine = peeked.filter((message) => message.partitionKey === key);
      assert.deepEqual(
        mine.map((message) => message.body),
        [0, 1, 2].map((number) => `${key}/${number}`),
      );
    }
  }));

test("an oversized message is reported as such", () =>
  withQueue("partitioned", async ({ client, queue }) => {
    await assert.rejects(client.createSender(queue).sendMessages({ body: "x".repeat(300_000) }), {
      code: "MessageSizeExceeded",
    });
  }));

test("a wrong key is refused", async () => {
  const client = newClient(connectionString.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=no"));
  try {
    await assert.rejects(client.createSender("any").sendMessages({ body: "x" }), {
      code: "UnauthorizedAccess",
    });
  } finally {
    await client.close();
  }
});
