// When reranking fell back, and why: over time, and one by one.

import { failureNote, getJson } from "./api.js";
import { reasonText } from "./badge.js";
import { stackedBars } from "./bars.js";
import { announce, byId, h } from "./dom.js";
import { clock, duration, number, plural, t } from "./i18n.js";
import { table } from "./table.js";

const REFRESH_MS = 15_000;
let running = null;

const problem = (where, what) => h("p", { class: "note", "data-problem": what }, t(`console.${where}.${what}`));

function overTime(found) {
  if (found.problem) return [problem("prometheus", found.problem)];
  const total = Object.values(found.series).flat().reduce((sum, value) => sum + value, 0);
  if (total === 0) return [h("p", { class: "note", id: "no-fallbacks" }, t("console.none"))];
  return [h("p", { id: "total" }, plural("console.total", total)), ...stackedBars(found)];
}

function traceLink(row) {
  const id = row.trace_id.slice(0, 8);
  return row.link ? h("a", { href: row.link, target: "_blank", rel: "noopener noreferrer", class: "trace" }, h("code", {}, id)) : h("code", {}, id);
}

function traces(found) {
  if (found.problem) return [problem("trace_store", found.problem)];
  if (found.rows.length === 0) return [h("p", { class: "note" }, t("console.no_traces"))];
  const columns = [t("console.at"), t("console.reason"), [t("console.candidates"), { number: true }], [t("console.time_left"), { number: true }],
    [t("console.duration"), { number: true }], t("console.trace")];
  const rows = found.rows.map((row) => [clock(row.at, true),
    h("span", { "data-reason": row.reason }, reasonText(row.reason), " ", h("code", {}, row.reason)),
    row.candidates === null ? "–" : number(row.candidates), row.time_left_s === null ? "–" : duration(row.time_left_s * 1000),
    duration(row.duration_ms), traceLink(row)]);
  return [table(t("console.traces"), columns, rows, { id: "trace-table" })];
}

async function look() {
  running?.abort();
  running = new AbortController();
  try {
    const found = await getJson(`/api/console?minutes=${Number(byId("minutes").value)}`, running.signal);
    byId("over-time").replaceChildren(...overTime(found.over_time));
    byId("traces").replaceChildren(...traces(found.traces));
    byId("updated").textContent = t("console.updated", { at: clock(Date.now() / 1000) });
    return true;
  } catch (error) {
    if (error.name !== "AbortError") byId("over-time").replaceChildren(failureNote(error));
    return false;
  }
}

byId("range").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await look()) announce(byId("updated").textContent);
});
byId("minutes").addEventListener("change", look);
setInterval(() => { if (byId("follow").checked && !document.hidden) look(); }, REFRESH_MS);
look();
