// Run a query and see how its answer came about: stages, legs, budget, head, and why each passage is where it is.

import { failureNote, postJson } from "./api.js";
import { badge, badgeText, degradedNotes } from "./badge.js";
import { announce, byId, h } from "./dom.js";
import { duration, t } from "./i18n.js";
import { budgetSection, headSection } from "./head.js";
import { legsSection } from "./legs.js";
import { waterfallSection } from "./waterfall.js";
import { whySection } from "./why.js";

const root = byId("inspector");
let running = null;

function traceLine(answer) {
  const id = answer.trace_id ?? "";
  const template = root.dataset.traceLink;
  const exists = /^[0-9a-f]{32}$/.test(id) && !/^0+$/.test(id);
  if (!exists) return null;
  const shown = h("code", {}, id);
  const link = template ? h("a", { href: template.replace("{trace_id}", id), target: "_blank", rel: "noopener noreferrer" }, shown) : shown;
  return h("p", { class: "note" }, t("inspector.trace"), " ", link);
}

function summary(answer) {
  const { provider, model, score_kind: kind } = answer.rerank ?? {};
  const facts = [
    [t("inspector.took"), duration(answer.elapsed_ms)],
    [t("inspector.provider"), [provider, model].filter(Boolean).join(" · ") || "–"],
    [t("inspector.score_kind"), kind ? t(`score_kind.${kind}`) : "–"],
  ];
  return h("section", { class: "card summary", id: "summary" }, badge(answer),
    h("dl", { class: "facts-list" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    degradedNotes(answer), (answer.warnings ?? []).map((one) => h("p", { class: "note" }, one)), traceLine(answer));
}

function show(answer, query) {
  const receipt = answer.receipt ?? {};
  const sections = [
    summary(answer),
    receipt.stages?.length ? waterfallSection(receipt, answer) : null,
    receipt.legs?.length ? legsSection(receipt) : null,
    receipt.budget ? budgetSection(receipt) : null,
    receipt.head?.length ? headSection(receipt, answer) : null,
    whySection(answer, query),
  ];
  byId("receipt").hidden = false;
  byId("receipt").replaceChildren(...sections.filter(Boolean));
  if (!answer.receipt) byId("receipt").prepend(h("p", { class: "note" }, t("inspector.no_receipt")));
}

async function inspect(form) {
  running?.abort();
  running = new AbortController();
  const query = form.query.value.trim();
  const body = { query, view: root.dataset.view, top_k: form.top_k.valueAsNumber, rerank: form.rerank.checked, explain: true };
  if (form.deadline_ms.value) body.deadline_ms = form.deadline_ms.valueAsNumber;
  byId("state").replaceChildren(h("span", { class: "note" }, t("chat.searching")));
  try {
    const answer = await postJson("/api/search", body, running.signal);
    byId("state").replaceChildren();
    show(answer, query);
    announce(t("inspector.live", { order: badgeText(answer), took: duration(answer.elapsed_ms) }));
  } catch (error) {
    if (error.name === "AbortError") return;
    byId("receipt").hidden = true;
    byId("state").replaceChildren(failureNote(error));
  }
}

byId("inspect").addEventListener("submit", (event) => {
  event.preventDefault();
  inspect(event.target.elements);
});
