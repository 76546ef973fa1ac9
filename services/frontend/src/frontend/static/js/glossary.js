// One term, one definition on top. Weak matches are hidden only where a reranker gave scores that mean something by themselves.

import { failureNote, stream } from "./api.js";
import { badge, degradedNotes, stateOf } from "./badge.js";
import { announce, byId, h } from "./dom.js";
import { number, plural, t } from "./i18n.js";
import { arrange, factsOf, textOf } from "./passages.js";
import { wordsOf } from "./words.js";

const { view } = byId("glossary").dataset;
const THRESHOLD = 0.2;
const RECENT = "knowledge-terms";
let running = null;

const folded = (text) => text.normalize("NFKC").toLowerCase().trim();

/** What a title is about: `Eisenmangel` of `Eisenmangel: blasser Austrieb`. */
const headword = (title) => folded(title.split(/:| \(| [–—-] /u)[0]);

/** Whether a passage names the term itself: at the head of its title, or by one of its identifiers. */
const isExact = (result, term) => headword(result.title) === folded(term) || (result.matched_identifiers ?? []).length > 0;

/** Exact ones first, then as they came; weak ones apart, if the scores allow to call anything weak. */
function sorted(answer, term) {
  const judged = ["reranked", "partly"].includes(stateOf(answer)) && answer.rerank.score_kind === "probability";
  const exact = answer.results.filter((one) => isExact(one, term));
  const others = answer.results.filter((one) => !isExact(one, term));
  const weak = judged ? others.filter((one) => one.scores.rerank !== null && one.scores.rerank < THRESHOLD) : [];
  return { judged, weak, shown: [...exact, ...others.filter((one) => !weak.includes(one))] };
}

function define(result, words, term) {
  const title = h("h2", { id: "definition-title", lang: result.language }, result.title);
  byId("definition").replaceChildren(
    isExact(result, term) ? h("p", { class: "eyebrow" }, t("glossary.exact")) : h("p", { class: "eyebrow" }, t("glossary.best")),
    title, textOf(result, words), factsOf(result));
  byId("definition").dataset.passageId = result.id;
}

function sentence(answer, { judged, weak }) {
  if (judged) return weak.length ? plural("glossary.hidden", weak.length, { threshold: number(THRESHOLD, 2) }) : t("glossary.none_hidden", { threshold: number(THRESHOLD, 2) });
  return ["reranked", "partly"].includes(stateOf(answer)) ? t("glossary.no_scale") : t("glossary.not_reranked");
}

function show(answer, term, final) {
  const words = wordsOf(term);
  const parts = sorted(answer, term);
  const [first, ...others] = parts.shown;
  byId("state").replaceChildren(badge(answer), ...degradedNotes(answer));
  byId("state").dataset.state = stateOf(answer);
  byId("definition").hidden = !first;
  byId("more").hidden = others.length === 0;
  if (first) define(first, words, term);
  arrange(byId("others"), others, words, "other", { final });
  byId("threshold").replaceChildren(final ? sentence(answer, parts) : "");
  if (final && parts.weak.length) byId("threshold").append(" ", reveal(answer, term, parts));
  if (final && parts.shown.length === 0) byId("state").append(h("p", { class: "note" }, t("glossary.nothing")));
}

function reveal(answer, term, { shown, weak }) {
  const button = h("button", { type: "button", class: "plain", id: "show-weak" }, t("glossary.show_hidden"));
  button.addEventListener("click", () => {
    byId("more").hidden = false;
    const [, ...others] = shown.length ? shown : [null];
    arrange(byId("others"), [...others, ...weak], wordsOf(term), "other");
    button.remove();
  });
  return button;
}

async function look(term) {
  running?.abort();
  running = new AbortController();
  byId("state").replaceChildren(h("span", { class: "note" }, t("chat.searching")));
  byId("threshold").replaceChildren();
  try {
    await stream("/api/search/stream", { query: term, view }, (name, data) => {
      if (name === "hybrid") show(data, term, false);
      else if (["reranked", "fallback", "skipped"].includes(name)) {
        show(data, term, true);
        announce(data.results.length ? t("glossary.live", { title: sorted(data, term).shown[0]?.title ?? "" }) : t("glossary.nothing"));
      }
    }, running.signal);
    keep(term);
  } catch (error) {
    if (error.name !== "AbortError") byId("state").replaceChildren(failureNote(error));
  }
}

const recent = () => JSON.parse(sessionStorage.getItem(RECENT) ?? "[]");

function keep(term) {
  sessionStorage.setItem(RECENT, JSON.stringify([term, ...recent().filter((one) => one !== term)].slice(0, 8)));
  offer();
}

function offer() {
  const terms = recent();
  byId("recent").hidden = terms.length === 0;
  byId("recent").replaceChildren(h("span", { class: "note" }, t("glossary.recent")), ...terms.map((term) => {
    const button = h("button", { type: "button", class: "chip" }, term);
    button.addEventListener("click", () => { byId("term").value = term; look(term); });
    return button;
  }));
}

byId("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  const term = byId("term").value.trim();
  if (term) look(term);
});
offer();
