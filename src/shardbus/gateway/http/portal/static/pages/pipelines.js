/** Pipelines: created, started, stopped, and followed with plots and the end of their log. */

import { del, get, post, put } from "../api.js";
import { notify, redraw } from "../app.js";
import { command } from "../commands.js";
import { data, loadOverview } from "../data.js";
import { confirm, dialogButtons, openDialog } from "../dialog.js";
import { h } from "../dom.js";
import { ago, compact, count, duration, durationText, parseDuration, percent, plural, rate, sentence, shortDuration } from "../format.js";
import { refreshNow } from "../live.js";
import { anchor, badge, banner, button, card, checkbox, choice, codeBlock, empty, facts, field, figure, icon, input, loading, progress, select } from "../parts.js";
import { band, plot } from "../plot.js";
import { entityLink, go, link } from "../router.js";
import { openapi } from "../routes.js";
import { table } from "../table.js";
import { GROUPS, lettersReport } from "./letters.js";

const LOOKS = /** @type {Record<string, "good" | "warn" | "bad" | "accent" | "plain">} */ ({ running: "good", starting: "accent", stopping: "warn", failing: "bad", finished: "accent", stopped: "plain" });

/** @returns {import("../app.js").Page} */
export function pipelinesPage() {
  /** @type {any[] | null} */
  let pipelines = null;
  return {
    title: "Pipelines",
    refresh: async () => {
      const [found] = await Promise.all([get("pipelines"), loadOverview()]);
      pipelines = found.pipelines;
    },
    view: () => [
      h("div", { class: "page-head" }, h("div", { class: "titles" }, h("h1", null, "Pipelines"), h("p", { class: "muted" }, "Spark jobs between entities and files, which the bus stores and runs.")),
        h("div", { class: "actions" }, button([icon("plus"), "Create a pipeline"], () => openCreate(), { kind: "primary" }))),
      !pipelines ? loading() : pipelines.length ? card("", table({ label: "Pipelines", rows: pipelines, key: (one) => one.name, columns: [
        { title: "Pipeline", isHead: true, class: "break", cell: (one) => anchor(link(["pipelines", one.name]), one.name) },
        { title: "Kind", class: "wide", cell: (one) => one.kind },
        { title: "Entity", class: "break wide", cell: (one) => anchor(entityLink(one.entity.replace(/\/\$.*$/, "")), one.entity) },
        { title: "State", cell: (one) => badge(one.state, LOOKS[one.state], one.last_error) },
        { title: "Rows", class: "number", cell: (one) => count(one.progress.rows_total) },
        { title: "Rows/s", class: "number wide", cell: (one) => rate(one.progress.rows_per_s) },
        { title: "Waiting", class: "number", cell: (one) => (one.progress.at ? count(one.progress.backlog) : "–") },
        { title: "Last batch", class: "number wide", cell: (one) => (one.progress.at ? ago(one.progress.at) : "–") },
      ] }), { class: "flush" }) : card("", empty("No pipelines", "A capture writes the messages of a queue to Parquet files or a Delta table; a replay sends rows back; a backfill fills a new subscription with history; SQL and Python transform messages on their way; a lifecycle pipeline keeps what happened to messages; a triage groups dead letters in a report.", codeBlock(command("pipeline", "create", "archive", "--entity", "orders", "--keep", "--start"), "Command"))),
    ],
  };
}

/** @param {string} name @returns {import("../app.js").Page} */
export function pipelinePage(name) {
  const path = `pipelines/${encodeURIComponent(name)}`;
  /** @type {{pipeline: any, history: any, hours: any, hoursAt: number, report: any, reportOf: number, log: string[], isFollowing: boolean, step: string}} */
  const state = { pipeline: null, history: null, hours: null, hoursAt: 0, report: null, reportOf: -1, log: [], isFollowing: true, step: "5s" };
  return {
    title: name,
    refresh: async () => {
      const [pipeline, history, log] = await Promise.all([get(path), get(`${path}/history`, { query: { step: state.step } }).catch(() => null), get(`${path}/logs`, { query: { top: 200 } }), loadOverview()]);
      Object.assign(state, { pipeline, history, log: log.lines });
      // The driver computes them once a minute.
      if (pipeline.kind === "lifecycle" && Date.now() - state.hoursAt > 60_000) Object.assign(state, { hours: await get(`${path}/hours`), hoursAt: Date.now() });
      if (pipeline.kind === "triage" && (!state.report?.name || state.reportOf !== pipeline.progress.batch)) Object.assign(state, { report: await get(`${path}/report`, { query: { top: GROUPS } }), reportOf: pipeline.progress.batch });
    },
    view: () => {
      const { pipeline, history } = state;
      if (!pipeline) return loading();
      const { progress: done } = pipeline;
      return [
        h("div", { class: "crumbs" }, anchor(link(["pipelines"]), "Pipelines")),
        h("div", { class: "page-head" }, h("div", { class: "titles" }, h("div", { class: "row" }, h("h1", null, name), badge(pipeline.kind, "accent"), badge(pipeline.state, LOOKS[pipeline.state]))), actions(name, path, pipeline)),
        pipeline.state === "starting" ? banner("info", "Spark starts, which takes up to a minute. The log below shows what it does.") : null,
        pipeline.last_error ? h("div", { class: "error-box", role: "alert" }, h("strong", null, "Last error"), h("p", null, pipeline.last_error), h("p", { class: "muted small" }, "The log below has the details. A failing pipeline is started again by itself, later and later.")) : null,
        h("div", { class: "figures" },
          figure("Rows", count(done.rows_total), done.rows_planned ? `of ${count(done.rows_planned)}` : "since the start of the bus"),
          figure("Rows per second", rate(done.rows_per_s), done.at ? `last batch ${ago(done.at)}` : "no batch yet"),
          figure("Waiting", done.at ? count(done.backlog) : "–", done.at ? "when the last batch ended" : "known after the first batch", { class: done.backlog > 100_000 ? "warn" : "" }),
          figure("Batch", done.batch_ms ? duration(done.batch_ms) : "–", `number ${count(done.batch)}, ${count(done.rows)} rows`),
          figure("Starts", count(pipeline.starts), "of its driver")),
        done.rows_planned ? progress(done.rows_total, done.rows_planned, `Progress of ${name}`, `${count(done.rows_total)} of ${plural(done.rows_planned, "row")}`) : null,
        h("div", { class: "row" }, choice("Time", [["5s", "Last hour"], ["1m", "Last day"]], state.step, (value) => { state.step = value; state.history = null; refreshNow(); }), h("span", { class: "spring" }),
          anchor(entityLink(pipeline.entity.replace(/\/\$.*$/, ""), "report"), `Report on ${pipeline.entity.replace(/\/\$.*$/, "")}`)),
        card("", band({ id: `${name}-states`, title: "States", history, looks: LOOKS })),
        h("div", { class: "grid three" },
          card("", plot({ id: `${name}-rows`, title: "Rows per second", history, format: rate, lines: [{ member: "rows_per_s", name: "Rows", class: "in" }] })),
          card("", plot({ id: `${name}-lag`, title: "Waiting rows (lag)", history, format: compact, least: 10, lines: [{ member: "backlog", name: "Waiting", class: "age" }] })),
          card("", plot({ id: `${name}-batch`, title: "Time of a batch", history, format: (ms) => duration(Math.round(ms)), least: 1000, isTime: true, lines: [{ member: "batch_ms", name: "Batch", class: "plain" }] }))),
        pipeline.kind === "lifecycle" ? hourly(name, state.hours) : pipeline.kind === "triage" ? lettersReport(name, path, state.report) : null,
        card("Definition", facts(definition(pipeline))),
        card("Log", state.log.length ? h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": `Log of ${name}`, onmount: toEnd, onupdate: (/** @type {Element} */ element) => { if (state.isFollowing) toEnd(element); }, onscroll: (/** @type {Event} */ event) => { const element = /** @type {Element} */ (event.target); state.isFollowing = element.scrollTop + element.clientHeight > element.scrollHeight - 30; } }, state.log.join("\n"))
          : h("p", { class: "muted" }, "The driver has written nothing since the bus was started.")),
      ];
    },
  };
}

/** The figures that a lifecycle pipeline keeps of each hour. @param {string} name @param {any} hours */
function hourly(name, hours) {
  if (!hours) return loading();
  if (!hours.count) return card("Hours", h("p", { class: "muted" }, "No hour has been computed yet: the first one follows a minute after the first records."));
  const picture = (/** @type {string} */ id, /** @type {string} */ title, /** @type {any[]} */ lines, /** @type {boolean} */ isTime) => card("", plot({ id: `${name}-hours-${id}`, title, history: hours, format: isTime ? shortDuration : compact, least: isTime ? 1000 : 10, isTime, lines }));
  return [
    h("h2", null, `The newest ${plural(hours.count, "hour")}`),
    h("div", { class: "grid" },
      picture("count", "Messages per hour", [{ member: "enqueued", name: "Enqueued", class: "in" }, { member: "settled", name: "Settled", class: "out" }, { member: "expired", name: "Expired", class: "dead" }], false),
      picture("failed", "Failures per hour", [{ member: "redelivered", name: "Redelivered", class: "age" }, { member: "lost_locks", name: "Lost locks", class: "plain" }, { member: "dead_lettered", name: "Dead letters", class: "dead" }], false),
      picture("queue", "Time in queue", [{ member: "queue_ms_p50", name: "p50", class: "plain" }, { member: "queue_ms_p99", name: "p99", class: "dead" }], true),
      picture("settle", "Time to settle", [{ member: "settle_ms_p50", name: "p50", class: "plain" }, { member: "settle_ms_p99", name: "p99", class: "dead" }], true)),
    hours.keys.length ? card("Hottest keys of the last hour", table({ label: "Hottest keys of the last hour", rows: /** @type {any[]} */ (hours.keys), key: (one) => one.key, columns: [
      { title: "Session or partition key", isHead: true, class: "break", cell: (one) => one.key }, { title: "Enqueued", class: "number", cell: (one) => count(one.enqueued) }, { title: "Share", class: "number", cell: (one) => percent(one.share, 1) }] }), { class: "flush" }) : null,
  ];
}

/** @param {Element} element */
function toEnd(element) {
  element.scrollTop = element.scrollHeight;
}

/** @param {any} pipeline @returns {[string, import("../dom.js").Child][]} */
function definition(pipeline) {
  const hidden = new Set(["name", "state", "starts", "last_error", "progress", "incarnation", "kind"]);
  return Object.entries(pipeline).filter(([member, value]) => !hidden.has(member) && value !== "" && value !== null).map(([member, value]) => [sentence(member),
    member === "entity" ? anchor(entityLink(String(value).replace(/\/\$.*$/, "")), String(value)) : typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "object" ? JSON.stringify(value) : member.endsWith("_ms") ? duration(Number(value)) : String(value)]);
}

/** @param {string} name @param {string} path @param {any} pipeline */
function actions(name, path, pipeline) {
  const isOff = pipeline.state === "stopped" || pipeline.state === "finished";
  return h("div", { class: "actions" },
    isOff ? button([icon("play"), "Start"], async () => { await post(`${path}/start`); notify(`Starting ${name}.`); refreshNow(); }, { kind: "primary", disabled: pipeline.state === "finished" && pipeline.kind !== "triage" })
      : button([icon("pause"), "Stop"], async () => { await post(`${path}/stop`); notify(`Stopping ${name}; the next start continues its batch.`); refreshNow(); }, { disabled: pipeline.state === "stopping" }),
    pipeline.state === "stopped" ? button("Finish", async () => { await post(`${path}/stop?finish=1`); notify(`Finishing ${name}: what its last batch claimed is completed.`); refreshNow(); }, { title: "Complete what the last batch has claimed, and claim nothing new" }) : null,
    button("Delete", () => confirm({ title: `Delete the pipeline ${name}?`, word: name, label: "Delete", text: h("p", null, "Its definition and its reader are deleted. What it captured or sent stays."), action: async () => { await del(path); notify(`Deleted ${name}.`); go(link(["pipelines"])); } }), { kind: "danger", disabled: !isOff, title: isOff ? "" : "Stop it first" }));
}

/** The definitions of all kinds, from the description of the API. @returns {Record<string, any>} */
function kinds() {
  const api = openapi();
  const { schemas } = api.components;
  const body = api.paths["/api/v1/pipelines/{pipeline}"].put.requestBody.content["application/json"].schema;
  const options = body.oneOf ?? body.anyOf ?? [body];
  /** @type {Record<string, any>} */
  const found = {};
  for (const option of options) {
    const schema = option.$ref ? schemas[option.$ref.split("/").pop()] : option;
    found[schema.properties.kind.enum?.[0] ?? schema.properties.kind.const] = schema;
  }
  return found;
}

function openCreate() {
  const schemas = kinds();
  const names = (data.overview?.entities ?? []).filter((row) => row.kind !== "topic").map((row) => row.name);
  const state = { kind: Object.keys(schemas)[0], name: "", isStarted: true, values: /** @type {Record<string, any>} */ ({}) };
  const create = async () => {
    const name = state.name.trim();
    const body = { kind: state.kind, ...wanted(schemas[state.kind], state.values) };
    await put(`pipelines/${encodeURIComponent(name)}`, body);
    if (state.isStarted) await post(`pipelines/${encodeURIComponent(name)}/start`);
    notify(`Created the pipeline ${name}.`);
    go(link(["pipelines", name]));
  };
  openDialog({
    title: "Create a pipeline", isWide: true,
    view: (dialog) => [
      choice("Kind", Object.keys(schemas).map((kind) => [kind, kind]), state.kind, (value) => { state.kind = value; }),
      h("p", { class: "muted" }, schemas[state.kind].description, state.kind === "capture" ? (state.values.keep ? " They stay on the bus." : " They are completed, and so leave the bus, once they are in files; Keep leaves them.") : ""),
      h("div", { class: "fields" },
        field("Name", (_, props) => input({ ...props, value: state.name, autofocus: true, placeholder: "archive", onvalue: (/** @type {string} */ value) => { state.name = value; } }), { id: "pipeline-name" }),
        Object.entries(schemas[state.kind].properties).filter(([member]) => member !== "kind").map(([member, schema]) => schemaField(member, schema, state.values, names))),
      checkbox("Start it at once", state.isStarted, (value) => { state.isStarted = value; }),
      dialogButtons(dialog, "Create", create, { isDisabled: !state.name.trim() || !state.values.entity || !areTextsRight(schemas[state.kind], state.values) }),
    ],
  });
  redraw();
}

/** @param {string} member @param {any} schema @param {Record<string, any>} values @param {string[]} names */
function schemaField(member, schema, values, names) {
  const label = sentence(member);
  const id = `pipeline-${member}`;
  const isTime = schema.type === "integer" && member.endsWith("_ms");
  const isPairs = schema.$ref !== undefined;
  const value = values[member] ?? (isTime ? durationText(schema.default) : isPairs ? "" : schema.default);
  if (schema.type === "boolean") return h("div", { key: member }, checkbox(label, Boolean(value), (is) => { values[member] = is; }, { hint: schema.description }));
  return h("div", { key: member }, field(label, (_, props) => {
    if (schema.enum) return select(schema.enum.map((/** @type {string} */ one) => [one, one || "by default"]), { ...props, value: String(value ?? ""), onvalue: (/** @type {string} */ text) => { values[member] = text; } });
    return [input({ ...props, value: String(value ?? ""), list: member === "entity" ? "pipeline-entities" : undefined, placeholder: isPairs ? "body=payload, message_id=id" : String(schema.examples?.[0] ?? ""), inputmode: schema.type === "integer" ? "numeric" : undefined, onvalue: (/** @type {string} */ text) => { values[member] = text; } }),
      member === "entity" ? h("datalist", { id: "pipeline-entities" }, names.map((name) => h("option", { key: name, value: name }))) : null];
  }, { id, hint: [schema.description, isTime ? "30s, 5m, 1h." : isPairs ? "Pairs as COLUMN=SOURCE, with commas between them." : ""].filter(Boolean).join(" ") || undefined, error: isTime && !isTimeText(value) ? "Write a time as 30s, 5m or 1h." : isPairs && !pairs(value) ? "Write pairs as body=payload, message_id=id." : undefined }));
}

/** Whether all times and pairs of a kind can be read. @param {any} schema @param {Record<string, any>} values */
function areTextsRight(schema, values) {
  return Object.entries(values).every(([member, value]) => (!member.endsWith("_ms") || isTimeText(value)) && (schema.properties[member]?.$ref === undefined || pairs(value) !== null));
}

/** COLUMN=SOURCE, …; null when it is something else. @param {string} text @returns {Record<string, string> | null} */
function pairs(text) {
  const parts = text.split(",").map((part) => part.trim()).filter(Boolean);
  return parts.every((part) => part.indexOf("=") > 0) ? Object.fromEntries(parts.map((part) => [part.slice(0, part.indexOf("=")).trim(), part.slice(part.indexOf("=") + 1).trim()])) : null;
}

/** @param {unknown} value */
function isTimeText(value) {
  return typeof parseDuration(String(value)) === "number";
}

/** @param {any} schema @param {Record<string, any>} values */
function wanted(schema, values) {
  /** @type {Record<string, any>} */
  const body = {};
  for (const [member, value] of Object.entries(values)) {
    const shape = schema.properties[member];
    if (!shape || value === (shape.default ?? "")) continue;
    body[member] = shape.$ref !== undefined ? pairs(value) : shape.type !== "integer" ? value : member.endsWith("_ms") ? parseDuration(value) : Number(value);
  }
  return body;
}
