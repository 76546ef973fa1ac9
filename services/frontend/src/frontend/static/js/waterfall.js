// The time of each stage against the deadline.

import { h } from "./dom.js";
import { duration, known, t } from "./i18n.js";

const ROOM = 1.15;
const stageName = (name) => (known(`stage.${name}`) ? t(`stage.${name}`) : name);

function bar(stage, scale) {
  const left = (100 * (stage.start_ms ?? 0)) / scale;
  const width = Math.max(0.4, (100 * (stage.elapsed_ms ?? 0)) / scale);
  const element = h("span", { class: "stage-bar", "data-stage": stage.name, "aria-hidden": "true" });
  element.style.setProperty("--left", `${Math.min(left, 99.6)}%`);
  element.style.setProperty("--width", `${Math.min(width, 100 - left)}%`);
  return element;
}

function row(stage, scale, deadlineAt) {
  const left = stage.left_ms === null || stage.left_ms === undefined ? "–" : duration(Math.max(0, stage.left_ms));
  const lane = h("span", { class: "lane" }, bar(stage, scale), deadlineAt === null ? null : deadlineMark(deadlineAt));
  return h("tr", { "data-stage": stage.name }, h("th", { scope: "row" }, stageName(stage.name)), h("td", { class: "lane-cell" }, lane),
    h("td", { class: "number" }, duration(stage.elapsed_ms ?? 0)), h("td", { class: "number" }, left));
}

function deadlineMark(at) {
  const mark = h("span", { class: "deadline-mark" });
  mark.style.setProperty("--left", `${at}%`);
  return mark;
}

export function waterfallSection(receipt, answer) {
  const stages = receipt.stages;
  const end = Math.max(answer.elapsed_ms ?? 0, ...stages.map((one) => (one.start_ms ?? 0) + (one.elapsed_ms ?? 0)), 1);
  const deadline = receipt.deadline_ms ?? null;
  // A deadline far away would make the bars too small to see: then it stands beside the picture instead of in it.
  const inside = deadline !== null && deadline <= end * 3;
  const scale = (inside ? Math.max(deadline, end) : end) * (inside ? 1.02 : ROOM);
  const deadlineAt = inside ? (100 * deadline) / scale : null;
  const sentence = deadline === null ? "" : t(inside ? "waterfall.deadline" : "waterfall.deadline.far", { deadline: duration(deadline), took: duration(end) });
  return h("section", { class: "card", id: "waterfall", "aria-labelledby": "waterfall-title" },
    h("h2", { id: "waterfall-title" }, t("waterfall.title")), h("p", { class: "note" }, sentence),
    h("div", { class: "scroller", tabindex: "0", role: "group", "aria-labelledby": "waterfall-title" }, h("table", { class: "waterfall" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("waterfall.stage")), h("th", { scope: "col" }, t("waterfall.when")),
        h("th", { scope: "col", class: "number" }, t("waterfall.took")), h("th", { scope: "col", class: "number" }, t("waterfall.left")))),
      h("tbody", {}, stages.map((stage) => row(stage, scale, deadlineAt))))));
}
