/** The newest report of a triage: dead letters in groups. Every text of it comes from letters. */

import { get, save } from "../api.js";
import { command } from "../commands.js";
import { h } from "../dom.js";
import { compact, count, plural } from "../format.js";
import { anchor, button, card, codeBlock, empty, figure, moment } from "../parts.js";
import { plot } from "../plot.js";
import { entityLink } from "../router.js";
import { table } from "../table.js";

/** How many groups are listed; the page of HTML has the others. */
export const GROUPS = 20;
/** Characters of a reason in the legend. */
const REASON = 30;
const TONES = ["dead", "age", "in"];

/** @param {string} name @param {string} path @param {any} report without a name before the first one */
export function lettersReport(name, path, report) {
  if (!report?.name) return card("Report", empty("No report yet", "The first one takes as long as Spark needs to start, and about a minute for a million letters."));
  const page = async () => { const whole = await get(`${path}/report`, { query: { page: 1 } }); save(new Blob([whole.page], { type: "text/html" }), `${name}.html`); };
  return [
    h("h2", null, "The newest report"),
    h("div", { class: "row" }, h("p", { class: "muted grow" }, `${plural(report.letters, "dead letter")} in ${plural(report.group_count, "group")}; made `, moment(report.made_at), `; ${plural(report.earlier.length, "earlier report")} kept.`),
      button("Save as a page", page, { class: "small" }), button("Save as JSON", () => save(new Blob([JSON.stringify(report, null, 2)], { type: "application/json" }), `${name}.json`), { class: "small" })),
    report.letters ? [picture(name, report), groups(report), redrive(report)] : card("", empty("No dead letters", "There were none when the report was made.")),
  ];
}

/** @param {string} name @param {any} report */
function picture(name, report) {
  const largest = report.groups.slice(0, TONES.length);
  /** @type {Record<string, number[]>} */
  const series = { all: report.over_time };
  for (const group of largest) series[group.id] = group.over_time;
  const history = { step_ms: report.step_s * 1000, first_at: report.steps[0], count: report.steps.length, series };
  const lines = largest.map((/** @type {any} */ group, /** @type {number} */ place) => ({ member: group.id, name: `${group.id} ${(group.reason || "(no reason)").slice(0, REASON)}`, class: TONES[place] }));
  return card("", report.steps.length > 1 ? plot({ id: `${name}-letters`, title: "Dead letters by the time at which they were enqueued", history, format: compact, least: 10, lines: [{ member: "all", name: "All", class: "plain" }, ...lines] })
    : h("div", { class: "figures" }, figure("Enqueued", count(report.letters), `all at ${report.steps[0]}`)));
}

/** @param {any} report */
function groups(report) {
  const title = report.group_count > report.groups.length ? `Groups, the ${report.groups.length} largest of ${count(report.group_count)}` : "Groups";
  return card(title, table({ label: title, rows: /** @type {any[]} */ (report.groups), key: (one) => `${one.entity} ${one.id}`, columns: [
    { title: "Group", isHead: true, cell: (one) => h("code", null, one.id) },
    { title: "Letters", class: "number", cell: (one) => count(one.count) },
    { title: "Reason", class: "break", cell: (one) => one.reason || "–" },
    { title: "Description", class: "break wide", cell: (one) => one.description || "–" },
    { title: "Content", class: "break wide", cell: (one) => one.shape },
    { title: "Last", class: "wide", cell: (one) => moment(one.last_at) },
    { title: "Entity", class: "break wide", cell: (one) => anchor(entityLink(one.entity, "dead-letters"), one.entity) },
  ] }), { class: "flush" });
}

/** @param {any} report */
function redrive(report) {
  const [largest] = report.groups;
  return card("Repair and redrive", [h("p", { class: "muted" }, "On the machine of the bus this shows what a redrive of the largest group would do; nothing changes without ", h("code", null, "--apply"), "."),
    codeBlock(command("triage", largest.entity, "--from", report.location, "--group", largest.id), "Command")]);
}
