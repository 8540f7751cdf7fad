/** The first tab of an entity: counts, plots, what it is, and how to send the first message. */

import { get } from "../api.js";
import { rowOf, data, loadSystem } from "../data.js";
import { h } from "../dom.js";
import { ago, atLeast, compact, count, duration, megabytes, percent, rate, size } from "../format.js";
import { card, choice, codeBlock, empty, facts, figure, meter, moment } from "../parts.js";
import { plot } from "../plot.js";
import { entityLink } from "../router.js";
import { openSend } from "./send.js";
import { button } from "../parts.js";
import { refreshNow } from "../live.js";

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function summaryTab(context) {
  const { name } = context;
  /** @type {import("../plot.js").History | null} */
  let history = null;
  let step = "5s";
  return {
    refresh: async () => {
      history = await get(`entities/${encodeURIComponent(name)}/history`, { query: { step } });
      if (!data.system) await loadSystem().catch(() => undefined);
    },
    view: () => {
      const { entity } = context;
      return [
        figures(context),
        isUnused(entity) ? first(context) : null,
        h("div", { class: "row" }, choice("Time", [["5s", "Last hour"], ["1m", "Last day"]], step, (value) => { step = value; history = null; refreshNow(); }),
          h("span", { class: "spring" }), entity.kind === "subscription" ? null : button("Send a message", () => openSend(name), { kind: "primary" })),
        plots(entity, history),
        about(entity),
      ];
    },
  };
}

/** @param {any} entity */
function isUnused({ runtime }) {
  return !runtime.sent_total && !runtime.active && !runtime.dead_letter && !runtime.scheduled;
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
    figure("In", rate(row?.in_per_s), `${count(runtime.sent_total)} ever`),
    isTopic ? null : figure("Out", rate(row?.out_per_s), row ? `${count(row.receivers)} receiver${row.receivers === 1 ? "" : "s"} here` : ""),
    isTopic ? null : figure("Oldest message", row?.oldest_at ? ago(row.oldest_at).replace(" ago", "") : "–", row?.oldest_at ? "waiting" : "nothing waits"),
    figure("Size", size(runtime.size_bytes), [meter(runtime.size_bytes, runtime.size_bytes_max), ` ${percent(runtime.size_bytes, runtime.size_bytes_max)} of ${size(runtime.size_bytes_max)}`]));
}

/** @param {any} entity @param {import("../plot.js").History | null} history */
function plots(entity, history) {
  const id = entity.name;
  const rates = plot({ id: `${id}-rates`, title: "Messages per second", history, format: rate, lines: [{ member: "in_per_s", name: "In", class: "in" }, ...(entity.kind === "topic" ? [] : [{ member: "out_per_s", name: "Out", class: "out" }])] });
  if (entity.kind === "topic") return h("div", { class: "grid" }, card("", rates), card("", plot({ id: `${id}-size`, title: "Size", history, format: size, lines: [{ member: "size_bytes", name: "Size", class: "plain" }], least: 1024 })));
  return h("div", { class: "grid three" }, card("", rates),
    card("", plot({ id: `${id}-depth`, title: "Depth", history, format: compact, least: 10, lines: [{ member: "active", name: "Active", class: "plain" }, { member: "dead_letter", name: "Dead letters", class: "dead" }] })),
    card("", plot({ id: `${id}-age`, title: "Age of the oldest message", history, format: (ms) => (ms < 1000 ? `${Math.round(ms / 100) / 10} s` : duration(Math.round(ms / 1000) * 1000)), least: 10_000, isTime: true, lines: [{ member: "oldest_age_ms", name: "Oldest", class: "age" }] })));
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
    codeBlock(`shardbus send '${target.replaceAll("'", "'\\''")}' "two teapots"`, "Command"),
    h("p", { class: "small" }, "Any Service Bus SDK works too, at ", h("code", null, endpoint), ".")));
}
