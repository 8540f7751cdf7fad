/** The pieces of which pages are made. */

import { ApiError } from "./api.js";
import { notify, redraw } from "./app.js";
import { h } from "./dom.js";
import { ago, time } from "./format.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {import("./dom.js").Props} Props */

const ICONS = /** @type {Record<string, string>} */ ({
  overview: "M3 3h6v8H3zM11 3h6v5h-6zM11 10h6v7h-6zM3 13h6v4H3z",
  entities: "M3 4h14v3H3zM3 8.5h14v3H3zM3 13h14v3H3z",
  pipelines: "M2 5h5v4H2zM13 11h5v4h-5zM7 7h3v6h3v-1.5H11.5V5.500H7z",
  brokers: "M3 3h14v5H3zM3 10h14v5H3zM5 5h2v1H5zM5 12h2v1H5zM9 15h2v3H9z",
  access: "M13 2a5 5 0 0 0-4.800 6.400L2 14.600V18h4v-2h2v-2h2l1.600-1.600A5 5 0 1 0 13 2zm1.500 2.500a1.500 1.500 0 1 1 0 3 1.500 1.500 0 0 1 0-3z",
  jobs: "M10 2a8 8 0 1 0 8 8h-2a6 6 0 1 1-6-6zM11 5H9v6l4 2.500 1-1.600-3-1.900z",
  about: "M10 2a8 8 0 1 0 0 16 8 8 0 0 0 0-16zm-1 3h2v2H9zm0 4h2v6H9z",
  search: "M8 2a6 6 0 1 0 3.700 10.700l4.800 4.800 1.400-1.400-4.800-4.800A6 6 0 0 0 8 2zm0 2a4 4 0 1 1 0 8 4 4 0 0 1 0-8z",
  star: "M10 2l2.500 5.200 5.500.800-4 4 1 5.700-5-2.700-5 2.700 1-5.700-4-4 5.500-.800z",
  copy: "M6 2h10v12h-2V4H6zM3 6h9v12H3z",
  close: "M5 3.600L10 8.600l5-5L16.400 5l-5 5 5 5-1.400 1.400-5-5-5 5L3.600 15l5-5-5-5z",
  pause: "M5 3h4v14H5zM11 3h4v14h-4z",
  play: "M5 3l12 7-12 7z",
  sun: "M10 6a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM9 1h2v3H9zM9 16h2v3H9zM1 9h3v2H1zM16 9h3v2h-3z",
  moon: "M8 2a8 8 0 1 0 10 10A7 7 0 0 1 8 2z",
  plus: "M9 3h2v6h6v2h-6v6H9v-6H3V9h6z",
  right: "M7 4l6 6-6 6-1.400-1.400L10.200 10 5.600 5.400z",
  warning: "M10 2l9 16H1zM9 8h2v5H9zm0 6h2v2H9z",
});

/** @param {string} name */
export function icon(name) {
  return h("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true", focusable: "false" },
    h("path", { d: ICONS[name], "fill-rule": "evenodd" }));
}

/**
 * @param {Child} label
 * @param {() => unknown} action
 * @param {Props} [props]
 */
export function button(label, action, props = {}) {
  const { kind, ...rest } = props;
  return h("button", { type: "button", ...rest, class: `button ${kind ?? ""} ${props.class ?? ""}`, onclick: () => void attempt(action) }, label);
}

/**
 * Run what a user asked for, and say what went wrong.
 * @param {() => unknown} action
 */
export async function attempt(action) {
  try {
    await action();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return;
    notify(errorText(error), "bad");
  }
  redraw();
}

/** @param {unknown} error */
export function errorText(error) {
  if (error instanceof ApiError) return `${error.message} ${error.advice}`.trim();
  return error instanceof Error ? error.message : String(error);
}

/** @param {string} href @param {Child} label @param {Props} [props] */
export function anchor(href, label, props = {}) {
  return h("a", { ...props, href }, label);
}

/** @param {Child} label @param {"good" | "warn" | "bad" | "plain" | "accent"} [kind] @param {string} [title] */
export function badge(label, kind = "plain", title) {
  return h("span", { class: `badge ${kind}`, title }, label);
}

/** @param {Child} title @param {Child} content @param {Props & {actions?: Child}} [props] */
export function card(title, content, props = {}) {
  const { actions, ...rest } = props;
  return h("section", { ...rest, class: `card ${props.class ?? ""}` },
    title ? h("header", { class: "card-head" }, h("h2", null, title), actions ? h("div", { class: "actions" }, actions) : null) : null,
    content);
}

/** @param {[Child, Child][]} rows */
export function facts(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** @param {string} label @param {Child} value @param {Child} [detail] @param {Props} [props] */
export function figure(label, value, detail, props = {}) {
  const content = [h("span", { class: "figure-label" }, label), h("span", { class: "figure-value" }, value), detail ? h("span", { class: "figure-detail" }, detail) : null];
  return props.href
    ? h("a", { ...props, class: `figure ${props.class ?? ""}` }, content)
    : h("div", { ...props, class: `figure ${props.class ?? ""}` }, content);
}

/**
 * @param {string} title
 * @param {Child} text
 * @param {...Child} more
 */
export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("h2", null, title), text ? h("p", null, text) : null, more);
}

export function loading() {
  return h("p", { class: "loading", role: "status" }, "Loading …");
}

/** @param {unknown} error @param {() => unknown} [retry] */
export function errorBox(error, retry) {
  const isApi = error instanceof ApiError;
  return h("div", { class: "error-box", role: "alert" },
    h("strong", null, isApi ? error.message : errorText(error)),
    isApi && error.advice ? h("p", null, error.advice) : null,
    isApi && error.tracking ? h("p", { class: "muted small" }, "In the log of the bus: ", h("code", null, error.tracking)) : null,
    retry ? button("Try again", retry) : null);
}

/** @param {"warn" | "info"} kind @param {...Child} content */
export function banner(kind, ...content) {
  return h("div", { class: `banner ${kind}`, role: "note" }, icon(kind === "warn" ? "warning" : "about"), h("div", null, content));
}

/** A moment with how long ago it was. @param {string | null | undefined} moment */
export function moment(moment) {
  if (!moment) return "–";
  return h("time", { datetime: moment, title: ago(moment) }, time(moment));
}

/** @param {string} text @param {string} [label] */
export function copyButton(text, label = "Copy") {
  return button([icon("copy"), h("span", null, label)], async () => {
    await navigator.clipboard.writeText(text);
    notify("Copied.");
  }, { class: "small", kind: "quiet" });
}

/** A command or a document to copy. @param {string} text @param {string} [label] */
export function codeBlock(text, label = "Text to copy") {
  return h("div", { class: "code-block" }, h("pre", { tabindex: "0", role: "group", "aria-label": label }, h("code", null, text)), copyButton(text));
}

/** @param {number} part @param {number} all @param {string} label @param {string} counted what the bar counts, as text */
export function progress(part, all, label, counted) {
  const share = all > 0 ? Math.min(100, (100 * part) / all) : 0;
  return h("div", { class: "progress-row" },
    h("div", { class: "progress", role: "progressbar", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": String(Math.round(share)), "aria-valuetext": counted },
      h("div", { class: "progress-bar", style: { width: `${share}%` } })),
    h("span", { class: "small muted" }, counted));
}

/** A part of a whole as a thin bar. @param {number} part @param {number} all */
export function meter(part, all) {
  const share = all > 0 ? Math.min(100, (100 * part) / all) : 0;
  return h("span", { class: `meter ${share > 90 ? "bad" : share > 70 ? "warn" : ""}`, "aria-hidden": "true" }, h("span", { style: { width: `${share}%` } }));
}

/**
 * Buttons of which one is chosen.
 * @param {string} label
 * @param {[string, string][]} choices value and text
 * @param {string} chosen
 * @param {(value: string) => void} choose
 */
export function choice(label, choices, chosen, choose) {
  return h("div", { class: "choice", role: "group", "aria-label": label },
    choices.map(([value, text]) => h("button", {
      type: "button", key: value, "aria-pressed": String(value === chosen),
      onclick: () => { choose(value); redraw(); },
    }, text)));
}

let lastId = 0;
/** An id for a label and its field. */
export function newId() {
  return `f${++lastId}`;
}

/**
 * A labelled field; `error` is read with it.
 * @param {string} label
 * @param {(id: string, props: Props) => Child} control
 * @param {{id: string, hint?: Child, error?: string, mark?: Child}} more
 */
export function field(label, control, more) {
  const { id, hint, error, mark } = more;
  const described = [hint ? `${id}-hint` : "", error ? `${id}-error` : ""].filter(Boolean).join(" ");
  const props = { id, "aria-describedby": described || undefined, "aria-invalid": error ? "true" : undefined };
  return h("div", { class: `field ${error ? "wrong" : ""}` },
    h("label", { for: id }, label, mark ? [" ", mark] : null),
    control(id, props),
    hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null,
    error ? h("p", { class: "field-error", id: `${id}-error` }, error) : null);
}

/** @param {Props} props */
export function input(props) {
  return h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...props, oninput: (/** @type {Event} */ event) => {
    props.onvalue?.(/** @type {HTMLInputElement} */ (event.target).value);
    redraw();
  } });
}

/** @param {Props} props */
export function area(props) {
  return h("textarea", { spellcheck: "false", rows: 4, ...props, oninput: (/** @type {Event} */ event) => {
    props.onvalue?.(/** @type {HTMLTextAreaElement} */ (event.target).value);
    redraw();
  } });
}

/** @param {[string, string][]} options @param {Props} props */
export function select(options, props) {
  return h("select", { ...props, onchange: (/** @type {Event} */ event) => {
    props.onvalue?.(/** @type {HTMLSelectElement} */ (event.target).value);
    redraw();
  } }, options.map(([value, text]) => h("option", { key: value, value, selected: value === props.value }, text)));
}

/** @param {string} label @param {boolean} isChecked @param {(isChecked: boolean) => void} change @param {Props & {hint?: Child, mark?: Child}} [props] */
export function checkbox(label, isChecked, change, props = {}) {
  const { hint, mark, ...rest } = props;
  return h("div", { class: "check" }, h("label", null,
    h("input", { type: "checkbox", ...rest, checked: isChecked, onchange: (/** @type {Event} */ event) => {
      change(/** @type {HTMLInputElement} */ (event.target).checked);
      redraw();
    } }),
    h("span", null, label, mark ? [" ", mark] : null)), hint ? h("p", { class: "hint" }, hint) : null);
}

/**
 * @param {string} label
 * @param {{name: string, href: string, text: Child}[]} tabs
 * @param {string} current
 */
export function tabs(label, tabs, current) {
  return h("nav", { class: "tabs", "aria-label": label }, h("ul", null, tabs.map((tab) => h("li", { key: tab.name },
    h("a", { href: tab.href, "aria-current": tab.name === current ? "page" : undefined, onmount: tab.name === current ? intoView : undefined }, tab.text)))));
}

/** Begin with this field, on a page that was reached by a link: `autofocus` counts only where a page is loaded. @param {Element} element */
export function focus(element) {
  requestAnimationFrame(() => /** @type {HTMLElement} */ (element).focus());
}

/** Bring something into view that may be outside of it on a narrow screen. @param {Element} element */
export function intoView(element) {
  if (innerWidth <= 1100) requestAnimationFrame(() => element.scrollIntoView({ block: "nearest", inline: "center" }));
}
