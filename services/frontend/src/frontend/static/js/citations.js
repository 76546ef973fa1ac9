// An answer's text with [1] made into a link to the passage behind the number.

import { h } from "./dom.js";
import { t } from "./i18n.js";

export function citedText(text, ids, prefix) {
  return text.split(/\n{2,}/).filter(Boolean).map((paragraph) => h("p", {}, cited(paragraph, ids, prefix)));
}

function cited(text, ids, prefix) {
  return text.split(/(\[\d{1,2}\])/).map((part) => {
    const id = /^\[\d+\]$/.test(part) ? ids[Number(part.slice(1, -1)) - 1] : undefined;
    if (id === undefined) return part;
    const target = `${prefix}-${id}`;
    const link = h("a", { href: `#${target}`, class: "cite", "aria-label": t("answer.cite", { number: part.slice(1, -1) }) }, part.slice(1, -1));
    link.addEventListener("click", (event) => {
      event.preventDefault();
      document.getElementById(target)?.focus();
    });
    return link;
  });
}
