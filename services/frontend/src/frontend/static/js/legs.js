// What each leg of the search found, and how much it may add.

import { h } from "./dom.js";
import { known, number, t } from "./i18n.js";
import { table } from "./table.js";

export const legName = (leg) => (known(`leg.${leg}`) ? t(`leg.${leg}`) : leg);

function state(leg) {
  const said = ["failed", "timed_out", "shards_failed"].filter((name) => leg[name]).map((name) => t(`leg.state.${name}`));
  return h("span", { class: "chip", "data-state": said.length ? "bad" : "good" }, said.join(", ") || t("leg.state.good"));
}

function best(leg) {
  if (!leg.top?.length) return "–";
  return h("details", { class: "inline" }, h("summary", {}, t("legs.show", { count: number(leg.top.length) })),
    h("ol", { class: "ids" }, leg.top.map((one) => h("li", { value: one.rank }, h("code", {}, String(one.id).slice(0, 12)), " ", number(one.score, 3)))));
}

export function legsSection(receipt) {
  const scoped = receipt.legs.some((leg) => leg.scope);
  const columns = [t("legs.leg"), ...(scoped ? [t("legs.scope")] : []), [t("legs.sub_query"), { number: true }], [t("legs.hits"), { number: true }],
    [t("legs.weight"), { number: true }], [t("legs.factor"), { number: true }], t("legs.state"), t("legs.top")];
  const value = (x) => (typeof x === "number" ? number(x, 3) : "–");
  const subQuery = (x) => (typeof x === "number" ? number(x + 1) : String(x ?? "–"));
  const rows = receipt.legs.map((leg) => [legName(leg.leg), ...(scoped ? [leg.scope || "–"] : []), subQuery(leg.sub_query), number(leg.hits ?? 0),
    value(leg.weight), value(leg.factor), state(leg), best(leg)]);
  const { strong = [], soft = [] } = receipt.identifiers ?? {};
  const chips = (kind, values) => values.map((one) => h("span", { class: "chip", "data-kind": kind }, one));
  return h("section", { class: "card", id: "legs", "aria-labelledby": "legs-title" }, h("h2", { id: "legs-title" }, t("legs.title")),
    h("p", { class: "note" }, t("legs.about", { rrf_k: receipt.fusion?.rrf_k ?? "–" })),
    table(t("legs.title"), columns, rows),
    strong.length + soft.length ? h("p", { class: "identifiers" }, t("legs.identifiers"), " ", chips("strong", strong), chips("soft", soft)) : null);
}
