/** Messages of a line: searched page by page on the bus, listed, and opened one at a time. */

import { get, post } from "./api.js";
import { preferences, prefer, redraw } from "./app.js";
import { bodyText, viewsOf } from "./body.js";
import { h } from "./dom.js";
import { ago, count, duration, plural, sentence, shortNumber, shortTime, size, time } from "./format.js";
import { attempt, badge, banner, button, card, choice, codeBlock, copyButton, empty, errorBox, facts, field, input, intoView, loading, select } from "./parts.js";
import { note } from "./router.js";
import { LANGUAGES, snippet } from "./snippets.js";
import { longTable, table } from "./table.js";

/** @typedef {import("./dom.js").Child} Child */
/**
 * @typedef {object} Options
 * @property {string} line the path of the messages, such as orders/$DeadLetterQueue
 * @property {string} target where copies are sent
 * @property {import("./router.js").Place} place
 * @property {string[]} [states] only messages in these states
 * @property {(message: any) => Child} [actions] for the opened message
 * @property {(numbers: string[]) => Child} [chosenActions] for the ticked messages
 * @property {Child} [none] what to show when there is no message
 * @property {{key: string, text: string}} [group] only dead letters of this group
 * @property {() => Record<string, string>} [more] what else the address of the page holds
 * @property {() => Child} [note] above the list
 */

const PAGE = 100;
const PREVIEW_BYTES = 300;
const STATES = ["active", "deferred", "scheduled", "delayed"];

export class MessageBrowser {
  /** @param {Options} options */
  constructor(options) {
    const { query } = options.place;
    this.options = options;
    this.where = query.get("where") ?? "";
    this.text = query.get("text") ?? "";
    this.state = query.get("state") ?? "";
    this.fragment = query.get("fragment") ?? "";
    this.session = query.get("session") ?? "";
    this.reason = query.get("reason") ?? "";
    this.group = options.group?.key ?? query.get("group") ?? "";
    this.isNewest = query.get("newest") === "1";
    /** @type {any[]} */
    this.messages = [];
    /** @type {any} */
    this.progress = null;
    /** @type {AbortController | null} */
    this.running = null;
    /** @type {unknown} */
    this.error = null;
    /** @type {Set<string>} */
    this.ticked = new Set();
    /** @type {any} */
    this.opened = null;
    this.openedNumber = query.get("message") ?? "";
    this.view = "";
    this.language = "python";
    this.bodyShown = "";
    this.hasBegun = false;
    this.counted = 0;
    /** Whether the message that is shown was in the list. */
    this.isListed = false;
  }

  /** Search once at the start; later only when asked, so that a list does not move under the eye. */
  async begin() {
    if (this.hasBegun) return;
    this.hasBegun = true;
    void this.search();
    if (this.openedNumber) await this.open(this.openedNumber);
  }

  /** Search again by itself only where nothing is listed: a list does not move under the eye. @param {number} now how many messages there are */
  async refresh(now) {
    await this.begin();
    const isEmpty = this.progress && !this.progress.next && !this.running && !this.messages.length && !this.isFiltered();
    if (isEmpty && now > 0 && now !== this.counted) void this.search();
    this.counted = now;
  }

  leave() {
    this.running?.abort();
  }

  keep() {
    note({ where: this.where, text: this.text, state: this.state, fragment: this.fragment, session: this.session, reason: this.reason, group: this.group, newest: this.isNewest ? "1" : "", message: this.openedNumber, ...this.options.more?.() });
  }

  async search() {
    this.isListed ||= this.messages.some((one) => one.number === this.openedNumber);
    this.running?.abort();
    this.messages = [];
    this.progress = null;
    this.ticked.clear();
    this.keep();
    await this.more();
    // A message that is shown may be gone meanwhile.
    if (this.isListed && this.progress && !this.progress.next && !this.messages.some((one) => one.number === this.openedNumber)) this.close();
  }

  /** Ask for pages until there are enough messages, the end is reached, or the user stops. */
  async more() {
    if (this.progress && !this.progress.next) return;
    if (this.running && !this.running.signal.aborted && this.progress) return;
    const running = new AbortController();
    this.running = running;
    this.error = null;
    redraw();
    const wanted = this.messages.length + PAGE;
    try {
      while (this.messages.length < wanted && !running.signal.aborted) {
        const answer = await post(`entities/${encodeURIComponent(this.options.line)}/messages/search`, this.question(), { signal: running.signal });
        if (running.signal.aborted) return;
        this.messages = this.messages.concat(answer.messages);
        this.progress = answer;
        redraw();
        if (!answer.next) break;
      }
    } catch (error) {
      if (!(error instanceof DOMException)) this.error = error;
    } finally {
      if (this.running === running) this.running = null;
      redraw();
    }
  }

  question() {
    /** @type {Record<string, unknown>} */
    const asked = { count: PAGE, body_bytes_max: PREVIEW_BYTES, ...this.selection() };
    if (this.isNewest) asked.newest_first = true;
    if (this.progress?.next) asked.cursor = this.progress.next;
    return asked;
  }

  /** What the filter selects, as searches and jobs take it. */
  selection() {
    /** @type {Record<string, unknown>} */
    const asked = {};
    if (this.where) asked.where = this.where;
    if (this.text) asked.text = this.text;
    if (this.state || this.options.states) asked.states = this.state ? [this.state] : this.options.states;
    if (this.fragment) asked.fragments = [Number(this.fragment)];
    if (this.session) asked.session_id = this.session;
    if (this.reason) asked.reason = this.reason;
    if (this.group) asked.group = this.group;
    return asked;
  }

  stop() {
    this.running?.abort();
    this.running = null;
    redraw();
  }

  /** @param {string} number */
  async open(number) {
    this.openedNumber = number;
    this.isListed = false;
    this.keep();
    this.opened = null;
    const message = await get(`entities/${encodeURIComponent(this.options.line)}/messages/${encodeURIComponent(number)}`);
    if (this.openedNumber !== number) return;
    this.opened = message;
    await this.choose(viewsOf(message)[0][0]);
  }

  close() {
    this.opened = null;
    this.openedNumber = "";
    this.keep();
    redraw();
  }

  /** @param {string} view */
  async choose(view) {
    this.view = view;
    const { opened } = this;
    const shown = await bodyText(opened, view).catch(() => "The body cannot be unpacked: it is damaged.");
    // Unpacking takes a while: meanwhile another message, or view, may have been chosen.
    if (this.opened !== opened || this.view !== view) return;
    this.bodyShown = shown;
    redraw();
  }

  /** @returns {Child} */
  draw() {
    return [this.filters(), this.grouped(), this.options.note?.(), this.error ? errorBox(this.error, () => this.search()) : null, this.status(),
      h("div", { class: `split ${this.openedNumber ? "open" : ""}` }, this.list(), this.openedNumber ? this.detail() : null)];
  }

  filters() {
    const set = (/** @type {"where" | "text" | "fragment" | "session" | "reason"} */ name) => (/** @type {string} */ value) => { this[name] = value; };
    const isDead = this.options.line.includes("$");
    return h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void attempt(() => this.search()); } },
      h("div", { class: "field big" }, field("Condition", (_, props) => input({ ...props, class: "mono", value: this.where, list: "saved-filters", placeholder: "region = 'eu'", onvalue: set("where") }), { id: "filter-where" })),
      h("datalist", { id: "saved-filters" }, this.savedFilters().map((one) => h("option", { key: one, value: one }))),
      field("Text in the body", (_, props) => input({ ...props, value: this.text, onvalue: set("text") }), { id: "filter-text" }),
      isDead ? field("Reason", (_, props) => input({ ...props, value: this.reason, onvalue: set("reason") }), { id: "filter-reason" }) : null,
      this.options.states ? null : field("State", (_, props) => select([["", "All"], .../** @type {[string, string][]} */ (STATES.map((one) => [one, one]))], { ...props, value: this.state, onvalue: (/** @type {string} */ value) => { this.state = value; } }), { id: "filter-state" }),
      field("Fragment", (_, props) => input({ ...props, inputmode: "numeric", value: this.fragment, placeholder: "all", onvalue: set("fragment") }), { id: "filter-fragment" }),
      field("Session", (_, props) => input({ ...props, value: this.session, placeholder: "all", onvalue: set("session") }), { id: "filter-session" }),
      h("div", { class: "field order" }, field("Order", (_, props) => select([["", "Oldest first"], ["1", "Newest first"]], { ...props, value: this.isNewest ? "1" : "", onvalue: (/** @type {string} */ value) => { this.isNewest = value === "1"; } }), { id: "filter-order" })),
      h("div", { class: "actions" }, h("button", { type: "submit", class: "button" }, "Search")));
  }

  /** One group of dead letters: a reason alone may be that of several. */
  grouped() {
    if (!this.group) return null;
    return h("div", { class: "row" }, badge("one group", "accent"), h("span", { class: "grow break" }, this.options.group?.text ?? `the group ${this.group}`),
      button("Show all groups", () => { this.group = ""; return this.search(); }, { class: "small" }));
  }

  savedFilters() {
    return preferences.filters[this.filtersKey()] ?? [];
  }

  /** A queue may be called `constructor`, which every object has. */
  filtersKey() {
    return `of ${this.options.target}`;
  }

  saveFilter() {
    const kept = this.savedFilters();
    prefer({ filters: { ...preferences.filters, [this.filtersKey()]: [this.where, ...kept.filter((one) => one !== this.where)].slice(0, 20) } });
  }

  status() {
    const { progress } = this;
    const isNothing = progress && !progress.total && !this.running && !this.isFiltered();
    const found = plural(this.messages.length, "message");
    const told = progress ? `${found} shown; searched ${count(progress.searched)} of ${count(progress.total)}${progress.next || this.running ? "" : ", all"}.` : "Searching …";
    return [
      isNothing ? null : h("div", { class: "row" }, h("p", { class: "muted grow", role: "status" }, told, progress?.errors ? ` The condition fails on ${plural(progress.errors, "message")}: ${progress.first_error}` : ""),
        this.where && !this.savedFilters().includes(this.where) ? button("Save the condition", () => this.saveFilter(), { class: "small", title: "Keep this condition for next time, in this browser" }) : null,
        this.running ? button("Stop", () => this.stop(), { class: "small" }) : null,
        !this.running && progress?.next ? button("Search on", () => this.more(), { class: "small" }) : null,
        this.ticked.size && this.options.chosenActions ? h("div", { class: "actions" }, h("strong", null, `${count(this.ticked.size)} chosen`), this.options.chosenActions([...this.ticked])) : null),
      progress?.unavailable_fragments?.length ? banner("warn", `Fragments ${progress.unavailable_fragments.join(", ")} do not serve: their messages are missing here.`) : null,
    ];
  }

  list() {
    if (!this.messages.length) {
      if (this.running || !this.progress) return loading();
      return card("", this.isFiltered() ? empty("No message fits", "Change the condition, or search all states and fragments.") : this.options.none ?? empty("No messages", ""));
    }
    const isDead = this.options.line.includes("$");
    return h("div", { class: "card flush" }, longTable({ id: `messages-${this.options.line}`, label: "Messages", rows: this.messages, key: (one) => one.number, onend: () => void attempt(() => this.more()),
      rowClass: (one) => (one.number === this.openedNumber ? "chosen" : ""),
      rowProps: (one) => ({ onclick: (/** @type {Event} */ event) => { if (!(/** @type {Element} */ (event.target)).closest("input, button, a")) void attempt(() => this.open(one.number)); } }),
      columns: [
        ...(this.options.chosenActions ? [{ title: "Chosen", head: this.tickAll(), class: "tight", cell: (/** @type {any} */ one) => this.tick(one.number) }] : []),
        { title: "Number", isHead: true, class: "tight", cell: (one) => h("button", { type: "button", class: "button quiet small mono", title: `Fragment and number: ${one.number}`, onclick: () => void attempt(() => this.open(one.number)) }, shortNumber(one.number)) },
        this.options.states?.includes("scheduled") ? { title: "Due", class: "tight", cell: (one) => h("span", { title: ago(one.scheduled_at) }, time(one.scheduled_at)) }
          : { title: "Enqueued", class: "tight wide", cell: (one) => h("span", { title: `${time(one.enqueued_at)}, ${ago(one.enqueued_at)}` }, shortTime(one.enqueued_at)) },
        ...(isDead ? [{ title: "Reason", class: "", cell: (/** @type {any} */ one) => one.dead_letter_reason ?? "" }]
          : this.options.states ? [] : [{ title: "State", class: "tight wide extra", cell: (/** @type {any} */ one) => (one.state === "active" ? h("span", { class: "muted" }, "active") : badge(one.state, "accent")) }]),
        { title: "Subject", class: "tight wide", cell: (one) => one.subject ?? "" },
        { title: "Body", cell: (one) => h("span", { class: "mono" }, preview(one)) },
        { title: "Size", class: "number wide extra", cell: (one) => size(one.size_bytes) },
      ] }));
  }

  isFiltered() {
    return Boolean(this.where || this.text || this.state || this.fragment || this.session || this.reason || this.group);
  }

  /** @param {string} number */
  tick(number) {
    return h("input", { type: "checkbox", "aria-label": `Choose ${number}`, checked: this.ticked.has(number), onchange: (/** @type {Event} */ event) => {
      if (/** @type {HTMLInputElement} */ (event.target).checked) this.ticked.add(number);
      else this.ticked.delete(number);
      redraw();
    } });
  }

  tickAll() {
    return h("input", { type: "checkbox", "aria-label": "Choose all that are listed", checked: this.ticked.size > 0 && this.ticked.size === this.messages.length, onchange: (/** @type {Event} */ event) => {
      this.ticked = new Set(/** @type {HTMLInputElement} */ (event.target).checked ? this.messages.map((one) => one.number) : []);
      redraw();
    } });
  }

  detail() {
    const message = this.opened;
    const close = button("Close", () => this.close(), { class: "small" });
    // Below the list on a narrow screen.
    const shown = { class: "detail", key: "detail", actions: close, onmount: intoView };
    if (!message) return card(`Message ${this.openedNumber}`, loading(), shown);
    return card(`Message ${message.number}`, [
      h("div", { class: "actions" }, this.options.actions?.(message), copyButton(location.href, "Copy link")),
      message.dead_letter_reason ? banner("warn", h("strong", null, message.dead_letter_reason), message.dead_letter_description ? `: ${message.dead_letter_description}` : "") : null,
      this.body(message), facts(factsOf(message)), propertiesTable("Properties", message.properties), propertiesTable("Annotations", message.annotations),
      message.resend ? h("details", { class: "more" }, h("summary", null, "Copy as code"), h("div", { class: "stack", style: { "margin-top": ".7rem" } }, choice("Language", LANGUAGES, this.language, (value) => { this.language = value; }), codeBlock(snippet(this.language, this.options.target, message.resend), "Code that sends this message"))) : null,
    ], shown);
  }

  /** @param {any} message */
  body(message) {
    return h("div", { class: "stack", style: { gap: ".5rem" } },
      h("div", { class: "row" }, h("h3", null, "Body"), h("span", { class: "muted small" }, size(message.size_bytes)), choice("Show the body as", viewsOf(message), this.view, (value) => void this.choose(value)), copyButton(this.bodyShown)),
      message.body_kind === "unreadable" ? banner("warn", "The bus cannot decode this body; it is shown as bytes.") : null,
      h("pre", { class: `box ${this.view === "hex" ? "hex" : ""}`, tabindex: "0", role: "group", "aria-label": "Body" }, this.bodyShown || "(empty)"));
  }
}

/** @param {any} message */
export function preview(message) {
  if (message.body_base64 !== undefined && message.body === undefined) return `${size(message.body_size_bytes ?? message.size_bytes)} of bytes`;
  const text = typeof message.body === "string" ? message.body : JSON.stringify(message.body ?? "");
  return text.replace(/\s+/g, " ").slice(0, 160) + (message.is_body_cut ? " …" : "");
}

/** @param {any} message @returns {[Child, Child][]} */
function factsOf(message) {
  /** @type {[string, Child][]} */
  const rows = [["State", message.state], ["Fragment", count(message.fragment)], ["Enqueued", time(message.enqueued_at)], ["Expires", message.expires_at ? time(message.expires_at) : "never"],
    ["Failed deliveries", count(message.delivery_count)], ["Scheduled for", message.scheduled_at ? time(message.scheduled_at) : null], ["Time to live", message.time_to_live_ms ? duration(message.time_to_live_ms) : null], ["Dead letter of", message.dead_letter_source ?? null]];
  for (const [name, value] of Object.entries(message.fields ?? {})) if (value !== null && value !== "") rows.push([sentence(name), h("span", { class: "mono break" }, String(value))]);
  return rows.filter(([, value]) => value !== null && value !== undefined);
}

/** @param {string} title @param {{name: string, type: string, value: any}[] | undefined} rows */
function propertiesTable(title, rows) {
  if (!rows?.length) return null;
  return h("div", { class: "stack", style: { gap: ".3rem" } }, h("h3", null, title), table({ label: title, rows, key: (row) => row.name, columns: [
    { title: "Name", isHead: true, class: "break", cell: (row) => row.name },
    { title: "Type", class: "tight", cell: (row) => h("span", { class: "muted" }, row.type) },
    { title: "Value", class: "break", cell: (row) => h("span", { class: "mono" }, typeof row.value === "string" ? row.value : JSON.stringify(row.value)) },
  ] }));
}
