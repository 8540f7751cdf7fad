/** A queue, topic or subscription: its head, its tabs, and which of them is shown. */

import { get } from "../api.js";
import { isSubscription, loadOverview, shortName, topicOf } from "../data.js";
import { h } from "../dom.js";
import { atLeast } from "../format.js";
import { anchor, badge, banner, loading, tabs } from "../parts.js";
import { entityLink, link } from "../router.js";
import { accessTab } from "./access.js";
import { deadLettersTab } from "./deadletters.js";
import { star } from "./entities.js";
import { fragmentsTab } from "./fragments.js";
import { messagesTab } from "./messages.js";
import { reportTab } from "./report.js";
import { rulesTab } from "./rules.js";
import { deferredTab, scheduledTab } from "./scheduled.js";
import { sessionsTab } from "./sessions.js";
import { settingsTab } from "./settings.js";
import { subscriptionsTab } from "./subscriptions.js";
import { summaryTab } from "./summary.js";

/** @typedef {{name: string, entity: any, place: import("../router.js").Place}} Context */
/** @typedef {{refresh?: () => Promise<unknown>, view: () => import("../dom.js").Child, leave?: () => void}} Tab */

/** @type {Record<string, (context: Context) => Tab>} */
const TABS = {
  summary: summaryTab, fragments: fragmentsTab, messages: messagesTab, "dead-letters": deadLettersTab, scheduled: scheduledTab, deferred: deferredTab,
  sessions: sessionsTab, rules: rulesTab, subscriptions: subscriptionsTab, report: reportTab, access: accessTab, settings: settingsTab,
};

/** @param {string} tab */
function tabOf(tab) {
  return Object.hasOwn(TABS, tab) ? TABS[tab] : summaryTab;
}

/** The entity that was shown last: another of its tabs begins with it. @type {{name: string, entity: any}} */
let last = { name: "", entity: null };

/** @param {string} name @param {string} tab @param {import("../router.js").Place} place @returns {import("../app.js").Page} */
export function entityPage(name, tab, place) {
  /** @type {Context} */
  const context = { name, entity: last.name === name ? last.entity : null, place };
  /** @type {Tab | null} */
  let shown = null;
  return {
    title: name,
    leave: () => shown?.leave?.(),
    refresh: async () => {
      const [entity] = await Promise.all([get(`entities/${encodeURIComponent(name)}`), loadOverview().catch(() => null)]);
      context.entity = entity;
      last = { name, entity };
      shown ??= tabOf(tab)(context);
      await shown.refresh?.();
    },
    view: () => {
      if (!context.entity) return loading();
      shown ??= tabOf(tab)(context);
      return [head(context), h("div", { key: `tab-${tab}`, class: "stack" }, tabs(`Parts of ${name}`, tabList(context), tab), shown.view())];
    },
  };
}

/** @param {Context} context */
function head({ name, entity }) {
  const { runtime, description } = entity;
  const isOut = runtime.availability !== "Available";
  return h("div", { class: "stack", style: { gap: ".6rem" } },
    h("div", { class: "crumbs" }, anchor(link(["entities"]), "Entities"), isSubscription(name) ? [" / ", anchor(entityLink(topicOf(name), "subscriptions"), topicOf(name))] : null),
    h("div", { class: "page-head" }, h("div", { class: "titles" },
      h("div", { class: "row" }, star(name), h("h1", null, shortName(name)), badge(entity.kind, "accent"),
        description.is_partitioned ? badge(`${entity.fragment_count} fragments`) : badge("not partitioned"),
        entity.status === "Active" ? null : badge(entity.status, "warn"), description.requires_session ? badge("sessions") : null,
        isOut ? badge(runtime.availability, "bad") : badge("available", "good")))),
    runtime.problems.length ? banner("warn", h("strong", null, "Some fragments do not serve. "), runtime.problems.slice(0, 3).join("; "), runtime.problems.length > 3 ? `; and ${runtime.problems.length - 3} more` : "", ". The others serve: keys of these fragments wait.") : null,
    runtime.warnings.length ? banner("warn", runtime.warnings.join(" ")) : null,
    entity.description.forward_to ? banner("info", "Every message is forwarded to ", anchor(entityLink(entity.description.forward_to), entity.description.forward_to), ".") : null);
}

/** @param {Context} context */
function tabList({ name, entity }) {
  const { runtime, kind } = entity;
  const isTopic = kind === "topic";
  const numbered = (/** @type {string} */ text, /** @type {number | undefined} */ value, /** @type {"bad" | "plain"} */ look = "plain") => [text, value ? [" ", badge(atLeast(value, runtime.is_partial), look)] : null];
  /** @type {[string, import("../dom.js").Child, boolean][]} */
  const all = [
    ["summary", "Summary", true],
    ["subscriptions", numbered("Subscriptions", runtime.subscriptions), isTopic],
    ["fragments", "Fragments", true],
    ["messages", numbered("Messages", runtime.active), !isTopic],
    ["dead-letters", numbered("Dead letters", (runtime.dead_letter ?? 0) + (runtime.transfer_dead_letter ?? 0), "bad"), !isTopic],
    ["scheduled", numbered("Scheduled", runtime.scheduled), kind !== "subscription"],
    ["deferred", numbered("Deferred", runtime.deferred), !isTopic],
    ["sessions", "Sessions", Boolean(entity.description.requires_session)],
    ["rules", "Rules", kind === "subscription"],
    ["report", "Report", Boolean(entity.description.lifecycle)],
    ["access", "Access", kind !== "subscription"],
    ["settings", "Settings", true],
  ];
  return all.filter(([, , isThere]) => isThere).map(([tab, text]) => ({ name: tab, text, href: entityLink(name, tab === "summary" ? undefined : tab) }));
}

