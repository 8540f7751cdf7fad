// Sends numbers and completes them over one connection of rhea, until standard input ends; then waits for
// what was accepted. rhea makes the connection and its links again by itself.
//
//   node rhea_load.mjs NAME QUEUE
//
// A send whose answer was lost may have been stored, so it is repeated: with the id it had, and the queue
// detects duplicates.

import { setTimeout as sleep } from "node:timers/promises";
import { parseServiceBusConnectionString } from "@azure/service-bus";
import rhea from "rhea";

import { PAUSE_MS, receiveUntilDrained, run, sendUntilOver } from "./loading.mjs";

const [name, address] = process.argv.slice(2);
const ANSWER_MS = 10_000;
const QUIET_MS = 1000;

const { endpoint, sharedAccessKeyName, sharedAccessKey } = parseServiceBusConnectionString(
  process.env.SHARDBUS_CONNECTION_STRING,
);
const { hostname, port } = new URL(endpoint.replace("sb:", "http:"));
const connection = rhea.create_container().connect({
  host: hostname,
  port: Number(port),
  username: sharedAccessKeyName,
  password: sharedAccessKey,
  max_reconnect_delay: 500,
});
// Unheard, an error is an exception of the process.
connection.on("error", () => {});
connection.on("disconnected", () => {});

/** Resolves when the message is accepted; rejects when it is not, or its answer is lost. */
function sent(sender, message) {
  return new Promise((resolve, reject) => {
    const endings = { accepted: resolve, rejected: reject, released: reject, modified: reject };
    const timer = setTimeout(() => end(reject, "no answer"), ANSWER_MS);
    const lost = () => end(reject, "disconnected");
    const heard = Object.entries(endings).map(([outcome, settle]) => [
      outcome, ({ delivery: told }) => { if (told === delivery) end(settle, outcome); },
    ]);
    const end = (settle, value) => {
      clearTimeout(timer);
      connection.removeListener("disconnected", lost);
      for (const [outcome, listener] of heard) sender.removeListener(outcome, listener);
      settle(value);
    };
    connection.on("disconnected", lost);
    for (const [outcome, listener] of heard) sender.on(outcome, listener);
    const delivery = sender.send(message);
  });
}

function sendAll() {
  const sender = connection.open_sender({ target: { address } });
  return sendUntilOver(async (number) => {
    if (!connection.is_open() || !sender.sendable()) throw new Error("away");
    await sent(sender, { message_id: String(number), body: number });
  });
}

const numbers = new Set();
const completed = new Set();
let returned = 0;
let lastMs = Date.now();

/** Mode "second": the bus answers an outcome, and only then it is certain. */
function receive() {
  const link = connection.open_receiver({
    source: { address }, snd_settle_mode: 0, rcv_settle_mode: 1, autoaccept: false, credit_window: 20,
  });
  link.on("message", ({ message, delivery }) => {
    lastMs = Date.now();
    numbers.add(message.body);
    returned += completed.has(message.message_id) ? 1 : 0;
    delivery.number = message.message_id;
    delivery.accept();
  });
  link.on("settled", ({ delivery }) => {
    if (delivery.remote_state.constructor.composite_type === "accepted") completed.add(delivery.number);
  });
}

async function receiveAll() {
  receive();
  await receiveUntilDrained(numbers, () => Date.now() >= lastMs + QUIET_MS, () => sleep(PAUSE_MS));
  if (returned > 0) throw new Error(`${returned} completed messages returned`);
  if (completed.size === 0) throw new Error("no message was completed");
}

await run(name, sendAll, receiveAll);
