// A connection string with a token instead of a key: the SDK then comes without a SASL layer (R34, R36).

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import { parseServiceBusConnectionString } from "@azure/service-bus";

import { connectionString, newClient, WAIT, withQueue } from "./bus.mjs";

function withSignature(text, key) {
  const { endpoint, sharedAccessKeyName } = parseServiceBusConnectionString(text);
  const audience = encodeURIComponent(endpoint);
  const expiry = Math.floor(Date.now() / 1000) + 600;
  const signature = createHmac("sha256", key).update(`${audience}\n${expiry}`).digest("base64");
  const token = `SharedAccessSignature sr=${audience}&sig=${encodeURIComponent(signature)}`
    + `&se=${expiry}&skn=${sharedAccessKeyName}`;
  return `Endpoint=${endpoint};SharedAccessSignature=${token};UseDevelopmentEmulator=true`;
}

test("a client with a signature in its connection string sends and receives", async () => {
  await withQueue("partitioned", async ({ queue }) => {
    const { sharedAccessKey } = parseServiceBusConnectionString(connectionString);
    const client = newClient(withSignature(connectionString, sharedAccessKey));
    try {
      await client.createSender(queue).sendMessages({ body: "by token" });
      const receiver = client.createReceiver(queue);
      const [message] = await receiver.receiveMessages(1, WAIT);
      await receiver.completeMessage(message);
      assert.equal(message.body, "by token");
    } finally {
      await client.close();
    }
  });
});

test("a forged signature opens nothing", async () => {
  await withQueue("conventional", async ({ queue }) => {
    const client = newClient(withSignature(connectionString, "another key"));
    try {
      await assert.rejects(client.createSender(queue).sendMessages({ body: "x" }), {
        code: "UnauthorizedAccess",
      });
    } finally {
      await client.close();
    }
  });
});
