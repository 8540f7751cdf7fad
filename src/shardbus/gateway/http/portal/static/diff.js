/** Which lines differ between two texts. */

import { h } from "./dom.js";

const LINES_MAX = 1000;

/** @param {string} before @param {string} after @returns {{kind: "same" | "cut" | "add", text: string}[]} */
export function diff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  if (a.length > LINES_MAX || b.length > LINES_MAX) return [{ kind: "cut", text: before }, { kind: "add", text: after }];
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  }
  /** @type {{kind: "same" | "cut" | "add", text: string}[]} */
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i] });
      i++;
      j++;
    } else if (j >= b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) lines.push({ kind: "cut", text: a[i++] });
    else lines.push({ kind: "add", text: b[j++] });
  }
  return lines;
}

/** @param {string} before @param {string} after */
export function diffView(before, after) {
  if (before === after) return h("p", { class: "muted" }, "Nothing is changed yet.");
  const marks = { same: "  ", cut: "− ", add: "+ " };
  return h("pre", { class: "box diff", tabindex: "0", role: "group", "aria-label": "Changes" }, diff(before, after).map((line) => h("span", { class: line.kind }, marks[line.kind] + line.text)));
}
