"""Everything that is measured, as processes on free ports: model services, an OpenSearch node, a gateway on each backend."""

import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import jwt

from examples.demo.services import Service, ServiceFailed, clean_environment, running, start, wait_ready
from knowledge.models import Visibility
from tests.parts.opensearch.find import find_source
from tests.parts.opensearch.indices import PREFIX, delete_behind
from tests.parts.opensearch.launch import Jvm

MODEL = "multilingual-e5-small"
CORPUS = Path("examples/houseplants/corpus").resolve()
TENANT, SUBJECT, ROLE = "default", "load", "reader"
VISIBILITY = Visibility(TENANT, SUBJECT, frozenset({ROLE}))
INGEST_S = 600
FAR_FUTURE = 4102444800

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stack:
    """The running services; `gateways` by backend."""

    folder: Path
    settings: dict[str, str]
    embedding: Service
    reranker: Service
    gateways: dict[str, Service]
    opensearch_url: str
    alias: str

    @property
    def embedded_path(self) -> Path:
        """The file that the embedded backend keeps its index in."""
        return Path(self.settings["EMBEDDED_PATH"])

    @property
    def bearer(self) -> dict[str, str]:
        """The header of somebody who may see the corpus."""
        claims = {"sub": SUBJECT, "tenant": TENANT, "roles": [ROLE], "exp": FAR_FUTURE}
        return {"Authorization": f"Bearer {jwt.encode(claims, self.settings['AUTH_JWT_SECRET'], algorithm='HS256')}"}


@contextmanager
def running_stack(say: Say) -> Iterator[Stack]:
    """Start everything, bring the corpus into both backends; all of it ends and goes with the block.

    Raises:
        MissingPart: there is no OpenSearch to be had on this machine.
        NodeError, ServiceFailed: something was started in vain.
    """
    say("looking for an OpenSearch node")
    source = find_source(os.environ)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
        settings = {
            "KNOWLEDGE_ENV": "development",
            "AUTH_JWT_SECRET": secrets.token_hex(32),
            "EMBEDDED_PATH": str(folder / "knowledge.db"),
            "EMBEDDING_MODEL": MODEL,
            "RERANK_MODEL": MODEL,
        }
        say("starting the model services")
        embedding, reranker = (_started(stack, name, settings, folder) for name in ("knowledge-embedding", "knowledge-reranker"))
        settings |= {"EMBEDDING_URL": embedding.url, "RERANKER_URL": reranker.url}
        say(f"starting a node ({source.origin})")
        # The compiler's second tier is what a node for users has.
        node = stack.enter_context(source.run(jvm=Jvm(quick=False)))
        alias = f"{PREFIX}{secrets.token_hex(6)}"
        stack.callback(delete_behind, node.url, alias)
        for service in (embedding, reranker):
            wait_ready(service)
        gateways = {}
        for backend, own in _backends(node.url, alias).items():
            say(f"bringing the corpus in ({backend})")
            _ingest({**settings, **own}, folder)
            gateways[backend] = stack.enter_context(running("knowledge-gateway", {**settings, **own}, folder / backend))
        yield Stack(folder, settings, embedding, reranker, gateways, node.url, alias)


def _backends(node: str, alias: str) -> dict[str, dict[str, str]]:
    return {
        "embedded": {"SEARCH_BACKEND": "embedded"},
        "opensearch": {"SEARCH_BACKEND": "opensearch", "OPENSEARCH_URL": node, "OPENSEARCH_INDEX": alias},
    }


def _started(stack: ExitStack, name: str, settings: dict[str, str], folder: Path) -> Service:
    """Not ready yet: models load while other things start."""
    service = start(name, settings, folder)
    stack.callback(service.stop)
    return service


def _ingest(settings: dict[str, str], folder: Path) -> None:
    done = subprocess.run(
        ["knowledge", "ingest", str(CORPUS), "--allowed-roles", ROLE, "--source", "houseplants"],
        env=clean_environment(settings),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=INGEST_S,
        check=False,
    )
    if done.returncode != 0:
        raise ServiceFailed(f"knowledge ingest failed:\n{done.stdout}{done.stderr}")
