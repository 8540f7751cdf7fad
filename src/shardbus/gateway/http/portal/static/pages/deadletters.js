/** The dead-letter desk: groups of failures, and what to do with each. */

import { get, post } from "../api.js";
import { redraw } from "../app.js";
import { MessageBrowser } from "../browser.js";
import { isSubscription, topicOf } from "../data.js";
import { h } from "../dom.js";
import { ago, atLeast, count, plural } from "../format.js";
import { attempt, banner, button, card, choice, empty, errorBox, loading } from "../parts.js";
import { note } from "../router.js";
import { jobCards, openJob } from "./jobs.js";
import { openSend } from "./send.js";

/** @typedef {{key: string, reason: string, description: string, source: string, count: number, first_at: string, last_at: string, samples: string[]}} Group */

const LINES = /** @type {[string, string][]} */ ([["$DeadLetterQueue", "Dead letters"], ["$Transfer/$DeadLetterQueue", "Not forwarded"]]);

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function deadLettersTab(context) {
  const { place } = context;
  const desk = new Desk(context, place.query.get("line") ?? LINES[0][0], place.query.get("view") ?? "groups");
  return { refresh: () => desk.refresh(), leave: () => desk.browser.leave(), view: () => desk.draw() };
}

class Desk {
  /** @param {import("./entity.js").Context} context @param {string} line @param {string} view */
  constructor(context, line, view) {
    this.context = context;
    this.view = view;
    this.part = line;
    this.line = `${context.name}/${line}`;
    this.target = isSubscription(context.name) ? topicOf(context.name) : context.name;
    this.jobs = jobCards(this.line);
    /** @type {Map<string, Group>} */
    this.groups = new Map();
    /** @type {any} */
    this.progress = null;
    /** @type {unknown} */
    this.error = null;
    this.counted = -1;
    this.isCounting = false;
    this.isStopped = false;
    this.browser = this.newBrowser();
  }

  newBrowser(reason = "") {
    return new MessageBrowser({
      line: this.line, target: this.target, place: reason ? { segments: [], query: new URLSearchParams() } : this.context.place, reason,
      actions: (message) => [
        button("Resubmit", () => this.begin("resubmit", { numbers: [message.number] }, 1), { kind: "primary" }),
        button("Edit and resubmit", () => this.edit({ numbers: [message.number] }, 1, message.number)),
        button("Send an edited copy", () => openSend(this.target, message.resend)),
        button("Delete", () => this.begin("delete", { numbers: [message.number] }, 1), { kind: "danger" })],
      chosenActions: (numbers) => this.actions({ numbers }, numbers.length, "small", numbers[0]),
      none: empty("No dead letters", "Messages come here when they expire, fail too often, or are put here by a receiver."),
    });
  }

  async refresh() {
    const before = this.jobs.all().map((job) => `${job.id}${job.state}`).join();
    await this.jobs.refresh();
    const isJobChanged = before !== this.jobs.all().map((job) => `${job.id}${job.state}`).join();
    if (this.view === "list") await this.browser.begin();
    const now = this.context.entity.runtime[this.part === LINES[0][0] ? "dead_letter" : "transfer_dead_letter"];
    if (now !== this.counted || isJobChanged) {
      this.counted = now;
      void this.count();
      if (isJobChanged && this.view === "list" && before) void this.browser.search();
    }
  }

  /** Count the groups page by page; the old numbers stay until the new ones are complete. */
  async count() {
    if (this.isCounting) return;
    this.isCounting = true;
    this.isStopped = false;
    this.error = null;
    /** @type {Map<string, Group>} */
    const groups = new Map();
    try {
      /** @type {string | null} */
      let cursor = null;
      do {
        const page = await post(`entities/${encodeURIComponent(this.part === LINES[0][0] ? this.context.name : this.line)}/dead-letters/groups`, cursor ? { cursor } : {});
        for (const group of page.groups) merge(groups, group);
        this.progress = page;
        cursor = page.next;
        if (!this.groups.size) redraw();
      } while (cursor && !this.isStopped);
      this.groups = groups;
    } catch (error) {
      this.error = error;
    }
    this.isCounting = false;
    redraw();
  }

  /** @param {"resubmit" | "move" | "delete" | "export"} action @param {Record<string, unknown>} selection @param {number} total @param {any} [sample] */
  begin(action, selection, total, sample) {
    openJob({ line: this.line, action, selection, total, sample, then: () => this.jobs.refresh() });
  }

  /** @param {Record<string, unknown>} selection @param {number} total @param {string} number */
  async edit(selection, total, number) {
    const sample = await get(`entities/${encodeURIComponent(this.line)}/messages/${encodeURIComponent(number)}`);
    this.begin("resubmit", selection, total, sample);
  }

  /** @param {Record<string, unknown>} selection @param {number} total @param {string} look @param {string} [sample] */
  actions(selection, total, look, sample) {
    return [
      button("Resubmit", () => this.begin("resubmit", selection, total), { class: look, kind: "primary" }),
      sample ? button("Edit and resubmit", () => this.edit(selection, total, sample), { class: look }) : null,
      button("Move", () => this.begin("move", selection, total), { class: look }),
      button("Export", () => this.begin("export", selection, total), { class: look }),
      button("Delete", () => this.begin("delete", selection, total), { class: look, kind: "danger" }),
    ];
  }

  draw() {
    const { runtime } = this.context.entity;
    const all = this.counted < 0 ? 0 : this.counted;
    return [
      h("div", { class: "row" },
        choice("View", [["groups", "Groups"], ["list", "Messages"]], this.view, (value) => { this.show(value); }),
        runtime.transfer_dead_letter || this.part !== LINES[0][0] ? choice("Line", LINES, this.part, (value) => { note({ line: value, view: this.view }); window.dispatchEvent(new HashChangeEvent("hashchange")); }) : null,
        h("span", { class: "muted grow", role: "status" }, this.isCounting && this.progress ? `Counting: ${count(this.progress.searched)} of ${count(this.progress.total)} …` : `${atLeast(all, runtime.is_partial)} dead letter${all === 1 ? "" : "s"}`),
        this.isCounting && this.progress?.next ? button("Stop", () => { this.isStopped = true; }, { class: "small" }) : null,
        all ? h("div", { class: "actions" }, this.actions({}, all, "small")) : null),
      this.jobs.draw(),
      this.error ? errorBox(this.error, () => this.count()) : null,
      this.progress?.unavailable_fragments?.length ? banner("warn", `Fragments ${this.progress.unavailable_fragments.join(", ")} do not serve: their dead letters are missing here.`) : null,
      this.view === "list" ? this.browser.draw() : this.drawGroups(),
    ];
  }

  /** @param {string} view @param {string} [reason] */
  show(view, reason) {
    this.view = view;
    if (reason !== undefined) {
      this.browser.leave();
      this.browser = this.newBrowser(reason);
    }
    note({ view, reason });
    if (view === "list") void attempt(() => this.browser.begin());
  }

  drawGroups() {
    const groups = [...this.groups.values()].sort((a, b) => b.count - a.count);
    if (!groups.length) return this.isCounting || this.counted < 0 ? loading() : card("", empty("No dead letters", "Messages come here when they expire, fail too often, or are put here by a receiver. Try it:", h("p", { class: "small" }, "Receive a message with an SDK and call ", h("code", null, "dead_letter_message"), ".")));
    return card("", groups.map((group) => h("div", { class: "group", key: group.key },
      h("div", { class: "group-head" }, h("span", { class: "n" }, count(group.count)),
        h("div", { class: "why" }, h("strong", null, group.reason || "No reason given"), group.description ? h("div", { class: "muted" }, group.description) : null, group.source ? h("div", { class: "muted small" }, `from ${group.source}`) : null),
        h("span", { class: "muted small" }, `first ${ago(group.first_at)}, last ${ago(group.last_at)}`)),
      h("div", { class: "actions" }, button(`Show ${plural(group.count, "message")}`, () => this.show("list", group.reason), { class: "small" }), this.actions({ group: group.key }, group.count, "small", group.samples[0])))), { class: "flush" });
  }
}

/** @param {Map<string, Group>} groups @param {Group} group */
function merge(groups, group) {
  const known = groups.get(group.key);
  groups.set(group.key, known ? {
    ...known, count: known.count + group.count, first_at: known.first_at < group.first_at ? known.first_at : group.first_at,
    last_at: known.last_at > group.last_at ? known.last_at : group.last_at, samples: [...known.samples, ...group.samples].slice(0, 5),
  } : { ...group });
}
