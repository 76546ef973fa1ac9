"""Telemetry's set-up: nothing leaves the machine by default, names of the stable convention, several apps side by side."""

import subprocess
import sys

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry import metrics, propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from servicekit.health import Readiness, probe_routes
from servicekit.telemetry import ENDPOINT, ENDPOINTS, METRICS_ENDPOINT, TRACES_ENDPOINT, Telemetry, instrument, set_up_telemetry

DISTRIBUTION = "knowledge-servicekit"


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """No exporter is configured."""
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)


def processors(telemetry: Telemetry) -> tuple[object, ...]:
    """The span processors of a provider."""
    found: tuple[object, ...] = telemetry.tracer_provider._active_span_processor._span_processors
    return found


def test_without_an_endpoint_nothing_is_exported() -> None:
    """No OTLP exporter is even made."""
    assert processors(set_up_telemetry("s", DISTRIBUTION)) == ()


@pytest.mark.parametrize(
    ("env", "traces", "metrics_too"),
    [
        ({ENDPOINT: "http://127.0.0.1:9"}, True, True),
        ({TRACES_ENDPOINT: "http://127.0.0.1:9"}, True, False),
        ({METRICS_ENDPOINT: "http://127.0.0.1:9"}, False, True),
        ({ENDPOINT: "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "none"}, True, False),
        ({ENDPOINT: "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}, False, True),
    ],
)
def test_an_endpoint_makes_the_exporters_of_its_signals(
    env: dict[str, str], traces: bool, metrics_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard variables, and no address that nobody named."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    made: list[object] = []

    def make(exporter: object) -> None:
        made.append(exporter)

    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.metric_exporter.OTLPMetricExporter.__init__", make)
    monkeypatch.setattr("servicekit.telemetry.PeriodicExportingMetricReader", lambda _: InMemoryMetricReader())
    telemetry = set_up_telemetry("s", DISTRIBUTION)
    assert [type(one) for one in processors(telemetry)] == ([BatchSpanProcessor] if traces else [])
    assert bool(made) is metrics_too
    telemetry.tracer_provider.shutdown()


def test_the_service_is_named_with_its_version() -> None:
    """`service.name` and `service.version` are on every span and metric."""
    found = set_up_telemetry("the-service", DISTRIBUTION).tracer_provider.resource.attributes
    assert (found["service.name"], found["service.version"]) == ("the-service", "0.1.0")


def test_two_replicas_are_told_apart_and_the_users_own_name_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """`service.instance.id`: made up for each process, unless OTEL_RESOURCE_ATTRIBUTES has one."""
    one, other = (set_up_telemetry("s", DISTRIBUTION).tracer_provider.resource.attributes["service.instance.id"] for _ in range(2))
    assert one != other
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-7,deployment.environment.name=production")
    found = set_up_telemetry("s", DISTRIBUTION).tracer_provider.resource.attributes
    assert (found["service.instance.id"], found["deployment.environment.name"]) == ("pod-7", "production")


def test_nothing_is_installed_globally() -> None:
    """Two apps in one process do not share providers."""
    one, other = set_up_telemetry("a", DISTRIBUTION), set_up_telemetry("b", DISTRIBUTION)
    assert one.registry is not other.registry
    assert not isinstance(trace.get_tracer_provider(), TracerProvider)
    assert not isinstance(metrics.get_meter_provider(), MeterProvider)


async def test_requests_make_server_spans_and_probes_none() -> None:
    """With the names of the stable HTTP convention; /health, /ready and /metrics are left out; metrics are on the page."""
    telemetry, exporter = set_up_telemetry("s", DISTRIBUTION), InMemorySpanExporter()
    telemetry.tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = FastAPI()
    state = Readiness(True, {"detail": 1})

    async def readiness() -> Readiness:
        return state

    app.include_router(probe_routes(readiness, telemetry.registry))

    @app.get("/things/{name}")
    async def thing(name: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        return headers

    instrument(app, telemetry)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        headers = (await client.get("/things/x")).json()
        assert (await client.get("/health")).json() == {"status": "ok"}
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "detail": 1})
        state = Readiness(False)
        assert (await client.get("/ready")).status_code == 503
        page = (await client.get("/metrics")).text
    [span] = exporter.get_finished_spans()
    assert span.name == "GET /things/{name}"
    attributes = dict(span.attributes or {})
    assert (attributes["http.request.method"], attributes["http.route"], attributes["http.response.status_code"]) == (
        "GET",
        "/things/{name}",
        200,
    )
    assert "http.method" not in attributes
    assert "http_server_request_duration_seconds" in page
    assert headers["traceparent"].split("-")[1] == format(span.context.trace_id, "032x")


def test_a_users_choice_of_the_convention_stays() -> None:
    """The one touch of the environment is a default, not an order."""
    code = "import servicekit.telemetry, os; print(os.environ['OTEL_SEMCONV_STABILITY_OPT_IN'])"
    for given, expected in ((None, "http"), ("http/dup", "http/dup")):
        env = {"PATH": "/usr/bin", **({"OTEL_SEMCONV_STABILITY_OPT_IN": given} if given else {})}
        assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip() == expected
