"""`make incident`: the reranker is slow, then gone, then locked, then well again, and every source must tell the same story.

docs/incident.md walks through it with the pictures that this leaves in .run/screenshots.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.demo.services import ServiceFailed
from tests.browser.evidence import RERANKED, Answer, Statement, Witnesses
from tests.browser.stack import running_site
from tests.browser.visitor import visiting
from tests.observe.faulty import SLOW_S
from tests.observe.incident import FOR, SHORT_MS, WINDOW
from tests.observe.stack import QUESTIONS
from tests.parts import MissingPart, chart, collector, jaeger
from tests.parts.browser import chromium
from tests.parts.servers import ServerFailed

QUESTION = QUESTIONS[0]
CALM_S = 10.0
SCRAPE_S = 1.0
CHANGES_S = 60.0
SAMPLING = {"decisionWait": "3s", "sharePercent": 100}
ALERTS = {"RerankerFallbackRatioHigh": {"window": WINDOW, "for": FOR}, "RerankerMisconfigured": {"for": FOR}}
"""Values of the chart that make its alerts as quick as a script must be."""
TELEMETRY = {"OTEL_BSP_SCHEDULE_DELAY": "200"}
FAILURES = (MissingPart, ServerFailed, ServiceFailed)


@dataclass(slots=True)
class Incident:
    """What is going on, who is asked about it, and what did not fit."""

    witnesses: Witnesses
    began: float = field(default_factory=time.monotonic)
    wrong: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """One line of the story, with the seconds since its beginning."""
        print(f"{time.monotonic() - self.began:4.0f} s  {line}", flush=True)

    def judge(self, what: str, reason: str, statements: list[Statement]) -> None:
        """One line a source; what does not say `reason` is remembered."""
        self.say(f"{what}: {reason}")
        for one in statements:
            agrees = one.reason == reason
            print(f"          {'ok ' if agrees else 'NOT'} {one.source:<11}{one.words}", flush=True)
            if not agrees:
                self.wrong.append(f"{what}: {one.source} says {one.reason} instead of {reason}")

    @contextmanager
    def load(self, **body: Any) -> Iterator[None]:
        """Others search meanwhile."""
        with self.witnesses.site.services.load(workers=1, pause_s=0.3, **body) as statuses:
            yield
        if set(statuses) != {200}:
            self.wrong.append(f"searches failed: {dict(statuses)}")

    def fallback(self, what: str, reason: str, alert: str, before: Mapping[str, float], deadline_ms: int | None = None) -> None:
        """A search in the inspector, and what everybody says of it."""
        answer = self.inspect(lambda rerank: rerank["reason"] == reason, deadline_ms)
        with self.load(**({"deadline_ms": deadline_ms} if deadline_ms else {})):
            self.judge(what, reason, self.witnesses.of_a_fallback(answer, before, alert))

    def inspect(self, fits: Callable[[Answer], bool], deadline_ms: int | None = None) -> Answer:
        """Search in the inspector until an answer fits; one that does not in all that time shows in what is judged next."""
        ends = time.monotonic() + CHANGES_S
        while not fits((answer := self.witnesses.inspector.inspect(QUESTION, deadline_ms))["rerank"]) and time.monotonic() < ends:
            time.sleep(0.2)
        return answer


def all_is_well(seen: Incident) -> None:
    """Load, and nothing to tell."""
    with seen.load():
        time.sleep(CALM_S)
        answer = seen.inspect(lambda rerank: rerank["status"] == "applied")
        seen.judge("all is well", RERANKED, seen.witnesses.of_a_reranked_search(answer, {}))


def slowed(seen: Incident) -> None:
    """Each answer of the reranker takes 2.5 seconds longer, and callers have 1.9."""
    before = seen.witnesses.counted()
    seen.witnesses.site.services.faulty.mode = "slow"
    seen.fallback("the reranker is slow", "client_timeout", "RerankerFallbackRatioHigh", before, SHORT_MS)
    seen.witnesses.inspector.picture("incident-slow", 900)
    seen.witnesses.site.services.faulty.mode = "passes"
    time.sleep(SLOW_S)  # the last late answer is through


def stopped(seen: Incident) -> None:
    """Its process is killed."""
    before = seen.witnesses.counted()
    seen.witnesses.site.kill_reranker()
    seen.fallback("the reranker is gone", "transport", "RerankerFallbackRatioHigh", before)
    seen.witnesses.console.picture("incident-console", 960)
    before = seen.witnesses.counted()
    seen.fallback("the breaker is open", "circuit_open", "RerankerFallbackRatioHigh", before)


def wrong_key(seen: Incident) -> None:
    """It is back, with a key that the gateway has not."""
    before = seen.witnesses.counted()
    seen.witnesses.site.bring_reranker(key="a-key-that-the-gateway-has-not")
    seen.fallback("the key is wrong", "misconfigured", "RerankerMisconfigured", before)
    seen.witnesses.inspector.picture("incident-key", 520)


def healed(seen: Incident) -> None:
    """It has the right key again; the next probe notices."""
    site = seen.witnesses.site
    locked = site.services.reranker
    site.bring_reranker()
    locked.stop()
    answer = seen.inspect(lambda rerank: rerank["status"] == "applied")
    with seen.load():
        time.sleep(2 * SCRAPE_S)  # the last fallback is in Prometheus by now
        before = seen.witnesses.counted()
        seen.judge("all is well again", RERANKED, seen.witnesses.of_a_reranked_search(answer, before))
    seen.witnesses.console.picture("incident-over", 960)


def accessible(seen: Incident) -> None:
    """The console with all of this on it, in the light and in the dark; and no browser complained."""
    console = seen.witnesses.console
    for scheme in ("light", "dark"):
        console.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        seen.wrong += [f"console, {scheme}: {finding}" for finding in console.findings()]
    seen.wrong += [*console.complaints, *seen.witnesses.inspector.complaints]


def play() -> list[str]:
    """All of it; what did not fit.

    Raises:
        MissingPart, ServerFailed, ServiceFailed: with the reason.
    """
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="kgtest-incident-")))
        store = running.enter_context(jaeger.running(folder))
        endpoint = running.enter_context(collector.running(folder, store.otlp, SAMPLING))
        rules = chart.rules({"evaluationInterval": "1s", "alerts": ALERTS})
        site = running.enter_context(running_site(folder, rules, store.url, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **TELEMETRY))
        program = running.enter_context(chromium())
        inspector, console = (running.enter_context(visiting(program, site.frontend.url)) for _ in range(2))
        inspector.sign_in("engineer", "/inspector")
        console.sign_in("engineer", "/console")
        console.page.select_option("#minutes", "15")
        seen = Incident(Witnesses(site, store, inspector, console))
        for step in (all_is_well, slowed, stopped, wrong_key, healed, accessible):
            step(seen)
    return seen.wrong


def main() -> int:
    """Status 0 if all sources told the same story."""
    try:
        wrong = play()
    except FAILURES as error:
        print(f"incident: {error}", file=sys.stderr)
        return 1
    print("\n".join(["incident: not the same story", *wrong]) if wrong else "incident: every source told the same story", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
