/** Asks the page to refresh itself every two seconds, while somebody can see it. */

import { ApiError, session } from "./api.js";
import { redraw } from "./app.js";

// From the beginning of one refresh to that of the next: with the time of an answer, two seconds.
const EVERY_MS = 1800;
// A slow bus is not asked at once again.
const REST_MS = 1000;

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
  const began = Date.now();
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
  schedule(mine, began);
}

/** @param {number} mine @param {number} began */
function schedule(mine, began) {
  clearTimeout(timer);
  if (mine !== turn || document.hidden || live.isPaused) return;
  timer = setTimeout(() => void tick(mine), Math.max(REST_MS, EVERY_MS - (Date.now() - began)));
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
