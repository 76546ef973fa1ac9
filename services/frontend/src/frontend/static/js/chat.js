// Ask, see the base order at once, then the sharper one in its place.

import { failureNote, stream } from "./api.js";
import { badge, badgeText, degradedNotes, stateOf } from "./badge.js";
import { citedText } from "./citations.js";
import { announce, byId, h } from "./dom.js";
import { forget, remember, remembered } from "./history.js";
import { plural, t } from "./i18n.js";
import { arrange, movedCount } from "./passages.js";
import { wordsOf } from "./words.js";

const root = byId("chat");
const { view } = root.dataset;
const writesAnswers = root.dataset.answers === "on";
const turnsElement = byId("turns");
const question = byId("question");
let turns = remembered(view);
let running = null;
let count = 0;

/** The elements of one question and what came back. */
class Turn {
  constructor(query) {
    this.query = query;
    this.words = wordsOf(query);
    this.prefix = `turn-${++count}`;
    this.badge = h("span", { class: "badge-place" });
    this.answer = h("div", { class: "written", hidden: true, lang: "" });
    this.list = h("ol", { class: "passages", "aria-label": t("chat.passages") });
    this.notes = h("div", { class: "notes" });
    this.summary = h("summary", {}, h("span", { class: "found" }), this.badge);
    this.details = h("details", { open: true }, this.summary, this.notes, this.answer, this.list);
    const heading = `${this.prefix}-question`;
    this.element = h("article", { class: "turn", "data-state": "waiting", "aria-labelledby": heading },
      h("h2", { class: "question", id: heading }, query), this.details);
    this.found(t("chat.searching"));
  }

  found(text) { this.summary.querySelector(".found").textContent = text; }

  show(answer, { final, animate }) {
    this.element.dataset.state = final ? stateOf(answer) : "pending";
    this.badge.replaceChildren(...(answer.results.length ? [badge(answer)] : []));
    this.found(answer.results.length ? plural("chat.found", answer.results.length) : t("chat.nothing"));
    const nothing = answer.results.length === 0 && !(answer.degraded ?? []).includes("no_permissions");
    this.notes.replaceChildren(...degradedNotes(answer), ...(nothing && final ? [h("p", { class: "note" }, t("chat.nothing.hint"))] : []));
    arrange(this.list, answer.results, this.words, this.prefix, { final, animate });
  }

  fail(error) {
    this.element.dataset.state = "error";
    this.badge.replaceChildren();
    if (this.list.children.length === 0) this.found(t("chat.failed"));
    this.notes.append(failureNote(error));
  }
}

function saidAbout(answer) {
  const moved = movedCount(answer);
  const first = answer.results[0]?.title ?? "";
  if (stateOf(answer) === "fallback" || stateOf(answer) === "skipped") return badgeText(answer);
  return moved === 0 ? t("live.unchanged") : plural("live.moved", moved, { first });
}

async function search(turn, signal) {
  let last = null;
  const request = { query: turn.query, view };
  await stream("/api/search/stream", request, (name, data) => {
    if (name === "hybrid") {
      turn.show(data, { final: false, animate: false });
      announce(plural("live.found", data.results.length));
    } else if (["reranked", "fallback", "skipped"].includes(name)) {
      last = data;
      turn.show(data, { final: true, animate: true });
      announce(saidAbout(data));
    }
  }, signal);
  return last;
}

async function writeAnswer(turn, signal) {
  let text = "", ids = [];
  turn.answer.hidden = false;
  turn.answer.replaceChildren(h("p", { class: "note" }, t("answer.writing")));
  try {
    await stream("/api/answer", { query: turn.query, view }, (name, data) => {
      if (name === "passages") ids = data.ids;
      if (name !== "text") return;
      text += data.text;
      turn.answer.replaceChildren(...citedText(text, ids, turn.prefix));
    }, signal);
  } catch (error) {
    if (error.name === "AbortError") return null;
    turn.answer.append(failureNote(error));
  }
  if (text === "") turn.answer.hidden = turn.answer.querySelector(".failure") === null;
  else announce(t("answer.written"));
  return text ? { text, ids } : null;
}

async function ask(query) {
  running?.abort();
  const own = new AbortController();
  running = own;
  const turn = begin(query);
  turn.element.scrollIntoView({ block: "start", behavior: "auto" });
  try {
    const answer = await search(turn, own.signal);
    if (answer === null) return;
    const kept = { query, answer, written: null };
    turns.push(kept);
    remember(view, turns);
    if (writesAnswers && answer.results.length) {
      kept.written = await writeAnswer(turn, own.signal);
      remember(view, turns);
    }
  } catch (error) {
    if (error.name === "AbortError") turn.found(t("chat.stopped"));
    else turn.fail(error);
  }
}

function begin(query) {
  const turn = new Turn(query);
  for (const other of turnsElement.querySelectorAll("details")) other.open = false;
  turnsElement.append(turn.element);
  settle();
  return turn;
}

function settle() {
  const empty = turnsElement.children.length === 0;
  byId("welcome").hidden = !empty;
  byId("clear").hidden = empty;
  root.classList.toggle("empty", empty);
}

function restore() {
  for (const { query, answer, written } of turns) {
    const turn = begin(query);
    turn.show(answer, { final: true, animate: false });
    if (written) {
      turn.answer.hidden = false;
      turn.answer.replaceChildren(...citedText(written.text, written.ids, turn.prefix));
    }
  }
  settle();
  turnsElement.lastElementChild?.scrollIntoView({ block: "start" });
}

function fit() {
  question.style.height = "auto";
  question.style.height = `${Math.min(question.scrollHeight, 180)}px`;
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = question.value.trim();
  if (!query) return;
  question.value = "";
  fit();
  ask(query);
});
question.addEventListener("input", fit);
question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    byId("ask").requestSubmit();
  }
});
byId("clear").addEventListener("click", () => {
  running?.abort();
  turns = [];
  forget(view);
  turnsElement.replaceChildren();
  settle();
  question.focus();
});
restore();
