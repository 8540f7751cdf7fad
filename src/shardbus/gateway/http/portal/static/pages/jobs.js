/** Work on many messages, done by the bus: begun here, watched, stopped, and its files downloaded. */

import { ApiError, del, download, get, post } from "../api.js";
import { notify, redraw } from "../app.js";
import { data, isSubscription, loadOverview, shortName, topicOf } from "../data.js";
import { dialogButtons, openDialog } from "../dialog.js";
import { diffView } from "../diff.js";
import { h } from "../dom.js";
import { count, plural, size } from "../format.js";
import { refreshNow } from "../live.js";
import { anchor, area, badge, banner, button, card, checkbox, empty, field, input, loading, moment, progress } from "../parts.js";
import { entityLink } from "../router.js";
import { propertiesOf, propertyRows } from "./send.js";

const DEAD = "/$DeadLetterQueue";
const VERBS = /** @type {Record<string, [string, string]>} */ ({ resubmit: ["Resubmit", "Resubmitted"], move: ["Move", "Moved"], delete: ["Delete", "Deleted"], export: ["Export", "Exported"] });

/** @param {any} job */
export function isOver(job) {
  return ["done", "stopped", "failed"].includes(job.state);
}

/** @param {string} line */
function jobsPath(line) {
  return `entities/${encodeURIComponent(line)}/jobs`;
}

/** @param {any} job @param {() => unknown} refresh */
function jobCard(job, refresh) {
  const path = `${jobsPath(job.entity)}/${encodeURIComponent(job.id)}`;
  const [verb, past] = VERBS[job.action] ?? [job.action, job.action];
  const looks = /** @type {Record<string, "good" | "warn" | "bad" | "accent">} */ ({ done: "good", failed: "bad", stopped: "warn" });
  return h("div", { class: "group", key: job.id },
    h("div", { class: "group-head" }, h("strong", null, isOver(job) ? past : verb), badge(job.state, looks[job.state] ?? "accent"),
      h("span", { class: "why" }, anchor(entityLink(job.entity.replace(/\/\$.*$/, ""), "dead-letters"), job.entity), job.destination ? [" → ", anchor(entityLink(job.destination), job.destination)] : null),
      h("span", { class: "muted small" }, moment(job.began_at)),
      h("div", { class: "actions" },
        job.export_bytes && isOver(job) ? button(`Download ${size(job.export_bytes)}`, () => download(`${path}/export`, `${job.id}.jsonl`), { class: "small" }) : null,
        isOver(job) ? button("Forget", async () => { await del(path); await refresh(); }, { class: "small" }) : button("Stop", async () => { await post(`${path}/stop`); await refresh(); }, { class: "small", kind: "danger", disabled: job.state === "stopping" }))),
    isOver(job) ? null : progress(job.examined, job.total, `${verb} ${job.entity}`),
    h("p", { class: "small muted", role: "status" }, `${count(job.done)} of ${count(job.total)} done`, job.skipped ? `, ${count(job.skipped)} skipped` : "", job.failed ? `, ${count(job.failed)} failed` : "", job.restarts ? `, continued after ${plural(job.restarts, "restart")}` : "", "."),
    job.error ? h("p", { class: "field-error" }, job.error) : null,
    job.warnings?.length ? banner("warn", job.warnings.join(" ")) : null);
}

/** The jobs of one line, above its messages. @param {string} line */
export function jobCards(line) {
  /** @type {any[]} */
  let jobs = [];
  const refresh = async () => { jobs = (await get(jobsPath(line))).jobs; redraw(); };
  return {
    refresh,
    all: () => jobs,
    draw: () => (jobs.length ? card("Jobs", jobs.map((job) => jobCard(job, refresh)), { class: "flush" }) : null),
  };
}

/** @returns {import("../app.js").Page} */
export function jobsPage() {
  /** @type {any[] | null} */
  let jobs = null;
  const refresh = async () => {
    const [found] = await Promise.all([get("jobs"), loadOverview()]);
    jobs = found.jobs;
  };
  return {
    title: "Jobs", refresh,
    view: () => [
      h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, "Jobs"), h("p", { class: "muted" }, "The server runs jobs: they continue when this page is closed, and after a restart."))),
      !jobs ? loading() : jobs.length ? card("", jobs.map((job) => jobCard(job, refresh)), { class: "flush" })
        : card("", empty("No jobs", "Resubmit, move, delete or export messages in the dead-letter desk or the messages of an entity: the work appears here.")),
    ],
  };
}

/**
 * @typedef {object} Wanted
 * @property {string} line
 * @property {"resubmit" | "move" | "delete" | "export"} action
 * @property {Record<string, unknown>} selection
 * @property {number} total how many messages it is about
 * @property {any} [sample] a message in full: the job begins with a dialog to edit
 * @property {() => unknown} [then]
 */

/** Sisters that would get the resubmitted letters of a subscription too. @param {string} line */
function sisters(line) {
  const name = line.replace(DEAD, "");
  if (!isSubscription(name)) return [];
  const prefix = `${topicOf(name)}/Subscriptions/`.toLowerCase();
  return (data.overview?.entities ?? []).filter((row) => row.name.toLowerCase().startsWith(prefix) && row.name !== name).map((row) => shortName(row.name));
}

/** @param {string[]} others @param {string} own */
function sisterWarning(others, own) {
  if (!others.length) return null;
  return banner("warn", h("strong", null, "Other subscriptions get them too. "), `Dead letters of a subscription are sent to its topic ${topicOf(own)}: if their rules match, ${others.slice(0, 5).join(", ")}${others.length > 5 ? " and others" : ""} will receive these messages again.`);
}

/** @param {Wanted} wanted */
export function openJob(wanted) {
  const { line, action, selection, total, sample } = wanted;
  const own = line.replace(DEAD, "");
  const before = sample?.body_text ?? "";
  const state = { destination: "", hasBackup: action === "delete", body: before, isBodyChanged: false, rows: /** @type {import("./send.js").Row[]} */ ([]), removed: "", label: "", contentType: "" };
  const names = (data.overview?.entities ?? []).filter((row) => row.kind !== "subscription" && row.name !== own).map((row) => row.name);
  const others = action === "resubmit" ? sisters(line) : [];
  const [verb] = VERBS[action];
  const begin = async () => {
    /** @type {Record<string, unknown>} */
    const body = { action, selection };
    if (action === "move") body.destination = state.destination;
    if (state.hasBackup && action !== "export") body.backup = true;
    if (sample) body.edit = editOf(state, before);
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
    title: `${sample ? "Edit and resubmit" : verb} ${plural(total, "message")} of ${own}`, isWide: Boolean(sample),
    view: (dialog) => [
      sample ? edits(state, before, total) : null,
      action === "move" ? field("Move to", (_, props) => [input({ ...props, value: state.destination, list: "move-names", autofocus: true, onvalue: (/** @type {string} */ value) => { state.destination = value.trim(); } }), h("datalist", { id: "move-names" }, names.map((name) => h("option", { key: name, value: name })))], { id: "move-to", hint: "A queue or a topic. Each message leaves here and arrives there in one transaction." }) : null,
      sisterWarning(others, own),
      action === "resubmit" ? h("p", { class: "muted" }, "Each message is removed here and sent again in one transaction: none is lost and none is duplicated.") : null,
      action === "delete" ? h("p", null, "They will be removed for ever.") : null,
      action === "export" ? h("p", { class: "muted" }, "The messages stay. The file has one JSON line for each, and `shardbus send` takes it again.") : null,
      action === "export" ? null : checkbox("Keep a copy as JSON lines", state.hasBackup, (value) => { state.hasBackup = value; }, { hint: "Download it later from the job; it can be sent again." }),
      dialogButtons(dialog, verb, begin, { kind: action === "delete" ? "danger" : "primary", isDisabled: action === "move" && !state.destination }),
    ],
  });
}

/** @param {any} state @param {string} before @param {number} total */
function edits(state, before, total) {
  return [
    total > 1 ? banner("warn", `A changed body replaces the body of all ${count(total)} messages. Leave it as it is to change only properties and fields.`) : null,
    field("Body", (_, props) => area({ ...props, rows: 8, value: state.body, onvalue: (/** @type {string} */ value) => { state.body = value; } }), { id: "edit-body" }),
    h("h3", null, "Changes"), diffView(before, state.body),
    h("div", { class: "fields" },
      field("New subject (label)", (_, props) => input({ ...props, value: state.label, placeholder: "unchanged", onvalue: (/** @type {string} */ value) => { state.label = value; } }), { id: "edit-label" }),
      field("New content type", (_, props) => input({ ...props, value: state.contentType, placeholder: "unchanged", onvalue: (/** @type {string} */ value) => { state.contentType = value; } }), { id: "edit-type" }),
      field("Remove properties", (_, props) => input({ ...props, value: state.removed, placeholder: "names, separated by commas", onvalue: (/** @type {string} */ value) => { state.removed = value; } }), { id: "edit-remove" })),
    propertyRows(state.rows, "Set properties"),
  ];
}

/** @param {any} state @param {string} before */
function editOf(state, before) {
  /** @type {Record<string, unknown>} */
  const edit = {};
  if (state.body !== before) edit.body = state.body;
  const remove = state.removed.split(",").map((/** @type {string} */ name) => name.trim()).filter(Boolean);
  const set = propertiesOf(state.rows);
  if (remove.length || Object.keys(set).length) edit.properties = { set, remove };
  /** @type {Record<string, string>} */
  const fields = {};
  if (state.label) fields.subject = state.label;
  if (state.contentType) fields.content_type = state.contentType;
  if (Object.keys(fields).length) edit.fields = fields;
  if (!Object.keys(edit).length) throw new Error("Nothing is changed: change something, or use Resubmit.");
  return edit;
}
