/** A form made from the descriptions of properties that the bus gives: no field is written here. */

import { h } from "./dom.js";
import { duration, durationText, megabytes, parseDuration } from "./format.js";
import { badge, checkbox, field, input, newId, select } from "./parts.js";

/** @typedef {import("./data.js").Property} Property */
/** @typedef {{values: Record<string, any>, texts: Record<string, string>, ids: Record<string, string>, errors: Record<string, string>}} Form */

/** @param {Property[]} properties @param {Record<string, any>} [values] @returns {Form} */
export function newForm(properties, values = {}) {
  /** @type {Form} */
  const form = { values: {}, texts: {}, ids: {}, errors: {} };
  for (const property of properties) {
    const value = property.name in values ? values[property.name] : property.default;
    form.values[property.name] = value;
    form.texts[property.name] = property.form === "duration" ? durationText(value) : value === null || value === undefined ? "" : String(value);
    form.ids[property.name] = newId();
  }
  return form;
}

/** @param {Property} property */
export function labelOf(property) {
  const text = property.label || property.option.replaceAll("-", " ").replace(/^max (.*) kb$/, "largest $1 (KB)") || property.name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * @param {Property} property
 * @param {Form} form
 * @param {{isNew: boolean, names?: string[]}} options
 */
export function propertyField(property, form, { isNew, names = [] }) {
  const { name } = property;
  const id = form.ids[name];
  const isUseless = name === "duplicate_window_ms" && !form.values.requires_duplicate_detection;
  const isDisabled = Boolean(property.tier_reason) || (!isNew && property.is_fixed) || isUseless;
  const mark = property.is_fixed ? badge(isNew ? "fixed at creation" : "fixed", "plain") : null;
  const hint = property.tier_reason || (isUseless ? "Only with duplicate detection." : hintOf(property));
  if (property.form === "flag") {
    return h("div", { key: name }, checkbox(labelOf(property), Boolean(form.values[name]), (value) => { form.values[name] = value; }, { disabled: isDisabled, hint, mark, name }));
  }
  const set = (/** @type {string} */ text) => { form.texts[name] = text; read(property, form); };
  return h("div", { key: name }, field(labelOf(property), (_, props) => {
    if (property.choices.length) {
      return select(property.choices.map((one) => [String(one), property.form === "megabytes" ? megabytes(Number(one)) : String(one)]), { ...props, name, disabled: isDisabled, value: String(form.values[name]), onvalue: set });
    }
    const list = property.form === "destination" ? `${id}-names` : undefined;
    return [input({ ...props, name, disabled: isDisabled, value: form.texts[name], list, inputmode: property.form === "number" ? "numeric" : undefined, placeholder: property.form === "destination" ? "none" : "", onvalue: set }),
      list ? h("datalist", { id: list }, names.map((one) => h("option", { key: one, value: one }))) : null];
  }, { id, hint, mark, error: form.errors[name] }));
}

/** @param {Property} property */
function hintOf(property) {
  const { least, most } = property;
  if (property.form === "duration" && least) return `${property.help} From ${duration(least)}${most === null ? "" : ` to ${duration(most)}`}.`;
  if (property.form === "number" && most) return `${property.help} From ${least ?? 0} to ${most}.`;
  return property.help;
}

/** Take a text over as the value of its property, or note what is wrong with it. @param {Property} property @param {Form} form */
function read(property, form) {
  const { name } = property;
  const text = form.texts[name].trim();
  delete form.errors[name];
  if (property.form === "duration") {
    const value = parseDuration(text);
    if (value === undefined) form.errors[name] = "Write a time such as 30s, 5m, 2h, 14d or forever.";
    else if (value === null && property.most !== null) form.errors[name] = `At most ${duration(property.most)}.`;
    else if (value !== null && ((property.least && value < property.least) || (property.most && value > property.most))) form.errors[name] = `From ${duration(property.least ?? 0)} to ${duration(property.most)}.`;
    else form.values[name] = value;
  } else if (property.form === "number" || property.form === "megabytes") {
    const value = Number(text);
    if (!/^\d+$/.test(text)) form.errors[name] = "Write a whole number.";
    else if ((property.least && value < property.least) || (property.most && value > property.most)) form.errors[name] = `From ${property.least ?? 0} to ${property.most}.`;
    else form.values[name] = value;
  } else if (property.form === "destination") form.values[name] = text || null;
  else form.values[name] = form.texts[name];
}

/** @param {Form} form */
export function isRight(form) {
  return Object.keys(form.errors).length === 0;
}

/**
 * What differs from given values.
 * @param {Property[]} properties
 * @param {Form} form
 * @param {Record<string, any>} before
 */
export function changed(properties, form, before) {
  /** @type {Record<string, any>} */
  const changes = {};
  for (const { name, tier_reason: reason } of properties) {
    if (!reason && (form.values[name] ?? null) !== (before[name] ?? null)) changes[name] = form.values[name];
  }
  return changes;
}
