/**
 * A small virtual document: `h` describes elements, `render` makes the page equal to a description.
 *
 * Text is only ever put into text nodes and attributes, never parsed as markup, so nothing that a
 * message, a name or an error contains can become an element or a script. Elements are kept where
 * their description has the same tag and key: focus, selection and scroll positions survive.
 */

/** @typedef {string | number | boolean | null | undefined} Plain */
/** @typedef {{tag: string, props: Props, children: VNode[], key: string | number | undefined, text: string, node: Node | null}} VNode */
/** @typedef {Record<string, any>} Props */
/** @typedef {VNode | Plain | Child[]} Child */

const SVG = "http://www.w3.org/2000/svg";
const TEXT = "#text";

/**
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {VNode}
 */
export function h(tag, props, ...children) {
  /** @type {VNode[]} */
  const list = [];
  flatten(children, list);
  const given = props ?? {};
  return { tag, props: given, children: list, key: given.key, text: "", node: null };
}

/**
 * @param {Child[]} children
 * @param {VNode[]} list
 */
function flatten(children, list) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) flatten(child, list);
    else if (typeof child === "object") list.push(child);
    else list.push({ tag: TEXT, props: {}, children: [], key: undefined, text: String(child), node: null });
  }
}

/** @type {WeakMap<Element, VNode>} */
const roots = new WeakMap();

/**
 * Make the content of an element equal to a description.
 * @param {Element} container
 * @param {Child} content
 */
export function render(container, content) {
  const next = h("root", null, content);
  const before = roots.get(container);
  roots.set(container, next);
  next.node = container;
  patchChildren(container, before ? before.children : [], next.children, false);
}

/**
 * @param {VNode} vnode
 * @param {boolean} isSvg
 * @returns {Node}
 */
function create(vnode, isSvg) {
  if (vnode.tag === TEXT) {
    vnode.node = document.createTextNode(vnode.text);
    return vnode.node;
  }
  const inSvg = isSvg || vnode.tag === "svg";
  const element = inSvg ? document.createElementNS(SVG, vnode.tag) : document.createElement(vnode.tag);
  vnode.node = element;
  for (const child of vnode.children) element.append(create(child, inSvg));
  for (const name of Object.keys(vnode.props)) setProp(element, name, vnode.props[name], undefined);
  vnode.props.onmount?.(element);
  return element;
}

/**
 * @param {VNode} before
 * @param {VNode} next
 * @param {boolean} isSvg
 */
function patch(before, next, isSvg) {
  const node = /** @type {Node} */ (before.node);
  next.node = node;
  if (next.tag === TEXT) {
    if (before.text !== next.text) node.nodeValue = next.text;
    return;
  }
  const element = /** @type {Element} */ (node);
  patchChildren(element, before.children, next.children, isSvg || next.tag === "svg");
  for (const name of Object.keys(next.props)) {
    if (before.props[name] !== next.props[name]) setProp(element, name, next.props[name], before.props[name]);
  }
  for (const name of Object.keys(before.props)) {
    if (!(name in next.props)) setProp(element, name, undefined, before.props[name]);
  }
  next.props.onupdate?.(element);
}

/**
 * @param {Element} parent
 * @param {VNode[]} before
 * @param {VNode[]} next
 * @param {boolean} isSvg
 */
function patchChildren(parent, before, next, isSvg) {
  const used = new Set();
  const byKey = new Map();
  for (const vnode of before) if (vnode.key !== undefined) byKey.set(vnode.key, vnode);
  let position = 0;
  const match = (/** @type {VNode} */ vnode) => {
    if (vnode.key !== undefined) {
      const kept = byKey.get(vnode.key);
      return kept && kept.tag === vnode.tag && !used.has(kept) ? kept : null;
    }
    while (position < before.length && (used.has(before[position]) || before[position].key !== undefined)) position++;
    const candidate = before[position];
    if (!candidate || candidate.tag !== vnode.tag) return null;
    position++;
    return candidate;
  };
  const matched = next.map((vnode) => {
    const kept = match(vnode);
    if (kept) used.add(kept);
    return kept;
  });
  for (const vnode of before) if (!used.has(vnode)) discard(parent, vnode);
  let cursor = parent.firstChild;
  next.forEach((vnode, index) => {
    const kept = matched[index];
    const node = kept ? /** @type {Node} */ (kept.node) : create(vnode, isSvg);
    if (kept) patch(kept, vnode, isSvg);
    if (node === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(node, cursor);
  });
}

/**
 * @param {Element} parent
 * @param {VNode} vnode
 */
function discard(parent, vnode) {
  released(vnode);
  if (vnode.node && vnode.node.parentNode === parent) parent.removeChild(vnode.node);
}

/** @param {VNode} vnode */
function released(vnode) {
  vnode.props.onremove?.(vnode.node);
  for (const child of vnode.children) released(child);
}

const PROPERTIES = new Set(["value", "checked", "selected", "indeterminate", "open"]);
const IGNORED = new Set(["key", "onmount", "onupdate", "onremove"]);

/**
 * @param {Element} element
 * @param {string} name
 * @param {any} value
 * @param {any} before
 */
function setProp(element, name, value, before) {
  if (IGNORED.has(name)) return;
  if (name.startsWith("on")) listen(element, name.slice(2), value);
  else if (name === "style") setStyle(/** @type {HTMLElement} */ (element), value ?? {}, before ?? {});
  else if (PROPERTIES.has(name) && element.namespaceURI !== SVG && name !== "open") {
    const target = /** @type {Record<string, any>} */ (/** @type {unknown} */ (element));
    const wanted = value ?? (name === "value" ? "" : false);
    if (target[name] !== wanted) target[name] = wanted;
  } else if (value === undefined || value === null || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/**
 * Handlers are kept beside the element, so that a new closure costs no new listener.
 * @type {WeakMap<Element, Map<string, (event: Event) => unknown>>}
 */
const handlers = new WeakMap();

/**
 * @param {Element} element
 * @param {string} type
 * @param {((event: Event) => unknown) | undefined | null | false} handler
 */
function listen(element, type, handler) {
  let own = handlers.get(element);
  if (!own) {
    own = new Map();
    handlers.set(element, own);
  }
  if (!own.has(type)) element.addEventListener(type, dispatch);
  own.set(type, handler || (() => undefined));
}

/** @param {Event} event */
function dispatch(event) {
  const element = /** @type {Element} */ (event.currentTarget);
  handlers.get(element)?.get(event.type)?.(event);
}

/**
 * Through the object model: the policy of the page forbids style attributes in markup.
 * @param {HTMLElement} element
 * @param {Record<string, string>} style
 * @param {Record<string, string>} before
 */
function setStyle(element, style, before) {
  for (const name of Object.keys(before)) if (!(name in style)) element.style.removeProperty(name);
  for (const name of Object.keys(style)) {
    if (before[name] !== style[name]) element.style.setProperty(name, style[name]);
  }
}
