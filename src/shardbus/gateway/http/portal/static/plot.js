/** Lines over time as SVG, each with a table that says the same. */

import { redraw } from "./app.js";
import { h } from "./dom.js";
import { axisTime, clock, duration } from "./format.js";
import { table } from "./table.js";

/** @typedef {{step_ms: number, first_at: string, count: number, series: Record<string, (number | null)[]>}} History */
/** @typedef {{member: string, name: string, class: string}} Line */

/** @type {Map<string, {width: number, at: number | null, isTable: boolean}>} */
const states = new Map();
const HEIGHT = 150;
const LEFT = 44;
const BOTTOM = 20;
const TOP = 8;
const ROWS_MAX = 120;

const observer = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const id = entry.target.getAttribute("data-plot") ?? "";
    const state = stateOf(id);
    const width = Math.round(entry.contentRect.width);
    if (width && Math.abs(state.width - width) > 1) {
      state.width = width;
      redraw();
    }
  }
});

/** @param {string} id */
function stateOf(id) {
  let state = states.get(id);
  if (!state) {
    state = { width: 560, at: null, isTable: false };
    states.set(id, state);
  }
  return state;
}

/**
 * @param {{id: string, title: string, history: History | null, lines: Line[], format: (value: number) => string, least?: number, isTime?: boolean, note?: string}} given
 *   `least` is the lowest top of the scale; with `isTime` values are milliseconds
 */
export function plot({ id, title, history, lines, format, least = 1, isTime = false, note = "" }) {
  const state = stateOf(id);
  const known = history && history.count > 0 ? history : null;
  return h("figure", { class: "plot", key: id, role: "group", "aria-label": title, style: { margin: "0" } },
    h("div", { class: "plot-head" }, h("h2", null, title), h("span", { class: "legends" }, note ? h("span", { class: "muted small" }, note) : null, lines.map((line) => legend(line, known, state.at, format)))),
    h("div", { "data-plot": id, onmount: (/** @type {Element} */ element) => observer.observe(element), onremove: (/** @type {Element} */ element) => observer.unobserve(element) },
      known ? picture(state, title, known, lines, format, { least, isTime }) : h("p", { class: "muted small" }, "No samples yet: the first comes after five seconds.")),
    known ? twin(state, title, known, lines, format) : null);
}

/** How the rates of a history are taken. @param {History | null} history */
export function meanText(history) {
  return history ? `means of ${duration(history.step_ms)}` : "";
}

/** @param {Line} line @param {History | null} history @param {number | null} at @param {(value: number) => string} format */
function legend(line, history, at, format) {
  const values = history?.series[line.member] ?? [];
  const index = at ?? lastKnown(values);
  const value = values[index];
  const when = history && at !== null ? ` at ${stepTime(history, at)}` : "";
  return h("span", { class: `legend ${line.class}`, key: line.member }, h("i", { class: `swatch ${line.class}` }), line.name, " ",
    h("b", null, value === null || value === undefined ? "–" : format(value)), when);
}

/** The moment of a step; with its day where the time alone would be ambiguous. @param {History} history @param {number} index */
function stepTime(history, index) {
  const ms = Date.parse(history.first_at) + index * history.step_ms;
  const span = history.count * history.step_ms;
  return span > 86_400_000 ? axisTime(ms, span, history.step_ms) : clock(ms);
}

/** @param {(number | null)[]} values */
function lastKnown(values) {
  for (let index = values.length - 1; index >= 0; index--) if (values[index] !== null) return index;
  return -1;
}

/**
 * @param {{width: number, at: number | null}} state
 * @param {string} title
 * @param {History} history
 * @param {Line[]} lines
 * @param {(value: number) => string} format
 * @param {{least: number, isTime: boolean}} scale
 */
function picture(state, title, history, lines, format, { least, isTime }) {
  const { width } = state;
  const mark = isTime ? shortTime : format;
  const top = (isTime ? timeTop : niceTop)(Math.max(least, ...lines.flatMap((line) => (history.series[line.member] ?? []).map((value) => value ?? 0))));
  const x = (/** @type {number} */ index) => LEFT + ((width - LEFT - 6) * index) / Math.max(1, history.count - 1);
  const y = (/** @type {number} */ value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const first = Date.parse(history.first_at);
  const over = (/** @type {PointerEvent} */ event) => {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    const index = Math.round(((event.clientX - box.left - LEFT) / (width - LEFT - 6)) * (history.count - 1));
    state.at = Math.max(0, Math.min(history.count - 1, index));
    redraw();
  };
  const marks = Math.min(history.count, Math.max(2, Math.min(5, Math.floor(width / 110))));
  return h("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: String(HEIGHT), role: "img", "aria-label": `${title}: ${described(history, lines, format)}`,
    onpointermove: over, onpointerleave: () => { state.at = null; redraw(); } },
  [0, 0.5, 1].map((share) => [
    h("line", { class: "gridline", x1: LEFT, x2: width - 6, y1: y(top * share), y2: y(top * share) }),
    h("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, mark(top * share)),
  ]),
  Array.from({ length: marks }, (_, place) => {
    const index = Math.round(((history.count - 1) * place) / Math.max(1, marks - 1));
    return h("text", { x: x(index), y: HEIGHT - 4, "text-anchor": place === 0 ? "start" : place === marks - 1 ? "end" : "middle" }, axisTime(first + index * history.step_ms, history.count * history.step_ms, history.step_ms));
  }),
  lines.length === 1 ? h("path", { class: `fill ${lines[0].class}`, d: area(history.series[lines[0].member] ?? [], x, y) }) : null,
  lines.map((line) => h("path", { class: line.class, key: line.member, d: path(history.series[line.member] ?? [], x, y) })),
  state.at !== null ? h("line", { class: "cross", x1: x(state.at), x2: x(state.at), y1: TOP, y2: HEIGHT - BOTTOM }) : null,
  state.at !== null ? lines.map((line) => {
    const value = history.series[line.member]?.[state.at ?? 0];
    return value === null || value === undefined ? null : h("circle", { class: line.class, cx: x(state.at ?? 0), cy: y(value), r: 3 });
  }) : null);
}

const TIMES_S = [1, 2, 4, 10, 20, 30, 60, 120, 240, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400];

/** @param {number} ms */
function timeTop(ms) {
  const found = TIMES_S.find((seconds) => ms <= seconds * 1000);
  return 1000 * (found ?? 86_400 * Math.ceil(ms / 86_400_000));
}

/** @param {number} ms */
function shortTime(ms) {
  for (const [unit, name] of /** @type {[number, string][]} */ ([[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"]])) {
    if (ms >= unit) return `${Math.round((10 * ms) / unit) / 10} ${name}`;
  }
  return `${Math.round(ms / 100) / 10} s`;
}

/** @param {number} value */
function niceTop(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 4, 5, 8, 10]) if (value <= step * unit) return step * unit;
  return 10 * unit;
}

/**
 * @param {(number | null)[]} values
 * @param {(index: number) => number} x
 * @param {(value: number) => number} y
 */
function path(values, x, y) {
  let text = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (value === null) isDown = false;
    else {
      text += `${isDown ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      isDown = true;
    }
  });
  // A single sample has no line: a short one shows it.
  return text && !text.includes("L") ? `${text}h2` : text;
}

/**
 * @param {(number | null)[]} values
 * @param {(index: number) => number} x
 * @param {(value: number) => number} y
 */
function area(values, x, y) {
  let text = "";
  let start = -1;
  const close = (/** @type {number} */ end) => {
    if (start >= 0) text += `L${x(end).toFixed(1)} ${y(0).toFixed(1)}L${x(start).toFixed(1)} ${y(0).toFixed(1)}Z`;
    start = -1;
  };
  values.forEach((value, index) => {
    if (value === null) close(index - 1);
    else {
      text += `${start < 0 ? "M" : "L"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      if (start < 0) start = index;
    }
  });
  close(values.length - 1);
  return text;
}

/** @param {History} history @param {Line[]} lines @param {(value: number) => string} format */
function described(history, lines, format) {
  return lines.map((line) => {
    const values = (history.series[line.member] ?? []).filter((value) => value !== null);
    if (!values.length) return `${line.name} unknown`;
    return `${line.name} now ${format(values[values.length - 1])}, at most ${format(Math.max(...values))}`;
  }).join("; ");
}

/**
 * @param {{isTable: boolean}} state
 * @param {string} title
 * @param {History} history
 * @param {Line[]} lines
 * @param {(value: number) => string} format
 */
function twin(state, title, history, lines, format) {
  const indices = Array.from({ length: history.count }, (_, index) => index).reverse().slice(0, ROWS_MAX);
  return h("details", { class: "twin", ontoggle: (/** @type {Event} */ event) => { state.isTable = /** @type {HTMLDetailsElement} */ (event.target).open; redraw(); } },
    h("summary", null, "As a table"),
    state.isTable ? table({
      label: title,
      columns: [
        { title: "Time", cell: (/** @type {number} */ index) => stepTime(history, index), isHead: true },
        ...lines.map((line) => ({ title: line.name, class: "number", cell: (/** @type {number} */ index) => {
          const value = history.series[line.member]?.[index];
          return value === null || value === undefined ? "–" : format(value);
        } })),
      ],
      rows: indices, key: String,
    }) : null);
}

/**
 * States over time as a band, with a table of the changes.
 * @param {{id: string, title: string, history: {step_ms: number, first_at: string, count: number, states?: (string | null)[]} | null, looks: Record<string, string>}} given
 */
export function band({ id, title, history, looks }) {
  const state = stateOf(id);
  const spans = history ? spansOf(history) : [];
  const { width } = state;
  const count = Math.max(1, history?.count ?? 1);
  const x = (/** @type {number} */ index) => LEFT + ((width - LEFT - 6) * index) / count;
  const known = [...new Set(spans.map((span) => span.state))].filter((one) => one !== null);
  return h("figure", { class: "plot", key: id, role: "group", "aria-label": title, style: { margin: "0" } },
    h("div", { class: "plot-head" }, h("h2", null, title), known.map((one) => h("span", { class: "legend", key: one }, h("i", { class: `swatch block ${looks[one ?? ""] ?? "plain"}` }), one))),
    h("div", { "data-plot": id, onmount: (/** @type {Element} */ element) => observer.observe(element), onremove: (/** @type {Element} */ element) => observer.unobserve(element) },
      spans.length ? h("svg", { viewBox: `0 0 ${width} 42`, height: "42", role: "img", "aria-label": `${title}: ${spans.slice(-6).map((span) => `${span.state ?? "unknown"} from ${clock(span.from)}`).join(", ")}` },
        spans.map((span) => h("rect", { key: span.at, class: `span ${looks[span.state ?? ""] ?? "none"}`, x: x(span.at), y: 2, width: Math.max(1.5, x(span.at + span.length) - x(span.at)), height: 20, rx: 2 }, h("title", null, `${span.state ?? "unknown"} from ${clock(span.from)}`))),
        [0, 1].map((end) => h("text", { key: end, x: end ? width - 6 : LEFT, y: 38, "text-anchor": end ? "end" : "start" }, clock(end ? spans[spans.length - 1].to : spans[0].from))))
        : h("p", { class: "muted small" }, "No samples yet: the first comes after five seconds.")),
    spans.length ? h("details", { class: "twin" }, h("summary", null, "As a table"), table({ label: title, rows: [...spans].reverse().slice(0, ROWS_MAX), key: (span) => String(span.at), columns: [
      { title: "From", isHead: true, cell: (span) => clock(span.from) }, { title: "To", cell: (span) => clock(span.to) }, { title: "State", cell: (span) => span.state ?? "unknown" }] })) : null);
}

/** Steps with one state, together. @param {{step_ms: number, first_at: string, states?: (string | null)[]}} history */
function spansOf(history) {
  const first = Date.parse(history.first_at);
  /** @type {{state: string | null, at: number, length: number, from: number, to: number}[]} */
  const spans = [];
  (history.states ?? []).forEach((state, at) => {
    const last = spans[spans.length - 1];
    const to = first + at * history.step_ms;
    if (last && last.state === state) Object.assign(last, { length: last.length + 1, to });
    else spans.push({ state, at, length: 1, from: to, to });
  });
  return spans;
}
