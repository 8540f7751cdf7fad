/** Numbers, sizes, durations and moments as people read them. */

import { preferences } from "./app.js";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** @param {number | string | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined) return "–";
  return whole.format(typeof value === "string" ? BigInt(value) : value);
}

/** @param {number | string} value @param {boolean} isPartial what could not be counted is missing */
export function atLeast(value, isPartial) {
  return isPartial ? `≥ ${count(value)}` : count(value);
}

/** Short form for axes and cells: 1.2 k, 34 M. @param {number} value */
export function compact(value) {
  const size = Math.abs(value);
  if (size < 10 && value !== Math.round(value)) return value.toFixed(1);
  if (size < 1000) return whole.format(value);
  for (const [limit, unit] of /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (size >= limit) {
      const scaled = value / limit;
      return `${Math.abs(scaled) < 10 ? scaled.toFixed(1).replace(/\.0$/, "") : Math.round(scaled)} ${unit}`;
    }
  }
  return String(value);
}

/** The time over which the overview takes rates; plots take means of their steps. */
export const RATE_TIME = "the last 2 s";

/** @param {number | null | undefined} value */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.05) return "< 0.1/s";
  return `${value < 10 && value !== 0 ? value.toFixed(1).replace(/\.0$/, "") : whole.format(value)}/s`;
}

/** @param {number | string | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = Number(bytes);
  for (const unit of ["B", "KB", "MB", "GB", "TB"]) {
    if (Math.abs(value) < 1024 || unit === "TB") {
      return `${value >= 100 || Number.isInteger(value) ? whole.format(value) : value.toFixed(1)} ${unit}`;
    }
    value /= 1024;
  }
  return "";
}

/** @param {number} megabytes */
export function megabytes(megabytes) {
  return megabytes % 1024 === 0 ? `${count(megabytes / 1024)} GB` : `${count(megabytes)} MB`;
}

/** @param {number} part @param {number} all */
export function percent(part, all) {
  if (!all) return "0 %";
  const value = (100 * part) / all;
  return value > 0 && value < 0.1 ? "< 0.1 %" : `${value < 10 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)} %`;
}

const UNITS = /** @type {[number, string][]} */ ([[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]]);

/** A length of time, at most two units. @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null) return "for ever";
  if (ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  /** @type {string[]} */
  const parts = [];
  let rest = ms;
  for (const [unit, name] of UNITS) {
    const whole = Math.floor(rest / unit);
    if (whole > 0 && parts.length < 2) parts.push(`${whole} ${name}`);
    else if (parts.length) break;
    rest -= whole * unit;
  }
  return parts.join(" ");
}

/** A time that is measured: tenths of seconds count. @param {number} ms */
export function shortDuration(ms) {
  return ms < 1000 || ms >= 60_000 ? duration(Math.round(ms)) : `${(ms / 1000).toFixed(1)} s`;
}

/** @param {string | number | Date | null | undefined} moment */
export function time(moment) {
  if (!moment) return "–";
  const at = new Date(moment);
  if (Number.isNaN(at.getTime())) return String(moment);
  const shifted = preferences.isLocalTime ? new Date(at.getTime() - at.getTimezoneOffset() * 60_000) : at;
  const text = shifted.toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19)}${preferences.isLocalTime ? "" : " UTC"}`;
}

/** For tables: the time of the day, with the date when it is not today's. @param {string | null | undefined} moment */
export function shortTime(moment) {
  if (!moment) return "–";
  const text = time(moment).replace(" UTC", "");
  return text.slice(0, 10) === time(Date.now()).slice(0, 10) ? text.slice(11) : text.slice(0, 16);
}

/** Only the time of the day. @param {number} ms */
export function clock(ms) {
  const shifted = preferences.isLocalTime ? ms - new Date(ms).getTimezoneOffset() * 60_000 : ms;
  return new Date(shifted).toISOString().slice(11, 19);
}

/**
 * A moment on an axis: with the day when the axis is longer than one, without the time when its steps are days.
 * @param {number} ms @param {number} span_ms @param {number} step_ms
 */
export function axisTime(ms, span_ms, step_ms) {
  if (span_ms <= 86_400_000) return clock(ms).slice(0, step_ms >= 60_000 ? 5 : 8);
  const text = time(ms);
  return text.slice(5, step_ms >= 86_400_000 ? 10 : 16);
}

/** @param {string | number | null | undefined} moment */
export function ago(moment) {
  if (!moment) return "never";
  const ms = Date.now() - new Date(moment).getTime();
  if (Math.abs(ms) < 1500) return "now";
  return ms > 0 ? `${coarse(ms)} ago` : `in ${coarse(-ms)}`;
}

/** @param {number} ms */
export function coarse(ms) {
  for (const [unit, name] of UNITS) if (ms >= unit) return `${Math.floor(ms / unit)} ${name}`;
  return `${Math.round(ms)} ms`;
}

/** The name of a member as a label. @param {string} member */
export function sentence(member) {
  const words = member.replace(/_ms$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A sequence number as fragment and position in it: the number itself has up to 16 digits. @param {string} number */
export function shortNumber(number) {
  const whole = BigInt(number);
  return `${whole >> 48n}/${BigInt.asUintN(48, whole)}`;
}

/** @param {number} amount @param {string} one @param {string} [many] */
export function plural(amount, one, many = `${one}s`) {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

/**
 * A duration as people type it (30s, 5m, 2h, 14d, forever, PT1M) in milliseconds.
 * @param {string} text
 * @returns {number | null | undefined} null for ever, undefined when it is not one
 */
export function parseDuration(text) {
  const said = text.trim().toLowerCase();
  if (said === "forever" || said === "for ever") return null;
  const iso = /^p(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?)?$/.exec(said);
  if (iso && said.length > 2) {
    const [, days, hours, minutes, seconds] = iso;
    return Number(days ?? 0) * 86_400_000 + Number(hours ?? 0) * 3_600_000 + Number(minutes ?? 0) * 60_000 + Number(seconds ?? 0) * 1000;
  }
  let total = 0;
  let rest = said;
  while (rest) {
    const found = /^(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)\s*/.exec(rest);
    if (!found) return undefined;
    const units = /** @type {Record<string, number>} */ ({ ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 });
    total += Number(found[1]) * units[found[2]];
    rest = rest.slice(found[0].length);
  }
  return said ? total : undefined;
}

/** The text that `parseDuration` reads. @param {number | null | undefined} ms */
export function durationText(ms) {
  if (ms === null || ms === undefined) return "forever";
  for (const [unit, name] of /** @type {[number, string][]} */ ([[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1000, "s"]])) {
    if (ms >= unit && ms % unit === 0) return `${ms / unit}${name}`;
  }
  return `${ms}ms`;
}
