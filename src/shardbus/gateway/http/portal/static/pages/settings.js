/** The settings of an entity: change them, or delete the entity. */

import { del, patchWith } from "../api.js";
import { notify, redraw } from "../app.js";
import { data, loadProperties, managedPath } from "../data.js";
import { confirm } from "../dialog.js";
import { h } from "../dom.js";
import { changed, isRight, newForm, propertyField } from "../form.js";
import { count, megabytes, plural } from "../format.js";
import { refreshNow } from "../live.js";
import { button, card, errorBox, loading } from "../parts.js";
import { go, link } from "../router.js";

/** @param {import("./entity.js").Context} context @returns {import("./entity.js").Tab} */
export function settingsTab(context) {
  const { name } = context;
  /** @type {{form: import("../form.js").Form | null, before: Record<string, any>, error: unknown, isBusy: boolean}} */
  const state = { form: null, before: {}, error: null, isBusy: false };
  const begin = () => {
    const { entity } = context;
    state.before = { ...entity.description, status: entity.status };
    state.form = newForm(own(entity.kind), state.before);
  };
  return {
    refresh: async () => {
      await loadProperties();
      if (!state.form) begin();
    },
    view: () => {
      const { form } = state;
      if (!form) return loading();
      const { entity } = context;
      const changes = changed(own(entity.kind), form, state.before);
      const number = Object.keys(changes).length;
      const save = async () => {
        if (!number || !isRight(form) || state.isBusy) return;
        state.isBusy = true;
        state.error = null;
        try {
          const after = await patchWith(managedPath(entity.kind, name), changes);
          context.entity = after;
          begin();
          notify(`Saved ${name}.`);
          refreshNow();
        } catch (error) {
          state.error = error;
        }
        state.isBusy = false;
        redraw();
      };
      const names = (data.overview?.entities ?? []).filter((row) => row.kind !== "subscription" && row.name !== name).map((row) => row.name);
      const { description } = entity;
      const sizeMb = Number(form.values.size_mb ?? description.size_mb);
      return [
        h("form", { class: "stack", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void save(); } },
          card("", [
            h("p", null, h("strong", null, `Maximum size ${megabytes(sizeMb * entity.fragment_count)} = ${megabytes(sizeMb)} × ${count(entity.fragment_count)} fragment${entity.fragment_count === 1 ? "" : "s"}`)),
            h("div", { class: "fields" }, own(entity.kind).map((property) => propertyField(property, form, { isNew: false, names })))]),
          state.error ? errorBox(state.error) : null,
          h("div", { class: "actions" }, h("button", { type: "submit", class: "button primary", disabled: !number || !isRight(form) || state.isBusy }, number ? `Save ${number} change${number === 1 ? "" : "s"}` : "Nothing changed"),
            number ? button("Undo", begin) : null)),
        card("Delete", [
          h("p", null, `Deletes ${name} with all its messages, dead letters${entity.kind === "topic" ? ", subscriptions" : ""} and rules. Nobody can bring them back.`),
          h("div", null, button(`Delete the ${entity.kind}`, () => remove(context), { kind: "danger" }))]),
      ];
    },
  };
}

/** @param {string} kind */
function own(kind) {
  return (data.properties?.kinds[kind] ?? []).filter((one) => !one.is_derived && one.option);
}

/** @param {import("./entity.js").Context} context */
function remove({ name, entity }) {
  const { runtime } = entity;
  confirm({
    title: `Delete ${name}?`, word: name, label: `Delete the ${entity.kind} for ever`,
    text: [h("p", null, entity.kind === "topic" ? `It has ${plural(runtime.subscriptions, "subscription")}, whose messages are deleted too.` : `It has ${count(runtime.active)} active messages, ${count(runtime.dead_letter)} dead letters and ${count(runtime.scheduled)} scheduled messages.`), h("p", null, "This can be undone only with a backup.")],
    action: async () => {
      await del(managedPath(entity.kind, name));
      notify(`Deleted ${name}.`);
      go(link(["entities"]));
    },
  });
}
