/** Create a queue, topic or subscription, and the same as command, file and request. */

import { put } from "../api.js";
import { notify, redraw } from "../app.js";
import { command, quoted } from "../commands.js";
import { data, loadOverview, loadProperties, managedPath } from "../data.js";
import { h } from "../dom.js";
import { changed, isRight, newForm, propertyField } from "../form.js";
import { durationText, megabytes } from "../format.js";
import { badge, card, choice, codeBlock, errorBox, field, focus, input, loading, select, tabs } from "../parts.js";
import { entityLink, go, link } from "../router.js";

/** @typedef {import("../data.js").Properties} Properties */

/** @param {string} kind @param {import("../router.js").Place} place @returns {import("../app.js").Page} */
export function createPage(kind, place) {
  /** @type {{name: string, topic: string, form: import("../form.js").Form | null, isMore: boolean, as: string, error: unknown, isBusy: boolean}} */
  const state = { name: "", topic: place.query.get("topic") ?? "", form: null, isMore: false, as: "cli", error: null, isBusy: false };
  return {
    title: `Create a ${kind}`,
    refresh: async () => {
      const [properties] = await Promise.all([loadProperties(), loadOverview()]);
      state.form ??= newForm(properties.kinds[kind] ?? [], { is_partitioned: properties.partitioning === "chosen" ? true : properties.partitioning === "always" });
    },
    view: () => {
      const { properties } = data;
      const { form } = state;
      if (!properties || !form) return loading();
      return [
        h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, `Create a ${kind}`))),
        tabs("Kinds", ["queue", "topic", "subscription"].map((one) => ({ name: one, href: link(["create", one]), text: one.charAt(0).toUpperCase() + one.slice(1) })), kind),
        h("div", { class: "beside" }, h("form", { class: "stack", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void create(kind, state, properties); } },
          fields(kind, state, properties, form),
          state.error ? errorBox(state.error) : null,
          h("div", { class: "actions foot" },
            h("button", { type: "submit", class: "button primary", disabled: state.isBusy || !fullName(kind, state) || !isRight(form) }, state.isBusy ? "Creating …" : `Create the ${kind}`),
            h("a", { class: "button quiet", href: link(["entities"]) }, "Cancel"))),
        same(kind, state, properties, form)),
      ];
    },
  };
}

/** @param {string} kind @param {{name: string, topic: string}} state */
function fullName(kind, state) {
  if (kind !== "subscription") return state.name.trim();
  return state.topic && state.name.trim() ? `${state.topic}/Subscriptions/${state.name.trim()}` : "";
}

/** The properties people set most often; the others are folded away. */
const FIRST = new Set(["size_mb", "lock_ms", "delivery_count_max", "default_ttl_ms", "requires_session", "requires_duplicate_detection", "duplicate_window_ms"]);

/** @param {string} kind @param {any} state @param {Properties} properties @param {import("../form.js").Form} form */
function fields(kind, state, properties, form) {
  const own = properties.kinds[kind].filter((one) => !one.is_derived && one.name !== "is_partitioned" && one.option);
  const names = (data.overview?.entities ?? []).filter((row) => row.kind !== "subscription").map((row) => row.name);
  const draw = (/** @type {import("../data.js").Property} */ one) => propertyField(one, form, { isNew: true, names });
  const topics = (data.overview?.entities ?? []).filter((row) => row.kind === "topic").map((row) => row.name);
  return card("", [
    h("div", { class: "fields" },
      kind === "subscription" ? field("Topic", (_, props) => select([["", topics.length ? "Choose a topic" : "There is no topic yet"], .../** @type {[string, string][]} */ (topics.map((one) => [one, one]))], { ...props, value: state.topic, onvalue: (/** @type {string} */ value) => { state.topic = value; } }), { id: "new-topic" }) : null,
      field("Name", (_, props) => input({ ...props, value: state.name, required: true, onmount: focus, placeholder: kind === "subscription" ? "europe" : kind === "topic" ? "news" : "orders", onvalue: (/** @type {string} */ value) => { state.name = value; } }), { id: "new-name", hint: kind === "subscription" ? "Letters, digits, periods, hyphens, underscores; at most 50." : "Letters, digits, periods, hyphens, underscores; slashes make a path." })),
    kind === "subscription" ? null : partitioning(properties, form),
    h("div", { class: "fields" }, own.filter((one) => FIRST.has(one.name)).map((one) => (one.name === "size_mb"
      ? h("div", { key: "size", class: "stack", style: { gap: ".3rem" } }, draw(one), h("p", { id: "size-line", "aria-live": "polite" }, h("strong", null, sizeLine(properties, form)))) : draw(one)))),
    h("details", { class: "more" }, h("summary", null, "More options"), h("div", { class: "fields", style: { "margin-top": "1rem" } }, own.filter((one) => !FIRST.has(one.name)).map(draw))),
  ]);
}

/** @param {Properties} properties @param {import("../form.js").Form} form */
function partitioning(properties, form) {
  const isDecided = properties.partitioning !== "chosen";
  const isPartitioned = Boolean(form.values.is_partitioned);
  return h("div", { class: "stack", style: { gap: ".4rem" } },
    h("div", { class: "check" }, h("label", null, h("input", { type: "checkbox", name: "is_partitioned", checked: isPartitioned, disabled: isDecided, "aria-describedby": "size-line", onchange: (/** @type {Event} */ event) => {
      form.values.is_partitioned = /** @type {HTMLInputElement} */ (event.target).checked;
      redraw();
    } }), h("span", null, "Enable partitioning ", badge("fixed at creation"))),
    h("p", { class: "hint" }, properties.partitioning_reason || `Spread over ${properties.fragments_when_partitioned} fragments, each with its own store and broker: neither limits the entity, and the loss of one leaves the others.`)),
  );
}

/** @param {Properties} properties @param {import("../form.js").Form} form */
export function sizeLine(properties, form) {
  const sizeMb = Number(form.values.size_mb ?? 1024);
  const fragments = form.values.is_partitioned ? properties.fragments_when_partitioned : 1;
  return `Maximum size ${megabytes(sizeMb * fragments)} = ${megabytes(sizeMb)} × ${fragments} fragment${fragments === 1 ? "" : "s"}`;
}

/** @param {string} kind @param {any} state @param {Properties} properties */
async function create(kind, state, properties) {
  const name = fullName(kind, state);
  if (!name || !isRight(state.form) || state.isBusy) return;
  state.isBusy = true;
  state.error = null;
  redraw();
  try {
    await put(managedPath(kind, name), wanted(kind, state.form, properties));
    notify(`Created ${name}.`);
    go(entityLink(name));
  } catch (error) {
    state.error = error;
  }
  state.isBusy = false;
  redraw();
}

/** @param {string} kind @param {import("../form.js").Form} form @param {Properties} properties */
function wanted(kind, form, properties) {
  const own = properties.kinds[kind].filter((one) => !one.is_derived);
  const defaults = Object.fromEntries(own.map((one) => [one.name, one.default]));
  const body = changed(own, form, defaults);
  if (kind !== "subscription" && properties.partitioning === "chosen") body.is_partitioned = Boolean(form.values.is_partitioned);
  return body;
}

/** @param {string} kind @param {any} state @param {Properties} properties @param {import("../form.js").Form} form */
function same(kind, state, properties, form) {
  const name = fullName(kind, state) || (kind === "subscription" ? "news/Subscriptions/europe" : kind === "topic" ? "news" : "orders");
  const body = wanted(kind, form, properties);
  const texts = /** @type {Record<string, string>} */ ({ cli: asCommand(kind, name, body, properties), toml: asToml(kind, name, body, properties), curl: asCurl(kind, name, body) });
  return card("The same without the portal", [
    choice("Form", [["cli", "Command"], ["toml", "TOML"], ["curl", "curl"]], state.as, (value) => { state.as = value; }),
    codeBlock(texts[state.as], "The same as text"),
    state.as === "toml" ? h("p", { class: "hint" }, "Apply it with ", h("code", null, "shardbus apply FILE"), ".") : null,
  ]);
}

/** @param {string} kind @param {string} name @param {Record<string, any>} body @param {Properties} properties */
function asCommand(kind, name, body, properties) {
  const [topic, short] = name.split("/Subscriptions/");
  const words = [kind, "create", ...(kind === "subscription" ? [topic, short] : [name])];
  for (const property of properties.kinds[kind]) {
    if (!(property.name in body) || !property.option) continue;
    const value = body[property.name];
    if (property.form === "flag") {
      if (property.name === "is_partitioned" && value === properties.is_partitioned_by_default) continue;
      words.push(value ? `--${property.option}` : `--no-${property.option}`);
    } else words.push(`--${property.option}`, optionText(property, value));
  }
  return command(...words);
}

/** @param {import("../data.js").Property} property @param {any} value */
function optionText(property, value) {
  if (property.form === "duration") return durationText(value);
  if (property.form === "megabytes") return String(value / 1024);
  return String(value ?? "");
}

/** @param {string} kind @param {string} name @param {Record<string, any>} body @param {Properties} properties */
function asToml(kind, name, body, properties) {
  const [topic, short] = name.split("/Subscriptions/");
  const text = (/** @type {string} */ value) => JSON.stringify(value);
  const lines = kind === "subscription" ? ["[[topic]]", `name = ${text(topic)}`, "", "[[topic.subscription]]", `name = ${text(short)}`] : [`[[${kind}]]`, `name = ${text(name)}`];
  for (const property of properties.kinds[kind]) {
    if (!(property.name in body) || !property.option) continue;
    const value = body[property.name];
    lines.push(`${property.option} = ${property.form === "duration" ? text(durationText(value)) : property.form === "megabytes" ? value / 1024 : JSON.stringify(value ?? "")}`);
  }
  return lines.join("\n");
}

/** @param {string} kind @param {string} name @param {Record<string, any>} body */
function asCurl(kind, name, body) {
  return `curl -X PUT ${location.origin}/api/v1/${managedPath(kind, name)} \\\n  -H "Authorization: $(shardbus sas token)" \\\n  -d ${quoted(JSON.stringify(body))}`;
}
