// What the JavaScript tests share: clients of the server under test, and queues made for one test.

import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

const connectionString = process.env.SHARDBUS_CONNECTION_STRING;
const prefix = process.env.SHARDBUS_QUEUE_PREFIX;

export const LOCK_SHORT_MS = 5_000;
export const DELIVERY_COUNT_MAX = 3;
export const KINDS = ["conventional", "partitioned"];
// How long to wait for what must come; only spent when a test fails.
export const WAIT = { maxWaitTimeInMs: 20_000 };
// How long to wait for what must not come.
export const NOTHING = { maxWaitTimeInMs: 500 };

let count = 0;

export function newName() {
  count += 1;
  return `${prefix}-${count}`;
}

export function newAdministration() {
  return new ServiceBusAdministrationClient(connectionString);
}

export function newClient(text = connectionString, timeoutInMs = 60_000) {
  return new ServiceBusClient(text, { retryOptions: { maxRetries: 0, timeoutInMs } });
}

export { connectionString };

/** Runs `scenario` with a client and a fresh queue; whatever happens, both are gone afterwards. */
export async function withQueue(kind, scenario, options = {}) {
  const administration = newAdministration();
  const queue = newName();
  await administration.createQueue(queue, {
    enablePartitioning: kind === "partitioned",
    lockDuration: `PT${LOCK_SHORT_MS / 1000}S`,
    maxDeliveryCount: DELIVERY_COUNT_MAX,
    ...options,
  });
  const client = newClient();
  try {
    await scenario({ client, queue, administration });
  } finally {
    await client.close();
    await administration.deleteQueue(queue);
  }
}

/** Exactly so many messages, in as many receives as it takes; fewer when no more come. */
export async function receiveAll(receiver, wanted) {
  const messages = [];
  while (messages.length < wanted) {
    const found = await receiver.receiveMessages(wanted - messages.length, WAIT);
    if (found.length === 0) break;
    messages.push(...found);
  }
  return messages;
}

/** Runs `scenario` with a client of its own that waits only so long; it is closed afterwards. */
export async function withClient(timeoutInMs, scenario) {
  const client = newClient(connectionString, timeoutInMs);
  try {
    return await scenario(client);
  } finally {
    await client.close();
  }
}

export async function sendEach(sender, messages) {
  for (const message of messages) await sender.sendMessages(message);
}

export function bodies(messages) {
  return messages.map((message) => message.body);
}

/** The fragment that gave out the sequence number of a message. */
export function fragmentOf(message) {
  return message.sequenceNumber.shiftRightUnsigned(48).toNumber();
}
