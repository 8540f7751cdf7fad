/** Brokers, their stores, gateways, and the cluster where there is one. */

import { get, may } from "../api.js";
import { data, loadOverview, loadSystem } from "../data.js";
import { h } from "../dom.js";
import { count, duration, size } from "../format.js";
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
          { title: "Stored", class: "number", cell: (one) => size(one.store?.size_bytes) },
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

/** Whatever the cluster tells, as lists of facts. @param {any} cluster */
function clusterCard(cluster) {
  const lists = Object.entries(cluster).filter(([, value]) => Array.isArray(value));
  const plain = Object.entries(cluster).filter(([, value]) => value === null || typeof value !== "object");
  return card("Cluster", [
    plain.length ? facts(plain.map(([name, value]) => [name.replaceAll("_", " "), String(value ?? "–")])) : null,
    lists.map(([name, rows]) => listOf(name, /** @type {any[]} */ (rows))),
  ]);
}

/** @param {string} name @param {any[]} rows */
function listOf(name, rows) {
  const columns = Object.keys(rows[0] ?? {});
  return h("div", { key: name, class: "stack", style: { gap: ".3rem" } }, h("h3", null, name.replaceAll("_", " ")), rows.length ? table({ label: name, rows: rows.map((row, index) => ({ ...row, index })), key: (row) => String(row.index), columns: columns.map((column, index) => ({
    title: column.replaceAll("_", " "), isHead: index === 0, class: "break", cell: (/** @type {any} */ row) => (typeof row[column] === "object" && row[column] !== null ? JSON.stringify(row[column]) : String(row[column] ?? "–")),
  })) }) : h("p", { class: "muted" }, "None."));
}
