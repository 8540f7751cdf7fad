/** The report on an entity, from its lifecycle records: what the command `report` tells. */

import { get, save } from "../api.js";
import { command } from "../commands.js";
import { h } from "../dom.js";
import { compact, count, percent, plural, sentence, shortDuration, time } from "../format.js";
import { banner, button, card, codeBlock, empty, figure, loading, moment } from "../parts.js";
import { plot } from "../plot.js";
import { entityLink } from "../router.js";
import { table } from "../table.js";

/** @typedef {{count: number, p50: number, p90: number, p99: number, max: number}} Times */

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function reportTab({ name, entity }) {
  /** @type {any} */
  let report = null;
  const load = async () => { report = await get(`entities/${encodeURIComponent(name)}/report`); };
  return {
    // Made once, and again when asked for: it reads many records.
    refresh: async () => { if (!report) await load(); },
    view: () => {
      if (!report) return loading();
      if (!report.rows) return card("", report.is_on ? empty("No records yet", "The report needs messages that were sent or received since the lifecycle is recorded.")
        : empty("No lifecycle is recorded", h("span", null, "Switch ", h("a", { href: entityLink(name, "settings") }, "Lifecycle"), " on to see how long messages wait and receivers take. It costs one more row for each commit."), codeBlock(command(entity.kind, "update", ...(entity.kind === "subscription" ? name.split("/Subscriptions/") : [name]), "--lifecycle"), "Command")));
      return [
        h("div", { class: "row" }, h("p", { class: "muted grow" }, `${plural(report.rows, "record")} from ${time(report.first_ms)} to ${time(report.last_ms)}; made at `, moment(report.made_at), "."),
          button("Make it again", load, { class: "small" }), button("Save as JSON", () => save(new Blob([JSON.stringify(report, null, 2)], { type: "application/json" }), "report.json"), { class: "small" })),
        report.is_whole ? null : banner("info", "Only the newest records are counted here. All of them: ", h("code", null, command("report", name)), "."),
        tiles(report), pictures(name, report), times(report),
        h("div", { class: "grid start" }, events(report), keys(report)),
        parties("Fragments", report.fragments), report.receivers.length ? parties("Receivers, the slowest first", report.receivers) : null,
      ];
    },
  };
}

/** @param {any} report */
function tiles({ time_in_queue_ms: waits, time_to_settle_ms: holds, ...report }) {
  const told = (/** @type {Times} */ one) => (one.count ? `99 %: ${shortDuration(one.p99)}` : "no message yet");
  return h("div", { class: "figures" },
    figure("Time in queue", waits.count ? shortDuration(waits.p50) : "–", told(waits)), figure("Time to settle", holds.count ? shortDuration(holds.p50) : "–", told(holds)),
    figure("Lost locks", count(report.lost_locks), "deliveries came too late", { class: report.lost_locks ? "warn" : "" }),
    figure("Redeliveries", count(Object.values(report.redeliveries).reduce((sum, one) => sum + Number(one), 0)), "after a failed delivery"),
    figure("Duplicates", count(report.duplicates), "were dropped"), figure("Skew", String(report.skew), "1 is even"));
}

/** @param {string} name @param {any} report */
function pictures(name, { over_time: over }) {
  const history = { step_ms: over.step_ms, first_at: new Date(over.start_ms[0] ?? 0).toISOString(), count: over.start_ms.length, series: over };
  return h("div", { class: "grid" },
    card("", plot({ id: `${name}-report-count`, title: "Messages over time", history, format: compact, least: 10, lines: [{ member: "enqueued", name: "Enqueued", class: "in" }, { member: "settled", name: "Settled", class: "out" }, { member: "failed", name: "Failed", class: "dead" }] })),
    card("", plot({ id: `${name}-report-queue`, title: "Time in queue", history, format: shortDuration, least: 1000, isTime: true, lines: [{ member: "queue_p50_ms", name: "p50", class: "plain" }, { member: "queue_p99_ms", name: "p99", class: "dead" }] })));
}

/** @param {any} report */
function times(report) {
  const rows = /** @type {[string, Times][]} */ ([["Time in queue", report.time_in_queue_ms], ["Time to settle", report.time_to_settle_ms]]);
  const cell = (/** @type {"p50" | "p90" | "p99" | "max"} */ member) => (/** @type {[string, Times]} */ [, one]) => (one.count ? shortDuration(one[member]) : "–");
  return card("Percentiles", table({ label: "Percentiles", rows, key: ([title]) => title, columns: [{ title: "Time", isHead: true, cell: ([title]) => title },
    { title: "Median", class: "number", cell: cell("p50") }, { title: "90 %", class: "number", cell: cell("p90") }, { title: "99 %", class: "number", cell: cell("p99") }, { title: "Longest", class: "number", cell: cell("max") }, { title: "Messages", class: "number wide", cell: ([, one]) => count(one.count) }] }), { class: "flush" });
}

/** @param {any} report */
function events(report) {
  return card("Events", table({ label: "Events", rows: Object.entries(report.events), key: ([name]) => name, columns: [{ title: "Event", isHead: true, cell: ([name]) => sentence(name) }, { title: "Count", class: "number", cell: ([, value]) => count(/** @type {number} */ (value)) }] }), { class: "flush" });
}

/** @param {any} report */
function keys(report) {
  return card(report.key_count > report.keys.length ? `Keys, the first ${report.keys.length} of ${count(report.key_count)}` : "Keys", report.keys.length ? table({ label: "Keys", rows: /** @type {any[]} */ (report.keys), key: (one) => one.key, columns: [
    { title: "Session or partition key", isHead: true, class: "break", cell: (one) => one.key }, { title: "Enqueued", class: "number", cell: (one) => count(one.enqueued) }, { title: "Share", class: "number", cell: (one) => percent(one.share, 1) }] }) : h("div", { class: "empty" }, "No message had a key."), { class: "flush" });
}

/** @param {string} title @param {any[]} rows */
function parties(title, rows) {
  const took = (/** @type {"time_in_queue_ms" | "time_to_settle_ms"} */ member) => (/** @type {any} */ one) => (one[member].count ? shortDuration(one[member].p99) : "–");
  return card(title, table({ label: title, rows, key: (one) => one.name, columns: [
    { title: "Name", isHead: true, class: "break", cell: (one) => one.name }, { title: "Enqueued", class: "number", cell: (one) => count(one.enqueued) }, { title: "Share", class: "number wide", cell: (one) => percent(one.share, 1) },
    { title: "Settled", class: "number", cell: (one) => count(one.settled) }, { title: "Abandoned", class: "number wide", cell: (one) => count(one.abandoned) }, { title: "Lost locks", class: "number wide", cell: (one) => count(one.lost_locks) }, { title: "Dead letters", class: "number wide", cell: (one) => count(one.dead_letters) },
    { title: "Queue, 99 %", class: "number wide", cell: took("time_in_queue_ms") }, { title: "Settle, 99 %", class: "number wide", cell: took("time_to_settle_ms") }] }), { class: "flush" });
}
