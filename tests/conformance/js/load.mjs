// Sends numbers and completes them with one client, until standard input ends; then waits for what was
// accepted.
//
//   node load.mjs NAME QUEUE
//
// A send whose answer was lost may have been stored, so it is repeated, and one number may come twice.

import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";

const [name, queue] = process.argv.slice(2);
const DRAINING_MS = 90_000;
const PAUSE_MS = 200;

const client = new ServiceBusClient(process.env.SHARDBUS_CONNECTION_STRING, {
  retryOptions: { maxRetries: 2, retryDelayInMs: PAUSE_MS, timeoutInMs: 10_000 },
});
let isOver = false;
let accepted = 0;
process.stdin.on("end", () => { isOver = true; }).resume();

async function sendUntilOver() {
  const sender = client.createSender(queue);
  while (!isOver) {
    try {
      await sender.sendMessages({ body: accepted });
      accepted += 1;
      await sleep(20);
    } catch {
      await sleep(PAUSE_MS);
    }
  }
}

async function receiveAll(isSending) {
  // Otherwise the SDK renews for five minutes the locks of messages that the loop below left after an error.
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const numbers = new Set();
  const completed = new Set();
  let returned = 0;
  let isEmpty = false;
  let deadline = Infinity;
  while (isSending() || numbers.size < accepted || !isEmpty) {
    if (!isSending() && deadline === Infinity) deadline = Date.now() + DRAINING_MS;
    if (Date.now() > deadline) throw new Error(`${accepted - numbers.size} of ${accepted} accepted are lost`);
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
  }
  if (returned > 0) throw new Error(`${returned} completed messages returned`);
}

function tell(outcome, detail) {
  process.stdout.write(`${JSON.stringify({ feature: name, outcome, detail })}\n`);
}

let isSending = true;
const sending = sendUntilOver().finally(() => { isSending = false; });
try {
  await receiveAll(() => isSending);
  await sending;
  tell("passed", "nothing accepted was lost, nothing completed returned, one client throughout");
} catch (failure) {
  tell("failed", String(failure));
}
process.exit(0);
