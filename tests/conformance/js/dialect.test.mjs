// What clients assert of the service: texts, limits of batches, and documents (R31, R32, R36).

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseServiceBusConnectionString } from "@azure/service-bus";

import { connectionString, newAdministration, newClient, newName, withQueue } from "./bus.mjs";

const host = new URL(parseServiceBusConnectionString(connectionString).endpoint.replace("sb:", "http:"));

test("an unknown queue is named by the host that was addressed", async () => {
  const client = newClient();
  try {
    for (const ask of [
      () => client.createSender("Nowhere").sendMessages({ body: "x" }),
      () => client.createReceiver("Nowhere").peekMessages(1),
    ]) {
      await assert.rejects(ask, (error) => {
        assert.equal(error.code, "MessagingEntityNotFound");
        const text = `The messaging entity 'sb://${host.hostname}/Nowhere' could not be found.`;
        assert.ok(error.message.includes(text), error.message);
        return true;
      });
    }
  } finally {
    await client.close();
  }
});

test("a batch may be as large as a message where it has no limit of its own", async () => {
  await withQueue("conventional", async ({ client, queue }) => {
    const batch = await client.createSender(queue).createMessageBatch();
    assert.equal(batch.maxSizeInBytes, 256 * 1024);
  });
});

test("rules are listed by name, and one that exists is refused in the known words", async () => {
  const administration = newAdministration();
  const client = newClient();
  const topic = newName();
  await administration.createTopic(topic);
  await administration.createSubscription(topic, "s");
  const manager = client.createRuleManager(topic, "s");
  try {
    for (const name of ["b", "c", "a"]) await manager.createRule(name, { correlationId: name });
    const names = [];
    for await (const rule of manager.listRules()) names.push(rule.name);
    assert.deepEqual(names, ["$Default", "a", "b", "c"]);
    await assert.rejects(manager.createRule("a", { correlationId: "x" }), (error) => {
      assert.equal(error.code, "MessagingEntityAlreadyExists");
      assert.match(error.message, /The messaging entity '[^']*\/Rules\/a' already exists/);
      return true;
    });
  } finally {
    await client.close();
    await administration.deleteTopic(topic);
  }
});

test("an absolute destination comes back as it was written, and so may a queue forward to itself", async () => {
  const administration = newAdministration();
  const name = newName();
  const forwardTo = `sb://Some.Host.Example/${name.toUpperCase()}`;
  const made = await administration.createQueue(name, { forwardTo, requiresSession: true });
  try {
    assert.equal(made.forwardTo, forwardTo);
    assert.equal((await administration.getQueue(name)).forwardTo, forwardTo);
  } finally {
    await administration.deleteQueue(name);
  }
});
