// Tables that can be scrolled sideways by keyboard on a narrow screen.

import { h } from "./dom.js";

/** columns: [heading, {number: bool}] or a heading; rows: arrays of cells. */
export function table(caption, columns, rows, attributes = {}) {
  const shaped = columns.map((column) => (Array.isArray(column) ? column : [column, {}]));
  const cell = (content, index, tag) => h(tag, { class: shaped[index][1].number ? "number" : null, scope: tag === "th" ? "row" : null }, content);
  return h("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": caption },
    h("table", attributes, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, shaped.map(([name, options]) => h("th", { scope: "col", class: options.number ? "number" : null }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((content, index) => cell(content, index, index === 0 ? "th" : "td")))))));
}
