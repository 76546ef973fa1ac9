"""A scripted incident: one fault after the other, each seen by Prometheus, each over again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.observe.stack import AT_ONCE, Services, until
from tests.parts.prometheus import Prometheus

FIRES_S = 45.0
ENDS_S = 60.0
CALM_S = 12.0
SHORT_MS = 1900
"""Below what the circuit breaker counts: a caller's own short deadline says nothing about the provider."""
FEW: dict[str, Any] = {"workers": 1, "pause_s": 2}
"""A load of at most 35,000 characters within a window, far below the threshold of RerankerCostHigh; any other is far above."""
CROWD = 2 * AT_ONCE
WINDOW, FOR = "10s", "2s"

ALERTS: dict[str, Any] = {
    **{name: {"window": WINDOW, "for": FOR} for name in ("RerankerFallbackRatioHigh", "SearchErrorRatioHigh", "RerankerPartialRatioHigh")},
    **{name: {"window": WINDOW, "for": FOR} for name in ("VectorLegDegraded", "NoRerankerTraffic", "IngestRejects")},
    "RerankerMisconfigured": {"for": FOR},
    "SearchLatencyHigh": {"window": WINDOW, "for": FOR, "threshold": 2.5},
    "RerankerCostHigh": {"window": WINDOW, "for": FOR, "threshold": 60_000},
}
"""Values of the chart that make its alerts as quick as a test must be; CanaryFailing needs a cluster's own metrics."""


@dataclass(slots=True)
class Incident:
    """What was seen: the alerts while all was calm, and of each alert how long after its fault it fired and after its end it was over."""

    services: Services
    prometheus: Prometheus
    began: float = field(default_factory=time.time)
    ended: float = 0.0
    calm: set[str] = field(default_factory=set)
    fired: dict[str, float | None] = field(default_factory=dict)
    over: dict[str, float | None] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def wait(self, *alerts: str) -> None:
        """For alerts to fire."""
        for alert in alerts:
            self.fired[alert] = until(partial(self._fires, alert), FIRES_S)

    def wait_over(self, *alerts: str) -> None:
        """For alerts to be over."""
        for alert in alerts:
            self.over[alert] = until(partial(self._is_over, alert), ENDS_S)

    def _fires(self, alert: str) -> bool:
        return alert in self.prometheus.firing()

    def _is_over(self, alert: str) -> bool:
        return not self._fires(alert)

    def wait_reason(self, reason: str) -> None:
        """For a fallback with this reason."""
        expr = f'reranker_fallbacks_total{{reranker_fallback_reason="{reason}"}}'
        if until(lambda: self.prometheus.query(expr), FIRES_S) is not None:
            self.reasons.append(reason)


def play(services: Services, prometheus: Prometheus) -> Incident:
    """All of it, in about two minutes."""
    seen = Incident(services, prometheus)
    with services.load(**FEW):
        time.sleep(CALM_S)
        seen.calm = prometheus.firing()
    _reranker_fails(seen)
    _nothing_is_reranked(seen)
    _half_is_reranked(seen)
    _key_and_embedding(seen)
    _much_is_sent(seen)
    seen.ended = time.time()
    print(f"incident of {seen.ended - seen.began:.0f} s; seconds until fired {seen.fired}, over {seen.over}; reasons {seen.reasons}")
    return seen


def _reranker_fails(seen: Incident) -> None:
    """Late, busy, silent, gone, and documents that are refused meanwhile."""
    services, door = seen.services, seen.services.faulty
    good = {"id": "good", "content": "Ein Hinweis zum Gießen.", "allowed_roles": ["reader"]}
    bad = {"id": "bad", "chunks": [{"id": "one", "content": "a"}, {"id": "one", "content": "b"}], "allowed_roles": ["reader"]}
    services.post("/documents", [good, bad], "knowledge-writer")
    door.mode = "late"
    with services.load(deadline_ms=SHORT_MS):
        seen.wait_reason("deadline")
        seen.wait("RerankerFallbackRatioHigh", "IngestRejects")
    door.mode = "busy"
    services.search()
    seen.wait_reason("overloaded")
    door.mode = "silent"
    services.search(deadline_ms=SHORT_MS)
    seen.wait_reason("client_timeout")
    door.mode = "passes"
    door.go()
    with services.load():
        seen.wait_reason("transport")
        seen.wait_reason("circuit_open")
    door.come()
    with services.load():
        seen.wait_over("RerankerFallbackRatioHigh", "IngestRejects")


def _nothing_is_reranked(seen: Incident) -> None:
    with seen.services.load(rerank=False):
        seen.wait("NoRerankerTraffic")
    with seen.services.load():
        seen.wait_over("NoRerankerTraffic")


def _half_is_reranked(seen: Incident) -> None:
    seen.services.faulty.mode = "partial"
    with seen.services.load():
        seen.wait("RerankerPartialRatioHigh")
    seen.services.faulty.mode = "passes"
    with seen.services.load():
        seen.wait_over("RerankerPartialRatioHigh")


def _key_and_embedding(seen: Incident) -> None:
    """The wrong key latches for half a minute; meanwhile the embedding-service hangs."""
    services = seen.services
    services.faulty.mode = "wrong key"
    with services.load():
        seen.wait_reason("misconfigured")
        seen.wait("RerankerMisconfigured")
    services.faulty.mode = "passes"
    with _hanging(services), services.load(workers=CROWD):  # more than the gateway takes in at once
        seen.wait("SearchErrorRatioHigh", "VectorLegDegraded", "SearchLatencyHigh")
    with services.load():
        seen.wait_over("SearchErrorRatioHigh", "VectorLegDegraded", "SearchLatencyHigh", "RerankerMisconfigured")


@contextmanager
def _hanging(services: Services) -> Iterator[None]:
    """The embedding-service takes connections and answers none."""
    services.embedding.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        services.embedding.process.send_signal(signal.SIGCONT)


def _much_is_sent(seen: Incident) -> None:
    """After a time with little; then others crowd the reranker-service."""
    with seen.services.load(**FEW):
        until(lambda: "RerankerCostHigh" not in seen.prometheus.firing(), ENDS_S)
    with seen.services.load(workers=AT_ONCE, pause_s=0):
        seen.wait("RerankerCostHigh")
    refused = 'http_server_request_duration_seconds_count{service="knowledge-reranker", http_response_status_code="429"}'
    with seen.services.crowd():
        until(lambda: seen.prometheus.query(f"increase({refused}[5s]) > 0"), FIRES_S)
    with seen.services.load(**FEW):
        seen.wait_over("RerankerCostHigh")
