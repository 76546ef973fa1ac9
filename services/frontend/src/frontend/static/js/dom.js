// Elements made out of data. Text becomes text nodes, so nothing in a passage or a question can become markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element: h("a", {href: "/", class: "x"}, "text", other). Attributes that begin with `on` are listeners. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

/** Have a screen reader say something when it is idle. */
export function announce(text) {
  const live = byId("live");
  live.textContent = "";
  // The same sentence twice in a row is said twice only if it is a change.
  requestAnimationFrame(() => { live.textContent = text; });
}
