// Why each passage is where it is, in sentences and in numbers.

import { h } from "./dom.js";
import { number, plural, t } from "./i18n.js";
import { legName } from "./legs.js";
import { moveOf, textOf } from "./passages.js";
import { wordsOf } from "./words.js";

function termsOf(result) {
  return Object.entries(result.explain?.fusion_terms ?? {}).sort(([, a], [, b]) => b - a).map(([name, value]) => {
    const [leg, subQuery] = name.split(":");
    return { name: Number(subQuery) > 0 ? t("why.leg_of", { leg: legName(leg), number: Number(subQuery) + 1 }) : legName(leg), leg, value };
  });
}

/** Where the legs had it, as far as the receipt says. */
function placesOf(result, answer) {
  return (answer.receipt?.legs ?? []).flatMap((leg) => (leg.top ?? []).filter((one) => one.id === result.id)
    .map((one) => t("why.place", { leg: legName(leg.leg), rank: number(one.rank) })));
}

function sentences(result, answer) {
  const { scores } = result;
  const said = placesOf(result, answer);
  if (scores.similarity !== null) said.push(t("why.similarity", { value: number(scores.similarity, 3) }));
  if (scores.bm25 !== null) said.push(t("why.bm25", { value: number(scores.bm25, 2) }));
  if (result.matched_identifiers?.length) said.push(t("why.identifiers", { identifiers: result.matched_identifiers.join(", ") }));
  if (result.matched_identifiers?.some((one) => answer.receipt?.identifiers?.strong?.includes(one))) said.push(t("why.tier"));
  said.push(t("why.fused", { rank: number(result.hybrid_rank), value: number(scores.rrf, 4) }));
  if (scores.rerank !== null) said.push(t("why.rerank", { value: number(scores.rerank, 3) }));
  else if (answer.ranking !== "hybrid") said.push(t("why.unscored"));
  const by = result.hybrid_rank - result.rank;
  if (by === 0) said.push(t("why.stayed"));
  else said.push(plural(by > 0 ? "move.up" : "move.down", Math.abs(by), { from: number(result.hybrid_rank) }) + ".");
  const importance = result.explain?.importance;
  if (typeof importance === "number" && importance !== 1) said.push(t("why.importance", { value: number(importance, 2) }));
  return said;
}

function bars(terms) {
  const most = Math.max(...terms.map((one) => one.value), 1e-9);
  return h("dl", { class: "terms" }, terms.map((one) => {
    const bar = h("span", { class: "term-bar", "data-leg": one.leg, "aria-hidden": "true" });
    bar.style.setProperty("--width", `${(100 * one.value) / most}%`);
    return h("div", {}, h("dt", {}, one.name), h("dd", {}, bar, h("span", { class: "number" }, number(one.value, 5))));
  }));
}

function item(result, answer, words) {
  const terms = termsOf(result);
  return h("li", { class: "why", "data-passage-id": result.id, "data-rank": result.rank },
    h("details", {}, h("summary", {}, h("span", { class: "number" }, number(result.rank)), h("span", { class: "title", lang: result.language }, result.title), moveOf(result)),
      h("div", { class: "reasons" },
        h("h3", {}, t("why.title")), h("ul", {}, sentences(result, answer).map((one) => h("li", {}, one))),
        terms.length ? [h("h3", {}, t("why.terms")), bars(terms)] : null,
        h("h3", {}, t("why.text")), textOf(result, words),
        h("p", { class: "note" }, h("code", {}, result.id)))));
}

export function whySection(answer, query) {
  const words = wordsOf(query);
  const all = [...answer.results, ...(answer.scopes ?? []).flatMap((scope) => scope.results)];
  return h("section", { class: "card", id: "why", "aria-labelledby": "why-title" }, h("h2", { id: "why-title" }, t("why.section")),
    all.length ? h("ol", { class: "whys" }, all.map((one) => item(one, answer, words))) : h("p", { class: "note" }, t("chat.nothing")));
}
