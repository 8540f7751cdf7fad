/** The fragments of an entity as heat and as a table; where a key goes. */

import { get, post } from "../api.js";
import { redraw } from "../app.js";
import { h } from "../dom.js";
import { ago, count, percent, rate, size } from "../format.js";
import { METRICS, heat, hot, isServing } from "../heat.js";
import { attempt, badge, card, choice, field, input, loading, meter, select } from "../parts.js";
import { entityLink, go } from "../router.js";
import { table } from "../table.js";

/** @typedef {import("../heat.js").Fragment} Fragment */

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function fragmentsTab(context) {
  const { name } = context;
  /** @type {{found: any, metric: string, by: string, key: string, placed: any}} */
  const state = { found: null, metric: "depth", by: "partition_key", key: "", placed: null };
  return {
    refresh: async () => { state.found = await get(`entities/${encodeURIComponent(name)}/fragments`); },
    view: () => {
      if (!state.found) return loading();
      /** @type {Fragment[]} */
      const fragments = state.found.fragments;
      const metric = METRICS.find((one) => one.name === state.metric) ?? METRICS[0];
      const warm = hot(fragments, metric);
      const out = fragments.filter((fragment) => !isServing(fragment));
      const target = context.entity.kind === "topic" ? "scheduled" : "messages";
      return [
        card("Fragments by broker", [
          h("p", { class: "muted", role: "status" }, `${count(fragments.length)} fragments, ${fragments.length - out.length} serving, ${warm.size} hot by ${metric.text.toLowerCase()}.`),
          heat({ fragments, metric, target: state.placed?.fragment ?? null, open: (fragment) => go(entityLink(name, target, { fragment: String(fragment.number) })) }),
        ], { actions: choice("Metric", METRICS.map((one) => [one.name, one.text]), state.metric, (value) => { state.metric = value; }) }),
        where(name, state),
        card("As a table", twin(fragments, warm, state.found), { class: "flush" }),
      ];
    },
  };
}

/** @param {string} name @param {any} state */
function where(name, state) {
  const ask = async () => {
    state.placed = state.key ? await post(`entities/${encodeURIComponent(name)}/placement`, { [state.by]: state.key }) : null;
  };
  return card("Where does this key go?", h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void attempt(ask); } },
    field("Kind of key", (_, props) => select([["partition_key", "Partition key"], ["session_id", "Session id"], ["message_id", "Message id"]], { ...props, value: state.by, onvalue: (/** @type {string} */ value) => { state.by = value; state.placed = null; } }), { id: "placement-by" }),
    field("Key", (_, props) => input({ ...props, value: state.key, placeholder: "customer-7", onvalue: (/** @type {string} */ value) => { state.key = value; state.placed = null; redraw(); } }), { id: "placement-key" }),
    h("button", { type: "submit", class: "button" }, "Show"),
    h("p", { role: "status", class: "grow" }, state.placed ? placed(state.placed) : "")));
}

/** @param {any} found */
function placed(found) {
  if (found.fragment === null) return "The bus chooses the fragment of such messages in turn.";
  return [h("strong", null, `Fragment ${found.fragment}`), ` at ${found.broker} `, badge(found.state, found.state === "available" ? "good" : "bad", found.reason)];
}

/** @param {Fragment[]} fragments @param {Set<number>} warm @param {any} found */
function twin(fragments, warm, found) {
  const share = found.size_bytes_max / Math.max(1, fragments.length);
  return table({ label: "Fragments", rows: fragments, key: (one) => String(one.number), columns: [
    { title: "Fragment", isHead: true, cell: (one) => [count(one.number), warm.has(one.number) ? [" ", badge("hot", "warn")] : null] },
    { title: "Broker", cell: (one) => one.broker },
    { title: "Store", class: "wide", cell: (one) => h("span", { title: one.store }, (one.store ?? "").split("/").pop()) },
    { title: "State", cell: (one) => badge(one.state, isServing(one) ? "good" : "bad", one.reason) },
    { title: "Active", class: "number", cell: (one) => (one.is_counted ? count(one.active) : "?") },
    { title: "Dead", class: "number", cell: (one) => (one.is_counted ? count(one.dead_letter) : "?") },
    { title: "In/s", class: "number wide", cell: (one) => rate(one.in_per_s) },
    { title: "Out/s", class: "number wide", cell: (one) => rate(one.out_per_s) },
    { title: "Oldest", class: "number wide", cell: (one) => (one.oldest_at ? ago(one.oldest_at) : "–") },
    { title: "Size", class: "number wide", cell: (one) => [size(one.size_bytes), " ", meter(one.size_bytes, one.size_bytes_max ?? share), ` ${percent(one.size_bytes, one.size_bytes_max ?? share)}`] },
    { title: "Reason", class: "wide break", cell: (one) => one.reason },
  ] });
}
