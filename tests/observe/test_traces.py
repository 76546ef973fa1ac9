"""Services, a collector that samples by the end of a trace, and a Jaeger: what is worth keeping is kept, and found again."""

from __future__ import annotations

import re
import signal
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.observe.dashboards.files import boards, panels
from tests.observe.faulty import Mode
from tests.observe.stack import QUESTIONS, Services, running_services, until
from tests.parts import collector, jaeger
from tests.parts.jaeger import Jaeger, Trace

pytestmark = [pytest.mark.traces, pytest.mark.timeout(300)]

GATEWAY = "knowledge-gateway"
ORDINARY = 60
DECISION_S = 4
ARRIVES_S = 40.0
SAMPLING = {"decisionWait": f"{DECISION_S}s", "slowMs": 2200, "sharePercent": 20}
TELEMETRY = {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=search,deployment.environment.name=test"}


@dataclass(slots=True)
class Played:
    """The trace ids of what was asked, by what was done to it."""

    jaeger: Jaeger
    log: Path
    """The collector's."""
    began: float = field(default_factory=time.time)
    asked: dict[str, set[str]] = field(default_factory=dict)

    def found(self, **tags: str) -> set[str]:
        """Trace ids of the last hour, by the attributes of the gateway's spans (with `_` for `.`)."""
        now = time.time()
        between = {"start": f"{int((now - 3600) * 1e6)}", "end": f"{int(now * 1e6)}"}
        traces = self.jaeger.search(GATEWAY, {name.replace("__", "."): value for name, value in tags.items()}, **between)
        return {str(one["traceID"]) for one in traces}


def ask(services: Services, mode: Mode, times: int, **body: object) -> set[str]:
    """Some searches in a mode of the door; their trace ids."""
    services.faulty.mode = mode
    try:
        answers = [services.search(query=QUESTIONS[turn % len(QUESTIONS)], **body).json() for turn in range(times)]
    finally:
        services.faulty.mode = "passes"
    return {answer["trace_id"] for answer in answers}


def play(services: Services, seen: Played) -> None:
    """A few of each kind, and many that are like any other."""
    seen.asked["ordinary"] = ask(services, "passes", ORDINARY, rerank=False)
    seen.asked["deadline"] = ask(services, "late", 4, deadline_ms=1900)
    seen.asked["client_timeout"] = ask(services, "silent", 2, deadline_ms=1200)
    seen.asked["partial"] = ask(services, "partial", 3)
    seen.asked["slow"] = ask(services, "slow", 2)
    services.embedding.process.send_signal(signal.SIGSTOP)
    try:
        seen.asked["degraded"] = ask(services, "passes", 4, rerank=False, deadline_ms=1500)
    finally:
        services.embedding.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All of it, once, until the last of what must be kept has arrived."""
    folder = tmp_path_factory.mktemp("kgtest-traces")
    with ExitStack() as running:
        store = running.enter_context(jaeger.running(folder))
        endpoint = running.enter_context(collector.running(folder, store.otlp, SAMPLING))
        services = running.enter_context(running_services(folder, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **TELEMETRY))
        seen = Played(store, folder / "collector.log")
        play(services, seen)
        wanted = set().union(*(ids for kind, ids in seen.asked.items() if kind != "ordinary"))
        until(lambda: wanted <= seen.found(), ARRIVES_S)
        time.sleep(DECISION_S)  # whatever else was to be kept has been decided on by now
        yield seen


@pytest.mark.parametrize("reason", ["deadline", "client_timeout"])
def test_fallbacks_of_the_last_hour_by_reason(played: Played, reason: str) -> None:
    """Jaeger's own search finds exactly those that fell back for this reason."""
    assert played.found(reranker__fallback__reason=reason) == played.asked[reason]


def test_every_fallback(played: Played) -> None:
    """By the flag alone."""
    assert played.found(reranker_fallback="true") == played.asked["deadline"] | played.asked["client_timeout"]


def test_partial_degraded_and_slow_answers_are_kept(played: Played) -> None:
    """All of them."""
    kept = played.found()
    assert played.found(reranker__outcome="partial") == played.asked["partial"]
    assert played.asked["slow"] <= kept
    assert played.asked["degraded"] <= kept


def test_of_the_others_a_share_is_kept(played: Played) -> None:
    """About a fifth; none and all are beyond any chance."""
    kept = played.found() & played.asked["ordinary"]
    assert 0 < len(kept) < ORDINARY


def test_the_collector_has_nothing_to_complain_of(played: Played) -> None:
    """Its configuration fits what the services send."""
    complaints = [line for line in played.log.read_text().splitlines() if "\terror\t" in line or "\twarn\t" in line]
    # Newer releases call the exporter otlp_grpc too; older ones know this name alone.
    assert [line for line in complaints if '"otlp" alias is deprecated' not in line] == []


def processes(trace: Trace) -> set[str]:
    """The services that have a span in a trace."""
    return {trace["processes"][span["processID"]]["serviceName"] for span in trace["spans"]}


def test_one_trace_goes_through_all_services(played: Played) -> None:
    """W3C propagation: gateway, embedding-service and reranker-service, and each span's parent is in the trace."""
    for trace_id in played.asked["partial"]:
        (trace,) = played.jaeger.trace(trace_id)
        assert processes(trace) == {"knowledge-gateway", "knowledge-embedding", "knowledge-reranker"}
        spans = {span["spanID"] for span in trace["spans"]}
        parents = [reference["spanID"] for span in trace["spans"] for reference in span["references"]]
        assert len(parents) == len(spans) - 1
        assert set(parents) <= spans


def test_a_service_says_which_it_is(played: Played) -> None:
    """Name, version, instance, namespace and environment stand on the resource."""
    (trace,) = played.jaeger.trace(next(iter(played.asked["partial"])))
    for process in trace["processes"].values():
        tags = {tag["key"]: tag["value"] for tag in process["tags"]}
        assert {"service.version", "service.instance.id"} <= set(tags), process["serviceName"]
        assert (tags["service.namespace"], tags["deployment.environment.name"]) == ("search", "test")


def test_the_links_of_a_dashboard_lead_to_the_same_traces(played: Played) -> None:
    """A bar's link, with what Grafana puts in, asks Jaeger for the same reason in the shown time."""
    (panel,) = [one for board in boards() for one in panels(board) if one["title"] == "Fallbacks by reason"]
    (url,) = [link["url"] for link in panel["fieldConfig"]["defaults"]["links"] if "Jaeger" in link["title"]]
    shown = {"jaeger": played.jaeger.url, "__from": f"{int(played.began * 1000)}", "__to": f"{int(time.time() * 1000)}"}
    values = {**shown, "__field.labels.reranker_fallback_reason": "deadline"}
    filled = re.sub(r"\$\{([^}]+)\}", lambda found: values[found[1]], url)
    page = urllib.parse.urlsplit(filled)
    assert page.path == "/search"
    # Jaeger's page hands these very parameters to its API.
    found = played.jaeger.get("/api/traces?" + urllib.parse.urlencode(dict(urllib.parse.parse_qsl(page.query))))
    assert {one["traceID"] for one in found} == played.asked["deadline"]
