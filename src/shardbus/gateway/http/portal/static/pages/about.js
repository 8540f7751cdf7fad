/** What this bus is, the limits of its tier, the keys of the keyboard. */

import { session, signOut } from "../api.js";
import { prefer, preferences } from "../app.js";
import { data, forget, loadOverview, loadProperties } from "../data.js";
import { h } from "../dom.js";
import { count, megabytes } from "../format.js";
import { button, card, choice, facts, loading } from "../parts.js";

const KEYS = [["/", "search everywhere"], ["g", "overview"], ["e", "entities"], ["c", "create a queue"], ["p", "pause and continue"], ["Esc", "close a dialog"]];

/** @returns {import("../app.js").Page} */
export function aboutPage() {
  return {
    title: "About",
    refresh: () => Promise.all([loadProperties(), loadOverview()]),
    view: () => {
      const { properties, overview } = data;
      if (!properties) return loading();
      const namespace = overview?.namespace;
      return [
        h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, "About"), h("p", { class: "muted" }, "Shardbus is a durable message bus of partitioned queues and topics."))),
        card("This bus", facts([
          ["Namespace", namespace?.name ?? "–"], ["Version", namespace?.version ?? "–"], ["Tier", properties.tier], ["Partitioning", { chosen: "chosen for each entity", always: "always on", "not offered": "not offered" }[properties.partitioning] ?? properties.partitioning],
          ["Fragments of a partitioned entity", count(properties.fragments_when_partitioned)], ["Sizes", properties.sizes.map((one) => megabytes(one.size_mb)).join(", ")],
          ["Entities", namespace ? `${count(namespace.entities)} of ${count(namespace.entities_max)}` : "–"], ["Signed in as", `${session.rule} (${session.rights.join(", ")})`],
        ])),
        card("This page", h("div", { class: "row" },
          choice("Theme", [["auto", "As system"], ["light", "Light"], ["dark", "Dark"]], preferences.theme, (value) => prefer({ theme: /** @type {"auto"} */ (value) })),
          choice("Times", [["utc", "UTC"], ["local", "Local time"]], preferences.isLocalTime ? "local" : "utc", (value) => prefer({ isLocalTime: value === "local" })),
          button("Sign out", () => { signOut(); forget(); }))),
        card("Keyboard", h("dl", { class: "facts" }, KEYS.map(([key, text]) => h("div", { key, class: "row" }, h("dt", null, h("kbd", null, key)), h("dd", null, text))))),
        card("Beyond this page", h("div", { class: "prose" }, h("p", null, "Everything here uses the JSON API, described by ", h("a", { href: "/api/v1/openapi.json" }, "/api/v1/openapi.json"), ". Metrics for Prometheus are at ", h("a", { href: "/metrics" }, "/metrics"), ", and ", h("code", null, "shardbus --help"), " lists the commands."))),
      ];
    },
  };
}
