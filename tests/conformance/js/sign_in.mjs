// A program of its own that signs in with a credential and uses a bus; see test_sign_in.py.
// Arguments: host, host and port of administration, token.

import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

const [host, administrationHost, token] = process.argv.slice(2);
const retryOptions = { maxRetries: 0, timeoutInMs: 30_000 };
const scopes = new Set();
const credential = {
  async getToken(scope) {
    for (const each of [scope].flat()) scopes.add(each);
    return { token, expiresOnTimestamp: Date.now() + 3_600_000 };
  },
};

const administration = new ServiceBusAdministrationClient(administrationHost, credential, {
  retryOptions,
});
const { name } = await administration.getQueue("orders");
const client = new ServiceBusClient(host, credential, { retryOptions });
await client.createSender(name).sendMessages({ body: "from JavaScript" });
const receiver = client.createReceiver(name);
const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 30_000 });
await receiver.completeMessage(message);
await client.close();
console.log(JSON.stringify({ body: message.body, scopes: [...scopes] }));
