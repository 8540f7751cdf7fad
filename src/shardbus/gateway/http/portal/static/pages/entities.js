/** All queues, topics and subscriptions: search, favourites, counts. */

import { preferences, prefer, redraw } from "../app.js";
import { command } from "../commands.js";
import { ageMs, data, loadOverview, shortName, sizeMaxText, topicOf } from "../data.js";
import { h } from "../dom.js";
import { atLeast, coarse, count, percent, plural, rate, size } from "../format.js";
import { anchor, badge, card, codeBlock, choice, empty, icon, input, loading, meter } from "../parts.js";
import { entityLink, link, note } from "../router.js";
import { longTable } from "../table.js";

/** @typedef {import("../data.js").EntityRow} EntityRow */

/** @param {EntityRow} row */
export function nameCell(row) {
  return anchor(entityLink(row.name), row.kind === "subscription" ? [h("span", { class: "muted" }, `${topicOf(row.name)} / `), shortName(row.name)] : row.name, { class: "break" });
}

/** @param {EntityRow} row */
export function stateBadges(row) {
  return [
    row.availability === "Available" ? null : badge(row.fragments_out >= row.fragment_count ? "unavailable" : `${row.fragments_out} of ${row.fragment_count} fragments out`, "bad"),
    row.status === "Active" ? null : badge(row.status, "warn"),
    row.requires_session ? badge("sessions") : null,
    row.forward_to ? badge(`→ ${row.forward_to}`, "plain", "Forwards its messages") : null,
  ];
}

/** @param {string} name */
export function star(name) {
  const isFavourite = preferences.favourites.includes(name);
  return h("button", { type: "button", class: "star", "aria-pressed": String(isFavourite), "aria-label": `Favourite: ${name}`, onclick: () => {
    prefer({ favourites: isFavourite ? preferences.favourites.filter((one) => one !== name) : [...preferences.favourites, name] });
  } }, icon("star"));
}

const SORTS = /** @type {Record<string, (a: EntityRow, b: EntityRow) => number>} */ ({
  active: (a, b) => b.active - a.active,
  dead_letter: (a, b) => b.dead_letter - a.dead_letter,
  in: (a, b) => (b.in_per_s ?? 0) - (a.in_per_s ?? 0),
  out: (a, b) => (b.out_per_s ?? 0) - (a.out_per_s ?? 0),
  age: (a, b) => (ageMs(b) ?? -1) - (ageMs(a) ?? -1),
  size: (a, b) => b.size_bytes - a.size_bytes,
});

/** @param {import("../router.js").Place} place @returns {import("../app.js").Page} */
export function entitiesPage(place) {
  const state = { text: place.query.get("q") ?? "", kind: place.query.get("kind") ?? "all", sort: place.query.get("sort") ?? "" };
  const keep = () => note({ q: state.text, kind: state.kind === "all" ? undefined : state.kind, sort: state.sort });
  return {
    title: "Entities",
    refresh: loadOverview,
    view: () => {
      const overview = data.overview;
      if (data.isLimited) return card("", empty("Your key does not list the namespace", "Open an entity by its address, or sign in with a key of the namespace."));
      if (!overview) return loading();
      const rows = chosen(overview.entities, state);
      return [
        h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, "Entities"),
          h("p", { class: "muted", role: "status" }, rows.length === overview.entities.length ? plural(rows.length, "entity", "entities") : `${count(rows.length)} of ${count(overview.entities.length)} entities`, overview.entities_left_out ? `; ${count(overview.entities_left_out)} more are not listed` : "")),
        h("div", { class: "actions" }, h("a", { class: "button", href: link(["create", "topic"]) }, "Create a topic"), h("a", { class: "button primary", href: link(["create", "queue"]) }, icon("plus"), "Create a queue"))),
        h("div", { class: "row" },
          h("div", { class: "grow" }, input({ type: "search", "aria-label": "Find by name", placeholder: "Find by name", value: state.text, onvalue: (/** @type {string} */ value) => { state.text = value; keep(); } })),
          choice("Kinds", [["all", "All"], ["queue", "Queues"], ["topic", "Topics"], ["favourite", "Favourites"]], state.kind, (value) => { state.kind = value; keep(); })),
        rows.length ? h("div", { class: "card flush" }, list(rows, state, keep)) : nothing(state, overview.entities.length),
      ];
    },
  };
}

/** @param {{text: string}} state @param {number} all */
function nothing(state, all) {
  if (all) return card("", empty("No entity fits", `Nothing here has ${state.text ? `“${state.text}” in its name` : "this kind"}.`));
  return card("", empty("There is no queue or topic yet", "Create one here, or with the command line:", codeBlock([command("queue", "create", "orders"), command("send", "orders", "two teapots")].join("\n"), "Commands")));
}

/** @param {EntityRow[]} rows @param {{text: string, kind: string, sort: string}} state */
function chosen(rows, state) {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    if (words.length && !words.every((word) => row.name.toLowerCase().includes(word))) return false;
    if (state.kind === "favourite") return preferences.favourites.includes(row.name);
    if (state.kind === "topic") return row.kind !== "queue";
    return state.kind === "all" || row.kind === state.kind;
  });
  return Object.hasOwn(SORTS, state.sort) ? found.sort(SORTS[state.sort]) : found;
}

/** @param {EntityRow[]} rows @param {{sort: string}} state @param {() => void} keep */
function list(rows, state, keep) {
  const sorter = (/** @type {string} */ name, /** @type {string} */ text) => h("button", { type: "button", class: "sort", "aria-pressed": String(state.sort === name), onclick: () => {
    state.sort = state.sort === name ? "" : name;
    keep();
    redraw();
  } }, text, state.sort === name ? " ↓" : "");
  const number = (/** @type {number} */ value, /** @type {boolean} */ isPartial) => h("span", { class: value ? "" : "zero" }, atLeast(value, isPartial));
  return longTable({ id: "entities", label: "Entities", rows, key: (row) => row.name, columns: [
    { title: "Favourite", head: h("span", { class: "visually-hidden" }, "Favourite"), class: "tight", cell: (row) => star(row.name) },
    { title: "Name", isHead: true, cell: (row) => h("span", { class: row.kind === "subscription" ? "child" : "" }, row.kind === "subscription" && !state.sort ? anchor(entityLink(row.name), shortName(row.name)) : nameCell(row)) },
    { title: "Kind", class: "wide", cell: (row) => h("span", { class: "muted" }, row.kind) },
    { title: "State", class: "wide", cell: (row) => h("span", { class: "actions" }, stateBadges(row)) },
    { title: "Active", head: sorter("active", "Active"), class: "number", cell: (row) => (row.kind === "topic" ? h("span", { class: "zero" }, "–") : number(row.active, row.is_partial)) },
    { title: "Dead letters", head: sorter("dead_letter", "Dead"), class: "number", cell: (row) => (row.dead_letter ? anchor(entityLink(row.name, "dead-letters"), atLeast(row.dead_letter, row.is_partial), { class: "badnum" }) : h("span", { class: "zero" }, row.kind === "topic" ? "–" : "0")) },
    { title: "In/s", head: sorter("in", "In"), class: "number wide", cell: (row) => rate(row.in_per_s) },
    { title: "Out/s", head: sorter("out", "Out"), class: "number wide", cell: (row) => rate(row.out_per_s) },
    { title: "Oldest", head: sorter("age", "Oldest"), class: "number wide", cell: (row) => { const age = ageMs(row); return age === null ? h("span", { class: "zero" }, "–") : coarse(age); } },
    { title: "Size", head: sorter("size", "Size"), class: "number wide", cell: (row) => [size(row.size_bytes), " ", meter(row.size_bytes, row.size_bytes_max), h("span", { class: "muted small" }, ` ${percent(row.size_bytes, row.size_bytes_max)}`)] },
    { title: "Maximum size", class: "number wide extra", cell: (row) => h("span", { class: row.kind === "subscription" ? "zero" : "", title: "Size of a fragment times fragments" }, sizeMaxText(row)) },
  ] });
}
