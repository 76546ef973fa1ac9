// Stacked bars over time by reason, with a legend, and the same as a table.

import { reasonText } from "./badge.js";
import { h, svg } from "./dom.js";
import { number, shortClock, t } from "./i18n.js";
import { table } from "./table.js";

const WIDTH = 720, HEIGHT = 220, LEFT = 34, BOTTOM = 24, TOP = 10;
/** The closed set of reasons, so that each keeps its colour whatever else is shown. */
const REASONS = ["deadline", "client_timeout", "too_late", "overloaded", "loading", "rate_limited", "transport", "http_status", "rejected",
  "malformed_response", "circuit_open", "misconfigured"];
const colour = (reason) => Math.max(REASONS.indexOf(reason), 0);

/** The top of the axis: a round number at or above the highest bar. */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((top) => top >= value);
}

export function stackedBars({ times, series, step_s: step }) {
  const reasons = Object.keys(series);
  const sums = times.map((_, index) => reasons.reduce((sum, reason) => sum + series[reason][index], 0));
  const top = niceTop(Math.max(...sums));
  const slot = (WIDTH - LEFT) / times.length;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const bars = times.flatMap((_, index) => stack(index, reasons, series, { x: LEFT + index * slot, width: slot, y }));
  const lines = [0, ...(top % 2 === 0 ? [top / 2] : []), top].map((value) => [
    svg("line", { x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value), class: "grid" }),
    svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, number(value))]);
  const every = Math.ceil(times.length / 6);
  const labels = times.map((at, index) => (index % every === 0 ? svg("text", { x: LEFT + index * slot, y: HEIGHT - 6 }, shortClock(at - step)) : null));
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t("console.chart") }, lines, bars, labels);
  const place = h("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": t("console.over_time") }, chart);
  // What is latest is looked at first, where the screen is too narrow for all of it.
  requestAnimationFrame(() => { place.scrollLeft = place.scrollWidth; });
  return [place, legend(reasons, series), asTable(times, reasons, series, step)];
}

function stack(index, reasons, series, { x, width, y }) {
  let below = 0;
  return reasons.map((reason) => {
    const value = series[reason][index];
    if (value <= 0) return null;
    const rect = svg("rect", { x: x + 1, width: Math.max(width - 2, 1), y: y(below + value), height: y(below) - y(below + value), rx: 1.5,
      class: "stack", "data-reason": reason, "data-colour": colour(reason) }, svg("title", {}, `${reasonText(reason)}: ${number(value)}`));
    below += value;
    return rect;
  });
}

function legend(reasons, series) {
  return h("ul", { class: "legend" }, reasons.map((reason) => h("li", { "data-reason": reason, "data-colour": colour(reason) }, reasonText(reason),
    " ", h("strong", {}, number(series[reason].reduce((sum, value) => sum + value, 0))))));
}

function asTable(times, reasons, series, step) {
  const columns = [t("console.time"), ...reasons.map((reason) => [reasonText(reason), { number: true }])];
  const rows = times.map((at, index) => [shortClock(at - step), ...reasons.map((reason) => number(series[reason][index]))])
    .filter((_, index) => reasons.some((reason) => series[reason][index] > 0));
  return h("details", { class: "as-table" }, h("summary", {}, t("console.as_table")), table(t("console.over_time"), columns, rows, { id: "over-time-table" }));
}
