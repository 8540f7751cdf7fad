/** Dialogs: the browser's own, which keep focus inside and give it back. */

import { redraw } from "./app.js";
import { h } from "./dom.js";
import { attempt, button, errorBox, field, icon, input, newId } from "./parts.js";

/** @typedef {import("./dom.js").Child} Child */
/**
 * @typedef {object} Dialog
 * @property {string} title
 * @property {(dialog: Dialog) => Child} view
 * @property {boolean} [isWide]
 * @property {() => void} [onclose]
 * @property {number} [id]
 * @property {HTMLDialogElement} [element]
 * @property {unknown} [error]
 * @property {boolean} [isBusy]
 */

/** @type {Dialog[]} */
const open = [];
let last = 0;

/** @param {Dialog} dialog */
export function openDialog(dialog) {
  dialog.id = ++last;
  open.push(dialog);
  redraw();
  return dialog;
}

/** @param {Dialog} dialog */
export function closeDialog(dialog) {
  dialog.element?.close();
}

export function closeAll() {
  for (const dialog of [...open]) closeDialog(dialog);
}

export function hasDialog() {
  return open.length > 0;
}

export function dialogs() {
  return open.map((dialog) => {
    const titleId = `dialog-${dialog.id}`;
    return h("dialog", {
      key: titleId, class: dialog.isWide ? "wide" : "", "aria-labelledby": titleId,
      onmount: (/** @type {HTMLDialogElement} */ element) => { dialog.element = element; requestAnimationFrame(() => element.isConnected && element.showModal()); },
      onclose: () => { open.splice(open.indexOf(dialog), 1); dialog.onclose?.(); redraw(); },
    },
    h("header", { class: "dialog-head" }, h("h2", { id: titleId }, dialog.title),
      h("button", { type: "button", class: "button quiet icon-only", "aria-label": "Close", onclick: () => closeDialog(dialog) }, icon("close"))),
    h("div", { class: "dialog-body" }, dialog.view(dialog)));
  });
}

/**
 * Do something and close; what goes wrong is shown in the dialog.
 * @param {Dialog} dialog
 * @param {() => unknown} action
 */
export async function finish(dialog, action) {
  if (dialog.isBusy) return;
  dialog.isBusy = true;
  dialog.error = null;
  redraw();
  try {
    await action();
    closeDialog(dialog);
  } catch (error) {
    dialog.error = error;
  } finally {
    dialog.isBusy = false;
    redraw();
  }
}

/**
 * @param {Dialog} dialog
 * @param {string} label
 * @param {() => unknown} action
 * @param {{kind?: string, isDisabled?: boolean, more?: Child, busy?: string, dismissal?: string}} [options]
 */
export function dialogButtons(dialog, label, action, options = {}) {
  // Above the buttons, which stay in sight however long the dialog is.
  return h("footer", { class: "dialog-foot" }, dialog.error ? h("div", { class: "full" }, errorBox(dialog.error)) : null, options.more,
    button(options.dismissal ?? "Cancel", () => closeDialog(dialog)),
    button(dialog.isBusy ? options.busy || "Working …" : label, () => finish(dialog, action), { kind: options.kind ?? "primary", disabled: options.isDisabled || dialog.isBusy, type: "button" }));
}

/**
 * Ask before something that cannot be undone; with `word`, that must be typed.
 * @param {{title: string, text: Child, label: string, word?: string, kind?: string, dismissal?: string, action: () => unknown}} given
 */
export function confirm({ title, text, label, word, kind = "danger", dismissal, action }) {
  let typed = "";
  const id = newId();
  openDialog({
    title,
    view: (dialog) => [
      h("div", { class: "prose" }, text),
      word !== undefined
        ? field(`Type ${word} to confirm`, (_, props) => input({ ...props, value: typed, onvalue: (/** @type {string} */ value) => { typed = value; },
            onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" && typed === word) void attempt(() => finish(dialog, action)); } }), { id })
        : null,
      dialogButtons(dialog, label, action, { kind, dismissal, isDisabled: word !== undefined && typed !== word }),
    ],
  });
}
