/** The messages of a queue or subscription. */

import { post } from "../api.js";
import { MessageBrowser } from "../browser.js";
import { isSubscription, topicOf } from "../data.js";
import { confirm } from "../dialog.js";
import { h } from "../dom.js";
import { plural } from "../format.js";
import { button, codeBlock, empty } from "../parts.js";
import { jobCards, openJob } from "./jobs.js";
import { openSend } from "./send.js";

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function messagesTab(context) {
  const { name, place } = context;
  const target = isSubscription(name) ? topicOf(name) : name;
  const jobs = jobCards(name);
  const remove = (/** @type {string[]} */ numbers) => openJob({ line: name, action: "delete", selection: { numbers }, total: numbers.length, then: () => jobs.refresh() });
  const browser = new MessageBrowser({
    line: name, target, place,
    actions: (message) => [button("Send an edited copy", () => openSend(target, message.resend)), message.state === "active" ? button("Delete", () => remove([message.number]), { kind: "danger" }) : null],
    chosenActions: (numbers) => [
      button("Move", () => openJob({ line: name, action: "move", selection: { numbers }, total: numbers.length, then: () => jobs.refresh() }), { class: "small" }),
      button("Export", () => openJob({ line: name, action: "export", selection: { numbers }, total: numbers.length, then: () => jobs.refresh() }), { class: "small" }),
      button("Delete", () => remove(numbers), { class: "small", kind: "danger" })],
    none: empty("No messages", "Nothing waits here. Send one:", codeBlock(`shardbus send '${target.replaceAll("'", "'\\''")}' "two teapots"`, "Command")),
  });
  return {
    refresh: async () => { await Promise.all([browser.begin(), jobs.refresh().catch(() => undefined)]); },
    leave: () => browser.leave(),
    view: () => [
      h("div", { class: "actions" }, button("Send a message", () => openSend(target), { kind: "primary" }), button("Search again", () => browser.search()),
        button("Export all", () => openJob({ line: name, action: "export", selection: {}, total: context.entity.runtime.active, then: () => jobs.refresh() })),
        context.entity.runtime.active ? button("Purge", () => purge(context, browser), { kind: "danger" }) : null),
      jobs.draw(), browser.draw(),
    ],
  };
}

/** @param {import("./entity.js").Context} context @param {MessageBrowser} browser */
function purge(context, browser) {
  const { name, entity } = context;
  confirm({
    title: `Remove all active messages of ${name}?`, word: name, label: "Remove all of them",
    text: h("p", null, `${plural(entity.runtime.active, "message")} will be removed for ever, without a copy. Export them first if somebody may need them. Locked, scheduled and deferred messages stay.`),
    action: async () => {
      for (let hasMore = true; hasMore;) hasMore = (await post(`entities/${encodeURIComponent(name)}/messages/purge`, {})).has_more;
      await browser.search();
    },
  });
}
