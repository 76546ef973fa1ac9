// What the reranker was sent, against the budget, and where its scores moved the head.

import { h, svg } from "./dom.js";
import { number, t } from "./i18n.js";
import { table } from "./table.js";

const ROW = 26, TOP = 14, LEFT = 34, RIGHT = 286, WIDTH = 320;

export function budgetSection(receipt) {
  const { budget } = receipt;
  const sent = budget.sent_chars ?? 0, whole = budget.budget_chars ?? 0;
  const values = { sent: number(sent), budget: number(whole), documents: number(budget.sent_documents ?? 0), query: number(budget.query_chars ?? 0),
    initial_k: number(budget.initial_k ?? 0), max: number(budget.max_document_chars ?? 0) };
  return h("section", { class: "card", id: "budget", "aria-labelledby": "budget-title" }, h("h2", { id: "budget-title" }, t("budget.title")),
    h("meter", { min: 0, max: whole || 1, value: sent, "aria-labelledby": "budget-title" }, t("budget.sent", values)),
    h("p", {}, t("budget.sent", values)), h("p", { class: "note" }, t("budget.limits", values)));
}

/** Lines from the place before to the place after; the table beside it says the same. */
function slopes(head) {
  const ranks = head.flatMap((one) => [one.hybrid_rank, one.rank_after]).filter((rank) => rank > 0);
  const y = (rank) => TOP + (rank - 1) * ROW;
  const height = TOP * 2 + (Math.max(...ranks) - 1) * ROW;
  const label = (x, rank, anchor) => svg("text", { x, y: y(rank) + 4, "text-anchor": anchor }, number(rank));
  const line = (one) => svg("path", { class: "slope", "data-direction": Math.sign(one.hybrid_rank - one.rank_after),
    d: `M${LEFT} ${y(one.hybrid_rank)} C ${LEFT + 110} ${y(one.hybrid_rank)}, ${RIGHT - 110} ${y(one.rank_after)}, ${RIGHT} ${y(one.rank_after)}` });
  return svg("svg", { class: "slopes", viewBox: `0 0 ${WIDTH} ${height}`, "aria-hidden": "true", focusable: "false" },
    head.filter((one) => one.rank_after > 0).map((one) => [line(one), label(LEFT - 10, one.hybrid_rank, "end"), label(RIGHT + 10, one.rank_after, "start")]));
}

export function headSection(receipt, answer) {
  const titles = new Map(answer.results.map((one) => [one.id, one.title]));
  const after = (one) => (one.rank_after > 0 ? number(one.rank_after) : "–");
  const move = (one) => {
    const by = typeof one.moved === "number" ? one.moved : one.hybrid_rank - one.rank_after;
    if (!by || !(one.rank_after > 0)) return "–";
    return h("span", { class: "move", "data-direction": by > 0 ? "up" : "down" }, `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}`);
  };
  const columns = [[t("head.before"), { number: true }], [t("head.after"), { number: true }], t("head.move"), t("head.passage"),
    [t("head.score"), { number: true }], [t("head.chars"), { number: true }]];
  const rows = receipt.head.map((one) => [number(one.hybrid_rank), after(one), move(one),
    titles.get(one.id) ?? h("code", {}, String(one.id).slice(0, 12)),
    typeof one.rerank === "number" ? number(one.rerank, 3) : t("head.unscored"), number(one.chars_sent ?? 0)]);
  return h("section", { class: "card", id: "head", "aria-labelledby": "head-title" }, h("h2", { id: "head-title" }, t("head.title")),
    h("div", { class: "head-grid" }, slopes(receipt.head), table(t("head.title"), columns, rows)));
}
