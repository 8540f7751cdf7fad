/**
 * Which requests this bus answers, from its own description: a bus may serve without pipelines or
 * without a cluster, and then has no such requests. What needs them is not shown.
 */

import { get } from "./api.js";

/** @type {Set<string>} */
let known = new Set();
/** @type {any} */
let description = null;

export async function loadRoutes() {
  if (description) return;
  description = await get("openapi.json");
  known = new Set(Object.keys(description.paths).map((path) => path.replace("/api/v1/", "")));
}

/** @param {string} path below /api/v1/, with the names of its parameters in braces */
export function has(path) {
  return known.has(path);
}

/** The description itself, OpenAPI 3.1. */
export function openapi() {
  return description;
}
