/** Requests to the JSON API, with the user's token in a header: there is no cookie. */

import { redraw } from "./app.js";

const TIMEOUT_MS = 30_000;

/** A refusal of the bus, or no answer at all; `advice` says what to do next. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 when there was no answer
   * @param {string} code
   * @param {string} message
   */
  constructor(status, code, message) {
    super(message.replace(/\s*TrackingId:\S+$/, ""));
    this.status = status;
    this.code = code;
    this.tracking = /TrackingId:(\S+)$/.exec(message)?.[1] ?? "";
  }

  get advice() {
    if (this.status === 0) return "Check that the bus runs, then wait: the page tries again every two seconds.";
    if (this.status === 401) return "Sign in with a key that has the right, or ask for one: Manage includes Listen and Send.";
    if (this.status === 403) return "Receive or delete messages, or raise the limit, then try again.";
    if (this.status === 404) return "It may have been deleted or renamed: search with the key /.";
    if (this.status === 409) return "Reload to see its present state, then try again.";
    if (this.status === 429 || this.status === 503) return "Nothing was done. Wait a moment and try again.";
    if (this.status === 504) return "It may have been done: check before you repeat it.";
    return "";
  }
}

/** @type {{identity: import("./signing.js").Identity | null, rights: string[], rule: string, entity: string, isReachable: boolean, failedAt: number, ended: string}} */
export const session = { ended: "", identity: null, rights: [], rule: "", entity: "", isReachable: true, failedAt: 0 };

export function signOut() {
  session.identity = null;
  tags.clear();
  redraw();
}

/** @param {string} right */
export function may(right) {
  return session.rights.includes("Manage") || session.rights.includes(right);
}

/** @type {Map<string, {tag: string, document: any}>} */
const tags = new Map();
const TAGS_MAX = 100;

/**
 * @typedef {object} Options
 * @property {unknown} [body]
 * @property {Record<string, string | number | boolean | undefined | null>} [query]
 * @property {AbortSignal} [signal]
 * @property {boolean} [isText] the answer is text as it is
 */

/**
 * @param {string} method
 * @param {string} path below /api/v1/
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function request(method, path, options = {}) {
  const url = `/api/v1/${path}${queryText(options.query)}`;
  /** @type {Record<string, string>} */
  const headers = { Accept: options.isText ? "*/*" : "application/json" };
  if (session.identity) headers.Authorization = await session.identity.authorization();
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  const known = method === "GET" ? tags.get(url) : undefined;
  if (known) headers["If-None-Match"] = known.tag;
  const response = await answer(url, {
    method,
    headers,
    body: options.body === undefined ? undefined : JSON.stringify(options.body),
    signal: signals(options.signal),
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  if (response.status === 304 && known) return known.document;
  const text = await response.text();
  if (response.status === 401 && path !== "token") await checkSession();
  if (!response.ok) throw refusal(response.status, text);
  if (options.isText) return text;
  const document = text ? parseJson(text) : null;
  keepTag(method, url, response.headers.get("ETag"), document);
  return document;
}

/** A refusal may be about one right, or the key or token is no longer valid: then the user signs in again, and comes back to this page. */
async function checkSession() {
  const { identity } = session;
  if (!identity) return;
  const { status } = await answer("/api/v1/token", { headers: { Authorization: await identity.authorization() }, cache: "no-store", credentials: "omit", redirect: "error" });
  if (status !== 401 || session.identity !== identity) return;
  session.ended = "The bus no longer accepts your key or token: sign in again.";
  signOut();
}

/** @param {AbortSignal | undefined} signal */
function signals(signal) {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  return signal ? AbortSignal.any([signal, timeout]) : timeout;
}

/**
 * @param {string} url
 * @param {RequestInit} init
 */
async function answer(url, init) {
  try {
    const response = await fetch(url, init);
    session.isReachable = true;
    return response;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    if (session.isReachable) session.failedAt = Date.now();
    session.isReachable = false;
    redraw();
    throw new ApiError(0, "unreachable", "The bus does not answer.");
  }
}

/**
 * @param {number} status
 * @param {string} text
 */
function refusal(status, text) {
  try {
    const { code, message } = JSON.parse(text).error;
    return new ApiError(status, String(code), String(message));
  } catch {
    return new ApiError(status, "unreadable", `The bus answered ${status}.`);
  }
}

/**
 * @param {string} method
 * @param {string} url
 * @param {string | null} tag
 * @param {any} document
 */
function keepTag(method, url, tag, document) {
  if (method !== "GET" || !tag) return;
  tags.delete(url);
  tags.set(url, { tag, document });
  if (tags.size > TAGS_MAX) tags.delete(/** @type {string} */ (tags.keys().next().value));
}

/** @param {Options["query"]} query */
function queryText(query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  if (!given.length) return "";
  return `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

/**
 * Integers that a JavaScript number cannot hold stay text.
 * @param {string} text
 */
export function parseJson(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  /** @type {any} */
  const reviver = (/** @type {string} */ _key, /** @type {unknown} */ value, /** @type {{source?: string} | undefined} */ context) =>
    typeof value === "number" && context?.source && /^-?\d{16,}$/.test(context.source) && !Number.isSafeInteger(value)
      ? context.source
      : value;
  return JSON.parse(text, reviver);
}

/** @param {string} name of an entity */
export function encoded(name) {
  return encodeURIComponent(name);
}

/** @param {string} path @param {Options} [options] */
export const get = (path, options) => request("GET", path, options);
/** @param {string} path @param {unknown} [body] @param {Options} [options] */
export const post = (path, body, options) => request("POST", path, { ...options, body: body ?? {} });
/** @param {string} path @param {unknown} body */
export const put = (path, body) => request("PUT", path, { body });
/** @param {string} path @param {unknown} body */
export const patchWith = (path, body) => request("PATCH", path, { body });
/** @param {string} path */
export const del = (path) => request("DELETE", path);

/**
 * Save a long text that the bus gives in pieces as a file.
 * @param {string} path
 * @param {string} fileName
 */
export async function download(path, fileName) {
  /** @type {string[]} */
  const parts = [];
  /** @type {string | null} */
  let offset = "0";
  while (offset !== null) {
    const headers = { Authorization: (await session.identity?.authorization()) ?? "" };
    const response = await answer(`/api/v1/${path}?offset=${encodeURIComponent(offset)}`, { headers, cache: "no-store", credentials: "omit", redirect: "error" });
    const text = await response.text();
    if (!response.ok) throw refusal(response.status, text);
    parts.push(text);
    offset = response.headers.get("X-Export-Next");
  }
  save(new Blob(parts, { type: "application/x-ndjson" }), fileName);
}

/** @param {Blob} blob @param {string} fileName */
export function save(blob, fileName) {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = fileName;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
