/** Sessions: who has messages or a state, who holds them, and the state itself. */

import { get, post } from "../api.js";
import { notify, redraw } from "../app.js";
import { command } from "../commands.js";
import { dialogButtons, openDialog } from "../dialog.js";
import { h } from "../dom.js";
import { ago, clock, count, plural, size, time } from "../format.js";
import { anchor, area, badge, banner, button, card, codeBlock, empty, facts, field, input, intoView, loading, moment } from "../parts.js";
import { entityLink } from "../router.js";
import { longTable } from "../table.js";

const PAGE = 100;
// The bus looks at the messages of the entity to count them: less often than it is asked who holds what.
const COUNT_EVERY_MS = 10_000;

/** @typedef {{session_id: string, locked_until?: string, locked_messages?: number, holder?: string, messages?: number, size_bytes?: number, oldest_at?: string | null}} Listed */

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function sessionsTab(context) {
  const { name, place } = context;
  const path = `entities/${encodeURIComponent(name)}/sessions`;
  /** @type {{sessions: Listed[] | null, hasMore: boolean, pages: number, text: string, shown: any, countAt: number, isWhole: boolean}} */
  const state = { sessions: null, hasMore: false, pages: 1, text: place.query.get("session") ?? "", shown: null, countAt: 0, isWhole: true };
  const load = async () => {
    const isCounting = Date.now() >= state.countAt;
    const before = new Map((state.sessions ?? []).map((one) => [one.session_id, one]));
    /** @type {Listed[]} */
    let found = [];
    let isWhole = true;
    for (let page = 0; page < state.pages; page++) {
      const { sessions, is_counted: isCounted } = await get(path, { query: { skip: page * PAGE, top: PAGE, counts: isCounting ? 1 : undefined } });
      found = found.concat(sessions);
      isWhole &&= isCounted !== false;
      state.hasMore = sessions.length === PAGE;
      if (!state.hasMore) break;
    }
    if (isCounting) Object.assign(state, { countAt: Date.now() + COUNT_EVERY_MS, isWhole });
    else found = found.map((one) => withCounts(one, before.get(one.session_id)));
    state.sessions = found;
  };
  const open = async (/** @type {string} */ id) => {
    state.shown = await post(`${path}/show`, { session_id: id });
    redraw();
  };
  return {
    refresh: async () => {
      await load();
      if (state.shown) state.shown = await post(`${path}/show`, { session_id: state.shown.session_id });
    },
    view: () => {
      if (!state.sessions) return loading();
      const rows = state.sessions.filter((one) => one.session_id.toLowerCase().includes(state.text.toLowerCase()));
      return [
        h("div", { class: "row" }, h("div", { class: "grow" }, input({ type: "search", "aria-label": "Find a session", placeholder: "Find a session", value: state.text, onvalue: (/** @type {string} */ value) => { state.text = value; } })),
          h("span", { class: "muted", role: "status" }, `${plural(rows.length, "session")}${state.hasMore ? " or more" : ""}`),
          state.hasMore ? button("Load more", async () => { state.pages++; state.countAt = 0; await load(); }) : null),
        h("div", { class: `split ${state.shown ? "open" : ""}` },
          rows.length ? h("div", { class: "card flush" }, longTable({ id: `sessions-${name}`, label: "Sessions", rows, key: (one) => one.session_id, rowClass: (one) => (one.session_id === state.shown?.session_id ? "chosen" : ""), columns: [
            { title: "Session", isHead: true, cell: (one) => button(one.session_id || "(empty)", () => open(one.session_id), { class: "small", kind: "quiet" }) },
            { title: "Messages", class: "number", cell: (one) => (one.messages === undefined ? "–" : `${state.isWhole ? "" : "≥ "}${count(one.messages)}`) },
            { title: "Size", class: "number wide", cell: (one) => size(one.size_bytes) },
            { title: "Oldest", class: "number wide", cell: (one) => (one.oldest_at ? h("time", { datetime: one.oldest_at, title: time(one.oldest_at) }, ago(one.oldest_at)) : "–") },
            { title: "Held", cell: (one) => (one.locked_until ? badge(heldText(one.locked_until), "accent", time(one.locked_until)) : h("span", { class: "muted" }, "free")) },
            { title: "Holder", class: "wide", cell: (one) => holderText(one) || "–" },
            { title: "Locked", class: "number wide", cell: (one) => (one.locked_messages === undefined ? "–" : count(one.locked_messages)) },
          ] })) : card("", empty("No sessions", "A session appears with its first message:", codeBlock(command("send", name, "step 1", "--session", "s-1"), "Command"))),
          state.shown ? detail(context, state.shown, path, () => open(state.shown.session_id), () => { state.shown = null; }) : null),
      ];
    },
  };
}

/** A session with the counts that it had when they were asked for last. @param {Listed} one @param {Listed | undefined} before @returns {Listed} */
function withCounts(one, before) {
  return before ? { ...one, messages: before.messages, size_bytes: before.size_bytes, oldest_at: before.oldest_at } : one;
}

/** Who holds a session, as far as the bus can tell. @param {{holder?: string, held_by?: string, reader?: string}} one */
function holderText(one) {
  return one.reader ? `reader ${one.reader}` : one.holder ?? "";
}

/** @param {string} until */
function heldText(until) {
  return `until ${clock(Date.parse(until))} (${ago(until)})`;
}

/** @param {import("./entity.js").Context} context @param {any} shown @param {string} path @param {() => unknown} reload @param {() => void} close */
function detail(context, shown, path, reload, close) {
  const isHeld = Boolean(shown.locked_until);
  return card(`Session ${shown.session_id}`, [
    facts([
      ["Messages", `${count(shown.messages)}${shown.is_more ? " or more" : ""}`], ["Active, deferred, scheduled", [shown.active, shown.deferred, shown.scheduled].map(count).join(", ")],
      ["Fragment", count(shown.fragment)], ["Holder", isHeld ? h("span", { class: "break" }, holderText(shown) || "a client that is not connected to this gateway over AMQP") : "nobody"],
      ["Held", isHeld ? `${heldText(shown.locked_until)}, ${plural(shown.locked_messages ?? 0, "message")} locked` : "–"],
      ["Size of the state", shown.is_state_known ? size(shown.state_bytes) : "known when it is free"],
      ["Oldest", shown.oldest_at ? moment(shown.oldest_at) : "–"], ["Newest", shown.newest_at ? moment(shown.newest_at) : "–"],
    ]),
    h("h3", null, "State"),
    shown.is_state_known ? h("pre", { class: "box", tabindex: "0", role: "group", "aria-label": "State of the session" }, shown.state_text ?? (shown.state_base64 ? `Base64: ${shown.state_base64}` : "(none)"))
      : banner("info", "A receiver holds the session: its state can be read when it is free."),
    h("div", { class: "actions" }, button("Change the state", () => editState(path, shown, reload), { disabled: !shown.is_state_known || isHeld }),
      anchor(entityLink(context.name, "messages", { session: shown.session_id }), "Show its messages", { class: "button" })),
  ], { class: "detail", key: `session-${shown.session_id}`, onmount: intoView, actions: button("Close", close, { class: "small" }) });
}

/** @param {string} path @param {any} shown @param {() => unknown} reload */
function editState(path, shown, reload) {
  let text = shown.state_text ?? "";
  openDialog({
    title: `State of session ${shown.session_id}`,
    view: (dialog) => [
      shown.state_base64 && shown.state_text === null ? banner("warn", "The present state is not text: what you save replaces it.") : null,
      field("State", (_, props) => area({ ...props, rows: 8, value: text, autofocus: true, onvalue: (/** @type {string} */ value) => { text = value; } }), { id: "session-state", hint: "Empty: the state is cleared." }),
      dialogButtons(dialog, "Save", async () => {
        await post(`${path}/state`, text ? { session_id: shown.session_id, state_text: text } : { session_id: shown.session_id });
        notify("Saved the state.");
        await reload();
      }),
    ],
  });
}
