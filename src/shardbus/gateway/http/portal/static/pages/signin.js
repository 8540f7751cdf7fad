/** Sign-in: by connection string, by a token of an issuer, or with the development key on loopback. */

import { ApiError, get, session } from "../api.js";
import { redraw } from "../app.js";
import { data, forget } from "../data.js";
import { h } from "../dom.js";
import { area, badge, banner, button, choice, errorBox, field, loading } from "../parts.js";
import { entityLink, go } from "../router.js";
import { fromConnectionString, fromKey, fromToken } from "../signing.js";

/** @type {{text: string, error: unknown, isBusy: boolean, method: string}} */
const state = { text: "", error: null, isBusy: false, method: "connection_string" };

/**
 * @param {any} offered what the bus tells about signing in
 * @param {string} method
 * @param {string} text
 * @param {() => void} show
 */
export async function startSession(offered, method, text, show) {
  const { rule, key } = offered.development ?? {};
  const identity = method === "development" ? await fromKey(rule, key, "", true)
    : method === "openid" ? await fromToken(text) : await fromConnectionString(text);
  session.identity = identity;
  try {
    const token = await get("token");
    Object.assign(session, { rights: token.rights, rule: token.rule, entity: token.entity || token.resource });
  } catch (error) {
    session.identity = null;
    throw error;
  }
  forget();
  state.text = "";
  state.error = null;
  session.ended = "";
  if (session.entity && !location.hash) go(entityLink(session.entity));
  show();
}

/** @param {string} method @param {() => void} show */
async function signIn(method, show) {
  if (state.isBusy) return;
  Object.assign(state, { isBusy: true, error: null });
  redraw();
  try {
    await startSession(data.signIn, method, state.text, show);
  } catch (error) {
    state.error = error instanceof ApiError && error.status === 401
      ? new Error(`${error.message} Copy the connection string again: \`shardbus sas connection-string\` prints it.`) : error;
  }
  state.isBusy = false;
  redraw();
}

/** @param {() => void} show */
export function signInView(show) {
  const found = data.signIn;
  if (!found) return h("div", { class: "sign-in" }, h("main", null, h("h1", { class: "visually-hidden" }, "Shardbus"), loading()));
  const isOpenId = found?.methods?.includes("openid");
  const isToken = state.method === "openid";
  return h("div", { class: "sign-in", key: "sign-in" }, h("main", null,
    h("div", { class: "brand" }, h("img", { src: "/portal/icon.svg", alt: "" }), "Shardbus"),
    h("div", { class: "card" },
      h("h1", null, "Sign in", found?.namespace ? [" to ", h("span", { class: "break" }, found.namespace)] : null),
      session.ended ? banner("warn", session.ended) : null,
      found?.development ? [
        button("Continue with the development key", () => signIn("development", show), { kind: "primary", disabled: state.isBusy }),
        h("p", { class: "hint" }, "This bus has the public development key and answers on this machine only."),
        h("p", { class: "or" }, "or"),
      ] : null,
      isOpenId ? choice("How to sign in", [["connection_string", "Connection string"], ["openid", "OpenID token"]], state.method, (value) => { state.method = value; }) : null,
      h("form", { class: "stack", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void signIn(state.method, show); } },
        field(isToken ? "Token" : "Connection string", (_, props) => area({
          ...props, rows: 4, value: state.text, autocomplete: "off", placeholder: isToken ? "eyJ…" : "Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…",
          onvalue: (/** @type {string} */ value) => { state.text = value; },
          onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); void signIn(state.method, show); } },
        }), { id: "sign-in-text", hint: isToken
          ? [`A token of ${found?.openid?.issuer ?? "the issuer"}`, found?.openid?.audience ? ` for ${found.openid.audience}` : "", ". It stays in this page."]
          : ["Printed by ", h("code", null, "shardbus sas connection-string"), ". The key stays in this page: it signs tokens of ten minutes and cannot be read again."] }),
        h("button", { type: "submit", class: "button primary", disabled: state.isBusy }, state.isBusy ? "Signing in …" : "Sign in")),
      state.error ? errorBox(state.error) : null),
    h("p", { class: "muted small row" }, badge("no cookies"), badge("nothing stored"), "A reload signs out.")));
}
