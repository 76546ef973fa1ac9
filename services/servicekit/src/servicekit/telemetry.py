"""OpenTelemetry set-up: traces by OTLP where an endpoint is configured, metrics by OTLP and on the Prometheus page."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Tracer
from prometheus_client import CollectorRegistry, ProcessCollector

from servicekit.health import PROBE_PATHS

# The one permitted touch of the environment outside the settings: without it the HTTP instrumentation emits the names of
# the old convention, in milliseconds. A user's own choice stays.
os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")

ENDPOINT, TRACES_ENDPOINT, METRICS_ENDPOINT = ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)

CALLER_ATTRIBUTES = ("url.query", "url.full", "url.path", "http.target", "http.url")
"""Span attributes of the stable and the old convention that hold what the caller typed; the route is enough to find a span."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Providers of one process; nothing is installed globally, so that several apps live side by side in a test."""

    tracer_provider: TracerProvider
    meter_provider: MeterProvider
    registry: CollectorRegistry

    def tracer(self, name: str) -> Tracer:
        """A tracer for the module `name`."""
        return self.tracer_provider.get_tracer(name)

    def meter(self, name: str) -> Meter:
        """A meter for the module `name`."""
        return self.meter_provider.get_meter(name)

    def shutdown(self) -> None:
        """Flush and stop; bounded by the exporters' own time-outs."""
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()


def set_up_telemetry(service: str, distribution: str, *, readers: Sequence[MetricReader] = ()) -> Telemetry:
    """Providers for `service` (the value of `service.name`) whose version is that of the installed `distribution`.

    OTLP exporters are created only if an `OTEL_EXPORTER_OTLP_*` endpoint is set: by default nothing leaves the machine.
    """
    resource = _resource(service, distribution)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    all_readers: list[Any] = [PrometheusMetricReader(registry=registry, scope_info_enabled=False), *readers]
    tracer_provider = TracerProvider(resource=resource)
    if _exported("OTEL_TRACES_EXPORTER", TRACES_ENDPOINT):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if _exported("OTEL_METRICS_EXPORTER", METRICS_ENDPOINT):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        all_readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    return Telemetry(tracer_provider, MeterProvider(all_readers, resource), registry)


def _exported(exporter: str, endpoint: str) -> bool:
    """Whether a signal goes out: there is an address for it, and its exporter is not `none`."""
    return os.environ.get(exporter) != "none" and any(os.environ.get(name) for name in (ENDPOINT, endpoint))


def _resource(service: str, distribution: str) -> Resource:
    """Who tells; namespace, environment and another instance id come with OTEL_RESOURCE_ATTRIBUTES."""
    own = {SERVICE_NAME: service, SERVICE_VERSION: version(distribution)}
    if SERVICE_INSTANCE_ID not in OTELResourceDetector().detect().attributes:
        own[SERVICE_INSTANCE_ID] = str(uuid4())
    return Resource.create(own)


def instrument(app: FastAPI, telemetry: Telemetry, on_request: Callable[[Span, Mapping[str, Any]], None] | None = None) -> None:
    """A SERVER span and the HTTP metrics for each request but the probes; `on_request` may add to a span as it begins."""
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    def hook(span: Span, scope: Mapping[str, Any]) -> None:
        for name in CALLER_ATTRIBUTES:
            span.set_attribute(name, "")
        if on_request is not None:
            on_request(span, scope)

    FastAPIInstrumentor.instrument_app(
        app,
        server_request_hook=hook,
        tracer_provider=telemetry.tracer_provider,
        meter_provider=telemetry.meter_provider,
        excluded_urls=PROBE_PATHS,
        exclude_spans=["receive", "send"],
    )
