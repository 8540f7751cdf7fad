/** Search everywhere, opened with `/`: entities, pipelines, pages and actions. */

import { get } from "./api.js";
import { redraw } from "./app.js";
import { data, loadOverview } from "./data.js";
import { h } from "./dom.js";
import { entityLink, go, link } from "./router.js";
import { has } from "./routes.js";

/** @typedef {{text: string, kind: string, href: string}} Hit */

/** @type {{isOpen: boolean, text: string, at: number, pipelines: string[], element: HTMLDialogElement | null}} */
const state = { isOpen: false, text: "", at: 0, pipelines: [], element: null };
const SHOWN_MAX = 12;

/** @type {Hit[]} */
const PAGES = [
  { text: "Overview", kind: "page", href: link(["overview"]) },
  { text: "Entities", kind: "page", href: link(["entities"]) },
  { text: "Create a queue", kind: "action", href: link(["create", "queue"]) },
  { text: "Create a topic", kind: "action", href: link(["create", "topic"]) },
  { text: "Create a subscription", kind: "action", href: link(["create", "subscription"]) },
  { text: "Pipelines", kind: "page", href: link(["pipelines"]) },
  { text: "Jobs", kind: "page", href: link(["jobs"]) },
  { text: "Brokers, stores and gateways", kind: "page", href: link(["brokers"]) },
  { text: "Access rules and connection strings", kind: "page", href: link(["access"]) },
  { text: "About", kind: "page", href: link(["about"]) },
];

export function openSearch() {
  Object.assign(state, { isOpen: true, text: "", at: 0 });
  redraw();
  void Promise.allSettled([
    loadOverview(),
    has("pipelines") ? get("pipelines").then((found) => { state.pipelines = found.pipelines.map((/** @type {any} */ one) => one.name); }) : null,
  ]).then(redraw);
}

/** @returns {Hit[]} */
function hits() {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [
    ...(data.overview?.entities ?? []).map((row) => ({ text: row.name, kind: row.kind, href: entityLink(row.name) })),
    ...state.pipelines.map((name) => ({ text: name, kind: "pipeline", href: link(["pipelines", name]) })),
    ...PAGES,
  ];
  const fitting = all.filter((hit) => words.every((word) => `${hit.text} ${hit.kind}`.toLowerCase().includes(word)));
  const rank = (/** @type {Hit} */ hit) => (words[0] && hit.text.toLowerCase().startsWith(words[0]) ? 0 : 1);
  return fitting.sort((a, b) => rank(a) - rank(b)).slice(0, SHOWN_MAX);
}

/** @param {Hit | undefined} hit */
function choose(hit) {
  if (!hit) return;
  state.element?.close();
  go(hit.href);
}

/** @param {KeyboardEvent} event @param {Hit[]} found */
function onKey(event, found) {
  if (event.key === "ArrowDown") state.at = Math.min(found.length - 1, state.at + 1);
  else if (event.key === "ArrowUp") state.at = Math.max(0, state.at - 1);
  else if (event.key === "Enter") choose(found[state.at]);
  else return;
  event.preventDefault();
  redraw();
}

export function palette() {
  if (!state.isOpen) return null;
  const found = hits();
  return h("dialog", {
    key: "palette", class: "palette", "aria-label": "Search everything",
    onmount: (/** @type {HTMLDialogElement} */ element) => { state.element = element; requestAnimationFrame(() => element.isConnected && element.showModal()); },
    onclose: () => { state.isOpen = false; redraw(); },
  },
  h("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-hits", "aria-label": "Search", autocomplete: "off", spellcheck: "false",
    "aria-activedescendant": found.length ? `hit-${state.at}` : undefined, placeholder: "Queue, topic, subscription, pipeline or page", value: state.text, autofocus: true,
    oninput: (/** @type {Event} */ event) => { state.text = /** @type {HTMLInputElement} */ (event.target).value; state.at = 0; redraw(); },
    onkeydown: (/** @type {KeyboardEvent} */ event) => onKey(event, found),
  }),
  h("ul", { id: "palette-hits", role: "listbox", "aria-label": "Found" }, found.map((hit, index) => h("li", {
    key: hit.href, id: `hit-${index}`, role: "option", "aria-selected": String(index === state.at), onclick: () => choose(hit),
  }, h("span", null, hit.text), h("span", { class: "muted small" }, hit.kind)))),
  found.length ? null : h("p", { class: "foot" }, "Nothing has this name."),
  h("p", { class: "foot" }, h("kbd", null, "↑"), " ", h("kbd", null, "↓"), " choose, ", h("kbd", null, "Enter"), " open, ", h("kbd", null, "Esc"), " close"));
}
