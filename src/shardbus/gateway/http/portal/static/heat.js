/** Fragments by broker: how much each has of a metric, which are hot, which do not serve. */

import { h } from "./dom.js";
import { compact, count, rate, size } from "./format.js";

/** @typedef {{number: number, broker: string, store?: string, state: string, reason: string, is_counted: boolean, active: number, dead_letter: number, deferred: number, scheduled: number, size_bytes: number, size_bytes_max?: number, in_per_s?: number | null, out_per_s?: number | null, oldest_at?: string | null}} Fragment */
/** @typedef {{name: string, text: string, value: (fragment: Fragment) => number, format: (value: number) => string}} Metric */

const HOT_MEDIANS = 3;

/** @type {Metric[]} */
export const METRICS = [
  { name: "depth", text: "Depth", value: (fragment) => fragment.active, format: compact },
  { name: "in", text: "In/s", value: (fragment) => fragment.in_per_s ?? 0, format: rate },
  { name: "out", text: "Out/s", value: (fragment) => fragment.out_per_s ?? 0, format: rate },
  { name: "age", text: "Age", value: (fragment) => fragment.oldest_at ? Math.max(0, Date.now() - Date.parse(fragment.oldest_at)) : 0, format: shortAge },
  { name: "size", text: "Size", value: (fragment) => fragment.size_bytes, format: size },
  { name: "dead", text: "Dead letters", value: (fragment) => fragment.dead_letter, format: compact },
];

/** @param {number} ms */
function shortAge(ms) {
  if (ms < 1000) return ms ? "< 1 s" : "–";
  if (ms < 60_000) return `${Math.floor(ms / 1000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  return ms < 86_400_000 ? `${Math.floor(ms / 3_600_000)} h` : `${Math.floor(ms / 86_400_000)} d`;
}

/** @param {number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (!sorted.length) return 0;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** @param {Fragment} fragment */
export function isServing(fragment) {
  return fragment.state.toLowerCase() !== "unavailable";
}

/**
 * The fragments that have more than three times the median, and than three times the mean.
 * @param {Fragment[]} fragments
 * @param {Metric} metric
 */
export function hot(fragments, metric) {
  const values = fragments.filter((fragment) => fragment.is_counted).map(metric.value);
  // Where few keys are in use most fragments are nearly empty: then the median says little, and half of the others would be hot.
  const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  const limit = HOT_MEDIANS * Math.max(median(values), mean, 1);
  return new Set(fragments.filter((fragment) => fragment.is_counted && values.length > 1 && metric.value(fragment) > limit).map((fragment) => fragment.number));
}

/**
 * @param {{fragments: Fragment[], metric: Metric, target: number | null, open: (fragment: Fragment) => void}} given
 */
export function heat({ fragments, metric, target, open }) {
  const most = Math.max(0, ...fragments.map(metric.value));
  const warm = hot(fragments, metric);
  /** @type {Map<string, Fragment[]>} */
  const brokers = new Map();
  for (const fragment of fragments) brokers.set(fragment.broker, [...(brokers.get(fragment.broker) ?? []), fragment]);
  return h("div", { class: "heat" }, [...brokers].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true })).map(([broker, own]) => h("div", { class: "heat-row", key: broker, role: "group", "aria-label": broker },
    h("div", { class: "who" }, h("div", { class: "strong" }, broker), h("div", { class: "muted small" }, `${count(own.reduce((sum, one) => sum + one.active, 0))} active`)),
    h("div", { class: "cells" }, own.map((fragment) => cell(fragment, metric, most, warm.has(fragment.number), target === fragment.number, open))))),
  h("div", { class: "row" }, h("span", { class: "scale" }, "0", [0, 1, 2, 3, 4, 5, 6].map((step) => h("i", { class: `h${step}` })), metric.format(most)),
    h("span", { class: "muted small" }, `Hot: over ${HOT_MEDIANS} times the median and the mean. Hatched: does not serve.`)));
}

/**
 * @param {Fragment} fragment
 * @param {Metric} metric
 * @param {number} most
 * @param {boolean} isHot
 * @param {boolean} isTarget
 * @param {(fragment: Fragment) => void} open
 */
function cell(fragment, metric, most, isHot, isTarget, open) {
  const value = metric.value(fragment);
  const isGone = !isServing(fragment);
  const step = most > 0 && value > 0 ? Math.max(1, Math.ceil((6 * value) / most)) : 0;
  const told = fragment.is_counted ? metric.format(value) : "unknown";
  return h("button", {
    type: "button", key: fragment.number, class: `cell ${isGone ? "gone" : `h${step}`} ${isTarget ? "target" : ""}`,
    title: isGone ? fragment.reason : `Fragment ${fragment.number}: show its messages`, onclick: () => open(fragment),
  },
  h("small", null, hidden("Fragment "), isGone ? h("span", null, fragment.number) : fragment.number),
  h("b", null, hidden(`${metric.text} `), isGone ? h("span", null, "out") : told),
  isGone && fragment.reason ? hidden(fragment.reason) : null, isTarget ? hidden(" the key's fragment") : null,
  isHot && !isGone ? h("span", { class: "hot" }, "hot") : null);
}

/** Only for screen readers. @param {string} text */
function hidden(text) {
  return h("i", { class: "visually-hidden" }, text);
}
