// A small virtual DOM: a view says what there should be, and `render` changes what differs. Strings become text nodes,
// and there is no way to pass markup, so nothing that a name, an owner or a reason contains can become an element.

import { pieces } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "rect", "line", "circle", "g", "polyline"]);
// Set as properties: the attribute is only the initial value.
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open"]);
const ATTRIBUTES = new Set(
  (
    "class id role href type title for name placeholder autocomplete spellcheck tabindex dir maxlength inputmode " +
    "d x y r cx cy rx width height viewBox points"
  ).split(" "),
);
const OPEN_ENDED = /^(?:aria|data)-[a-z]+$/;

/** A node: `h("a", { href: "#/now", onclick }, "text", child)`. `key` tells children apart; `style` is an object. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: children.flat(9).filter((child) => child != null && child !== false) };
}

/** Text from a stranger: it gets its own direction, and invisible characters are shown. */
export function say(text, props) {
  const parts = pieces(text ?? "").map((piece) =>
    piece.hidden ? h("span", { class: "hidden-character" }, piece.text) : piece.text,
  );
  return h("bdi", { dir: "auto", ...props }, parts);
}

/** Makes the children of `root` match `nodes`. */
export function render(root, ...nodes) {
  const children = nodes.flat(9).filter((child) => child != null && child !== false);
  patchChildren(root, root.rendered ?? [], children);
  root.rendered = children;
}

function create(node) {
  if (typeof node !== "object") return document.createTextNode(String(node));
  const element = SVG_TAGS.has(node.tag) ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  patchProps(element, {}, node.props);
  patchChildren(element, [], node.children);
  node.props.created?.(element);
  return element;
}

function isSame(before, after) {
  if (typeof before !== "object" || typeof after !== "object")
    return typeof before === typeof after && typeof before !== "object";
  return before.tag === after.tag && before.props.key === after.props.key;
}

function patchChildren(parent, before, after) {
  const old = Array.from(parent.childNodes).slice(0, before.length);
  const keyed = new Map();
  before.forEach((node, index) => {
    if (node.props?.key !== undefined) keyed.set(node.props.key, index);
  });
  const used = new Set();
  let next = 0;
  const placed = after.map((node) => {
    let index = -1;
    if (node.props?.key !== undefined) {
      index = keyed.get(node.props.key) ?? -1;
    } else {
      while (next < before.length && (used.has(next) || before[next].props?.key !== undefined)) next += 1;
      index = next < before.length ? next : -1;
    }
    if (index < 0 || used.has(index) || !isSame(before[index], node)) return create(node);
    used.add(index);
    patch(old[index], before[index], node);
    return old[index];
  });
  old.forEach((element, index) => {
    if (!used.has(index)) element.remove();
  });
  placed.forEach((element, index) => {
    if (parent.childNodes[index] !== element) parent.insertBefore(element, parent.childNodes[index] ?? null);
  });
}

function patch(element, before, after) {
  if (typeof after !== "object") {
    if (before !== after) element.data = String(after);
    return;
  }
  if (before === after) return;
  patchProps(element, before.props, after.props);
  patchChildren(element, before.children, after.children);
}

function patchProps(element, before, after) {
  for (const name of Object.keys(before)) {
    if (!(name in after)) setProp(element, name, before[name], undefined);
  }
  for (const [name, value] of Object.entries(after)) {
    if (before[name] !== value || PROPERTIES.has(name) || name === "style") setProp(element, name, before[name], value);
  }
}

function setProp(element, name, before, value) {
  if (name === "key" || name === "created") return;
  if (name.startsWith("on")) {
    if (before) element.removeEventListener(name.slice(2), before);
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
  } else if (name === "style") {
    // Through the object model, which the content security policy allows, not through the attribute, which it forbids.
    for (const [property, text] of Object.entries(value ?? {})) {
      if (before?.[property] !== text) element.style.setProperty(property, text);
    }
  } else if (PROPERTIES.has(name)) {
    if (element[name] !== (value ?? false)) element[name] = value ?? (name === "value" ? "" : false);
  } else if (!ATTRIBUTES.has(name) && !OPEN_ENDED.test(name)) {
    throw new Error(`the attribute ${name} is not known`);
  } else if (value == null || value === false) {
    element.removeAttribute(name);
  } else if (name === "href" && !/^(?:#|\.\.?\/)/.test(value)) {
    throw new Error("a link stays on this server");
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}
