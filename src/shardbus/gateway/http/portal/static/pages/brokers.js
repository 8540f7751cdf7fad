/** Brokers, their stores, gateways, and the cluster where there is one. */

import { get, may } from "../api.js";
import { data, loadOverview, loadSystem } from "../data.js";
import { h } from "../dom.js";
import { ago, count, duration, plural, shortTime, size } from "../format.js";
import { badge, banner, card, facts, loading, meter } from "../parts.js";
import { has } from "../routes.js";
import { table } from "../table.js";

/** @returns {import("../app.js").Page} */
export function brokersPage() {
  /** @type {any} */
  let cluster = null;
  return {
    title: "Brokers",
    refresh: async () => {
      await Promise.all([loadSystem(), loadOverview()]);
      if (has("cluster") && may("Manage")) cluster = await get("cluster");
    },
    view: () => {
      const { system, overview } = data;
      if (!system) return loading();
      const reasons = overview?.health.reasons ?? [];
      return [
        h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, "Brokers, stores and gateways"), h("p", { class: "muted" }, `Up for ${upFor(system.started_at)}, version ${system.version}.`))),
        reasons.length ? banner("warn", h("strong", null, `The bus is ${overview?.health.status}. `), h("ul", null, reasons.map((reason) => h("li", { key: reason }, reason)))) : banner("info", "Everything serves."),
        card("Brokers and their stores", table({ label: "Brokers", rows: /** @type {any[]} */ (system.brokers), key: (one) => one.name, columns: [
          { title: "Broker", isHead: true, cell: (one) => one.name },
          { title: "State", cell: (one) => badge(one.state, one.state === "available" ? "good" : one.state === "limited" ? "warn" : "bad", one.reason) },
          { title: "Kind", class: "wide", cell: (one) => [one.kind, one.address ? h("span", { class: "muted" }, ` ${one.address}`) : null] },
          { title: "Fragments", class: "number", cell: (one) => [count(one.fragments), one.fragments_out ? h("span", { class: "badnum" }, ` (${count(one.fragments_out)} out)`) : null] },
          { title: "Up for", class: "number wide", cell: (one) => upFor(one.started_at) },
          { title: "Restarts", class: "number wide", cell: (one) => count(one.restarts) },
          { title: "Store", class: "wide break", cell: (one) => (one.store ? [one.store.kind, " ", h("span", { class: "muted small" }, one.store.address)] : "–") },
          { title: "Stored", class: "number wide", cell: (one) => size(one.store?.size_bytes) },
          { title: "Disk free", class: "number", cell: (one) => (one.store?.disk_bytes ? [size(one.store.disk_free_bytes), " ", meter(one.store.disk_bytes - one.store.disk_free_bytes, one.store.disk_bytes)] : "–") },
          { title: "Reason", class: "break wide", cell: (one) => one.reason },
        ] }), { class: "flush" }),
        cluster?.is_clustered ? clusterCard(cluster) : null,
        card("Gateways", table({ label: "Gateways", rows: /** @type {any[]} */ (system.gateways), key: (one) => one.name, columns: [
          { title: "Gateway", isHead: true, cell: (one) => one.name },
          { title: "Connections", cell: (one) => Object.entries(one.connections ?? {}).map(([name, value]) => `${count(/** @type {number} */ (value))} ${name}`).join(", ") || "–" },
          { title: "Up for", class: "number", cell: (one) => upFor(one.started_at) },
          { title: "Memory", class: "number wide", cell: (one) => size(one.memory_bytes) },
          { title: "Processor time", class: "number wide", cell: (one) => (one.cpu_seconds === null ? "–" : duration(one.cpu_seconds * 1000)) },
        ] }), { class: "flush" }),
        card("Where clients connect", facts([
          ["Endpoint", h("code", null, system.endpoint)], ["AMQP", count0(system.amqp_port)], ["HTTP", count0(system.http_port)], ["AMQP with TLS only", count0(system.tls_port)], ["Bulk lane (Arrow Flight)", system.flight_port ? `${system.flight_port}, ${system.is_flight_up ? "up" : "down"}` : "off"],
        ])),
      ];
    },
  };
}

/** @param {string | null | undefined} moment */
function upFor(moment) {
  return moment ? duration(Math.max(0, Date.now() - Date.parse(moment))) : "–";
}

/** @param {number | null | undefined} port */
function count0(port) {
  return port ? String(port) : "off";
}

/** Nodes, the databases, who serves which slot, and who took which from whom. @param {any} cluster */
function clusterCard(cluster) {
  const looks = /** @type {Record<string, "good" | "warn" | "bad">} */ ({ serving: "good", leaving: "warn", silent: "bad", served: "good", free: "bad" });
  const free = cluster.slots.filter((/** @type {any} */ one) => one.state === "free").length;
  return [
    card("Nodes of the cluster", [
      h("p", { class: "muted small pad" }, "Cluster ", h("code", null, cluster.cluster_id), `: ${plural(cluster.nodes.length, "node")}, ${plural(cluster.slots.length, "slot")}, `, free ? h("strong", { class: "badnum" }, `${count(free)} free`) : "all served", "."),
      table({ label: "Nodes", rows: /** @type {any[]} */ (cluster.nodes), key: (one) => one.name, columns: [
        { title: "Node", isHead: true, class: "break", cell: (one) => one.name },
        { title: "State", cell: (one) => badge(one.state, looks[one.state]) },
        { title: "Roles", class: "wide", cell: (one) => one.roles.join(", ") || "–" },
        { title: "Slots", class: "number", cell: (one) => count(one.slots) },
        { title: "Last seen", class: "number", cell: (one) => (one.beat_age_ms < 1000 ? "now" : `${duration(one.beat_age_ms)} ago`) },
        { title: "Up for", class: "number wide", cell: (one) => upFor(one.started_at) },
        { title: "Address", class: "wide break", cell: (one) => one.address || "–" },
        { title: "Version", class: "wide", cell: (one) => one.version || "–" },
      ] })], { class: "flush" }),
    card("Databases of the cluster", table({ label: "Databases", rows: /** @type {any[]} */ (cluster.stores), key: (one) => String(one.index), columns: [
      { title: "Store", isHead: true, class: "break", cell: (one) => one.address },
      { title: "State", cell: (one) => (one.problem ? badge("not reached", "bad", one.problem) : badge("reached", "good")) },
      { title: "Slots", class: "number", cell: (one) => [count(one.slots), one.free_slots ? h("span", { class: "badnum" }, ` (${count(one.free_slots)} free)`) : null] },
      { title: "Size", class: "number", cell: (one) => size(one.size_bytes) },
      { title: "Failovers", class: "number wide", cell: (one) => count(Math.max(0, one.timeline - 1)) },
      { title: "Oldest snapshot", class: "number wide", cell: (one) => (one.oldest_snapshot_ms ? duration(one.oldest_snapshot_ms) : "–") },
      { title: "Problem", class: "wide break", cell: (one) => one.problem },
    ] }), { class: "flush" }),
    h("div", { class: "grid start" },
      card("Take-overs", cluster.takeovers.length ? table({ label: "Take-overs", rows: /** @type {any[]} */ (cluster.takeovers), key: (one) => String(one.slot), columns: [
        { title: "When", isHead: true, cell: (one) => h("time", { datetime: one.at, title: ago(one.at) }, shortTime(one.at)) },
        { title: "Slot", class: "number", cell: (one) => count(one.slot) },
        { title: "From", class: "break", cell: (one) => one.giver || "nobody" },
        { title: "To", class: "break", cell: (one) => one.taker },
      ] }) : h("div", { class: "empty" }, "No slot has changed its owner."), { class: "flush" }),
      card("Slots", table({ label: "Slots", rows: /** @type {any[]} */ (cluster.slots), key: (one) => String(one.slot), columns: [
        { title: "Slot", isHead: true, cell: (one) => count(one.slot) },
        { title: "State", cell: (one) => badge(one.state, looks[one.state]) },
        { title: "Owner", cell: (one) => (one.state === "free" ? h("span", { class: "muted" }, `last ${one.owner}`) : one.owner) },
        { title: "Epoch", class: "number wide", cell: (one) => count(one.epoch) },
        { title: "Commits", class: "number wide", cell: (one) => count(one.commits) },
        { title: "Since", class: "wide", cell: (one) => h("span", { title: one.taken_at ?? "" }, shortTime(one.taken_at)) },
      ] }), { class: "flush" })),
  ];
}
