/** What several pages show, asked for once: the overview, the properties of entities. */

import { ApiError, get } from "./api.js";
import { size } from "./format.js";
import { has } from "./routes.js";

/** @typedef {{name: string, kind: "queue" | "topic" | "subscription", status: string, availability: string, is_partial: boolean, is_partitioned: boolean, requires_session: boolean, fragment_count: number, fragments_out: number, active: number, deferred: number, scheduled: number, dead_letter: number, transfer: number, transfer_dead_letter: number, size_bytes: number, size_bytes_max: number, in_per_s: number | null, out_per_s: number | null, oldest_at: string | null, receivers: number, forward_to: string | null}} EntityRow */
/** @typedef {{sampled_at: string, started_at: string, is_complete: boolean, namespace: any, health: {status: string, reasons: string[]}, brokers: any[], totals: any, entities: EntityRow[], entities_left_out: number}} Overview */
/** @typedef {{name: string, form: string, unit: string, least: number | null, most: number | null, default: any, is_fixed: boolean, is_derived: boolean, choices: any[], label: string, option: string, element: string, help: string, tier_reason: string}} Property */
/** @typedef {{tier: string, generation: string, partitioning: string, partitioning_reason: string, is_partitioned_by_default: boolean, fragments_when_partitioned: number, sizes_mb: number[], sizes: {size_mb: number, size_mb_max: number, size_mb_max_partitioned: number}[], kinds: Record<string, Property[]>, filter_kinds: string[], correlation_fields: string[]}} Properties */

/** @type {{overview: Overview | null, properties: Properties | null, system: any, isLimited: boolean, signIn: any}} */
export const data = { overview: null, properties: null, system: null, isLimited: false, signIn: null };

/** The overview, or null for a user who may not see it. */
export async function loadOverview() {
  if (data.isLimited) return null;
  try {
    data.overview = await get("overview");
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) data.isLimited = true;
    else throw error;
  }
  return data.overview;
}

export async function loadProperties() {
  data.properties ??= await get("properties");
  return /** @type {Properties} */ (data.properties);
}

/** Where clients connect: known from /system, where the user may see it. */
export async function loadSystem() {
  if (has("system")) data.system = await get("system");
  return data.system;
}

export function forget() {
  Object.assign(data, { overview: null, properties: null, system: null, isLimited: false });
}

/** @param {string} name */
export function rowOf(name) {
  return data.overview?.entities.find((row) => row.name === name) ?? null;
}

/** @param {string} name of a subscription */
export function shortName(name) {
  return name.replace(/^.*\/Subscriptions\//i, "");
}

/** @param {string} name */
export function topicOf(name) {
  return name.replace(/\/Subscriptions\/.*$/i, "");
}

/** @param {string} name */
export function isSubscription(name) {
  return /\/Subscriptions\//i.test(name);
}

/** The maximum size and what it is made of; subscriptions share that of their topic. @param {EntityRow} row */
export function sizeMaxText(row) {
  if (row.kind === "subscription") return "that of its topic";
  return `${size(row.size_bytes_max)} = ${size(row.size_bytes_max / Math.max(1, row.fragment_count))} × ${row.fragment_count}`;
}

/** The other subscriptions of the topic of a subscription. @param {string} name */
export function sistersOf(name) {
  const prefix = `${topicOf(name)}/Subscriptions/`.toLowerCase();
  return (data.overview?.entities ?? []).filter((row) => row.name.toLowerCase().startsWith(prefix) && row.name.toLowerCase() !== name.toLowerCase());
}

/** The path of the management of an entity. @param {string} kind @param {string} name */
export function managedPath(kind, name) {
  if (kind === "subscription") return `topics/${encodeURIComponent(topicOf(name))}/subscriptions/${encodeURIComponent(shortName(name))}`;
  return `${kind}s/${encodeURIComponent(name)}`;
}

/** @param {EntityRow} row */
export function ageMs(row) {
  if (!row.oldest_at || !data.overview) return null;
  return Math.max(0, Date.parse(data.overview.sampled_at) - Date.parse(row.oldest_at));
}
