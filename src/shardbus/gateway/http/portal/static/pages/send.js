/** Send a message, new or as an edited copy of another. */

import { post } from "../api.js";
import { notify, preferences, redraw } from "../app.js";
import { rowOf } from "../data.js";
import { dialogButtons, openDialog } from "../dialog.js";
import { h } from "../dom.js";
import { parseDuration, plural } from "../format.js";
import { refreshNow } from "../live.js";
import { area, badge, button, checkbox, field, icon, input, select } from "../parts.js";

/** @typedef {{name: string, type: string, value: string}} Row */

const TYPES = /** @type {[string, string][]} */ (["string", "number", "boolean", "null", "timestamp", "uuid", "int", "long", "double", "float", "short", "byte", "ulong", "uint", "ushort", "ubyte", "binary", "symbol", "char"].map((type) => [type, type]));
const TEXTS = /** @type {[string, string, string][]} */ ([
  ["subject", "Subject (label)", ""], ["content_type", "Content type", "application/json"], ["message_id", "Message id", "made by the bus"], ["correlation_id", "Correlation id", ""],
  ["session_id", "Session id", ""], ["partition_key", "Partition key", ""], ["to", "To", ""], ["reply_to", "Reply to", ""],
]);
const COPIES_MAX = 1000;

/** @param {unknown} properties as the API shows them @returns {Row[]} */
export function rowsOf(properties) {
  return Object.entries(/** @type {Record<string, any>} */ (properties ?? {})).map(([name, value]) => {
    if (value !== null && typeof value === "object") return { name, type: String(value.type), value: typeof value.value === "string" ? value.value : JSON.stringify(value.value) };
    return { name, type: value === null ? "null" : typeof value, value: String(value ?? "") };
  });
}

/** @param {Row[]} rows @returns {Record<string, any>} */
export function propertiesOf(rows) {
  // Without a prototype: a property may be called `__proto__`.
  /** @type {Record<string, any>} */
  const properties = Object.create(null);
  for (const { name, type, value } of rows) {
    if (!name) continue;
    if (type === "string") properties[name] = value;
    else if (type === "null") properties[name] = null;
    else if (type === "boolean") properties[name] = /^(true|1|yes)$/i.test(value);
    else if (type === "number") {
      if (!value.trim() || Number.isNaN(Number(value))) throw new Error(`The property ${name} is not a number: ${value}`);
      properties[name] = Number(value);
    } else properties[name] = { type, value };
  }
  return properties;
}

/** @param {Row[]} rows @param {string} what */
export function propertyRows(rows, what) {
  return h("fieldset", { class: "stack", style: { border: "0", padding: "0", margin: "0", gap: ".5rem" } }, h("legend", { class: "strong" }, what),
    rows.map((row, index) => h("div", { class: "row", key: index },
      h("div", { class: "grow" }, input({ "aria-label": `Name of property ${index + 1}`, placeholder: "name", value: row.name, onvalue: (/** @type {string} */ value) => { row.name = value; } })),
      h("div", null, select(TYPES, { "aria-label": `Type of property ${index + 1}`, value: row.type, onvalue: (/** @type {string} */ value) => { row.type = value; } })),
      h("div", { class: "grow" }, input({ "aria-label": `Value of property ${index + 1}`, placeholder: "value", value: row.value, disabled: row.type === "null", onvalue: (/** @type {string} */ value) => { row.value = value; } })),
      h("button", { type: "button", class: "button quiet icon-only", "aria-label": `Remove property ${index + 1}`, onclick: () => { rows.splice(index, 1); redraw(); } }, icon("close")))),
    h("div", null, button([icon("plus"), "Add a property"], () => { rows.push({ name: "", type: "string", value: "" }); }, { class: "small" })));
}

/**
 * @param {string} entity
 * @param {Record<string, any> | null} [draft] a message to begin with, as the API takes it
 * @param {() => unknown} [then] after it was sent
 * @param {boolean} [isLater] it is to be scheduled
 */
export function openSend(entity, draft = null, then = undefined, isLater = false) {
  // When it is drawn: the overview may be older than the queue.
  const needsSession = () => Boolean(rowOf(entity)?.requires_session);
  const texts = Object.fromEntries(TEXTS.map(([name]) => [name, String(draft?.[name] ?? "")]));
  // A copy with the same id would be dropped where duplicates are detected.
  if (draft) texts.message_id = "";
  const isBinary = Boolean(draft?.body_base64);
  const state = { body: isBinary ? draft?.body_base64 : typeof draft?.body === "string" ? draft.body : draft?.body === undefined ? "" : JSON.stringify(draft.body, null, 2),
    type: draft?.body_type ?? "data", ttl: draft?.time_to_live_ms ? `${draft.time_to_live_ms}ms` : "", at: "", copies: "1", rows: rowsOf(draft?.properties), isMore: isLater };
  const send = async () => {
    const message = made(state, texts, isBinary);
    const copies = Math.floor(Number(state.copies));
    if (!(copies >= 1 && copies <= COPIES_MAX)) throw new Error(`Send 1 to ${COPIES_MAX} copies at once.`);
    const answer = await post(`entities/${encodeURIComponent(entity)}/messages`, { messages: Array.from({ length: copies }, () => message) });
    if (answer.failures.length) throw new Error(`${answer.sent} sent, ${answer.failures.length} not: ${answer.failures[0].message}`);
    notify(`Sent ${plural(answer.sent, "message")} to ${entity}.${answer.duplicates ? ` ${plural(answer.duplicates, "duplicate was", "duplicates were")} dropped.` : ""}`);
    refreshNow();
    await then?.();
  };
  openDialog({
    title: isLater ? `Schedule a message for ${entity}` : draft ? `Send an edited copy to ${entity}` : `Send to ${entity}`, isWide: true,
    view: (dialog) => [
      field(isBinary ? "Body (Base64)" : "Body", (_, props) => area({ ...props, rows: 8, value: state.body, autofocus: true, onvalue: (/** @type {string} */ value) => { state.body = value; } }), { id: "send-body", mark: state.type === "data" ? null : badge(`AMQP ${state.type}`) }),
      h("div", { class: "fields" }, TEXTS.slice(0, state.isMore ? TEXTS.length : 6).map(([name, label, hint]) => field(label, (_, props) => input({ ...props, value: texts[name], placeholder: hint, onvalue: (/** @type {string} */ value) => { texts[name] = value; } }), { id: `send-${name}`, mark: name === "session_id" && needsSession() ? badge("required", "accent") : undefined })),
        state.isMore ? [
          field("Time to live", (_, props) => input({ ...props, value: state.ttl, placeholder: "of the entity", onvalue: (/** @type {string} */ value) => { state.ttl = value; } }), { id: "send-ttl", hint: "30s, 5m, 14d" }),
          field("Deliver not before", (_, props) => input({ ...props, type: "datetime-local", step: "1", value: state.at, onvalue: (/** @type {string} */ value) => { state.at = value; } }), { id: "send-at", hint: `${preferences.isLocalTime ? "In your local time" : "In UTC"}; empty: at once.` }),
          field("Copies", (_, props) => input({ ...props, inputmode: "numeric", value: state.copies, onvalue: (/** @type {string} */ value) => { state.copies = value; } }), { id: "send-copies" }),
        ] : null),
      checkbox("Show all fields", state.isMore, (value) => { state.isMore = value; }),
      propertyRows(state.rows, "Properties"),
      dialogButtons(dialog, "Send", send),
    ],
  });
}

/** @param {any} state @param {Record<string, string>} texts @param {boolean} isBinary */
function made(state, texts, isBinary) {
  /** @type {Record<string, any>} */
  const message = Object.fromEntries(Object.entries(texts).filter(([, value]) => value));
  if (isBinary) message.body_base64 = state.body.trim();
  else if (state.type === "data") message.body = state.body;
  else {
    message.body_type = state.type;
    message.body = JSON.parse(state.body);
  }
  const ttl = state.ttl ? parseDuration(state.ttl) : null;
  if (ttl === undefined) throw new Error("Write the time to live as 30s, 5m or 14d.");
  if (ttl) message.time_to_live_ms = ttl;
  if (state.at) message.scheduled_at = new Date(preferences.isLocalTime ? state.at : `${state.at}Z`).toISOString();
  const properties = propertiesOf(state.rows);
  if (Object.keys(properties).length) message.properties = properties;
  return message;
}
