// A program of its own that asks a bus something inside TLS; see test_trust.py.

import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

const [side, connectionString] = process.argv.slice(2);
const retryOptions = { maxRetries: 0, timeoutInMs: 10_000 };

if (side === "http") {
  const administration = new ServiceBusAdministrationClient(connectionString, { retryOptions });
  await administration.getQueue("q");
} else {
  const client = new ServiceBusClient(connectionString, { retryOptions });
  await client.createReceiver("q").peekMessages(1);
  await client.close();
}
