/** Changes to dead letters before they are sent again: computed for each message, or the same for all. */

import { post } from "../api.js";
import { redraw } from "../app.js";
import { diffView } from "../diff.js";
import { h } from "../dom.js";
import { count, shortNumber } from "../format.js";
import { area, banner, button, choice, errorBox, field, icon, input } from "../parts.js";
import { table } from "../table.js";
import { propertiesOf, propertyRows } from "./send.js";

/** @typedef {{path: string, value: string}} Place */
/** @typedef {{line: string, before: string, samples: string[], total: number, way: string, action: string, places: Place[], results: any[] | null, error: unknown, timer: ReturnType<typeof setTimeout> | undefined, turn: number, body: string, rows: import("./send.js").Row[], removed: string, label: string, contentType: string}} Editing */

const CHECK_MS = 350;
// As many as the API takes.
const SAMPLES_MAX = 20;

/** @param {string} line @param {any} sample a message in full @param {string[]} samples numbers of messages on which the edit is tried @param {number} total @returns {Editing} */
export function newEdit(line, sample, samples, total) {
  const before = sample.body_text ?? "";
  return {
    line, before, samples: samples.slice(0, SAMPLES_MAX), total, way: total === 1 ? "replace" : "compute", action: "", places: [], results: null, error: null, timer: undefined, turn: 0,
    body: before, rows: [], removed: "", label: "", contentType: "",
  };
}

/** @param {Editing} edit */
function computed(edit) {
  /** @type {Record<string, unknown>} */
  const made = {};
  if (edit.action.trim()) made.action = edit.action;
  const places = edit.places.filter((one) => one.path.trim());
  if (places.length) made.body_set = Object.fromEntries(places.map((one) => [one.path.trim(), jsonOf(one.value)]));
  return made;
}

/** What is no JSON is a text. @param {string} text */
function jsonOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Try it on some of the messages; the bus says what would change in each. @param {Editing} edit */
async function tried(edit) {
  const turn = ++edit.turn;
  const made = computed(edit);
  if (!Object.keys(made).length) Object.assign(edit, { results: null, error: null });
  else {
    try {
      const { results } = await post(`entities/${encodeURIComponent(edit.line)}/edit-test`, { numbers: edit.samples, edit: made });
      if (turn === edit.turn) Object.assign(edit, { results, error: null });
    } catch (error) {
      if (turn === edit.turn) Object.assign(edit, { results: null, error });
    }
  }
  redraw();
}

/** @param {Editing} edit */
function changed(edit) {
  clearTimeout(edit.timer);
  edit.timer = setTimeout(() => void tried(edit), CHECK_MS);
}

/** @param {Editing} edit */
export function editor(edit) {
  return [
    choice("How to change them", [["compute", "Compute with each message"], ["replace", "Replace body or fields"]], edit.way, (value) => { edit.way = value; }),
    edit.way === "compute" ? compute(edit) : replace(edit),
  ];
}

/** @param {Editing} edit */
function compute(edit) {
  return [
    field("Properties", (_, props) => area({ ...props, rows: 2, value: edit.action, placeholder: "SET region = 'eu'; SET sys.Label = 'again'; REMOVE attempt", onvalue: (/** @type {string} */ value) => { edit.action = value; changed(edit); } }), { id: "edit-action", hint: "SET and REMOVE in the language of rules; may be empty." }),
    h("fieldset", { class: "stack", style: { border: "0", padding: "0", margin: "0", gap: ".5rem" } }, h("legend", { class: "strong" }, "Values in a JSON body"),
      edit.places.map((row, index) => h("div", { class: "row", key: index },
        h("div", { class: "grow" }, input({ "aria-label": `Path ${index + 1}`, class: "mono", placeholder: "$.customer.id", value: row.path, onvalue: (/** @type {string} */ value) => { row.path = value; changed(edit); } })),
        h("div", { class: "grow" }, input({ "aria-label": `New value ${index + 1}`, class: "mono", placeholder: "42 or text", value: row.value, onvalue: (/** @type {string} */ value) => { row.value = value; changed(edit); } })),
        h("button", { type: "button", class: "button quiet icon-only", "aria-label": `Remove path ${index + 1}`, onclick: () => { edit.places.splice(index, 1); changed(edit); redraw(); } }, icon("close")))),
      h("div", null, button([icon("plus"), "Add a path"], () => { edit.places.push({ path: "", value: "" }); }, { class: "small" }))),
    edit.error ? errorBox(edit.error) : null,
    h("h3", null, edit.samples.length === 1 ? "Changes" : `Changes in ${count(edit.samples.length)} of them`),
    edit.results ? h("div", { role: "status", class: "stack", style: { gap: ".6rem" } }, outcomes(edit.results)) : h("p", { class: "muted" }, "Nothing is changed yet."),
  ];
}

/** Changes of properties and fields in one table, those of bodies below it. @param {any[]} results */
function outcomes(results) {
  const shown = (/** @type {string | null} */ value) => value ?? h("span", { class: "muted" }, "nothing");
  const rows = results.flatMap((one) => one.changes.filter((/** @type {any} */ change) => change.name !== "body").map((/** @type {any} */ change) => ({ ...change, number: one.number })));
  return [
    rows.length ? table({ label: "Changes", rows, key: (one) => `${one.number} ${one.name}`, columns: [
      { title: "Message", isHead: true, cell: (one) => h("span", { class: "mono", title: one.number }, shortNumber(one.number)) }, { title: "Name", class: "break", cell: (one) => one.name },
      { title: "Before", class: "break", cell: (one) => shown(one.before) }, { title: "After", class: "break", cell: (one) => shown(one.after) }] }) : null,
    results.map((one) => {
      const body = one.changes.find((/** @type {any} */ change) => change.name === "body");
      const said = one.error ? h("p", { class: "field-error" }, `It stays where it is: ${one.error}`) : body ? diffView(pretty(body.before), pretty(body.after)) : one.changes.length ? null : h("p", { class: "muted" }, "Nothing changes in this message.");
      return said ? h("div", { key: one.number, class: "stack", style: { gap: ".3rem" } }, h("strong", { class: "mono", title: one.number }, shortNumber(one.number)), said) : null;
    }),
  ];
}

/** JSON in lines, so that the difference is small. @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** @param {Editing} edit */
function replace(edit) {
  return [
    edit.total !== 1 ? banner("warn", `A changed body replaces the body of all ${edit.total ? `${count(edit.total)} ` : ""}messages. Leave it as it is to change only properties and fields.`) : null,
    field("Body", (_, props) => area({ ...props, rows: 8, value: edit.body, onvalue: (/** @type {string} */ value) => { edit.body = value; } }), { id: "edit-body" }),
    h("h3", null, "Changes"), diffView(edit.before, edit.body),
    h("div", { class: "fields" },
      field("New subject (label)", (_, props) => input({ ...props, value: edit.label, placeholder: "unchanged", onvalue: (/** @type {string} */ value) => { edit.label = value; } }), { id: "edit-label" }),
      field("New content type", (_, props) => input({ ...props, value: edit.contentType, placeholder: "unchanged", onvalue: (/** @type {string} */ value) => { edit.contentType = value; } }), { id: "edit-type" }),
      field("Remove properties", (_, props) => input({ ...props, value: edit.removed, placeholder: "names, separated by commas", onvalue: (/** @type {string} */ value) => { edit.removed = value; } }), { id: "edit-remove" })),
    propertyRows(edit.rows, "Set properties"),
  ];
}

/** The edit of a job. @param {Editing} edit */
export function editOf(edit) {
  const made = edit.way === "compute" ? computed(edit) : replaced(edit);
  if (!Object.keys(made).length) throw new Error("Nothing is changed: change something, or use Resubmit.");
  return made;
}

/** @param {Editing} edit */
function replaced(edit) {
  /** @type {Record<string, unknown>} */
  const made = {};
  if (edit.body !== edit.before) made.body = edit.body;
  const remove = edit.removed.split(",").map((name) => name.trim()).filter(Boolean);
  const set = propertiesOf(edit.rows);
  if (remove.length || Object.keys(set).length) made.properties = { set, remove };
  /** @type {Record<string, string>} */
  const fields = {};
  if (edit.label) fields.subject = edit.label;
  if (edit.contentType) fields.content_type = edit.contentType;
  if (Object.keys(fields).length) made.fields = fields;
  return made;
}
