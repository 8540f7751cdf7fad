/** Tables; long ones draw only the rows that can be seen. */

import { redraw } from "./app.js";
import { h } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */
/**
 * @template T
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: T) => Child} cell
 * @property {string} [class] `number`, `wide` (left out on narrow screens), `name`
 * @property {boolean} [isHead] names the row for screen readers
 * @property {Child} [head] in place of the title
 */

/**
 * @template T
 * @param {{label: string, columns: Column<T>[], rows: T[], key: (row: T) => string, rowClass?: (row: T) => string}} given
 */
export function table({ label, columns, rows, key, rowClass }) {
  return h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": label },
    h("table", null, heads(columns), h("tbody", null, rows.map((row) => line(columns, row, key(row), rowClass?.(row))))));
}

/**
 * @template T
 * @param {Column<T>[]} columns
 */
function heads(columns) {
  return h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.class }, column.head ?? (column.title || h("span", { class: "visually-hidden" }, "Actions"))))));
}

/**
 * @template T
 * @param {Column<T>[]} columns
 * @param {T} row
 * @param {string} key
 * @param {string} [className]
 * @param {Record<string, any>} [props]
 */
function line(columns, row, key, className, props) {
  return h("tr", { key, class: className, ...props }, columns.map((column) =>
    column.isHead
      ? h("th", { scope: "row", class: column.class }, column.cell(row))
      : h("td", { class: column.class }, column.cell(row))));
}

/** @typedef {{top: number, height: number}} Scroll */
/** @type {Map<string, Scroll>} */
const scrolls = new Map();
const SPARE = 8;

/**
 * A table of any length: rows have one height, and only those in view are in the document.
 * @template T
 * @param {{id: string, label: string, columns: Column<T>[], rows: T[], key: (row: T) => string, rowPx?: number,
 *   rowClass?: (row: T) => string, onend?: () => void, rowProps?: (row: T) => Record<string, any>}} given
 */
export function longTable({ id, label, columns, rows, key, rowPx = 37, rowClass, onend, rowProps }) {
  const scroll = scrolls.get(id) ?? { top: 0, height: 800 };
  const first = Math.max(0, Math.min(Math.floor(scroll.top / rowPx) - SPARE, rows.length - 1));
  const last = Math.min(rows.length, Math.ceil((scroll.top + scroll.height) / rowPx) + SPARE);
  const shown = rows.slice(first, last);
  const note = (/** @type {Element} */ element) => {
    const next = { top: element.scrollTop, height: element.clientHeight };
    const before = scrolls.get(id);
    if (before && Math.abs(before.top - next.top) < rowPx && before.height === next.height) return;
    scrolls.set(id, next);
    redraw();
    if (onend && element.scrollTop + element.clientHeight > element.scrollHeight - 6 * rowPx) onend();
  };
  return h("div", {
    class: "table-box long", tabindex: "0", role: "region", "aria-label": label, key: id,
    onmount: (/** @type {Element} */ element) => { scrolls.delete(id); requestAnimationFrame(() => note(element)); },
    onscroll: (/** @type {Event} */ event) => note(/** @type {Element} */ (event.currentTarget)),
  },
  h("table", { "aria-rowcount": String(rows.length + 1) }, heads(columns), h("tbody", null,
    spacer("before", first * rowPx, columns.length),
    shown.map((row, index) => line(columns, row, key(row), rowClass?.(row), { "aria-rowindex": String(first + index + 2), ...rowProps?.(row) })),
    spacer("after", (rows.length - last) * rowPx, columns.length))));
}

/** @param {string} key @param {number} height @param {number} span */
function spacer(key, height, span) {
  if (height <= 0) return null;
  return h("tr", { key: `spacer-${key}`, class: "spacer", "aria-hidden": "true" }, h("td", { colspan: String(span), style: { height: `${height}px` } }));
}
