/** Asks the page to refresh itself every two seconds, while somebody can see it. */

import { ApiError, session } from "./api.js";
import { redraw } from "./app.js";

// With the time of an answer, two seconds.
const EVERY_MS = 1800;

/** @type {{isPaused: boolean, error: Error | null, at: number}} */
export const live = { isPaused: false, error: null, at: 0 };

/** @type {(() => Promise<unknown>) | undefined} */
let refresh;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let turn = 0;

/** @param {(() => Promise<unknown>) | undefined} refreshing */
export function watch(refreshing) {
  refresh = refreshing;
  live.error = null;
  refreshNow();
}

/** Refresh at once, for instance after something was changed. */
export function refreshNow() {
  clearTimeout(timer);
  void tick(++turn);
}

/** @param {number} mine */
async function tick(mine) {
  if (refresh && session.identity) {
    try {
      await refresh();
      if (mine !== turn) return;
      live.error = null;
      live.at = Date.now();
    } catch (error) {
      if (mine !== turn) return;
      if (!(error instanceof DOMException)) live.error = error instanceof Error ? error : new ApiError(0, "unknown", String(error));
    }
    redraw();
  }
  schedule(mine);
}

/** @param {number} mine */
function schedule(mine) {
  clearTimeout(timer);
  if (mine !== turn || document.hidden || live.isPaused) return;
  timer = setTimeout(() => void tick(mine), EVERY_MS);
}

export function togglePause() {
  live.isPaused = !live.isPaused;
  if (!live.isPaused) refreshNow();
  redraw();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !live.isPaused) refreshNow();
  else clearTimeout(timer);
});
