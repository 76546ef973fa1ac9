"""Everything behind the pages: the services with real weights, two corpora with roles, the frontend, a Prometheus."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.services import Service, wait_ready
from tests.observe.stack import KEY, Services, running_services
from tests.parts import prometheus
from tests.parts.prometheus import Prometheus

EXAMPLES = Path("examples").resolve()
CROSS_ENCODER = "ms-marco-minilm-l12-v2"
NO_RULES: Mapping[str, Any] = {"groups": []}


@dataclass(slots=True)
class Site:
    """What runs behind the pages, and the pages' address."""

    services: Services
    frontend: Service
    metrics: Prometheus

    def kill_reranker(self) -> None:
        """The process is killed, and nothing listens where the gateway asks."""
        self.services.reranker.process.kill()
        self.services.reranker.process.wait(10)
        self.services.faulty.go()

    def bring_reranker(self, *, key: str = KEY, **settings: str) -> Service:
        """Another reranker-service in the place of the one there was."""
        service = self.services.stack.start("knowledge-reranker", RERANK_API_KEY=key, **settings)
        wait_ready(service)
        self.services.faulty.target = service.url
        self.services.reranker = service
        self.metrics.scrape(self.services.targets)
        self.services.faulty.go()
        self.services.faulty.come()
        return service


@contextmanager
def running_site(folder: Path, rules: Mapping[str, Any] = NO_RULES, traces: str = "", **settings: str) -> Iterator[Site]:
    """Start everything with further `settings`; `traces` is the trace store's address, if there is one.

    Raises:
        MissingPart, ServerFailed, ServiceFailed: with the reason.
    """
    with running_services(folder, **settings) as services, prometheus.running(folder, rules) as metrics:
        _bring_in(services, folder / "corpora")
        frontend = services.stack.start(
            "knowledge-frontend", GATEWAY_URL=services.gateway.url, PROMETHEUS_URL=metrics.url, TRACES_URL=traces
        )
        wait_ready(frontend)
        metrics.scrape(services.targets)
        yield Site(services, frontend, metrics)


def _bring_in(services: Services, folder: Path) -> None:
    """The rest of the house plants, and policies and claims, whose passages name their own roles."""
    shutil.copytree(EXAMPLES / "houseplants/corpus", folder / "houseplants", ignore=shutil.ignore_patterns("diagnose"))
    shutil.copytree(EXAMPLES / "insurance/corpus", folder / "insurance")
    done = services.stack.command("knowledge", "ingest", str(folder), "--allowed-roles", "reader", "--source", "examples")
    assert done.returncode == 0, done.stdout + done.stderr
