/** The frame of the portal: sign-in, navigation, search, the page of the present address. */

import { get, session, signOut } from "./api.js";
import { applyTheme, dismiss, notices, preferences, prefer, redraw, setDrawing } from "./app.js";
import { data, forget } from "./data.js";
import { closeAll, dialogs, hasDialog } from "./dialog.js";
import { h, render } from "./dom.js";
import { live, togglePause, watch } from "./live.js";
import { button, errorBox, icon } from "./parts.js";
import { here, link } from "./router.js";
import { has, loadRoutes } from "./routes.js";
import { openSearch, palette } from "./search.js";
import { aboutPage } from "./pages/about.js";
import { brokersPage } from "./pages/brokers.js";
import { namespaceAccessPage } from "./pages/access.js";
import { createPage } from "./pages/create.js";
import { entitiesPage } from "./pages/entities.js";
import { entityPage } from "./pages/entity.js";
import { jobsPage } from "./pages/jobs.js";
import { overviewPage } from "./pages/overview.js";
import { pipelinePage, pipelinesPage } from "./pages/pipelines.js";
import { signInView, startSession } from "./pages/signin.js";

/** @typedef {import("./app.js").Page} Page */

const NAVIGATION = [
  ["overview", "Overview"], ["entities", "Entities"], ["pipelines", "Pipelines"], ["jobs", "Jobs"],
  ["brokers", "Brokers"], ["access", "Access"], ["about", "About"],
];

/** @param {string} name */
function isThere(name) {
  if (name === "pipelines" || name === "jobs") return has(name);
  return name !== "brokers" || has("system");
}

/** @type {Page | null} */
let page = null;

/** @returns {Page} */
function pageOf() {
  const place = here();
  const [first = "overview", second, third] = place.segments;
  if (!isThere(first)) return missingPage();
  switch (first) {
    case "overview": return overviewPage();
    case "entities": return entitiesPage(place);
    case "create": return createPage(second ?? "queue", place);
    case "entity": return entityPage(second ?? "", third ?? "summary", place);
    case "pipelines": return second ? pipelinePage(second) : pipelinesPage();
    case "jobs": return jobsPage();
    case "brokers": return brokersPage();
    case "access": return namespaceAccessPage();
    case "about": return aboutPage();
    default: return missingPage();
  }
}

/** @returns {Page} */
function missingPage() {
  return { title: "Not found", view: () => h("div", { class: "empty" }, h("h1", null, "There is no such page"), h("p", null, "Choose one on the left, or search with the key ", h("kbd", null, "/"), ".")) };
}

function show() {
  page?.leave?.();
  closeAll();
  page = pageOf();
  document.title = `${page.title} – Shardbus`;
  watch(page.refresh);
  window.scrollTo(0, 0);
  redraw();
}

function frame() {
  const current = here().segments[0] ?? "overview";
  const section = current === "entity" || current === "create" ? "entities" : current;
  return h("div", { class: "frame" },
    h("a", { class: "skip", href: "#content", onclick: (/** @type {Event} */ event) => { event.preventDefault(); document.getElementById("content")?.focus(); } }, "Skip to the content"),
    h("aside", { class: "side", "aria-label": "Navigation and preferences" },
      h("a", { class: "brand", href: "#/" }, h("img", { src: "/portal/icon.svg", alt: "" }), "Shardbus"),
      h("nav", { "aria-label": "Pages" }, h("ul", null, NAVIGATION.filter(([name]) => isThere(name)).map(([name, text]) => h("li", { key: name },
        h("a", { href: link([name]), "aria-current": name === section ? "page" : undefined }, icon(name), h("span", null, text)))))),
      sideFoot()),
    h("div", { class: "main" }, topBar(),
      h("main", { class: "content", id: "content", tabindex: "-1" }, trouble(), page?.view())));
}

function sideFoot() {
  return h("div", { class: "side-foot" },
    h("div", { class: "row" }, h("span", { class: "muted" }, "Time"),
      button(preferences.isLocalTime ? "Local" : "UTC", () => prefer({ isLocalTime: !preferences.isLocalTime }), { class: "small", "aria-label": preferences.isLocalTime ? "Local: show times in UTC" : "UTC: show local times" })),
    h("div", { class: "row" }, h("span", { class: "muted" }, "Theme"), themeButton()),
    h("div", { class: "row" }, h("span", { class: "break", title: session.rights.join(", ") }, session.rule || session.identity?.label),
      button("Sign out", () => { signOut(); forget(); show(); }, { class: "small" })));
}

function themeButton() {
  const order = /** @type {const} */ (["auto", "light", "dark"]);
  const next = order[(order.indexOf(preferences.theme) + 1) % order.length];
  const text = { auto: "As system", light: "Light", dark: "Dark" }[preferences.theme];
  return button([icon(preferences.theme === "dark" ? "moon" : "sun"), text], () => prefer({ theme: next }), { class: "small", "aria-label": `${text}: change the theme` });
}

function topBar() {
  const status = data.overview?.health.status ?? "";
  const dot = !session.isReachable ? "bad" : status === "healthy" ? "good" : status === "unavailable" ? "bad" : status ? "warn" : "";
  const told = session.isReachable ? status : "no answer";
  return h("header", { class: "bar" },
    h("button", { type: "button", class: "search-open", onclick: openSearch }, icon("search"), h("span", null, "Search queues, topics, pages …"), h("kbd", { "aria-hidden": "true" }, "/")),
    h("span", { class: "spring" }),
    told ? h("a", { class: "live", href: "#/brokers", title: data.overview?.health.reasons.join("; ") || "Health of the bus" }, h("i", { class: `dot ${dot}` }), h("span", null, told)) : null,
    button([icon(live.isPaused ? "play" : "pause"), h("span", { class: "label" }, live.isPaused ? "Paused" : "Live")], togglePause,
      { class: "small", "aria-label": live.isPaused ? "Paused: refresh again every two seconds" : "Live: refresh no more", "aria-pressed": String(live.isPaused) }));
}

function trouble() {
  return live.error ? errorBox(live.error) : null;
}

function announced() {
  return h("div", { class: "notices", role: "status", "aria-live": "polite" }, notices.map((notice) =>
    h("div", { class: `notice ${notice.kind}`, key: notice.id }, h("span", null, notice.text),
      h("button", { type: "button", class: "button quiet small icon-only", "aria-label": "Dismiss", onclick: () => dismiss(notice.id) }, icon("close")))));
}

const root = /** @type {Element} */ (document.getElementById("app"));
setDrawing(() => render(root, [session.identity ? frame() : signInView(show), dialogs(), palette(), announced()]));

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {Element} */ (event.target);
  const isTyping = target.matches("input, textarea, select, [contenteditable]");
  if (!session.identity || hasDialog() || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  if (event.key === "/") {
    event.preventDefault();
    openSearch();
  } else if (event.key === "c") location.hash = "#/create/queue";
  else if (event.key === "g") location.hash = "#/overview";
  else if (event.key === "e") location.hash = "#/entities";
  else if (event.key === "p") togglePause();
}

applyTheme();
redraw();
window.addEventListener("hashchange", () => session.identity && show());
document.addEventListener("keydown", onKey);

async function start() {
  /** @type {any} */
  let found = { methods: ["connection_string"] };
  try {
    await loadRoutes();
    if (has("sign-in")) found = await get("sign-in");
    if (found.development) await startSession(found, "development", "", show);
  } catch {
    // The form says what is wrong when it is sent.
  }
  data.signIn = found;
  redraw();
}
void start();
