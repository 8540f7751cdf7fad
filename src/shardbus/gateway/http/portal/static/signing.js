/**
 * Who the user is: a key that signs short tokens, or a token of an issuer.
 *
 * The key of a connection string becomes a key of the browser's cryptography that cannot be read
 * again, by this page or another. Nothing is stored: a reload forgets it.
 */

const TOKEN_S = 600;
const RENEW_S = 120;

/**
 * @typedef {object} Identity
 * @property {string} label
 * @property {boolean} isDevelopment
 * @property {string} entity the only entity that a connection string is for, or ""
 * @property {() => Promise<string>} authorization the value of the Authorization header
 */

/** @param {string} text @returns {Record<string, string>} */
export function fieldsOf(text) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const part of text.trim().split(";")) {
    if (!part.trim()) continue;
    const at = part.indexOf("=");
    if (at < 1) throw new Error("A connection string has the form Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…");
    fields[part.slice(0, at).trim().toLowerCase()] = part.slice(at + 1).trim();
  }
  return fields;
}

/**
 * @param {string} text a connection string
 * @returns {Promise<Identity>}
 */
export async function fromConnectionString(text) {
  const fields = fieldsOf(text);
  const token = fields.sharedaccesssignature;
  if (token) return fromToken(token);
  const { sharedaccesskeyname: name, sharedaccesskey: key } = fields;
  if (!name || !key) {
    throw new Error("The connection string has no SharedAccessKeyName or no SharedAccessKey: copy the whole line.");
  }
  return fromKey(name, key, fields.entitypath ?? "", false);
}

/**
 * @param {string} name
 * @param {string} key
 * @param {string} entity
 * @param {boolean} isDevelopment
 * @returns {Promise<Identity>}
 */
export async function fromKey(name, key, entity, isDevelopment) {
  if (!globalThis.isSecureContext || !crypto.subtle) {
    throw new Error(
      "The browser signs only on HTTPS or localhost: open the portal as https://… or http://localhost:…, or sign in with a token.",
    );
  }
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const handle = await crypto.subtle.importKey("raw", new TextEncoder().encode(key), algorithm, false, ["sign"]);
  const resource = encodeURIComponent(`sb://${location.host}/${entity}`);
  let current = "";
  let expires = 0;
  return {
    label: name,
    isDevelopment,
    entity,
    async authorization() {
      const now = Math.floor(Date.now() / 1000);
      if (now > expires - RENEW_S) {
        expires = now + TOKEN_S;
        const signed = new TextEncoder().encode(`${resource}\n${expires}`);
        const signature = base64(new Uint8Array(await crypto.subtle.sign("HMAC", handle, signed)));
        current = `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(signature)}&se=${expires}&skn=${encodeURIComponent(name)}`;
      }
      return current;
    },
  };
}

/**
 * @param {string} text a token of an OpenID issuer, or a shared access signature
 * @returns {Promise<Identity>}
 */
export async function fromToken(text) {
  const token = text.trim().replace(/^Bearer\s+/i, "");
  if (!token) throw new Error("Paste a token first.");
  const isSignature = token.startsWith("SharedAccessSignature ");
  return {
    label: isSignature ? "a token" : "OpenID",
    isDevelopment: false,
    entity: "",
    authorization: async () => (isSignature ? token : `Bearer ${token}`),
  };
}

/** @param {Uint8Array} bytes */
export function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) {
    text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  }
  return btoa(text);
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
