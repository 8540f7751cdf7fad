/** Work on many messages, done by the bus: begun here, watched, stopped, and its files downloaded. */

import { ApiError, del, download, get, post } from "../api.js";
import { notify, redraw } from "../app.js";
import { data, isSubscription, loadOverview, shortName, sistersOf, topicOf } from "../data.js";
import { dialogButtons, openDialog } from "../dialog.js";
import { h } from "../dom.js";
import { coarse, count, plural, shortDuration, shortNumber, size, time } from "../format.js";
import { refreshNow } from "../live.js";
import { anchor, badge, banner, button, card, checkbox, choice, empty, field, input, loading, moment, progress } from "../parts.js";
import { entityLink } from "../router.js";
import { editOf, editor, newEdit } from "./edits.js";

const DEAD = "/$DeadLetterQueue";
const VERBS = /** @type {Record<string, [string, string]>} */ ({ resubmit: ["Resubmit", "Resubmitted"], move: ["Move", "Moved"], delete: ["Delete", "Deleted"], export: ["Export", "Exported"], dead_letter: ["Dead-letter", "Dead-lettered"] });

/** @param {any} job */
export function isOver(job) {
  return ["done", "stopped", "failed"].includes(job.state);
}

/** @param {string} line */
function jobsPath(line) {
  return `entities/${encodeURIComponent(line)}/jobs`;
}

/** How far a job is. Where a filter selects, only its end knows how many messages it was about. @param {any} job */
function doneText(job) {
  const members = Object.keys(job.selection ?? {});
  const done = members.every((member) => member === "numbers") ? `${count(job.done)} of ${count(job.selection?.numbers?.length ?? job.total)} done` : `${plural(job.done, "message")} done`;
  return `${done}${job.skipped ? `, ${count(job.skipped)} skipped` : ""}${job.restarts ? `, continued after ${plural(job.restarts, "restart")}` : ""}.`;
}

const NARROWED = /** @type {Record<string, (value: any) => string>} */ ({
  numbers: (numbers) => (numbers.length === 1 ? `message ${shortNumber(numbers[0])}` : `${count(numbers.length)} chosen messages`),
  group: (key) => `group ${key}`,
  reason: (reason) => `reason “${reason}”`,
  where: (condition) => condition,
  text: (text) => `text “${text}”`,
  states: (states) => states.join(" or "),
  session_id: (id) => `session ${id}`,
  fragments: (numbers) => `fragment ${numbers.join(", ")}`,
  enqueued_after: (at) => `enqueued after ${time(at)}`,
  enqueued_before: (at) => `enqueued before ${time(at)}`,
});

/** Which messages a job is about. @param {any} job */
function selectionText(job) {
  const selection = { ...job.selection };
  if (job.about) delete selection.group;
  const parts = Object.keys(selection).map((member) => NARROWED[member]?.(selection[member]) ?? member);
  const grounds = [job.reason, job.description].filter(Boolean).join(": ");
  return `${[job.about, ...parts].filter(Boolean).join("; ") || "all messages"}${grounds ? `, with the reason ${grounds}` : ""}`;
}

/** How long a job took, or works. @param {any} job */
function lengthText(job) {
  const ms = Math.max(0, (job.ended_at ? Date.parse(job.ended_at) : Date.now()) - Date.parse(job.began_at));
  return job.ended_at ? `Took ${shortDuration(ms)}` : `for ${coarse(ms)}`;
}

const LOOKS = /** @type {Record<string, "good" | "warn" | "bad" | "accent">} */ ({ done: "good", failed: "bad", stopped: "warn" });

/** @param {any} job @param {() => unknown} refresh @param {boolean} isFolded */
function jobCard(job, refresh, isFolded) {
  const path = `${jobsPath(job.entity)}/${encodeURIComponent(job.id)}`;
  const [verb, past] = VERBS[job.action] ?? [job.action, job.action];
  const about = h("span", { class: "break" }, selectionText(job));
  const where = h("span", { class: "why" }, anchor(entityLink(job.entity.replace(/\/\$.*$/, ""), job.entity.includes("/$") ? "dead-letters" : "messages"), job.entity), job.destination ? [" → ", anchor(entityLink(job.destination), job.destination)] : null);
  const more = [
    job.error ? h("p", { class: "field-error" }, job.error) : null,
    job.warnings?.length ? banner("warn", job.warnings.join(" ")) : null];
  if (!isOver(job)) {
    return h("div", { class: "group", key: job.id },
      h("div", { class: "group-head" }, h("strong", null, verb), badge(job.state, "accent"), where, about, h("span", { class: "muted small" }, lengthText(job)),
        h("div", { class: "actions" }, button("Stop", async () => { await post(`${path}/stop`); await refresh(); }, { class: "small", kind: "danger", disabled: job.state === "stopping" }))),
      progress(job.examined, job.total, `${verb} ${job.entity}`, `looked at ${count(job.examined)} of ${plural(job.total, "message")}`),
      h("p", { class: "small muted", role: "status" }, doneText(job)), more);
  }
  return h("details", { class: "group", key: `ended-${job.id}`, open: !isFolded },
    h("summary", null, h("span", { class: "group-head" }, h("strong", null, past), badge(job.state, LOOKS[job.state]), about, h("span", { class: "muted small" }, `${doneText(job)} ${lengthText(job)}`))),
    h("div", { class: "group-head" }, where, h("span", { class: "muted small" }, "began ", moment(job.began_at)),
      h("div", { class: "actions" },
        job.export_bytes ? button(`Download ${size(job.export_bytes)}`, () => download(`${path}/export`, `${job.id}.jsonl`), { class: "small" }) : null,
        button("Forget", async () => { await del(path); await refresh(); }, { class: "small" }))), more);
}

/** The jobs of a page: those that had ended before it was opened are folded. */
class JobList {
  constructor() {
    /** @type {any[] | null} */
    this.jobs = null;
    /** @type {Set<string>} */
    this.old = new Set();
  }

  /** @param {any[]} jobs */
  take(jobs) {
    if (!this.jobs) this.old = new Set(jobs.filter(isOver).map((job) => job.id));
    this.jobs = jobs;
  }

  /** @param {() => unknown} refresh @param {boolean} [isShort] the old ones are one line */
  cards(refresh, isShort = false) {
    const drawn = (/** @type {any} */ job) => jobCard(job, refresh, this.old.has(job.id));
    const jobs = this.jobs ?? [];
    const old = isShort ? jobs.filter((job) => this.old.has(job.id)) : [];
    const others = jobs.filter((job) => !old.includes(job)).map(drawn);
    return old.length ? [others, h("details", { class: "ended", key: "ended" }, h("summary", null, plural(old.length, "earlier job")), old.map(drawn))] : others;
  }
}

/** The jobs of one line, above its messages. @param {string} line */
export function jobCards(line) {
  const list = new JobList();
  const refresh = async () => { list.take((await get(jobsPath(line))).jobs); redraw(); };
  return {
    refresh,
    all: () => list.jobs ?? [],
    draw: () => (list.jobs?.length ? card("Jobs", list.cards(refresh, true), { class: "flush" }) : null),
  };
}

/** @returns {import("../app.js").Page} */
export function jobsPage() {
  const list = new JobList();
  const refresh = async () => {
    const [found] = await Promise.all([get("jobs"), loadOverview()]);
    list.take(found.jobs);
  };
  return {
    title: "Jobs", refresh,
    view: () => [
      h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, "Jobs"), h("p", { class: "muted" }, "The server runs jobs: they continue when this page is closed, and after a restart."))),
      !list.jobs ? loading() : list.jobs.length ? card("", list.cards(refresh), { class: "flush" })
        : card("", empty("No jobs", "Resubmit, move, dead-letter, delete or export messages in the dead-letter desk or the messages of an entity: the work appears here.")),
    ],
  };
}

/**
 * @typedef {object} Wanted
 * @property {string} line
 * @property {"resubmit" | "move" | "delete" | "export" | "dead_letter"} action
 * @property {Record<string, unknown>} selection
 * @property {number} total how many messages it is about
 * @property {string} [about] what selects them, for the job's card
 * @property {string} [what] what they are, where that is not their number
 * @property {any} [sample] a message in full: the job begins with a dialog to edit
 * @property {string[]} [samples] numbers of messages on which an edit is tried
 * @property {string} [word] must be typed before it begins
 * @property {boolean} [hasNoCopy] a copy is kept only where that is asked for
 * @property {() => unknown} [then]
 */

/** Of what is known when it is drawn: the overview may be older than the newest subscription. @param {string} own */
function sisterWarning(own) {
  const others = sistersOf(own).map((row) => shortName(row.name));
  if (!others.length) return null;
  return banner("warn", h("strong", null, "Other subscriptions get them too. "), `Dead letters of a subscription are sent to its topic ${topicOf(own)}: if their rules match, ${others.slice(0, 5).join(", ")}${others.length > 5 ? " and others" : ""} will receive these messages again.`);
}

/** Seconds in which a deletion of many messages can be cancelled. */
const COUNTDOWN_S = 5;

/** @param {Wanted} wanted */
export function openJob(wanted) {
  const { line, action, selection, total, sample, word } = wanted;
  const own = line.replace(DEAD, "");
  const isBulk = action === "delete" && total !== 1;
  const edit = sample ? newEdit(line, sample, wanted.samples ?? [], total) : null;
  const state = { destination: "", where: "topic", hasBackup: action === "delete" && !wanted.hasNoCopy, typed: "", reason: "", description: "", left: 0, isClosed: false };
  const names = (data.overview?.entities ?? []).filter((row) => row.kind !== "subscription" && row.name !== own).map((row) => row.name);
  const isOfTopic = action === "resubmit" && isSubscription(own);
  const [verb] = VERBS[action];
  const begin = async () => {
    /** @type {Record<string, unknown>} */
    const body = { action, selection };
    if (wanted.about) body.about = wanted.about;
    if (action === "move") body.destination = state.destination;
    if (isOfTopic && state.where === "own") body.destination = own;
    if (state.hasBackup && action !== "export") body.backup = true;
    if (edit) body.edit = editOf(edit);
    if (state.reason) body.reason = state.reason;
    if (state.description) body.description = state.description;
    // Nothing was asked of the bus yet: whoever closes the dialog or the page has cancelled it.
    for (state.left = isBulk ? COUNTDOWN_S : 0; state.left > 0 && !state.isClosed; state.left--) {
      redraw();
      await new Promise((resolve) => { setTimeout(resolve, 1000); });
    }
    if (state.isClosed) return;
    try {
      await post(jobsPath(line), body);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404 && action === "move") throw new Error(`There is no queue or topic ${state.destination}: choose one of the list.`);
      throw error;
    }
    notify(`${verb}: begun on the bus.`);
    await wanted.then?.();
    refreshNow();
  };
  openDialog({
    title: `${sample ? "Edit and resubmit" : verb} ${wanted.what ?? plural(total, line.includes("$") ? "dead letter" : "message")} of ${own}`, isWide: Boolean(sample),
    onclose: () => { state.isClosed = true; if (edit) clearTimeout(edit.timer); },
    view: (dialog) => [
      edit ? editor(edit) : null,
      action === "move" ? field("Move to", (_, props) => [input({ ...props, value: state.destination, list: "move-names", autofocus: true, onvalue: (/** @type {string} */ value) => { state.destination = value.trim(); } }), h("datalist", { id: "move-names" }, names.map((name) => h("option", { key: name, value: name })))], { id: "move-to", hint: "A queue or a topic. Each message leaves here and arrives there in one transaction." }) : null,
      isOfTopic ? h("div", { class: "stack", style: { gap: ".4rem" } }, h("span", { class: "strong" }, "Send them to"),
        choice("Send them to", [["topic", `The topic ${topicOf(own)}`], ["own", "This subscription only"]], state.where, (value) => { state.where = value; }),
        state.where === "own" ? h("p", { class: "muted" }, "They arrive here again, whatever its rules say, and nowhere else. This needs the right Manage on the topic.") : sisterWarning(own)) : null,
      action === "resubmit" ? h("p", { class: "muted" }, "Each message is removed here and sent again in one transaction: none is lost and none is duplicated.") : null,
      action === "delete" ? h("p", null, "They will be removed for ever. ", word === undefined ? "" : "Locked, scheduled and deferred messages stay. ", "The bus does it: this page may be closed when it has begun.") : null,
      action === "export" ? h("p", { class: "muted" }, "The messages stay. The file has one JSON line for each, and `shardbus send` takes it again.") : null,
      action === "dead_letter" ? [
        field("Reason", (_, props) => input({ ...props, value: state.reason, autofocus: true, maxlength: "4096", placeholder: "no stock", onvalue: (/** @type {string} */ value) => { state.reason = value; } }), { id: "job-reason", hint: "The desk of dead letters groups them by it." }),
        field("Description", (_, props) => input({ ...props, value: state.description, maxlength: "4096", onvalue: (/** @type {string} */ value) => { state.description = value; } }), { id: "job-description" }),
        h("p", { class: "muted" }, "Receivers no longer get them; dead letters can be resubmitted or deleted later. Locked messages stay.")] : null,
      action === "export" || action === "dead_letter" ? null : checkbox("Keep a copy as JSON lines", state.hasBackup, (value) => { state.hasBackup = value; }, { hint: "Download it later from the job; it can be sent again." }),
      word === undefined ? null : field(`Type ${word} to confirm`, (_, props) => input({ ...props, value: state.typed, onvalue: (/** @type {string} */ value) => { state.typed = value; } }), { id: "job-word" }),
      state.left ? banner("warn", h("span", { role: "timer" }, `Deletion begins in ${state.left} s. `), "Nothing is deleted yet: Cancel prevents it.") : null,
      dialogButtons(dialog, verb, begin, { kind: action === "delete" ? "danger" : "primary", busy: state.left ? `${verb} in ${state.left} s` : "", isDisabled: (action === "move" && !state.destination) || (word !== undefined && state.typed !== word) }),
    ],
  });
}
