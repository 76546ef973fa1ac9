"""An OpenTelemetry Collector on loopback, with the configuration that the chart renders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.parts.chart import collector_configuration
from tests.parts.servers import serving
from tests.parts.toolchain.build import find


@contextmanager
def running(folder: Path, traces: str, values: dict[str, Any], *, port: int = 0) -> Iterator[str]:
    """Where it takes OTLP over HTTP; what it keeps goes to `traces` (host:port), by `values` of telemetry.collector.

    Raises:
        MissingPart, ServerFailed: with the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "collector.yml"
    configuration.write_text(collector_configuration({"tracesEndpoint": traces, **values}))
    listen = {"OTLP_GRPC_LISTEN": "127.0.0.1:0", "OTLP_HTTP_LISTEN": f"127.0.0.1:{port}"}
    command = [str(find("otelcol-contrib", os.environ)), "--config", str(configuration)]
    with serving("collector", command, folder, {**os.environ, **listen}) as server:
        server.said(r"(Everything is ready)")
        yield "http://" + server.said(r'Starting HTTP server.*"endpoint": "([^"]+)"')
