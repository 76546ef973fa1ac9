"""`python -m examples.observe`: what `make observe` runs. Everything it starts ends with it."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import httpx

from examples.demo.services import ServiceFailed, choose_port
from examples.demo.stack import DemoFailed, Stack, bring_up
from examples.demo.tour import QUESTION, Tour
from tests.parts import MissingPart, chart, collector, jaeger, prometheus
from tests.parts.servers import ServerFailed

SAMPLING = {"decisionWait": "10s", "sharePercent": 100.0}
"""For a person who looks: every trace, soon."""
INTERVAL = "5s"
SERVICES = ("knowledge-gateway", "knowledge-embedding", "knowledge-reranker", "knowledge-frontend")
PORTS = {"prometheus": 9090, "jaeger": 16686, "collector": 4318}


def say(line: str) -> None:
    """One line of progress."""
    print(f"observe: {line}", flush=True)


def observe(corpus: Path) -> None:
    """Trace store, collector, Prometheus, then the demo's services, which tell them of two searches; until Ctrl-C."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="knowledge-observe-")))
        store = running.enter_context(jaeger.running(folder, port=choose_port(PORTS["jaeger"])))
        endpoint = running.enter_context(collector.running(folder, store.otlp, SAMPLING, port=choose_port(PORTS["collector"])))
        metrics = running.enter_context(prometheus.running(folder, chart.rules(), interval=INTERVAL, port=choose_port(PORTS["prometheus"])))
        say(f"Prometheus on {metrics.url}, Jaeger on {store.url}, collector on {endpoint}")
        exporting = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "1000"}
        more = dict.fromkeys(SERVICES, exporting)
        more["knowledge-frontend"] = {**exporting, "PROMETHEUS_URL": metrics.url, "TRACES_URL": store.url}
        stack = bring_up(corpus, say, more=more)
        running.callback(stack.stop)
        metrics.scrape({name: service.url for name, service in stack.services.items()})
        tour = Tour(stack)
        search_with_and_without(stack, tour)
        tour.farewell()
        where_to_look(metrics.url, store.url)
        if sys.stdin.isatty():
            say("running until Ctrl-C")
            signal.pause()


def search_with_and_without(stack: Stack, tour: Tour) -> None:
    """A reranked search, and one while the reranker-service is stopped: something to look at."""
    for what in ("with reranking", "while the reranker-service is stopped"):
        report = tour.ask({"query": QUESTION})["rerank"]
        say(f"one search {what}: {report['status']}" + (f" ({report['reason']})" if report["reason"] else ""))
        if report["status"] != "fallback":
            stack.services["knowledge-reranker"].stop()
    stack.restart("knowledge-reranker")


def where_to_look(metrics: str, traces: str) -> None:
    """Addresses that can be clicked."""
    reasons = quote("sum by (reranker_fallback_reason) (reranker_fallbacks_total)")
    now = int(time.time() * 1_000_000)
    hour = f"start={now - 3_600_000_000}&end={now + 3_600_000_000}"
    print(f"\nPrometheus           {metrics}/")
    print(f"fallbacks by reason  {metrics}/api/v1/query?query={reasons}")
    print(f"alerts               {metrics}/api/v1/alerts")
    print(
        f"traces of fallbacks  {traces}/api/traces?service=knowledge-gateway&tags={quote(json.dumps({'reranker_fallback': 'true'}))}&{hour}"
    )
    print("(a Jaeger with its pages built in shows the same under /search instead of /api/traces)")
    print("dashboards           charts/knowledge-gateway/dashboards/*.json, for a Grafana (docs/observability.md)", flush=True)


def main() -> int:
    """Run until Ctrl-C; failures are sentences."""
    parser = argparse.ArgumentParser(prog="python -m examples.observe", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("examples/houseplants/corpus"))
    arguments = parser.parse_args()

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        observe(arguments.corpus)
    except (DemoFailed, MissingPart, ServerFailed, ServiceFailed, httpx.HTTPError) as error:
        print(f"observe: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
