/** The namespace at a glance: health, rates, the fullest entities, dead letters, skew. */

import { get } from "../api.js";
import { command } from "../commands.js";
import { data, loadOverview, sizeMaxText } from "../data.js";
import { h } from "../dom.js";
import { ago, atLeast, compact, coarse, count, percent, plural, rate, RATE_TIME, size } from "../format.js";
import { anchor, badge, banner, card, codeBlock, empty, figure, loading } from "../parts.js";
import { meanText, plot } from "../plot.js";
import { entityLink, link } from "../router.js";
import { table } from "../table.js";
import { nameCell } from "./entities.js";

/** @typedef {import("../data.js").EntityRow} EntityRow */

const TOP = 5;
/** The history has a new step every five seconds; the overview is asked for more often. */
const STEP_MS = 5000;

/** @returns {import("../app.js").Page} */
export function overviewPage() {
  /** @type {import("../plot.js").History | null} */
  let history = null;
  let dueAt = 0;
  return {
    title: "Overview",
    refresh: async () => {
      await loadOverview();
      if (data.isLimited || performance.now() < dueAt) return;
      history = await get("history", { query: { step: "5s" } });
      dueAt = performance.now() + STEP_MS;
    },
    view: () => {
      const overview = data.overview;
      if (data.isLimited) return limited();
      if (!overview) return loading();
      return [head(overview), figures(overview), problems(overview), overview.entities.length ? body(overview, history) : first()];
    },
  };
}

function limited() {
  return card("", empty("You see a part of the namespace", "Your key has rights on some entities only, not on the namespace. Open one by its address, for instance with the search, or sign in with a key of the namespace."));
}

/** A bus where nothing happens answers with the same overview, so its clock is no measure. @param {import("../data.js").Overview} overview */
function uptime(overview) {
  const began = Date.parse(overview.started_at);
  return coarse(Math.max(1000, Date.parse(overview.sampled_at) - began, Date.now() - began));
}

/** @param {import("../data.js").Overview} overview */
function head(overview) {
  const { namespace } = overview;
  return h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, namespace.name),
    h("div", { class: "row muted" }, badge(namespace.tier, "accent"), `version ${namespace.version}, up for ${uptime(overview)}`)),
  h("div", { class: "actions" },
    h("a", { class: "button", href: link(["create", "topic"]) }, "Create a topic"),
    h("a", { class: "button primary", href: link(["create", "queue"]) }, "Create a queue")));
}

/** @param {import("../data.js").Overview} overview */
function figures(overview) {
  const { totals, namespace, brokers } = overview;
  const out = brokers.reduce((sum, broker) => sum + broker.fragments_out, 0);
  const serving = brokers.filter((broker) => broker.state === "available").length;
  return h("div", { class: "figures" },
    figure("Active messages", atLeast(totals.active, totals.is_partial), `${count(totals.scheduled)} scheduled, ${count(totals.deferred)} deferred`, { href: link(["entities"]) }),
    figure("In", rate(totals.in_per_s), `stored in ${RATE_TIME}`),
    figure("Out", rate(totals.out_per_s), `completed or gone in ${RATE_TIME}`),
    figure("Dead letters", atLeast(totals.dead_letter, totals.is_partial), totals.dead_letter ? "see below" : "none", { class: totals.dead_letter ? "bad" : "", href: link(["entities"], { sort: "dead_letter" }) }),
    figure("Entities", count(namespace.entities), `of ${count(namespace.entities_max)}; ${count(namespace.partitioned_entities)} partitioned`, { href: link(["entities"]) }),
    figure("Stored", size(totals.size_bytes), `of ${size(overview.entities.filter((row) => row.kind !== "subscription").reduce((sum, row) => sum + row.size_bytes_max, 0))} at most`, { href: link(["entities"], { sort: "size" }) }),
    figure("Brokers", `${serving} of ${brokers.length}`, out ? plural(out, "fragment does not serve", "fragments do not serve") : "all fragments serve", { class: out || serving < brokers.length ? "bad" : "good", href: link(["brokers"]) }));
}

/** @param {import("../data.js").Overview} overview */
function problems(overview) {
  const { reasons, status } = overview.health;
  if (!reasons.length) return null;
  return banner("warn", h("strong", null, `The bus is ${status}. `), reasons.slice(0, 4).join("; "), reasons.length > 4 ? ` and ${reasons.length - 4} more` : "", ". ", anchor(link(["brokers"]), "Brokers and stores"));
}

function first() {
  return card("", empty("The namespace is empty", "Create a queue and send the first message:", codeBlock([command("queue", "create", "orders"), command("send", "orders", "two teapots"), command("receive", "orders")].join("\n"), "Commands")));
}

/** @param {import("../data.js").Overview} overview @param {import("../plot.js").History | null} history */
function body(overview, history) {
  const rows = overview.entities;
  const deepest = rows.filter((row) => row.active > 0).sort((a, b) => b.active - a.active).slice(0, TOP);
  const dead = rows.filter((row) => row.dead_letter + row.transfer_dead_letter > 0).sort((a, b) => b.dead_letter - a.dead_letter).slice(0, TOP);
  return [
    h("div", { class: "grid" },
      card("", plot({ id: "overview-rates", title: "Messages per second", note: meanText(history), history, format: rate, lines: [{ member: "in_per_s", name: "In", class: "in" }, { member: "out_per_s", name: "Out", class: "out" }] })),
      card("", plot({ id: "overview-depth", title: "Active messages", history, format: compact, lines: [{ member: "active", name: "Active", class: "plain" }], least: 10 }))),
    h("div", { class: dead.length ? "grid start" : "stack" },
      card("Most messages waiting", deepest.length ? table({ label: "Entities with the most messages", rows: deepest, key: (row) => row.name, columns: [
        { title: "Name", isHead: true, cell: nameCell },
        { title: "Active", class: "number", cell: (row) => atLeast(row.active, row.is_partial) },
        { title: "In/s", class: "number wide", cell: (row) => rate(row.in_per_s) },
        { title: "Out/s", class: "number wide", cell: (row) => rate(row.out_per_s) },
        { title: "Oldest", class: "number", cell: (row) => (row.oldest_at ? ago(row.oldest_at) : "–") },
        { title: "Maximum size", class: "number wide", cell: (row) => h("span", { class: row.kind === "subscription" ? "zero" : "" }, sizeMaxText(row)) },
      ] }) : empty("Nothing waits", "All messages are received."), { class: "flush" }),
      dead.length ? card("Dead letters", table({ label: "Entities with dead letters", rows: dead, key: (row) => row.name, columns: [
        { title: "Name", isHead: true, cell: nameCell },
        { title: "Dead letters", class: "number", cell: (row) => h("span", { class: "badnum" }, atLeast(row.dead_letter + row.transfer_dead_letter, row.is_partial)) },
        { title: "", class: "number", cell: (row) => anchor(entityLink(row.name, "dead-letters"), "Open the desk", { "aria-label": `Open the desk of ${row.name}` }) },
      ] }), { class: "flush" }) : null),
    skew(overview),
  ];
}

/** How evenly brokers are used. @param {import("../data.js").Overview} overview */
function skew(overview) {
  const { brokers } = overview;
  if (!brokers.length) return null;
  const all = { messages: 0, fragments: 0 };
  for (const broker of brokers) {
    all.messages += broker.active ?? 0;
    all.fragments += broker.fragments;
  }
  return card("Brokers", table({ label: "Brokers", rows: brokers, key: (broker) => broker.name, columns: [
    { title: "Broker", isHead: true, class: "tight", cell: (broker) => broker.name },
    { title: "State", cell: (broker) => badge(broker.state, broker.state === "available" ? "good" : "bad", broker.reason) },
    { title: "Messages", class: "number", cell: (broker) => part(broker.active, all.messages) },
    { title: "In/s", class: "number wide", cell: (broker) => rate(broker.in_per_s) },
    { title: "Out/s", class: "number wide", cell: (broker) => rate(broker.out_per_s) },
    { title: "Fragments", class: "number wide", cell: (broker) => part(broker.fragments, all.fragments) },
    { title: "Do not serve", class: "number wide", cell: (broker) => (broker.fragments_out ? h("span", { class: "badnum" }, count(broker.fragments_out)) : h("span", { class: "zero" }, "0")) },
    { title: "Reason", class: "wide break", cell: (broker) => broker.reason || "" },
  ] }), { class: "flush" });
}

/** A number and its share of all brokers. @param {number | null} value @param {number} all */
function part(value, all) {
  if (value === null) return "–";
  return [count(value), " ", h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: { width: `${all ? (100 * value) / all : 0}%` } })), h("span", { class: "muted small" }, ` ${percent(value, all)}`)];
}
