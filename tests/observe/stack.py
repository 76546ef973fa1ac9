"""The three services as processes with real weights, a faulty door between gateway and reranker, and a load on them."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import httpx

from examples.demo.services import Service, wait_ready
from tests.e2e.conftest import MODEL, SECRET, Stack, token
from tests.observe.faulty import FaultyReranker

CORPUS = Path("examples/houseplants/corpus/diagnose").resolve()
KEY = "the-right-key-of-the-reranker-service"
AT_ONCE = 12
"""Searches that the gateway takes in; more than the reranker-service does."""
PAIRS = 80
"""Within the reranker-service's budget of characters."""
QUESTIONS = (
    "Meine unteren Blätter werden gelb, die oberen sind noch grün. Was fehlt?",
    "Warum haben die Blätter braune Spitzen?",
    "Die Blätter fallen ab, obwohl die Erde feucht ist.",
    "Woran erkenne ich Eisenmangel?",
    "Blattadern bleiben grün, dazwischen wird es gelb.",
)


@dataclass(slots=True)
class Services:
    """What runs, and how to use it."""

    stack: Stack
    embedding: Service
    reranker: Service
    faulty: FaultyReranker
    gateway: Service
    words: Iterator[str] = field(default_factory=lambda: map("".join, itertools.product(ascii_lowercase, repeat=4)))
    """Each once, over all loads."""

    @property
    def targets(self) -> dict[str, str]:
        """What Prometheus is to scrape, by the names that the chart gives the services."""
        running = {"gateway": self.gateway, "embedding": self.embedding, "reranker": self.reranker}
        return {f"knowledge-{name}": service.url for name, service in running.items()}

    def post(self, path: str, body: object, *roles: str) -> httpx.Response:
        """POST to the gateway as somebody with `roles`."""
        headers = {"Authorization": f"Bearer {token(*(roles or ('reader',)))}"}
        return httpx.post(self.gateway.url + path, json=body, headers=headers, timeout=60, trust_env=False)

    def search(self, **body: Any) -> httpx.Response:
        """One search; for the first question if the body names none."""
        return self.post("/search", {"query": QUESTIONS[0], **body})

    @contextmanager
    def load(self, *, workers: int = 2, pause_s: float = 0.25, **body: Any) -> Iterator[Counter[int]]:
        """Searches without end while the block runs, no two alike, for nothing to come out of a cache; counts the answers by status."""
        statuses: Counter[int] = Counter()

        def search(question: str) -> None:
            statuses[self.search(query=f"{question} {next(self.words)}", **body).status_code] += 1

        with repeated(search, workers, pause_s):
            yield statuses

    @contextmanager
    def crowd(self) -> Iterator[None]:
        """Others at the reranker-service, who have long lists and are more than it takes in."""

        def rerank(question: str) -> None:
            documents = [f"{question} {next(self.words)}" for _ in range(PAIRS)]
            body = {"query": next(self.words), "documents": documents}
            headers = {"Authorization": f"Bearer {KEY}"}
            httpx.post(f"{self.reranker.url}/rerank", json=body, headers=headers, timeout=60, trust_env=False)

        with repeated(rerank, 2 * AT_ONCE, 0.1):
            yield


@contextmanager
def repeated(act: Callable[[str], None], workers: int, pause_s: float) -> Iterator[None]:
    """Each worker acts on one question after the other, without end, while the block runs."""
    stopped = threading.Event()

    def work(first: int) -> None:
        for question in itertools.islice(itertools.cycle(QUESTIONS), first, None):
            if stopped.is_set():
                return
            act(question)
            stopped.wait(pause_s)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


@contextmanager
def running_services(folder: Path, **settings: str) -> Iterator[Services]:
    """Start everything with further `settings`, bring a small corpus in; all of it ends with the block.

    Raises:
        ServiceFailed: one of them did not start.
    """
    subprocess.run(["knowledge-models", "fetch", MODEL], check=True, timeout=600)
    common = {
        "KNOWLEDGE_ENV": "development",
        "AUTH_JWT_SECRET": SECRET,
        "EMBEDDED_PATH": str(folder / "knowledge.db"),
        "EMBEDDING_MODEL": MODEL,
        "RERANK_MODEL": MODEL,
        "EMBEDDING_DEADLINE_S": "2",
        "EMBEDDING_TIMEOUT_S": "3",
        "MAX_CONCURRENT_SEARCHES": str(AT_ONCE),
        **settings,
    }
    stack = Stack(folder, common)
    doors: list[FaultyReranker] = []
    try:
        embedding, reranker = stack.start("knowledge-embedding"), stack.start("knowledge-reranker", RERANK_API_KEY=KEY)
        doors.append(FaultyReranker(reranker.url))
        stack.settings |= {"EMBEDDING_URL": embedding.url, "RERANKER_URL": doors[0].url, "RERANKER_API_KEY": KEY}
        wait_ready(embedding)
        done = stack.command("knowledge", "ingest", str(CORPUS), "--allowed-roles", "reader", "--source", "houseplants")
        assert done.returncode == 0, done.stdout + done.stderr
        wait_ready(reranker)
        yield Services(stack, embedding, reranker, doors[0], stack.gateway())
    finally:
        for service in reversed(stack.services.values()):
            service.stop()
        for door in doors:
            door.go()


def until(condition: Callable[[], object], limit_s: float) -> float | None:
    """Seconds until `condition()` was true; None if that took longer than `limit_s`."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        if condition():
            return time.monotonic() - began
        time.sleep(0.2)
    return None
