// One passage as a card, and a list of them that can be put into another order.

import { h } from "./dom.js";
import { languageName, number, plural, t } from "./i18n.js";
import { marked } from "./words.js";

const SHORT_CHARS = 320;

/** The http(s) address that a passage names as its source, if it does. */
export function sourceOf(metadata) {
  for (const name of ["url", "source_url", "link"]) {
    const value = metadata?.[name];
    if (typeof value === "string" && /^https?:\/\//i.test(value) && URL.canParse(value)) return value;
  }
  return null;
}

/** Lines of a paragraph joined as they were wrapped; lists keep their lines. */
const unwrapped = (text) => text.trim().replace(/[ \t]*\n(?![\n\-*•]|[ \t]*[-*•] )[ \t]*/g, " ");

export const textOf = (result, words) => h("p", { class: "text", lang: result.language }, marked(unwrapped(result.content), words));

function moreButton(body) {
  body.classList.add("clamped");
  const more = h("button", { type: "button", class: "plain more", "aria-expanded": "false" }, t("passage.more"));
  more.addEventListener("click", () => {
    const opened = body.classList.toggle("clamped") === false;
    more.setAttribute("aria-expanded", String(opened));
    more.textContent = t(opened ? "passage.less" : "passage.more");
  });
  return more;
}

/** An identifier as the passage writes it; the gateway names it folded. */
function spelled(identifier, result) {
  const text = `${result.title} ${result.content}`;
  const at = text.toLowerCase().indexOf(identifier);
  return at < 0 ? identifier : text.slice(at, at + identifier.length);
}

export function factsOf(result, ...first) {
  const source = sourceOf(result.metadata);
  return h("p", { class: "facts" }, first,
    h("span", { class: "language", lang: document.documentElement.lang }, languageName(result.language)),
    (result.matched_identifiers ?? []).map((one) => h("span", { class: "chip exact" }, t("passage.identifier", { identifier: spelled(one, result) }))),
    source ? h("a", { href: source, rel: "noopener noreferrer", target: "_blank", class: "source" }, t("passage.source", { host: new URL(source).host })) : null,
  );
}

/** Where a passage stood before, if elsewhere. */
export function moveOf(result, length = Infinity) {
  const by = result.hybrid_rank - result.rank;
  if (by === 0) return null;
  const direction = by > 0 ? "up" : "down";
  const outside = by > 0 && result.hybrid_rank > length;
  const said = outside ? t("move.in", { from: number(result.hybrid_rank) }) : plural(`move.${direction}`, Math.abs(by), { from: number(result.hybrid_rank) });
  return h("span", { class: "move", "data-direction": direction, title: said },
    h("span", { "aria-hidden": "true" }, `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}`), h("span", { class: "unseen" }, said));
}

/** A card; `prefix` makes its id one of its own on the page. */
export function card(result, words, prefix) {
  const title = `${prefix}-title-${result.id}`;
  const text = textOf(result, words);
  return h("li", { class: "passage", id: `${prefix}-${result.id}`, "data-passage-id": result.id, tabindex: "-1", "aria-labelledby": title },
    h("div", { class: "rank" }, h("span", { class: "number" }), h("span", { class: "moved" })),
    h("div", { class: "body" },
      h("h3", { id: title, lang: result.language }, marked(result.title, words)),
      text,
      factsOf(result, text.textContent.length > SHORT_CHARS ? moreButton(text) : null),
    ));
}

function place(item, result, final, length) {
  item.dataset.rank = result.rank;
  item.dataset.hybridRank = result.hybrid_rank;
  item.querySelector(".number").textContent = number(result.rank);
  item.querySelector(".moved").replaceChildren(...[final ? moveOf(result, length) : null].filter(Boolean));
}

/** Show `results` in `list`. What is there already stays the same element and glides to its new place. */
export function arrange(list, results, words, prefix, { final = true, animate = true } = {}) {
  const before = new Map([...list.children].map((item) => [item.dataset.passageId, item]));
  const places = new Map([...before].map(([id, item]) => [id, item.getBoundingClientRect().top]));
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const wanted = results.map((result) => {
    const item = before.get(result.id) ?? card(result, words, prefix);
    place(item, result, final, results.length);
    return item;
  });
  for (const item of before.values()) if (!wanted.includes(item)) item.remove();
  wanted.forEach((item, index) => {
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
  });
  // A moved element loses the focus, and nobody asked to lose it.
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  list.dataset.order = final ? "final" : "hybrid";
  if (animate && before.size > 0 && !matchMedia("(prefers-reduced-motion: reduce)").matches) glide(wanted, places);
}

function glide(items, places) {
  for (const item of items) {
    const from = places.get(item.dataset.passageId);
    if (from === undefined) {
      item.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 400, easing: "ease-out" });
      continue;
    }
    const by = from - item.getBoundingClientRect().top;
    if (Math.abs(by) < 1) continue;
    item.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: 520, easing: "cubic-bezier(.2,.7,.2,1)" });
    item.classList.add("moving");
    setTimeout(() => item.classList.remove("moving"), 1600);
  }
}

/** How many passages stand elsewhere than before. */
export const movedCount = (answer) => answer.results.filter((one) => one.rank !== one.hybrid_rank).length;
