import assert from "node:assert/strict";
import { test } from "node:test";

import { newAdministration, newName, withQueue } from "./bus.mjs";

test("partitioning is on unless it is switched off, and the whole size is shown", async () => {
  const administration = newAdministration();
  const name = newName();

  const byDefault = await administration.createQueue(name);
  await administration.deleteQueue(name);
  const switchedOff = await administration.createQueue(name, { enablePartitioning: false });
  await administration.deleteQueue(name);

  assert.equal(byDefault.enablePartitioning, true);
  assert.equal(byDefault.maxSizeInMegabytes, 16 * 1024);
  assert.equal(switchedOff.enablePartitioning, false);
  assert.equal(switchedOff.maxSizeInMegabytes, 1024);
});

test("a queue keeps the properties it was made with", async () => {
  const administration = newAdministration();
  const name = newName();
  await administration.createQueue(name, {
    lockDuration: "PT45S",
    defaultMessageTimeToLive: "P2D",
    maxDeliveryCount: 7,
    deadLetteringOnMessageExpiration: true,
    userMetadata: "made by a test & <kept>",
  });

  const found = await administration.getQueue(name);
  await administration.deleteQueue(name);

  assert.equal(found.name, name);
  assert.equal(found.lockDuration, "PT45S");
  assert.equal(found.defaultMessageTimeToLive, "P2D");
  assert.equal(found.maxDeliveryCount, 7);
  assert.equal(found.deadLetteringOnMessageExpiration, true);
  assert.equal(found.userMetadata, "made by a test & <kept>");
});

test("a name can be used once, exists until it is deleted, and is listed meanwhile", async () => {
  const administration = newAdministration();
  const name = newName();
  await administration.createQueue(name);
  await assert.rejects(administration.createQueue(name), { code: "MessageEntityAlreadyExistsError" });
  assert.equal(await administration.queueExists(name), true);
  const names = [];
  for await (const queue of administration.listQueues()) names.push(queue.name);
  assert.ok(names.includes(name));

  await administration.deleteQueue(name);

  assert.equal(await administration.queueExists(name), false);
  await assert.rejects(administration.getQueue(name), { code: "MessageEntityNotFoundError" });
});

test("an update changes what it names and never the partitioning", () =>
  withQueue("partitioned", async ({ administration, queue }) => {
    const found = await administration.getQueue(queue);
    await administration.updateQueue({ ...found, maxDeliveryCount: 4 });

    assert.equal((await administration.getQueue(queue)).maxDeliveryCount, 4);
    await assert.rejects(
      administration.updateQueue({ ...found, enablePartitioning: false }),
      /EnablePartitioning/,
    );
  }));

test("runtime properties add up over the fragments", () =>
  withQueue("partitioned", async ({ administration, client, queue }) => {
    const sender = client.createSender(queue);
    for (let number = 0; number < 20; number += 1) await sender.sendMessages({ body: number });

    const found = await administration.getQueueRuntimeProperties(queue);

    assert.equal(found.activeMessageCount, 20);
    assert.equal(found.totalMessageCount, 20);
    assert.ok(found.sizeInBytes > 20);
  }));

test("sessions, duplicates and idle life come back as they were asked for", () =>
  withQueue(
    "partitioned",
    async ({ administration, queue }) => {
      const found = await administration.getQueue(queue);

      assert.equal(found.requiresSession, true);
      assert.equal(found.requiresDuplicateDetection, true);
      assert.equal(found.duplicateDetectionHistoryTimeWindow, "PT3M");
      assert.equal(found.autoDeleteOnIdle, "PT1H");
      await assert.rejects(
        administration.updateQueue({ ...found, requiresSession: false }),
        /RequiresSession/,
      );
    },
    {
      requiresSession: true,
      requiresDuplicateDetection: true,
      duplicateDetectionHistoryTimeWindow: "PT3M",
      autoDeleteOnIdle: "PT1H",
    },
  ));

for (const [status, sends, receives] of [
  ["Disabled", false, false],
  ["SendDisabled", false, true],
  ["ReceiveDisabled", true, false],
]) {
  test(`a queue that is ${status} says so and loses nothing`, () =>
    withQueue("partitioned", async ({ administration, client, queue }) => {
      await client.createSender(queue).sendMessages({ body: "before" });
      const found = await administration.getQueue(queue);
      await administration.updateQueue({ ...found, status });
      const disabled = { code: "MessagingEntityDisabled" };
      const sending = client.createSender(queue).sendMessages({ body: "during" });
      await (sends ? sending : assert.rejects(sending, disabled));
      const receiving = client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 5_000 });
      if (receives) assert.equal((await receiving).length, 1);
      else await assert.rejects(receiving, disabled);
      await administration.updateQueue({ ...found, status: "Active" });

      const count = (await administration.getQueueRuntimeProperties(queue)).totalMessageCount;
      assert.equal(count, sends ? 2 : 1);
    }));
}
