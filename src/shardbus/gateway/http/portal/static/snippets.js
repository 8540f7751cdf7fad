/** A message as code that sends it again. */

import { quoted } from "./commands.js";

/** @typedef {Record<string, any>} Draft the message as the API takes it */

export const LANGUAGES = /** @type {[string, string][]} */ ([["python", "Python"], ["javascript", "JavaScript"], ["csharp", "C#"], ["curl", "curl"], ["json", "JSON line"]]);

/** Members of the API, and what the SDKs call them. */
const FIELDS = /** @type {[string, string, string, string][]} */ ([
  ["message_id", "message_id", "messageId", "MessageId"], ["correlation_id", "correlation_id", "correlationId", "CorrelationId"], ["subject", "subject", "subject", "Subject"],
  ["content_type", "content_type", "contentType", "ContentType"], ["reply_to", "reply_to", "replyTo", "ReplyTo"], ["to", "to", "to", "To"],
  ["session_id", "session_id", "sessionId", "SessionId"], ["partition_key", "partition_key", "partitionKey", "PartitionKey"], ["reply_to_session_id", "reply_to_session_id", "replyToSessionId", "ReplyToSessionId"],
]);

/** @param {string} language @param {string} entity @param {Draft} draft */
export function snippet(language, entity, draft) {
  const text = (/** @type {unknown} */ value) => JSON.stringify(value);
  const body = bodyOf(draft);
  const plain = Object.entries(draft.properties ?? {}).map(([name, value]) => [name, plainValue(value)]).filter(([, value]) => value === null || typeof value !== "object");
  if (language === "json") return text(draft);
  if (language === "curl") return `curl ${location.origin}/api/v1/entities/${encodeURIComponent(entity)}/messages \\\n  -H "Authorization: $(shardbus sas token)" \\\n  -d ${quoted(text({ messages: [draft] }))}`;
  const said = FIELDS.filter(([member]) => draft[member] !== undefined && draft[member] !== null);
  if (language === "python") {
    const lines = said.map(([member, python]) => `    ${python}=${text(draft[member])},`);
    if (plain.length) lines.push(`    application_properties={${plain.map(([name, value]) => `${text(name)}: ${pythonValue(value)}`).join(", ")}},`);
    return `from azure.servicebus import ServiceBusClient, ServiceBusMessage\n\nmessage = ServiceBusMessage(\n    ${body.base64 ? `base64.b64decode(${text(body.base64)})` : text(body.text)},\n${lines.join("\n")}\n)\nwith ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:\n    with client.get_queue_sender(${text(entity)}) as sender:\n        sender.send_messages(message)`.replace(/^/, body.base64 ? "import base64\n\n" : "");
  }
  if (language === "javascript") {
    const lines = said.map(([member, , script]) => `  ${script}: ${text(draft[member])},`);
    if (plain.length) lines.push(`  applicationProperties: ${text(Object.fromEntries(plain))},`);
    return `import { ServiceBusClient } from "@azure/service-bus";\n\nconst client = new ServiceBusClient(process.env.CONNECTION_STRING);\nconst sender = client.createSender(${text(entity)});\nawait sender.sendMessages({\n  body: ${body.base64 ? `Buffer.from(${text(body.base64)}, "base64")` : text(body.text)},\n${lines.join("\n")}\n});\nawait client.close();`;
  }
  const lines = said.map(([member, , , sharp]) => `    ${sharp} = ${text(draft[member])},`);
  const sets = plain.map(([name, value]) => `message.ApplicationProperties[${text(name)}] = ${value === null ? "null" : text(value)};`);
  return `using Azure.Messaging.ServiceBus;\n\nawait using var client = new ServiceBusClient(connectionString);\nvar sender = client.CreateSender(${text(entity)});\nvar message = new ServiceBusMessage(${body.base64 ? `Convert.FromBase64String(${text(body.base64)})` : text(body.text)})\n{\n${lines.join("\n")}\n};\n${sets.join("\n")}${sets.length ? "\n" : ""}await sender.SendMessageAsync(message);`;
}

/** @param {Draft} draft */
function bodyOf(draft) {
  if (draft.body_base64) return { base64: draft.body_base64, text: "" };
  return { base64: "", text: typeof draft.body === "string" ? draft.body : JSON.stringify(draft.body ?? "") };
}

/** A number that the API shows with its type, as code writes it; its exact width is the SDK's choice. @param {any} value */
function plainValue(value) {
  const isNumber = value !== null && typeof value === "object" && /^(u?(long|int|short|byte)|double|float)$/.test(value.type);
  return isNumber && Number.isFinite(Number(value.value)) && (Number.isSafeInteger(Number(value.value)) || !/^-?\d+$/.test(value.value)) ? Number(value.value) : value;
}

/** @param {unknown} value */
function pythonValue(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  return value === null ? "None" : JSON.stringify(value);
}
