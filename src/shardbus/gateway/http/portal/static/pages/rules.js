/** The rules of a subscription: an editor that says where an error is, and a live test. */

import { del, get, post, put } from "../api.js";
import { notify, redraw } from "../app.js";
import { data, loadProperties, sistersOf, topicOf } from "../data.js";
import { confirm, dialogButtons, openDialog } from "../dialog.js";
import { h } from "../dom.js";
import { count, plural, shortNumber } from "../format.js";
import { refreshNow } from "../live.js";
import { area, badge, banner, button, card, checkbox, choice, empty, errorBox, field, icon, input, loading, moment, select } from "../parts.js";
import { table } from "../table.js";

/** @typedef {{name: string, type: string, value: string}} Value */
/** @typedef {{name: string, kind: string, expression: string, parameters: Value[], fields: [string, string][], properties: Value[], action: string, actionParameters: Value[]}} Draft */

const TEST_COUNT = 200;
const SHOWN_MAX = 50;
// As many as the API takes.
const SOURCES_MAX = 8;
const CHECK_MS = 350;
const VALUE_TYPES = /** @type {[string, string][]} */ (["string", "int", "long", "double", "boolean", "datetime", "guid"].map((one) => [one, one]));

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function rulesTab(context) {
  const { name } = context;
  /** @type {any[] | null} */
  let rules = null;
  const load = async () => { rules = (await get(`entities/${encodeURIComponent(name)}/rules`, { query: { top: 1000 } })).rules; };
  return {
    refresh: async () => {
      await loadProperties();
      await load();
    },
    view: () => {
      if (!rules) return loading();
      return [
        h("div", { class: "actions" }, button([icon("plus"), "Add a rule"], () => openRule(name, null, rules ?? [], load), { kind: "primary" })),
        rules.length > 1 ? openWarning(rules) : null,
        rules.length ? card("", table({ label: "Rules", rows: rules, key: (rule) => rule.name, columns: [
          { title: "Rule", isHead: true, class: "break", cell: (rule) => rule.name },
          { title: "Filter", class: "break", cell: (rule) => filterText(rule.filter) },
          { title: "Action", class: "break wide", cell: (rule) => (rule.action ? h("code", null, rule.action) : "") },
          { title: "Created", class: "wide", cell: (rule) => moment(rule.created_at) },
          { title: "", class: "number", cell: (rule) => h("span", { class: "actions" },
            button("Edit", () => openRule(name, rule, rules ?? [], load), { class: "small", "aria-label": `Edit the rule ${rule.name}` }),
            button("Delete", () => remove(name, rule.name), { class: "small", kind: "danger", "aria-label": `Delete the rule ${rule.name}` })) },
        ] }), { class: "flush" }) : card("", empty("No rules", `Without a rule no message of ${topicOf(name)} arrives here. Add one; a filter that is always true lets everything in.`)),
      ];
    },
  };
}

const DEFAULT_RULE = "$Default";

/** Rules are alternatives: beside one that matches every message, filters select nothing. @param {any[]} rules */
function openWarning(rules) {
  const open = rules.find((rule) => rule.filter.kind === "true");
  return open ? banner("warn", h("strong", null, `${open.name} matches every message. `), "A message arrives if any rule matches it: the filters of the other rules select nothing until that rule is deleted.") : null;
}

/** @param {any} filter */
export function filterText(filter) {
  if (filter.kind === "sql") return [h("code", null, filter.expression), filter.parameters?.length ? h("div", { class: "muted small" }, filter.parameters.map((/** @type {Value} */ one) => `${one.name} = ${one.value}`).join(", ")) : null];
  if (filter.kind === "correlation") {
    const parts = [...Object.entries(filter.fields ?? {}).map(([name, value]) => `${name} = ${value}`), ...(filter.properties ?? []).map((/** @type {Value} */ one) => `${one.name} = ${one.value}`)];
    return [badge("correlation"), " ", h("code", null, parts.join(", "))];
  }
  return badge(filter.kind === "true" ? "every message" : "no message", filter.kind === "true" ? "good" : "warn");
}

/** @param {string} name @param {string} rule */
function remove(name, rule) {
  confirm({ title: `Delete the rule ${rule}?`, label: "Delete", text: h("p", null, "Messages that only this rule matches no longer arrive here. Messages that wait stay."), action: async () => {
    await del(`entities/${encodeURIComponent(name)}/rules/${encodeURIComponent(rule)}`);
    notify(`Deleted the rule ${rule}.`);
    refreshNow();
  } });
}

/** @param {Draft} draft */
function bodyOf(draft) {
  const filter = draft.kind === "sql" ? { kind: "sql", expression: draft.expression, parameters: draft.parameters }
    : draft.kind === "correlation" ? { kind: "correlation", fields: Object.fromEntries(draft.fields.filter(([field, value]) => field && value)), properties: draft.properties.filter((one) => one.name) }
      : { kind: draft.kind };
  return draft.action.trim() ? { filter, action: draft.action, action_parameters: draft.actionParameters } : { filter };
}

/** @param {any} rule @returns {Draft} */
function draftOf(rule) {
  return {
    name: rule?.name ?? "", kind: rule?.filter.kind ?? "sql", expression: rule?.filter.expression ?? "", parameters: [...(rule?.filter.parameters ?? [])],
    fields: Object.entries(rule?.filter.fields ?? {}), properties: [...(rule?.filter.properties ?? [])], action: rule?.action ?? "", actionParameters: [...(rule?.action_parameters ?? [])],
  };
}

/** @param {string} name @param {any} rule @param {any[]} rules @param {() => Promise<void>} load */
function openRule(name, rule, rules, load) {
  const draft = draftOf(rule);
  // The rule that a new subscription has; whoever adds a filter hardly wants to keep it.
  const replaced = rule ? undefined : rules.find((one) => one.name === DEFAULT_RULE && one.filter.kind === "true");
  let isReplacing = Boolean(replaced);
  /** @type {{result: any, error: unknown, isTesting: boolean, timer: ReturnType<typeof setTimeout> | undefined, turn: number}} */
  const test = { result: null, error: null, isTesting: false, timer: undefined, turn: 0 };
  const run = async () => {
    const turn = ++test.turn;
    test.isTesting = true;
    redraw();
    try {
      const result = await post(`entities/${encodeURIComponent(name)}/rule-test`, { ...bodyOf(draft), sources: sourcesOf(name), count: TEST_COUNT });
      if (turn === test.turn) Object.assign(test, { result, error: null });
    } catch (error) {
      if (turn === test.turn) Object.assign(test, { error });
    }
    if (turn === test.turn) test.isTesting = false;
    redraw();
  };
  const changed = () => {
    clearTimeout(test.timer);
    if (draft.kind === "sql" && !draft.expression.trim()) {
      test.result = null;
      return;
    }
    test.timer = setTimeout(() => void run(), CHECK_MS);
  };
  changed();
  openDialog({
    title: rule ? `Rule ${rule.name} of ${name}` : `Add a rule to ${name}`, isWide: true, onclose: () => clearTimeout(test.timer),
    view: (dialog) => [
      editor(draft, Boolean(rule), test.result?.syntax_error, changed),
      replaced ? checkbox(`Delete the rule ${DEFAULT_RULE}, which matches every message`, isReplacing, (value) => { isReplacing = value; }, { hint: "A message arrives if any rule matches it." }) : null,
      results(test),
      dialogButtons(dialog, rule ? "Save" : "Add the rule", async () => {
        await put(`entities/${encodeURIComponent(name)}/rules/${encodeURIComponent(draft.name.trim())}`, bodyOf(draft));
        if (replaced && isReplacing && draft.name.trim() !== DEFAULT_RULE) await del(`entities/${encodeURIComponent(name)}/rules/${encodeURIComponent(DEFAULT_RULE)}`);
        await load();
        notify(`Saved the rule ${draft.name}.`);
      }, { isDisabled: !draft.name.trim() || Boolean(test.result?.syntax_error), more: h("span", { class: "grow" }, "A changed rule decides about messages that are sent from now on.") }),
    ],
  });
}

/** The lines whose messages a rule is tried on: of the subscription first, then of sisters, which have messages that its rules refuse. @param {string} name */
function sourcesOf(name) {
  return [name, ...sistersOf(name).sort((a, b) => b.active - a.active).map((row) => row.name)].slice(0, SOURCES_MAX);
}

/** @param {Draft} draft @param {boolean} isOld @param {any} wrong @param {() => void} changed */
function editor(draft, isOld, wrong, changed) {
  const set = (/** @type {"name" | "kind" | "expression" | "action"} */ member) => (/** @type {string} */ value) => { draft[member] = value; changed(); };
  return [
    h("div", { class: "fields" }, field("Name", (_, props) => input({ ...props, value: draft.name, disabled: isOld, autofocus: !isOld, onvalue: set("name") }), { id: "rule-name" }),
      h("div", { class: "field full" }, h("span", { class: "strong" }, "Filter"), choice("Kind of filter", [["sql", "SQL"], ["correlation", "Correlation"], ["true", "Every message"], ["false", "No message"]], draft.kind, set("kind")))),
    draft.kind === "sql" ? [
      field("Condition", (_, props) => area({ ...props, rows: 3, value: draft.expression, placeholder: "region = 'eu' AND quantity > 10", onvalue: set("expression") }), { id: "rule-sql", error: wrong?.part === "filter" ? wrongText(wrong) : "", hint: ["Properties by name, system properties as ", h("code", null, "sys.Label"), ", parameters as ", h("code", null, "@name"), "."] }),
      wrong?.part === "filter" ? pointer(draft.expression, wrong) : null,
      values("Parameters", draft.parameters, "@name", changed)] : null,
    draft.kind === "correlation" ? [correlation(draft, changed), values("Properties", draft.properties, "name", changed)] : null,
    field("Action", (_, props) => area({ ...props, rows: 2, value: draft.action, placeholder: "SET region = 'uk'; REMOVE city", onvalue: set("action") }), { id: "rule-action", hint: "Changes the copy that arrives here; may be empty.", error: wrong?.part === "action" ? wrongText(wrong) : "" }),
    wrong?.part === "action" ? pointer(draft.action, wrong) : null,
  ];
}

/** @param {any} wrong */
function wrongText(wrong) {
  return `Line ${wrong.line}, column ${wrong.column}: ${wrong.message.replace(/^.* at line \d+, column \d+: /, "")}`;
}

/** The line with the error, and a mark below its place. @param {string} text @param {any} wrong */
function pointer(text, wrong) {
  const line = text.split("\n")[wrong.line - 1] ?? "";
  return h("pre", { class: "box", "aria-hidden": "true" }, `${line}\n${" ".repeat(Math.max(0, wrong.column - 1))}^`);
}

/** @param {Draft} draft @param {() => void} changed */
function correlation(draft, changed) {
  const known = /** @type {[string, string][]} */ ([["", "Choose"], ...(data.properties?.correlation_fields ?? []).map((one) => [one, one.replaceAll("_", " ")])]);
  return h("fieldset", { class: "stack", style: { border: "0", padding: "0", margin: "0", gap: ".5rem" } }, h("legend", { class: "strong" }, "Fields"),
    draft.fields.map((row, index) => h("div", { class: "row", key: index },
      h("div", { class: "grow" }, select(known, { "aria-label": `Field ${index + 1}`, value: row[0], onvalue: (/** @type {string} */ value) => { row[0] = value; changed(); } })),
      h("div", { class: "grow" }, input({ "aria-label": `Value of field ${index + 1}`, value: row[1], onvalue: (/** @type {string} */ value) => { row[1] = value; changed(); } })),
      h("button", { type: "button", class: "button quiet icon-only", "aria-label": `Remove field ${index + 1}`, onclick: () => { draft.fields.splice(index, 1); changed(); redraw(); } }, icon("close")))),
    h("div", null, button([icon("plus"), "Add a field"], () => { draft.fields.push(["", ""]); }, { class: "small" })));
}

/** @param {string} title @param {Value[]} rows @param {string} hint @param {() => void} changed */
function values(title, rows, hint, changed) {
  return h("fieldset", { class: "stack", style: { border: "0", padding: "0", margin: "0", gap: ".5rem" } }, h("legend", { class: "strong" }, title),
    rows.map((row, index) => h("div", { class: "row", key: index },
      h("div", { class: "grow" }, input({ "aria-label": `${title}: name ${index + 1}`, placeholder: hint, value: row.name, onvalue: (/** @type {string} */ value) => { row.name = value; changed(); } })),
      h("div", null, select(VALUE_TYPES, { "aria-label": `${title}: type ${index + 1}`, value: row.type, onvalue: (/** @type {string} */ value) => { row.type = value; changed(); } })),
      h("div", { class: "grow" }, input({ "aria-label": `${title}: value ${index + 1}`, placeholder: "value", value: row.value, onvalue: (/** @type {string} */ value) => { row.value = value; changed(); } })),
      h("button", { type: "button", class: "button quiet icon-only", "aria-label": `${title}: remove ${index + 1}`, onclick: () => { rows.splice(index, 1); changed(); redraw(); } }, icon("close")))),
    h("div", null, button([icon("plus"), `Add to ${title.toLowerCase()}`], () => { rows.push({ name: "", type: "string", value: "" }); }, { class: "small" })));
}

/** @param {{result: any, error: unknown, isTesting: boolean}} test */
function results(test) {
  if (test.error) return errorBox(test.error);
  const { result } = test;
  if (!result || result.syntax_error) return null;
  const looks = /** @type {Record<string, "good" | "plain" | "bad">} */ ({ matched: "good", not_matched: "plain", error: "bad" });
  const shown = [...result.results].sort((a, b) => Number(a.outcome === "not_matched") - Number(b.outcome === "not_matched")).slice(0, SHOWN_MAX);
  return card("Tried on the last messages", [
    h("p", { role: "status" }, h("strong", null, `${count(result.matched)} of ${plural(result.examined, "message")} match`), result.failed ? `, ${count(result.failed)} fail` : "", result.examined ? "." : ": none of the topic's subscriptions has a message to try it on."),
    shown.length < result.examined ? h("p", { class: "muted small" }, `The table shows ${count(shown.length)} of the ${plural(result.examined, "message")}: first those that match or fail.`) : null,
    shown.length ? table({ label: "Results of the test", rows: shown, key: (one) => `${one.source} ${one.number}`, columns: [
      { title: "Message", isHead: true, cell: (one) => h("span", { class: "mono", title: one.number }, shortNumber(one.number)) },
      { title: "Of", class: "wide break", cell: (one) => one.source },
      { title: "Outcome", cell: (one) => badge(one.outcome.replace("_", " "), looks[one.outcome]) },
      { title: "Changes", class: "break", cell: (one) => one.error || (one.changes ?? []).map((/** @type {any} */ change) => `${change.name}: ${shownValue(change.before)} → ${shownValue(change.after)}`).join("; ") },
    ] }) : null,
  ]);
}

/** @param {unknown} value */
function shownValue(value) {
  if (value === null || value === undefined) return "nothing";
  return typeof value === "string" ? value : JSON.stringify(value);
}
