// What the loads share: they send numbers until standard input ends, wait for what was accepted, and say
// in a line of JSON how it went.

import { setTimeout as sleep } from "node:timers/promises";

export const PAUSE_MS = 200;
const DRAINING_MS = 90_000;
const BETWEEN_MS = 20;

let isOver = false;
let isSending = true;
let accepted = 0;
process.stdin.on("end", () => { isOver = true; }).resume();

/** Until standard input ends; `send` rejects when a number was not accepted, or nobody knows. */
export async function sendUntilOver(send) {
  while (!isOver) {
    try {
      await send(accepted);
      accepted += 1;
      await sleep(BETWEEN_MS);
    } catch {
      await sleep(PAUSE_MS);
    }
  }
}

/** Calls `receive` until all accepted numbers were seen and `isQuiet`; throws when that takes too long. */
export async function receiveUntilDrained(numbers, isQuiet, receive) {
  let deadline = Infinity;
  while (isSending || numbers.size < accepted || !isQuiet()) {
    if (!isSending && deadline === Infinity) deadline = Date.now() + DRAINING_MS;
    if (Date.now() > deadline) throw new Error(`${accepted - numbers.size} of ${accepted} accepted are lost`);
    await receive();
  }
}

/** Runs both, says how it went, and ends the process. */
export async function run(name, send, receive) {
  const tell = (outcome, detail) =>
    process.stdout.write(`${JSON.stringify({ feature: name, outcome, detail })}\n`);
  const sending = send().finally(() => { isSending = false; });
  try {
    await receive();
    await sending;
    tell("passed", "nothing accepted was lost, nothing completed returned, one client throughout");
  } catch (failure) {
    tell("failed", String(failure));
  }
  process.exit(0);
}
