// Sends numbers and completes them with one client, until standard input ends; then waits for what was
// accepted.
//
//   node load.mjs NAME QUEUE
//
// A send whose answer was lost may have been stored, so it is repeated, and one number may come twice.

import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";

import { PAUSE_MS, receiveUntilDrained, run, sendUntilOver } from "./loading.mjs";

const [name, queue] = process.argv.slice(2);

const client = new ServiceBusClient(process.env.SHARDBUS_CONNECTION_STRING, {
  retryOptions: { maxRetries: 2, retryDelayInMs: PAUSE_MS, timeoutInMs: 10_000 },
});

function sendAll() {
  const sender = client.createSender(queue);
  return sendUntilOver((number) => sender.sendMessages({ body: number }));
}

async function receiveAll() {
  // Otherwise the SDK renews for five minutes the locks of messages that the loop below left after an error.
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const numbers = new Set();
  const completed = new Set();
  let returned = 0;
  let isEmpty = false;
  await receiveUntilDrained(numbers, () => isEmpty, async () => {
    try {
      const found = await receiver.receiveMessages(20, { maxWaitTimeInMs: 1000 });
      isEmpty = found.length === 0;
      for (const message of found) {
        const number = message.sequenceNumber.toString();
        numbers.add(message.body);
        returned += completed.has(number) ? 1 : 0;
        await receiver.completeMessage(message);
        completed.add(number);
      }
    } catch {
      isEmpty = false;
      await sleep(PAUSE_MS);
    }
  });
  if (returned > 0) throw new Error(`${returned} completed messages returned`);
}

await run(name, sendAll, receiveAll);
