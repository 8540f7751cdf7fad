/** Access rules: keys that stay hidden until asked for, rotation in the safe order. */

import { del, get, post, put } from "../api.js";
import { notify } from "../app.js";
import { loadOverview } from "../data.js";
import { confirm, dialogButtons, openDialog } from "../dialog.js";
import { h } from "../dom.js";
import { refreshNow } from "../live.js";
import { badge, banner, button, card, checkbox, copyButton, empty, field, icon, input, loading, moment } from "../parts.js";
import { table } from "../table.js";

const RIGHTS = ["Listen", "Send", "Manage"];

/** @returns {import("../app.js").Page} */
export function namespaceAccessPage() {
  const rules = new Rules("", "the namespace");
  return {
    title: "Access",
    refresh: async () => { await Promise.all([rules.refresh(), loadOverview()]); },
    view: () => [h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, "Access"), h("p", { class: "muted" }, "Keys of the namespace. Queues and topics have rules of their own, in their tab Access."))), rules.draw()],
  };
}

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function accessTab({ name }) {
  const rules = new Rules(`entities/${encodeURIComponent(name)}/`, name);
  return { refresh: () => rules.refresh(), view: () => rules.draw() };
}

class Rules {
  /** @param {string} path @param {string} of */
  constructor(path, of) {
    this.path = `${path}access-rules`;
    this.of = of;
    /** @type {any[] | null} */
    this.rules = null;
    /** @type {any} */
    this.opened = null;
    /** @type {Set<string>} */
    this.revealed = new Set();
  }

  async refresh() {
    this.rules = (await get(this.path)).access_rules;
  }

  /** @param {string} rule */
  one(rule) {
    return `${this.path}/${encodeURIComponent(rule)}`;
  }

  draw() {
    if (!this.rules) return loading();
    return [
      h("div", { class: "actions" }, button([icon("plus"), "Add an access rule"], () => this.add(), { kind: "primary" })),
      this.rules.length ? card("", table({ label: "Access rules", rows: this.rules, key: (rule) => rule.name, columns: [
        { title: "Rule", isHead: true, class: "break", cell: (rule) => rule.name },
        { title: "Rights", cell: (rule) => h("span", { class: "actions" }, rule.rights.map((/** @type {string} */ right) => badge(right, right === "Manage" ? "warn" : "accent"))) },
        { title: "Changed", class: "wide", cell: (rule) => (rule.is_of_settings ? "by the settings" : moment(rule.modified_at)) },
        { title: "", class: "number", cell: (rule) => h("span", { class: "actions" },
          button("Keys", () => this.open(rule.name), { class: "small", "aria-label": `Keys of ${rule.name}` }),
          rule.is_of_settings ? null : button("Delete", () => this.remove(rule.name), { class: "small", kind: "danger", "aria-label": `Delete ${rule.name}` })) },
      ] }), { class: "flush" }) : card("", empty("No access rules", `The keys of the namespace open ${this.of}. Add a rule to give one application a key for this alone.`)),
      this.opened ? this.keys() : null,
    ];
  }

  /** @param {string} name */
  async open(name) {
    this.revealed.clear();
    this.opened = await get(this.one(name));
  }

  keys() {
    const rule = this.opened;
    return card(`Keys of ${rule.name}`, rule.is_of_settings
      ? [banner("info", "This rule comes from the settings of the bus. Its key is not shown here: change ", h("code", null, "sas-key"), " there and restart the bus."), rule.primary_connection_string ? this.secret("Connection string", rule.primary_connection_string) : null]
      : [
        h("div", { class: "fields" }, this.secret("Primary connection string", rule.primary_connection_string), this.secret("Secondary connection string", rule.secondary_connection_string), this.secret("Primary key", rule.primary_key), this.secret("Secondary key", rule.secondary_key)),
        this.rotation(rule),
      ], { actions: button("Close", () => { this.opened = null; }, { class: "small" }) });
  }

  /** @param {string} label @param {string | null | undefined} text */
  secret(label, text) {
    if (!text) return null;
    const isShown = this.revealed.has(label);
    const masked = text.replace(/(SharedAccessKey=)[^;]*/, "$1••••••••");
    return h("div", { class: "field", key: label }, h("span", { class: "strong" }, label), h("div", { class: "key small" }, isShown ? text : masked === text ? "••••••••••••" : masked),
      h("div", { class: "actions" }, button(isShown ? "Hide" : "Show", () => { if (isShown) this.revealed.delete(label); else this.revealed.add(label); }, { class: "small", "aria-label": `${isShown ? "Hide" : "Show"}: ${label}` }), copyButton(text)));
  }

  /** @param {any} rule */
  rotation(rule) {
    const rotate = (/** @type {"primary" | "secondary"} */ key) => confirm({
      title: `Replace the ${key} key of ${rule.name}?`, label: `Replace the ${key} key`,
      text: h("p", null, `Everything that was opened with the present ${key} key ends at once. The other key keeps working.`),
      action: async () => { this.opened = await post(`${this.one(rule.name)}/rotate`, { key }); notify(`Replaced the ${key} key.`); },
    });
    return h("div", { class: "stack", style: { gap: ".6rem" } }, h("h3", null, "Change the keys without an interruption"), h("ol", { class: "steps" },
      h("li", null, h("div", null, "Let all clients use the secondary connection string.")),
      h("li", null, h("div", null, "Replace the primary key. ", button("Replace the primary key", () => rotate("primary"), { class: "small" }))),
      h("li", null, h("div", null, "Let all clients use the new primary connection string.")),
      h("li", null, h("div", null, "Replace the secondary key. ", button("Replace the secondary key", () => rotate("secondary"), { class: "small" })))));
  }

  add() {
    let name = "";
    const rights = new Set(["Listen"]);
    openDialog({
      title: `Add an access rule to ${this.of}`,
      view: (dialog) => [
        field("Name", (_, props) => input({ ...props, value: name, autofocus: true, placeholder: "shop", onvalue: (/** @type {string} */ value) => { name = value; } }), { id: "access-name" }),
        h("fieldset", { class: "stack", style: { border: "0", padding: "0", margin: "0" } }, h("legend", { class: "strong" }, "Rights"), RIGHTS.map((right) => checkbox(right, rights.has(right) || rights.has("Manage"), (value) => { if (value) rights.add(right); else rights.delete(right); }, { disabled: right !== "Manage" && rights.has("Manage"), hint: { Listen: "Receive and peek at messages.", Send: "Send messages.", Manage: "Change and delete entities too; includes the other two." }[right] }))),
        dialogButtons(dialog, "Add the rule", async () => {
          this.opened = await put(this.one(name.trim()), { rights: rights.has("Manage") ? RIGHTS : [...rights] });
          this.revealed.clear();
          notify(`Added the rule ${name}. Its keys are below.`);
          refreshNow();
        }, { isDisabled: !name.trim() || !rights.size }),
      ],
    });
  }

  /** @param {string} name */
  remove(name) {
    confirm({ title: `Delete the access rule ${name}?`, word: name, label: "Delete", text: h("p", null, "Everything that was opened with its keys ends at once, and its connection strings stop working."), action: async () => {
      await del(this.one(name));
      if (this.opened?.name === name) this.opened = null;
      notify(`Deleted the rule ${name}.`);
      refreshNow();
    } });
  }
}
