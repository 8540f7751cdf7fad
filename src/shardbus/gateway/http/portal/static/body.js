/** The body of a message as JSON, XML, text, hex or unpacked; always as text, never as markup. */

import { fromBase64 } from "./signing.js";

const UNPACKED_MAX = 4 * 1024 * 1024;
const HEX_MAX = 16 * 1024;
/** A few kilobytes of brackets would be megabytes of blanks. */
const DEPTH_MAX = 40;
/** A page is drawn often, and a body may be long. @type {WeakMap<object, [string, string][]>} */
const known = new WeakMap();

/** @param {any} message in full @returns {Uint8Array<ArrayBuffer>} */
export function bytesOf(message) {
  if (message.body_base64) return fromBase64(message.body_base64);
  return new TextEncoder().encode(message.body_text ?? "");
}

/** @param {Uint8Array} bytes */
export function isGzip(bytes) {
  return bytes.length > 2 && bytes[0] === 0x1f && bytes[1] === 0x8b;
}

/** The views that make sense of a body. @param {any} message @returns {[string, string][]} */
export function viewsOf(message) {
  const views = known.get(message) ?? foundViews(message);
  known.set(message, views);
  return views;
}

/** @param {any} message @returns {[string, string][]} */
function foundViews(message) {
  const text = message.body_text;
  /** @type {[string, string][]} */
  const views = [];
  if (message.body_kind === "value" || message.body_kind === "sequence") views.push(["value", "AMQP value"]);
  if (isGzip(bytesOf(message))) views.push(["gunzip", "Unpacked"]);
  if (typeof text === "string" && prettyJson(text) !== null) views.push(["json", "JSON"]);
  if (typeof text === "string" && /^\s*</.test(text)) views.push(["xml", "XML"]);
  if (typeof text === "string") views.push(["text", "Text"]);
  views.push(["hex", "Hex"]);
  return views;
}

/** @param {any} message @param {string} view @returns {Promise<string>} */
export async function bodyText(message, view) {
  if (view === "value") return JSON.stringify(message.body_json ?? message.body_text, null, 2);
  if (view === "json") return prettyJson(message.body_text) ?? message.body_text;
  if (view === "xml") return prettyXml(message.body_text);
  if (view === "text") return message.body_text ?? "";
  if (view === "gunzip") {
    const text = await unpacked(bytesOf(message));
    return prettyJson(text) ?? text;
  }
  return hex(bytesOf(message));
}

/** Null if it is not JSON. @param {string} text */
export function prettyJson(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? laidOut(text) : text;
  } catch {
    return null;
  }
}

/**
 * JSON on lines, with everything as it was sent: JavaScript would round numbers, drop a member that
 * is there twice, and change the order of some.
 * @param {string} text which is JSON
 */
function laidOut(text) {
  const parts = [];
  const solid = /\S/g, word = /[^\s"{}[\],:]+/y;
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, DEPTH_MAX))}`;
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (sign === '"') {
      let end = at + 1;
      while (text[end] !== '"') end += text[end] === "\\" ? 2 : 1;
      parts.push(text.slice(at, end + 1));
      at = end;
    } else if (sign === "{" || sign === "[") {
      solid.lastIndex = at + 1;
      const next = solid.exec(text);
      if (next !== null && (next[0] === "}" || next[0] === "]")) {
        parts.push(sign, next[0]);
        at = next.index;
      } else {
        depth++;
        parts.push(sign, line());
      }
    } else if (sign === "}" || sign === "]") {
      depth--;
      parts.push(line(), sign);
    } else if (sign === ",") parts.push(sign, line());
    else if (sign === ":") parts.push(": ");
    else if (sign.trim()) {
      word.lastIndex = at;
      const found = word.exec(text)?.[0] ?? sign;
      parts.push(found);
      at += found.length - 1;
    }
  }
  return parts.join("");
}

/** Each element on a line of its own; nothing is parsed. @param {string} text */
export function prettyXml(text) {
  let depth = 0;
  return text.replace(/>\s*</g, ">\n<").split("\n").map((line) => {
    if (/^<\//.test(line)) depth = Math.max(0, depth - 1);
    const shown = "  ".repeat(Math.min(depth, DEPTH_MAX)) + line;
    if (/^<[^!?/]/.test(line) && !/\/>$/.test(line) && !/<\//.test(line)) depth++;
    return shown;
  }).join("\n");
}

/** @param {Uint8Array} bytes */
export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_MAX); at += 16) {
    const row = bytes.subarray(at, Math.min(at + 16, HEX_MAX));
    const digits = Array.from(row, (byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits}  ${text}`);
  }
  if (bytes.length > HEX_MAX) lines.push(`… ${bytes.length - HEX_MAX} more bytes`);
  return lines.join("\n");
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function unpacked(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const reader = stream.getReader();
  /** @type {Uint8Array[]} */
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    // A few kilobytes can unpack to gigabytes.
    if (size > UNPACKED_MAX) {
      await reader.cancel();
      break;
    }
  }
  const text = await new Blob(/** @type {BlobPart[]} */ (parts)).text();
  return size > UNPACKED_MAX ? `${text.slice(0, UNPACKED_MAX)}\n… cut at 4 MB` : text;
}
