"""What each source says of one search: its answer, both pages, Prometheus, the alerts, the trace store, the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator

from frontend.language import catalogue
from tests.browser.stack import Site
from tests.browser.visitor import Visitor
from tests.observe.stack import until
from tests.parts.jaeger import Jaeger

SEEN_S = 45.0
RERANKED = "reranked"
NOTHING = "nothing"
Answer = Mapping[str, Any]
WORDS = catalogue("en")


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source says: a reason of the closed set, `reranked`, or `nothing`; and how it says that."""

    source: str
    reason: str
    words: str


@dataclass(slots=True)
class Witnesses:
    """Everybody who can say something about a search."""

    site: Site
    store: Jaeger
    inspector: Visitor
    console: Visitor

    def counted(self) -> dict[str, float]:
        """Fallbacks so far by reason, as Prometheus has them."""
        found = self.site.metrics.query("sum by (reranker_fallback_reason) (reranker_fallbacks_total)")
        return {one["metric"]["reranker_fallback_reason"]: float(one["value"][1]) for one in found}

    def of_a_fallback(self, answer: Answer, before: Mapping[str, float], alert: str) -> list[Statement]:
        """All of them on a search that was to be reranked and was not; `before` is what was counted, `alert` the one that must fire."""
        reason = str(answer["rerank"]["reason"])
        return [
            self._answer(answer),
            self._inspector(),
            self._console(answer),
            self._metric(reason, before),
            self._alert(reason, alert),
            self._trace(answer),
            self._log(answer),
        ]

    def of_a_reranked_search(self, answer: Answer, before: Mapping[str, float]) -> list[Statement]:
        """All of them once nothing is wrong: nobody has anything to tell but that it was reranked."""
        firing = until(lambda: not self.site.metrics.firing(), SEEN_S)
        grown = {reason: value for reason, value in self.counted().items() if value > before.get(reason, 0)}
        return [
            self._answer(answer),
            self._inspector(),
            self._metric_of_nothing(grown),
            Statement("alerts", RERANKED if firing is not None else NOTHING, f"none fires: {sorted(self.site.metrics.firing())}"),
            self._trace(answer),
            self._no_log(answer),
            self._console_of_nothing(answer),
        ]

    def _answer(self, answer: Answer) -> Statement:
        rerank, header = answer["rerank"], answer["header"]
        said = RERANKED if rerank["status"] == "applied" else str(rerank["reason"])
        agrees = header == rerank["reason"] and (answer["ranking"] == "hybrid") == (header is not None)
        words = f"{rerank['status']}, ranking {answer['ranking']}, header X-Reranker-Fallback: {header}"
        return Statement("answer", said if agrees else NOTHING, words)

    def _inspector(self) -> Statement:
        badge = self.inspector.page.locator("#summary .badge")
        said = badge.get_attribute("data-reason") or str(badge.get_attribute("data-status"))
        expected = WORDS["badge.reranked"] if said == RERANKED else WORDS["badge.fallback"].format(reason=WORDS[f"reason.{said}"])
        text = badge.inner_text()
        return Statement("inspector", said if text == expected else NOTHING, f"badge: {text}")

    def _row(self, answer: Answer) -> Locator:
        return self.console.page.locator("#trace-table tbody tr", has_text=str(answer["trace_id"])[:8])

    def _look_again(self) -> None:
        with self.console.page.expect_response("**/api/console*"):
            self.console.page.click("#refresh")
        self.console.page.wait_for_selector("#traces > *")

    def _console(self, answer: Answer) -> Statement:
        def listed() -> bool:
            self._look_again()
            return self._row(answer).count() == 1

        if until(listed, SEEN_S) is None:
            return Statement("console", NOTHING, "no row of this trace")
        said = str(self._row(answer).locator("[data-reason]").get_attribute("data-reason"))
        bars = self.console.page.locator(f"rect.stack[data-reason={said}]").count()
        legend = self.console.page.locator(f".legend [data-reason={said}]").inner_text() if bars else "no bar"
        return Statement("console", said if bars else NOTHING, f"row {self._row(answer).inner_text().split()[-1]}; bars: {legend}")

    def _console_of_nothing(self, answer: Answer) -> Statement:
        """After the trace store had the trace, so that a row would be there if there were one."""
        self._look_again()
        rows = self._row(answer).count()
        return Statement("console", RERANKED if rows == 0 else NOTHING, f"{rows} rows of this trace")

    def _metric(self, reason: str, before: Mapping[str, float]) -> Statement:
        counter = f'reranker_fallbacks_total{{reranker_fallback_reason="{reason}"}}'
        grew = until(lambda: self.counted().get(reason, 0) > before.get(reason, 0), SEEN_S) is not None
        words = f"{counter} from {before.get(reason, 0):g} to {self.counted().get(reason, 0):g}"
        return Statement("Prometheus", reason if grew else NOTHING, words)

    def _metric_of_nothing(self, grown: Mapping[str, float]) -> Statement:
        (latch,) = self.site.metrics.query("max(reranker_misconfigured) or vector(0)")
        calm = not grown and latch["value"][1] == "0"
        return Statement(
            "Prometheus", RERANKED if calm else NOTHING, f"no fallback since: {dict(grown)}, reranker_misconfigured {latch['value'][1]}"
        )

    def _alert(self, reason: str, alert: str) -> Statement:
        """An alert has no reason of its own; the counter whose rate it looks at has, and that must be growing right now."""
        fires = until(lambda: alert in self.site.metrics.firing(), SEEN_S) is not None
        rates = self.site.metrics.query("sum by (reranker_fallback_reason) (rate(reranker_fallbacks_total[20s])) > 0")
        growing = sorted(one["metric"]["reranker_fallback_reason"] for one in rates)
        words = f"{alert} {'fires' if fires else 'is silent'}, over {', '.join(growing)}"
        return Statement("alert", reason if fires and reason in growing else NOTHING, words)

    def _trace(self, answer: Answer) -> Statement:
        def spans() -> list[dict[str, Any]]:
            found = [span for trace in self.store.trace(str(answer["trace_id"])) for span in trace["spans"]]
            tags = [{tag["key"]: tag["value"] for tag in span["tags"]} for span in found]
            return [one for one in tags if "reranker_fallback" in one]

        if until(spans, SEEN_S) is None:
            return Statement("traces", NOTHING, f"no trace {answer['trace_id']}")
        (server,) = spans()
        reason = server.get("reranker.fallback.reason")
        said = str(reason) if server["reranker_fallback"] else {"applied": RERANKED}.get(str(server.get("reranker.outcome")), NOTHING)
        words = f"{answer['trace_id']}: reranker_fallback={str(server['reranker_fallback']).lower()}, reranker.fallback.reason={reason}"
        return Statement("traces", said, words)

    def _lines(self, answer: Answer) -> list[dict[str, Any]]:
        text = self.site.services.gateway.log.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("trace_id") == answer["trace_id"] and line["event"] == "reranker.fallback"]

    def _log(self, answer: Answer) -> Statement:
        lines = self._lines(answer)
        said = str(lines[0]["reason"]) if len(lines) == 1 else NOTHING
        return Statement("log", said, ", ".join(f"{line['level']} {line['event']} reason={line['reason']}" for line in lines) or "no line")

    def _no_log(self, answer: Answer) -> Statement:
        lines = self._lines(answer)
        return Statement("log", NOTHING if lines else RERANKED, f"{len(lines)} lines of a fallback in this trace")
