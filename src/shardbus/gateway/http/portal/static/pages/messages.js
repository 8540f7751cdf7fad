/** The messages of a queue or subscription. */

import { post } from "../api.js";
import { MessageBrowser } from "../browser.js";
import { command } from "../commands.js";
import { isSubscription, topicOf } from "../data.js";
import { confirm } from "../dialog.js";
import { h } from "../dom.js";
import { plural } from "../format.js";
import { banner, button, codeBlock, empty } from "../parts.js";
import { jobCards, openJob } from "./jobs.js";
import { openSend } from "./send.js";

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function messagesTab(context) {
  const { name, place } = context;
  const target = isSubscription(name) ? topicOf(name) : name;
  const jobs = jobCards(name);
  const hasSessions = () => Boolean(context.entity.description.requires_session);
  const begin = (/** @type {"move" | "export" | "dead_letter" | "delete"} */ action, /** @type {string[]} */ numbers) => openJob({ line: name, action, selection: { numbers }, total: numbers.length, then: () => jobs.refresh() });
  const browser = new MessageBrowser({
    line: name, target, place,
    note: () => (hasSessions() ? banner("info", "Messages of a session belong to whoever holds it: they cannot be moved, dead-lettered or deleted one by one. Receive them with their session, or use Purge.") : null),
    actions: (message) => [button("Send an edited copy", () => openSend(target, message.resend, () => browser.search())),
      message.state === "active" && !hasSessions() ? [button("Dead-letter", () => begin("dead_letter", [message.number])), button("Delete", () => begin("delete", [message.number]), { kind: "danger" })] : null],
    chosenActions: (numbers) => [
      hasSessions() ? null : button("Move", () => begin("move", numbers), { class: "small" }),
      button("Export", () => begin("export", numbers), { class: "small" }),
      hasSessions() ? null : [button("Dead-letter", () => begin("dead_letter", numbers), { class: "small" }), button("Delete", () => begin("delete", numbers), { class: "small", kind: "danger" })]],
    none: empty("No messages", "Nothing waits here. Send one:", codeBlock(command("send", target, "two teapots"), "Command")),
  });
  let before = "";
  return {
    refresh: async () => {
      const { active, deferred, scheduled } = context.entity.runtime;
      await Promise.all([browser.refresh(active + deferred + scheduled), jobs.refresh().catch(() => undefined)]);
      const now = told(jobs.all());
      if (before && before !== now) void browser.search();
      before = now;
    },
    leave: () => browser.leave(),
    view: () => [
      h("div", { class: "actions" }, button("Send a message", () => openSend(target, null, () => browser.search()), { kind: "primary" }), button("Search again", () => browser.search()),
        button("Export all", () => openJob({ line: name, action: "export", selection: {}, total: context.entity.runtime.active, then: () => jobs.refresh() })),
        context.entity.runtime.active ? button("Purge", () => (hasSessions() ? purgeSessions(context, browser) : purge(context, () => jobs.refresh())), { kind: "danger" }) : null),
      jobs.draw(), browser.draw(),
    ],
  };
}

/** Changes when a job begins or ends. @param {any[]} jobs */
function told(jobs) {
  return ` ${jobs.map((job) => `${job.id}${job.state}`).join()}`;
}

/** The bus does it, so a closed page ends nothing. @param {import("./entity.js").Context} context @param {() => unknown} then */
function purge({ name, entity }, then) {
  openJob({ line: name, action: "delete", selection: { states: ["active"] }, total: entity.runtime.active, what: `all ${plural(entity.runtime.active, "active message")}`, word: name, hasNoCopy: true, then });
}

/** Only the holder of a session can remove its messages, so this is a request for each part. @param {import("./entity.js").Context} context @param {MessageBrowser} browser */
function purgeSessions(context, browser) {
  const { name, entity } = context;
  confirm({
    title: `Remove all active messages of ${name}?`, word: name, label: "Remove all of them",
    text: h("p", null, `${plural(entity.runtime.active, "message")} will be removed for ever, without a copy. Export them first if somebody may need them. Locked, scheduled and deferred messages and sessions that somebody holds stay. Keep this page open until it is done.`),
    action: async () => {
      for (let hasMore = true; hasMore;) hasMore = (await post(`entities/${encodeURIComponent(name)}/messages/purge`, {})).has_more;
      await browser.search();
    },
  });
}
