// R32: AMQP over WebSocket. The SDK always dials wss, on the port of the connection string.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ServiceBusClient } from "@azure/service-bus";
import WebSocket from "ws";

import { KINDS, WAIT, bodies, connectionString, receiveAll, withQueue } from "./bus.mjs";

async function overWebSocket(kind, scenario) {
  await withQueue(kind, async ({ queue }) => {
    const client = new ServiceBusClient(connectionString, {
      retryOptions: { maxRetries: 0 },
      webSocketOptions: { webSocket: WebSocket },
    });
    try {
      await scenario({ client, queue });
    } finally {
      await client.close();
    }
  });
}

for (const kind of KINDS) {
  describe(`a ${kind} queue over WebSocket`, () => {
    test("messages arrive, are completed and are gone", () =>
      overWebSocket(kind, async ({ client, queue }) => {
        const sent = Array.from({ length: 100 }, (_, number) => `message ${number}`);

        await client.createSender(queue).sendMessages(sent.map((body) => ({ body })));
        const receiver = client.createReceiver(queue);
        const received = await receiveAll(receiver, sent.length);
        for (const message of received) await receiver.completeMessage(message);

        assert.deepEqual(bodies(received).sort(), [...sent].sort());
        assert.deepEqual(await receiver.peekMessages(1), []);
      }));

    test("a large message comes back whole", () =>
      overWebSocket(kind, async ({ client, queue }) => {
        const body = Buffer.alloc(250_000, "abc");

        await client.createSender(queue).sendMessages({ body });
        const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
        const [received] = await receiver.receiveMessages(1, WAIT);

        assert.ok(body.equals(received.body));
      }));

    test("a lock is renewed and an abandoned message comes back", () =>
      overWebSocket(kind, async ({ client, queue }) => {
        await client.createSender(queue).sendMessages({ body: "x" });
        const receiver = client.createReceiver(queue);
        const [first] = await receiver.receiveMessages(1, WAIT);
        const before = first.lockedUntilUtc;

        const until = await receiver.renewMessageLock(first);
        await receiver.abandonMessage(first);
        const [second] = await receiver.receiveMessages(1, WAIT);

        assert.ok(until >= before);
        assert.equal(second.deliveryCount, first.deliveryCount + 1);
      }));
  });
}

test("a queue that is not there is reported as over TCP", () =>
  overWebSocket(KINDS[0], async ({ client }) => {
    await assert.rejects(client.createSender("no-such-queue").sendMessages({ body: "x" }), {
      code: "MessagingEntityNotFound",
    });
  }));
