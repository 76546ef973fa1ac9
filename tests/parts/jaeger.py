"""A Jaeger on loopback, its traces in memory; asked by the API behind its page."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.parts.servers import serving
from tests.parts.toolchain.build import find

Trace = dict[str, Any]
CONFIGURATION = Path(__file__).with_suffix(".yaml")
REQUEST_S = 20


@dataclass(frozen=True, slots=True)
class Jaeger:
    """A running one: its page and API, and where it takes spans by OTLP over gRPC (host:port)."""

    url: str
    otlp: str

    def search(self, service: str, tags: Mapping[str, str], **more: str) -> list[Trace]:
        """Traces with a span of `service` that has all `tags`; `lookback`, or `start` and `end` in microseconds, say when."""
        return self.get("/api/traces?" + urllib.parse.urlencode({"service": service, "tags": json.dumps(tags), "limit": "500", **more}))

    def trace(self, trace_id: str) -> list[Trace]:
        """The trace, or nothing."""
        return self.get(f"/api/traces/{trace_id}")

    def get(self, path: str) -> list[Trace]:
        """What the API answers."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.url + path, timeout=REQUEST_S) as response:
                found: list[Trace] = json.load(response)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        return found or []


@contextmanager
def running(folder: Path, *, port: int = 0) -> Iterator[Jaeger]:
    """Start it, on `port` for people if that matters.

    Raises:
        MissingPart, ServerFailed: with the reason.
    """
    command = [str(find("jaeger", os.environ)), "--config", str(CONFIGURATION)]
    with serving("jaeger", command, folder, {**os.environ, "JAEGER_PORT": str(port)}) as server:
        page = server.said(r'Query server started.*"http_addr": "([^"]+)"')
        otlp = server.said(r'Starting GRPC server.*"otelcol.component.id": "otlp".*"endpoint": "([^"]+)"')
        yield Jaeger(f"http://{page}", otlp)
