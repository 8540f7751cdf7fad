/** The subscriptions of a topic. */

import { get } from "../api.js";
import { command } from "../commands.js";
import { rowOf } from "../data.js";
import { h } from "../dom.js";
import { atLeast, count, rate } from "../format.js";
import { anchor, badge, card, codeBlock, empty, icon, loading } from "../parts.js";
import { entityLink, link } from "../router.js";
import { table } from "../table.js";

const PAGE = 1000;

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function subscriptionsTab({ name }) {
  /** @type {any} */
  let found = null;
  return {
    refresh: async () => { found = await get(`topics/${encodeURIComponent(name)}/subscriptions`, { query: { top: PAGE } }); },
    view: () => {
      if (!found) return loading();
      return [
        h("div", { class: "actions" }, h("a", { class: "button primary", href: link(["create", "subscription"], { topic: name }) }, icon("plus"), "Create a subscription")),
        found.subscriptions.length ? card("", table({ label: "Subscriptions", rows: /** @type {any[]} */ (found.subscriptions), key: (one) => one.name, columns: [
          { title: "Subscription", isHead: true, class: "break", cell: (one) => anchor(entityLink(one.name), one.short_name) },
          { title: "State", class: "wide", cell: (one) => h("span", { class: "actions" }, one.status === "Active" ? badge("active", "good") : badge(one.status, "warn"), one.runtime.availability === "Available" ? null : badge("limited", "bad"), one.description.requires_session ? badge("sessions") : null) },
          { title: "Active", class: "number", cell: (one) => atLeast(one.runtime.active, one.runtime.is_partial) },
          { title: "Dead", class: "number", cell: (one) => (one.runtime.dead_letter ? anchor(entityLink(one.name, "dead-letters"), atLeast(one.runtime.dead_letter, one.runtime.is_partial), { class: "badnum" }) : h("span", { class: "zero" }, "0")) },
          { title: "In/s", class: "number wide", cell: (one) => rate(rowOf(one.name)?.in_per_s) },
          { title: "Out/s", class: "number wide", cell: (one) => rate(rowOf(one.name)?.out_per_s) },
          { title: "Rules", class: "number", cell: (one) => anchor(entityLink(one.name, "rules"), "Rules", { "aria-label": `Rules of ${one.short_name}` }) },
        ] }), { class: "flush" }) : card("", empty("No subscriptions", "Messages that are sent to this topic are dropped until it has one:", codeBlock(command("subscription", "create", name, "europe"), "Command"))),
        found.count > PAGE ? h("p", { class: "muted" }, `The first ${count(PAGE)} of ${count(found.count)}; the others are among the entities.`) : null,
      ];
    },
  };
}
