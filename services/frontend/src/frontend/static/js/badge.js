// How a list came to its order, in a few quiet words.

import { h, svg } from "./dom.js";
import { known, number, t } from "./i18n.js";

/** `pending`, `reranked`, `partly`, `fallback` or `skipped`. */
export function stateOf(answer) {
  if (!answer.rerank) return "pending";
  return { applied: "reranked", partial: "partly", fallback: "fallback" }[answer.rerank.status] ?? "skipped";
}

/** A reason of the gateway's closed set, in words. */
export const reasonText = (reason) => (known(`reason.${reason}`) ? t(`reason.${reason}`) : t("reason.unknown"));

export function badgeText(answer) {
  const state = stateOf(answer);
  const { scored = 0, candidates = 0, reason } = answer.rerank ?? {};
  const values = { scored: number(scored), candidates: number(candidates), reason: reason ? reasonText(reason) : "" };
  return t(`badge.${state}`, values);
}

const MARKS = {
  reranked: "M2.5 6.5l2.5 2.5 4.5-5.5",
  partly: "M2.5 6h7",
  fallback: "M6 2.5v4M6 9v.2",
  skipped: "M3 6h6",
  pending: "M6 2.5v3.5l2 1.5",
};

/** The badge of an answer. */
export function badge(answer) {
  const state = stateOf(answer);
  const mark = svg("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, svg("path", { d: MARKS[state] }));
  return h("span", { class: "badge", "data-status": state, "data-reason": answer.rerank?.reason }, mark, badgeText(answer));
}

/** Sentences about what was missing when the answer was made. */
export function degradedNotes(answer) {
  return (answer.degraded ?? []).map((what) => h("p", { class: "note degraded", "data-degraded": what }, t(`degraded.${what}`)));
}
