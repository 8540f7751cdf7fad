/** What the whole portal shares: redrawing, preferences, notices, and what is shown now. */

let isDue = false;
/** @type {(() => void) | null} */
let draw = null;

/** @param {() => void} drawing */
export function setDrawing(drawing) {
  draw = drawing;
}

/** Draw the page again, once, before the browser paints. */
export function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw?.();
  });
}

/**
 * Preferences hold no secret and no name of a bus's content but favourites.
 * @typedef {{theme: "auto" | "light" | "dark", isLocalTime: boolean, favourites: string[], filters: Record<string, string[]>}} Preferences
 */

const KEY = "shardbus-portal";
/** @type {Preferences} */
export const preferences = { theme: "auto", isLocalTime: false, favourites: [], filters: {}, ...stored() };

/** @returns {Partial<Preferences>} */
function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

/** @param {Partial<Preferences>} change */
export function prefer(change) {
  Object.assign(preferences, change);
  try {
    localStorage.setItem(KEY, JSON.stringify(preferences));
  } catch {
    // Storage may be forbidden or full: the choice lasts as long as the page.
  }
  applyTheme();
  redraw();
}

export function applyTheme() {
  const root = document.documentElement;
  if (preferences.theme === "auto") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", preferences.theme);
}

/** @typedef {{id: number, kind: "good" | "bad" | "plain", text: string}} Notice */
/** @type {Notice[]} */
export const notices = [];
let lastNotice = 0;
const NOTICE_MS = 6000;

/**
 * Tell something that has happened, for a moment; screen readers read it.
 * @param {string} text
 * @param {"good" | "bad" | "plain"} [kind]
 */
export function notify(text, kind = "good") {
  const id = ++lastNotice;
  notices.push({ id, kind, text });
  if (notices.length > 4) notices.shift();
  setTimeout(() => dismiss(id), kind === "bad" ? 2 * NOTICE_MS : NOTICE_MS);
  redraw();
}

/** @param {number} id */
export function dismiss(id) {
  const index = notices.findIndex((notice) => notice.id === id);
  if (index >= 0) notices.splice(index, 1);
  redraw();
}

/**
 * @typedef {object} Page
 * @property {string} title
 * @property {() => import("./dom.js").Child} view
 * @property {() => Promise<unknown>} [refresh] called every two seconds while the page is visible
 * @property {() => void} [leave]
 */
