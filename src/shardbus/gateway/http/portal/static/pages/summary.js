/** The first tab of an entity: counts, plots, what it is, and how to send the first message. */

import { get } from "../api.js";
import { command } from "../commands.js";
import { rowOf, data, loadSystem } from "../data.js";
import { h } from "../dom.js";
import { ago, atLeast, compact, count, duration, megabytes, percent, plural, rate, RATE_TIME, shortDuration, size } from "../format.js";
import { card, choice, codeBlock, empty, facts, figure, meter, moment } from "../parts.js";
import { meanText, plot } from "../plot.js";
import { entityLink, link } from "../router.js";
import { table } from "../table.js";
import { openSend } from "./send.js";
import { button } from "../parts.js";
import { refreshNow } from "../live.js";

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function summaryTab(context) {
  const { name } = context;
  /** @type {import("../plot.js").History | null} */
  let history = null;
  /** @type {Latency | null} */
  let latency = null;
  let step = "5s";
  return {
    refresh: async () => {
      const isTimed = hasTimes(context.entity);
      [history, latency] = await Promise.all([get(`entities/${encodeURIComponent(name)}/history`, { query: { step } }), isTimed ? get(`entities/${encodeURIComponent(name)}/latency`) : null]);
      if (!data.system) await loadSystem().catch(() => undefined);
    },
    view: () => {
      const { entity } = context;
      return [
        figures(context),
        isDeaf(entity) ? deaf(name) : isUnused(entity) ? first(context) : null,
        h("div", { class: "row" }, choice("Time", [["5s", "Last hour"], ["1m", "Last day"]], step, (value) => { step = value; history = null; refreshNow(); }),
          h("span", { class: "spring" }), entity.kind === "subscription" ? null : button("Send a message", () => openSend(name), { kind: "primary" })),
        plots(entity, history),
        latency ? latencies(entity, latency) : null,
        about(entity),
      ];
    },
  };
}

/** @param {any} entity */
function isUnused({ runtime }) {
  return !runtime.sent_total && !runtime.active && !runtime.dead_letter && !runtime.scheduled;
}

/** Whether what is sent reaches nobody. @param {any} entity */
function isDeaf({ kind, runtime }) {
  return kind === "topic" && runtime.subscriptions === 0;
}

/** @param {string} name */
function deaf(name) {
  return card("", empty("No subscription yet", "What is sent to this topic is dropped until it has a subscription. Create the first one:",
    codeBlock(command("subscription", "create", name, "europe"), "Command"),
    h("p", null, h("a", { class: "button primary", href: link(["create", "subscription"], { topic: name }) }, "Create a subscription"))));
}

/** @param {import("./entity.js").Context} context */
function figures({ name, entity }) {
  const { runtime } = entity;
  const row = rowOf(name);
  const isTopic = entity.kind === "topic";
  return h("div", { class: "figures" },
    isTopic ? figure("Subscriptions", count(runtime.subscriptions), `${count(runtime.sql_filters)} SQL, ${count(runtime.correlation_filters)} correlation filters`, { href: entityLink(name, "subscriptions") })
      : figure("Active", atLeast(runtime.active, runtime.is_partial), `${count(runtime.deferred)} deferred`, { href: entityLink(name, "messages") }),
    isTopic ? null : figure("Dead letters", atLeast(runtime.dead_letter, runtime.is_partial), runtime.transfer_dead_letter ? `${count(runtime.transfer_dead_letter)} could not be forwarded` : "", { class: runtime.dead_letter ? "bad" : "", href: entityLink(name, "dead-letters") }),
    figure("Scheduled", atLeast(runtime.scheduled, runtime.is_partial), "for later", entity.kind === "subscription" ? {} : { href: entityLink(name, "scheduled") }),
    figure("In", rate(row?.in_per_s), `in ${RATE_TIME}; ${count(runtime.sent_total)} ever`),
    isTopic ? null : figure("Out", rate(row?.out_per_s), `in ${RATE_TIME}; ${row?.receivers ? plural(row.receivers, "receiver") : "completed or gone"}`),
    isTopic ? null : figure("Oldest message", row?.oldest_at ? ago(row.oldest_at).replace(" ago", "") : "–", row?.oldest_at ? "waiting" : "nothing waits"),
    figure("Size", size(runtime.size_bytes), [meter(runtime.size_bytes, runtime.size_bytes_max), ` ${percent(runtime.size_bytes, runtime.size_bytes_max)} of ${size(runtime.size_bytes_max)}`]));
}

/** @param {any} entity @param {import("../plot.js").History | null} history */
function plots(entity, history) {
  const id = entity.name;
  const rates = plot({ id: `${id}-rates`, title: "Messages per second", note: meanText(history), history, format: rate, lines: [{ member: "in_per_s", name: "In", class: "in" }, ...(entity.kind === "topic" ? [] : [{ member: "out_per_s", name: "Out", class: "out" }])] });
  if (entity.kind === "topic") return h("div", { class: "grid" }, card("", rates), card("", plot({ id: `${id}-size`, title: "Size", history, format: size, lines: [{ member: "size_bytes", name: "Size", class: "plain" }], least: 1024 })));
  return h("div", { class: "grid three" }, card("", rates),
    card("", plot({ id: `${id}-depth`, title: "Depth", history, format: compact, least: 10, lines: [{ member: "active", name: "Active", class: "plain" }, { member: "dead_letter", name: "Dead letters", class: "dead" }] })),
    card("", plot({ id: `${id}-age`, title: "Age of the oldest message", history, format: (ms) => (ms < 1000 ? `${Math.round(ms / 100) / 10} s` : duration(Math.round(ms / 1000) * 1000)), least: 10_000, isTime: true, lines: [{ member: "oldest_age_ms", name: "Oldest", class: "age" }] })));
}

/** Whether the bus records how long messages wait. @param {any} entity */
function hasTimes({ kind, description }) {
  return kind !== "topic" && Boolean(description.lifecycle);
}

/** @typedef {{count: number, p50: number, p90: number, p99: number, max: number}} Percentiles */
/** @typedef {import("../plot.js").History & {is_whole: boolean, unavailable_fragments: number[], time_in_queue_ms: Percentiles, time_to_settle_ms: Percentiles}} Latency */

const PERCENTS = /** @type {[string, string][]} */ ([["50", "plain"], ["90", "age"], ["99", "dead"]]);

/** How long messages wait and are held. @param {any} entity @param {Latency} latency */
function latencies(entity, latency) {
  const picture = (/** @type {string} */ title, /** @type {string} */ name) => plot({ id: `${entity.name}-${name}`, title, history: latency, format: shortDuration, least: 1000, isTime: true,
    lines: PERCENTS.map(([percent, look]) => ({ member: `${name}_p${percent}_ms`, name: `p${percent}`, class: look })) });
  const rows = /** @type {[string, Percentiles][]} */ ([["Time in queue", latency.time_in_queue_ms], ["Time to settle", latency.time_to_settle_ms]]);
  const cell = (/** @type {"p50" | "p90" | "p99" | "max"} */ member) => (/** @type {[string, Percentiles]} */ [, times]) => (times.count ? shortDuration(times[member]) : "–");
  return [
    h("div", { class: "grid" }, card("", picture("Time in queue, by minute", "queue")), card("", picture("Time to settle, by minute", "settle"))),
    card("Latency of the last hour", [
      table({ label: "Latency of the last hour", rows, key: ([title]) => title, columns: [
        { title: "Time", isHead: true, cell: ([title]) => title },
        { title: "Median", class: "number", cell: cell("p50") }, { title: "90 %", class: "number", cell: cell("p90") }, { title: "99 %", class: "number", cell: cell("p99") }, { title: "Longest", class: "number", cell: cell("max") },
        { title: "Messages", class: "number wide", cell: ([, times]) => count(times.count) },
      ] }),
      h("p", { class: "small muted" }, "Time in queue: until the first delivery. Time to settle: from the lock to the settlement. ", latency.is_whole ? "" : "Only the newest records of the hour are counted. ", h("a", { href: entityLink(entity.name, "report") }, "The report"), " tells more."),
    ]),
  ];
}

/** @param {any} entity */
function about(entity) {
  const { description } = entity;
  const fragments = entity.fragment_count;
  return card("About", facts([
    ["Maximum size", `${megabytes(description.size_mb_max)} = ${megabytes(description.size_mb)} × ${fragments} fragment${fragments === 1 ? "" : "s"}`],
    ...(description.lock_ms === undefined ? [] : /** @type {[string, string][]} */ ([["Lock duration", duration(description.lock_ms)], ["Maximum deliveries", count(description.delivery_count_max)]])),
    ["Time to live", duration(description.default_ttl_ms)],
    ["Duplicate detection", description.requires_duplicate_detection ? `on, ${duration(description.duplicate_window_ms)}` : "off"],
    ...(entity.kind === "topic" || hasTimes(entity) ? [] : /** @type {[string, import("../dom.js").Child][]} */ ([["Latency", h("a", { href: entityLink(entity.name, "settings") }, "record the lifecycle to see it")]])),
    ["Created", moment(entity.created_at)], ["Changed", moment(entity.updated_at)], ["Last used", entity.accessed_at ? moment(entity.accessed_at) : "never"],
    ...(description.user_metadata ? /** @type {[string, string][]} */ ([["Metadata", description.user_metadata]]) : []),
  ]));
}

/** @param {import("./entity.js").Context} context */
function first({ name, entity }) {
  const isSubscription = entity.kind === "subscription";
  const target = isSubscription ? entity.topic : name;
  const endpoint = data.system?.endpoint ?? "sb://localhost";
  return card("", empty("No message yet", isSubscription ? "Send one to its topic; the rules of this subscription decide whether it arrives here." : "Send the first one with the button below, or with a command:",
    codeBlock(command("send", target, "two teapots"), "Command"),
    h("p", { class: "small" }, "Any Service Bus SDK works too, at ", h("code", null, endpoint), ".")));
}
