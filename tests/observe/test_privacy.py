"""Nothing that anybody typed, stored or signed is in what the services tell: spans, metrics, logs, at their most talkative."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.conftest import SECRET, token
from tests.observe import sink
from tests.observe.stack import KEY, Services, running_services

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

QUERY = "Quittenbaum Zirkuszelt Geheimfrage"
SUB_QUERY = "Nebelhorn Unterfrage"
FILTERED = "Filterwort"
PASSAGE = "Der Passagentext vom Schlummerapfel steht nur in diesem Dokument."
TITLE = "Titel mit Rautenmuster"
TYPED = "Tippfehlerwort"
FORBIDDEN = {
    **{f"query: {word}": word for word in QUERY.split()},
    **{f"sub-query: {word}": word for word in SUB_QUERY.split()},
    "filter": FILTERED,
    "passage": "Schlummerapfel",
    "title": "Rautenmuster",
    "refused body": TYPED,
    "signing secret": SECRET,
    "key of the reranker-service": KEY,
    "header": "Bearer ",
    "token": token("reader").split(".", maxsplit=1)[0],
}


@dataclass(slots=True)
class Told:
    """Everything that was told, by where."""

    spans: list[bytes]
    metrics: list[bytes]
    pages: dict[str, bytes] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)

    def everywhere(self) -> dict[str, bytes]:
        """All of it as bytes; texts stand in OTLP as they are."""
        return {"spans": b"".join(self.spans), "metrics": b"".join(self.metrics), **self.pages, **self.logs}


def use(services: Services) -> None:
    """Searches and uploads of every kind, those that fail among them."""
    document = {"id": "one", "title": TITLE, "content": PASSAGE, "allowed_roles": ["reader"], "category": FILTERED}
    assert services.post("/documents", [document, {**document, "id": "two"}], "knowledge-writer").status_code == 200
    body: dict[str, Any] = {"query": QUERY, "sub_queries": [QUERY, SUB_QUERY]}
    found = services.search(**body)
    assert any(one["content"] == PASSAGE for one in found.json()["results"])
    for mode, deadline_ms in (("late", 1900), ("silent", 1200), ("partial", 8000), ("wrong key", 8000)):
        services.faulty.mode = mode  # type: ignore[assignment]
        assert services.search(**body, deadline_ms=deadline_ms).status_code == 200
    services.faulty.mode = "passes"
    services.search(**body, filters={"category": [FILTERED]}, explain=True)
    services.post("/search/stream", body)
    assert services.search(**body, no_such_field=TYPED).status_code == 422
    assert services.search(query=QUERY * 500).status_code == 422
    gateway = services.gateway.url
    bearer = {"Authorization": f"Bearer {token('reader')}"}
    httpx.get(f"{gateway}/search", params={"q": QUERY}, headers=bearer, timeout=60, trust_env=False)
    httpx.post(f"{gateway}/search", content=f'{{"query": "{TYPED}', headers=bearer, timeout=60, trust_env=False)
    httpx.post(f"{gateway}/search", json=body, headers={"Authorization": bearer["Authorization"] + "x"}, timeout=60, trust_env=False)
    assert httpx.get(f"{gateway}/{TYPED}", headers=bearer, timeout=60, trust_env=False).status_code == 404
    _without_embedding(services, body)


def _without_embedding(services: Services, body: dict[str, Any]) -> None:
    services.embedding.process.send_signal(signal.SIGSTOP)
    try:
        services.search(**body, deadline_ms=1500)
        services.post("/documents", [{"id": "late", "content": PASSAGE + PASSAGE}], "knowledge-writer")
    finally:
        services.embedding.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """All that the services told from start to end."""
    folder = tmp_path_factory.mktemp("kgtest-privacy")
    settings = {"LOG_LEVEL": "DEBUG", "OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
    with sink.running() as exported:
        with running_services(folder, OTEL_EXPORTER_OTLP_ENDPOINT=exported.url, **settings) as services:
            use(services)
            pages = {f"/metrics of {name}": httpx.get(f"{url}/metrics", trust_env=False).content for name, url in services.targets.items()}
            logs: dict[str, Path] = {f"log of {one.name}": one.log for one in services.stack.services.values()}
        # What is still to be exported is sent at the end.
        yield Told(exported.of("/v1/traces"), exported.of("/v1/metrics"), pages, {name: log.read_bytes() for name, log in logs.items()})


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_private_is_told(told: Told, what: str) -> None:
    """In no span, no metric and no line of a log."""
    found = [where for where, text in told.everywhere().items() if FORBIDDEN[what].lower().encode() in text.lower()]
    assert found == []


def test_there_was_something_to_look_through(told: Told) -> None:
    """All services told spans, metrics and logs, and of each failure."""
    spans = b"".join(told.spans)
    for said in (b"POST /search/stream", b"embeddings", b"partial", b"deadline", b"client_timeout", b"misconfigured"):
        assert said in spans
    for service in (b"knowledge-gateway", b"knowledge-embedding", b"knowledge-reranker"):
        assert service in spans
        assert service in b"".join(told.metrics)
    assert all(b"http_server_request_duration_seconds" in page for page in told.pages.values())
    assert all(b'"event": "request"' in log for log in told.logs.values())


def test_spans_have_no_exceptions(told: Told) -> None:
    """Their messages and stacks may hold a text."""
    exported = [ExportTraceServiceRequest.FromString(body) for body in told.spans]
    spans = [span for one in exported for resource in one.resource_spans for scope in resource.scope_spans for span in scope.spans]
    assert len(spans) > 20
    assert {event.name for span in spans for event in span.events} <= {"reranker.fallback"}


def test_exemplars_lead_from_a_duration_to_its_trace(told: Told) -> None:
    """In what goes out by OTLP; the page for Prometheus has none."""
    exported = [ExportMetricsServiceRequest.FromString(body) for body in told.metrics]
    metrics = [
        metric for one in exported for resource in one.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]
    durations = [point for metric in metrics if metric.name == "http.server.request.duration" for point in metric.histogram.data_points]
    assert any(len(exemplar.trace_id) == 16 for point in durations for exemplar in point.exemplars)
