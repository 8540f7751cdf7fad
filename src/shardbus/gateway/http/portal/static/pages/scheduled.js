/** Scheduled messages, which can be cancelled, and deferred ones, which wait for their number. */

import { post } from "../api.js";
import { notify } from "../app.js";
import { MessageBrowser } from "../browser.js";
import { command } from "../commands.js";
import { isSubscription, topicOf } from "../data.js";
import { confirm } from "../dialog.js";
import { h } from "../dom.js";
import { plural } from "../format.js";
import { button, codeBlock, empty } from "../parts.js";
import { openSend } from "./send.js";

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function scheduledTab(context) {
  const { name } = context;
  const cancel = (/** @type {string[]} */ numbers, it = numbers.length === 1 ? "it" : "them") => confirm({
    title: `Cancel ${plural(numbers.length, "scheduled message")}?`, label: `Cancel ${it}`, dismissal: `Keep ${it}`, text: h("p", null, "Cancelled messages are never delivered, and are removed for ever."),
    action: async () => {
      const { cancelled } = await post(`entities/${encodeURIComponent(name)}/scheduled/cancel`, { numbers });
      notify(`Cancelled ${plural(cancelled, "message")}.`);
      await browser.search();
    },
  });
  const browser = new MessageBrowser({
    line: name, target: name, place: context.place, states: ["scheduled"],
    actions: (message) => [button("Cancel this message", () => cancel([message.number]), { kind: "danger" }), button("Send an edited copy", () => openSend(name, message.resend))],
    chosenActions: (numbers) => button("Cancel them", () => cancel(numbers), { class: "small", kind: "danger" }),
    none: empty("Nothing is scheduled", "A message with a time in the future waits here until then:", codeBlock(command("send", name, "tea time", "--at", "+5m"), "Command")),
  });
  return tab(browser, () => context.entity.runtime.scheduled, [button("Schedule a message", () => openSend(name, null, () => browser.search(), true), { kind: "primary" }), button("Search again", () => browser.search())]);
}

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function deferredTab(context) {
  const { name } = context;
  const target = isSubscription(name) ? topicOf(name) : name;
  const remove = (/** @type {string[]} */ numbers) => confirm({
    title: `Delete ${plural(numbers.length, "deferred message")}?`, label: "Delete", text: h("p", null, "The receiver that deferred them may still want them. They are removed for ever."),
    action: async () => {
      const { messages } = await post(`entities/${encodeURIComponent(name)}/deferred/receive`, { numbers, mode: "receive_and_delete" });
      notify(`Deleted ${plural(messages.length, "message")}.`);
      await browser.search();
    },
  });
  const browser = new MessageBrowser({
    line: name, target, place: context.place, states: ["deferred"],
    actions: (message) => [button("Send an edited copy", () => openSend(target, message.resend)), button("Delete", () => remove([message.number]), { kind: "danger" })],
    chosenActions: (numbers) => button("Delete", () => remove(numbers), { class: "small", kind: "danger" }),
    none: empty("Nothing is deferred", "A receiver defers a message that it cannot handle yet, and receives it later by its number."),
  });
  return tab(browser, () => context.entity.runtime.deferred, button("Search again", () => browser.search()));
}

/** @param {MessageBrowser} browser @param {() => number} total @param {import("../dom.js").Child} actions @returns {import("./entity.js").Tab} */
function tab(browser, total, actions) {
  return { refresh: () => browser.refresh(total()), leave: () => browser.leave(), view: () => [h("div", { class: "actions" }, actions), browser.draw()] };
}
