/**
 * Addresses of pages are after the `#`, which browsers do not send: names and filters stay out of
 * logs, and a queue may be called `portal`.
 */

/** @typedef {{segments: string[], query: URLSearchParams}} Place */

/** @returns {Place} */
export function here() {
  return parse(location.hash);
}

/**
 * @param {string} hash
 * @returns {Place}
 */
export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?", 2);
  const segments = path.split("/").filter(Boolean).map(decoded);
  return { segments, query: new URLSearchParams(query ?? "") };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * @param {string[]} segments
 * @param {Record<string, string | undefined>} [query]
 */
export function link(segments, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(/** @type {[string, string][]} */ (given)).toString();
  return `#/${segments.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/**
 * @param {string} name of a queue, topic or subscription
 * @param {string} [tab]
 * @param {Record<string, string | undefined>} [query]
 */
export function entityLink(name, tab, query) {
  return link(tab ? ["entity", name, tab] : ["entity", name], query);
}

/** @param {string} hash */
export function go(hash) {
  if (location.hash === hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}

/**
 * Keep the state of a page in its address without making it a new page.
 * @param {Record<string, string | undefined>} query
 */
export function note(query) {
  const { segments } = here();
  history.replaceState(null, "", link(segments, query));
}
