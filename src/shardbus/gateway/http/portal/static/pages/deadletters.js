/** The dead-letter desk: groups of failures, and what to do with each. */

import { get, post } from "../api.js";
import { redraw } from "../app.js";
import { MessageBrowser } from "../browser.js";
import { command } from "../commands.js";
import { isSubscription, topicOf } from "../data.js";
import { h } from "../dom.js";
import { ago, atLeast, count, plural } from "../format.js";
import { attempt, banner, button, card, choice, codeBlock, empty, errorBox, loading } from "../parts.js";
import { note } from "../router.js";
import { refreshNow } from "../live.js";
import { isOver, jobCards, openJob } from "./jobs.js";
import { openSend } from "./send.js";

/** @typedef {{key: string, reason: string, description: string, source: string, count: number, first_at: string, last_at: string, samples: string[]}} Group */

const LINES = /** @type {[string, string][]} */ ([["$DeadLetterQueue", "Dead letters"], ["$Transfer/$DeadLetterQueue", "Not forwarded"]]);

// Between two counts of all letters: at least this long, and this many times as long as one took.
const RECOUNT_MS = 10_000;
const RECOUNT_TIMES = 10;
// As many characters as the API takes.
const ABOUT_MAX = 300;

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function deadLettersTab(context) {
  const { place } = context;
  const desk = new Desk(context, place.query.get("line") ?? LINES[0][0], place.query.get("view") ?? "groups");
  return { refresh: () => desk.refresh(), leave: () => desk.leave(), view: () => desk.draw() };
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
    /** How many letters there are now, and how many there were when the groups were counted. */
    this.now = -1;
    this.counted = -1;
    this.isCounting = false;
    this.isStopped = false;
    this.isStale = false;
    /** The states of the jobs when they were last looked at. @type {string | null} */
    this.told = null;
    /** Counting reads every letter: it may begin again at this moment. */
    this.countAgainAt = 0;
    this.browser = this.newBrowser();
  }

  leave() {
    this.isStopped = true;
    this.browser.leave();
  }

  /** @param {Group} [group] */
  newBrowser(group) {
    return new MessageBrowser({
      line: this.line, target: this.target, place: group ? { segments: [], query: new URLSearchParams() } : this.context.place,
      group: group && { key: group.key, text: groupText(group) },
      more: () => ({ view: this.view, line: this.part === LINES[0][0] ? "" : this.part }),
      actions: (message) => [
        button("Resubmit", () => this.begin("resubmit", { numbers: [message.number] }, 1), { kind: "primary" }),
        button("Edit and resubmit", () => this.edit({ numbers: [message.number] }, 1, [message.number])),
        button("Send an edited copy", () => openSend(this.target, message.resend)),
        button("Delete", () => this.begin("delete", { numbers: [message.number] }, 1), { kind: "danger" })],
      chosenActions: (numbers) => this.actions({ numbers }, numbers.length, numbers),
      none: empty("No dead letters", "Messages come here when they expire, fail too often, or are put here by a receiver."),
    });
  }

  async refresh() {
    await this.jobs.refresh();
    const told = this.jobs.all().map((job) => `${job.id}${job.state}`).join();
    const isJobChanged = this.told !== null && this.told !== told;
    this.told = told;
    if (this.view === "list") await this.browser.begin();
    this.now = this.context.entity.runtime[this.part === LINES[0][0] ? "dead_letter" : "transfer_dead_letter"];
    if (isJobChanged && this.view === "list") void this.browser.search();
    const isFirst = this.counted < 0;
    // While a job works the numbers change all the time, and counting would read all letters as often.
    const isWorking = this.jobs.all().some((job) => !isOver(job) && job.action !== "export");
    this.isStale ||= isJobChanged;
    const isDue = this.isStale || (this.now !== this.counted && Date.now() >= this.countAgainAt);
    if (this.view === "groups" && (isFirst || (isDue && !isWorking))) void this.count();
  }

  /** Count the groups page by page; the old numbers stay until the new ones are complete. */
  async count() {
    if (this.isCounting) return;
    this.isCounting = true;
    this.isStopped = false;
    this.error = null;
    this.counted = this.now;
    this.isStale = false;
    const began = Date.now();
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
    this.countAgainAt = Date.now() + Math.max(RECOUNT_MS, RECOUNT_TIMES * (Date.now() - began));
    redraw();
  }

  /** @param {"resubmit" | "move" | "delete" | "export"} action @param {Record<string, unknown>} selection @param {number} total @param {any} [sample] @param {string[]} [samples] */
  begin(action, selection, total, sample, samples) {
    const group = this.groups.get(String(selection.group ?? ""));
    const what = group && total ? `${plural(total, "dead letter")} “${group.reason || "no reason given"}”` : total ? undefined : "the dead letters that fit the filter";
    openJob({ line: this.line, action, selection, total, sample, samples, what, about: this.aboutText(selection), then: () => this.jobs.refresh() });
  }

  /** What is in common to the dead letters of a group: its key says nothing to people. @param {Record<string, unknown>} selection */
  aboutText(selection) {
    const group = this.groups.get(String(selection.group ?? ""));
    const text = group ? groupText(group) : selection.group ? this.browser.options.group?.text : undefined;
    return text?.slice(0, ABOUT_MAX);
  }

  /** @param {Record<string, unknown>} selection @param {number} total @param {string[]} samples numbers of some of them */
  async edit(selection, total, samples) {
    const sample = await get(`entities/${encodeURIComponent(this.line)}/messages/${encodeURIComponent(samples[0])}`);
    this.begin("resubmit", selection, total, sample, samples);
  }

  /** @param {Record<string, unknown>} selection @param {number} total @param {string[]} [samples] @param {string} [which] @param {boolean} [isFirst] whether resubmitting is what the page is for */
  actions(selection, total, samples, which = "", isFirst = false) {
    return [
      button(`Resubmit${which}`, () => this.begin("resubmit", selection, total), { class: "small", kind: isFirst ? "primary" : "" }),
      samples?.length ? button("Edit and resubmit", () => this.edit(selection, total, samples), { class: "small" }) : null,
      button(`Move${which}`, () => this.begin("move", selection, total), { class: "small" }),
      button(`Export${which}`, () => this.begin("export", selection, total), { class: "small" }),
      button(`Delete${which}`, () => this.begin("delete", selection, total), { class: "small", kind: "danger" }),
    ];
  }

  draw() {
    const { runtime } = this.context.entity;
    const all = Math.max(0, this.now);
    return [
      h("div", { class: "row" },
        choice("View", [["groups", "Groups"], ["list", "Messages"]], this.view, (value) => { this.show(value); }),
        runtime.transfer_dead_letter || this.part !== LINES[0][0] ? choice("Line", LINES, this.part, (value) => { note({ line: value, view: this.view }); window.dispatchEvent(new HashChangeEvent("hashchange")); }) : null,
        h("span", { class: "muted grow", role: "status" }, this.isCounting && this.progress ? `Counting: ${count(this.progress.searched)} of ${count(this.progress.total)} …` : `${atLeast(all, runtime.is_partial)} dead letter${all === 1 ? "" : "s"}`),
        this.isCounting && this.progress?.next ? button("Stop", () => { this.isStopped = true; }, { class: "small" }) : null,
        all ? h("div", { class: "actions" }, this.allActions(all)) : null),
      this.jobs.draw(),
      this.error ? errorBox(this.error, () => this.count()) : null,
      this.progress?.unavailable_fragments?.length ? banner("warn", `Fragments ${this.progress.unavailable_fragments.join(", ")} do not serve: their dead letters are missing here.`) : null,
      this.view === "list" ? this.browser.draw() : this.drawGroups(),
    ];
  }

  /** What is shown is what the buttons above it are about: where a filter is set, what fits it. @param {number} all */
  allActions(all) {
    const fitting = this.view === "list" ? this.browser.selection() : {};
    return Object.keys(fitting).length ? this.actions(fitting, 0, undefined, " what fits") : this.actions({}, all, undefined, " all", this.view === "groups");
  }

  /** @param {string} view @param {Group} [group] only its letters: others may have the same reason */
  show(view, group) {
    this.view = view;
    if (group) {
      this.browser.leave();
      this.browser = this.newBrowser(group);
    }
    this.browser.keep();
    if (view === "list") void attempt(() => this.browser.begin());
    else refreshNow();
  }

  drawGroups() {
    const groups = [...this.groups.values()].sort((a, b) => b.count - a.count);
    if (!groups.length) return this.isCounting || this.now < 0 ? loading() : card("", empty("No dead letters", "Messages come here when they expire, fail too often, or are put here by a receiver. Try it:", codeBlock(command("receive", this.context.name, "--dead-letter-reason", "no stock"), "Command"), h("p", { class: "small" }, "An SDK does it with ", h("code", null, "dead_letter_message"), ".")));
    return card("", groups.map((group) => h("div", { class: "group", key: group.key },
      h("div", { class: "group-head" }, h("span", { class: "n" }, count(group.count)),
        h("div", { class: "why" }, h("strong", null, group.reason || "No reason given"), group.description ? h("div", { class: "muted" }, group.description) : null, group.source ? h("div", { class: "muted small" }, `from ${group.source}`) : null),
        h("span", { class: "muted small" }, `enqueued ${ago(group.first_at)}${ago(group.first_at) === ago(group.last_at) ? "" : ` to ${ago(group.last_at)}`}`)),
      h("div", { class: "actions" }, button(`Show ${plural(group.count, "message")}`, () => this.show("list", group), { class: "small" }), this.actions({ group: group.key }, group.count, group.samples)))), { class: "flush" });
  }
}

/** @param {Group} group */
function groupText(group) {
  return [group.reason || "No reason given", group.description, group.source && `from ${group.source}`].filter(Boolean).join(" · ");
}

/** @param {Map<string, Group>} groups @param {Group} group */
function merge(groups, group) {
  const known = groups.get(group.key);
  groups.set(group.key, known ? {
    ...known, count: known.count + group.count, first_at: known.first_at < group.first_at ? known.first_at : group.first_at,
    last_at: known.last_at > group.last_at ? known.last_at : group.last_at, samples: [...known.samples, ...group.samples].slice(0, 5),
  } : { ...group });
}
