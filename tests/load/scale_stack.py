"""A node with 1 GB of heap and its data on disk, passages written straight into it, and a gateway that knows its questions' vectors."""

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any

import jwt
from opensearchpy import OpenSearch
from opensearchpy.helpers import parallel_bulk, streaming_bulk

from examples.demo.services import start, wait_ready
from knowledge.adapters.opensearch_documents import key, stored_source
from knowledge.models import Record
from tests.load.figures import MeasurementFailed
from tests.load.passages import DIMENSION, FINGERPRINT, Asked
from tests.load.stack import FAR_FUTURE, ROLE, SUBJECT, TENANT, Say
from tests.parts.opensearch.find import find_source
from tests.parts.opensearch.indices import PREFIX, delete_behind
from tests.parts.opensearch.launch import Jvm

GATEWAY = Path(__file__).with_name("scale_gateway.py")
HEAP = "1g"
BULK_TIMEOUT_S = 120
QUIET_S = 900.0
"""How long merges may go on after a load."""


@dataclass(frozen=True, slots=True)
class Node:
    """A running node."""

    url: str
    client: OpenSearch

    @contextmanager
    def alias(self) -> Iterator[str]:
        """A name for an alias; what is behind it is deleted afterwards, and its index template."""
        name = f"{PREFIX}{secrets.token_hex(6)}"
        try:
            yield name
        finally:
            delete_behind(self.url, name)
            self.client.indices.delete_index_template(name=name, params={"ignore": 404})


@contextmanager
def running_node(say: Say) -> Iterator[Node]:
    """A node as users have it; it ends with the block.

    Raises:
        MissingPart, NodeError: there is none to be had, or it was started in vain.
    """
    source = find_source(environ)
    say(f"starting a node with a heap of {HEAP} ({source.origin})")
    with source.run(jvm=Jvm(HEAP, quick=False)) as node:
        client = OpenSearch(hosts=[node.url], timeout=BULK_TIMEOUT_S, trust_env=False)
        try:
            yield Node(node.url, client)
        finally:
            client.close()


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway and the token of somebody who may see most passages."""

    url: str
    bearer: dict[str, str]


@contextmanager
def running_gateway(node: Node, alias: str, asked: Sequence[Asked]) -> Iterator[Gateway]:
    """The gateway in a process of its own; it creates the index behind `alias`.

    Raises:
        ServiceFailed: it was started in vain.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
        secret = secrets.token_hex(32)
        settings = {
            "KNOWLEDGE_ENV": "development",
            "AUTH_JWT_SECRET": secret,
            "SEARCH_BACKEND": "opensearch",
            "OPENSEARCH_URL": node.url,
            "OPENSEARCH_INDEX": alias,
        }
        known = {"fingerprint": FINGERPRINT, "dimension": DIMENSION, "vectors": {one.text: one.vector for one in asked}}
        vectors = folder / "vectors.json"
        vectors.write_text(json.dumps(known), encoding="utf-8")
        service = start("knowledge-gateway", settings, folder, command=[sys.executable, str(GATEWAY), str(vectors)])
        stack.callback(service.stop)
        wait_ready(service)
        claims = {"sub": SUBJECT, "tenant": TENANT, "roles": [ROLE], "exp": FAR_FUTURE}
        yield Gateway(service.url, {"Authorization": f"Bearer {jwt.encode(claims, secret, algorithm='HS256')}"})


def bulk_actions(records: Iterable[Record], alias: str) -> Iterator[Mapping[str, Any]]:
    """What `opensearch-py`'s helpers take, for the documents that the gateway would write."""
    return ({"_index": alias, "_id": key(one.tenant, one.id), "_source": stored_source(one)} for one in records)


def write_in_bulk(node: Node, actions: Iterable[Mapping[str, Any]], advance: Callable[[], None] = lambda: None) -> None:
    """The helper as its documentation shows it, with its own defaults; searchable on return.

    Raises:
        MeasurementFailed: something was refused.
    """
    for accepted, _ in parallel_bulk(node.client, actions, raise_on_error=False):
        if not accepted:
            raise MeasurementFailed("parallel_bulk: a document was refused")
        advance()


def load_in_bulk(node: Node, actions: Iterable[Mapping[str, Any]], advance: Callable[[], None]) -> None:
    """Fill an index that is not timed: one request at a time, again where the node's memory is full of the one before.

    Raises:
        MeasurementFailed: something was refused.
    """
    for accepted, _ in streaming_bulk(node.client, actions, raise_on_error=False, max_retries=10, initial_backoff=1, max_backoff=10):
        if not accepted:
            raise MeasurementFailed("streaming_bulk: a document was refused")
        advance()


def refresh(node: Node, alias: str) -> None:
    """Make everything searchable."""
    node.client.indices.refresh(index=alias)


def wait_until_quiet(node: Node, alias: str) -> None:
    """Return once no merge goes on any more.

    Raises:
        MeasurementFailed: merges take too long.
    """
    ends = time.monotonic() + QUIET_S
    while time.monotonic() < ends:
        merges = node.client.indices.stats(index=alias, metric="merge")["_all"]["primaries"]["merges"]
        if not merges["current"]:
            return
        time.sleep(0.5)
    raise MeasurementFailed(f"merges go on for more than {QUIET_S:g} s after the load")


def data_bytes(node: Node, alias: str) -> int:
    """What the index takes on disk."""
    return int(node.client.indices.stats(index=alias, metric="store")["_all"]["primaries"]["store"]["size_in_bytes"])
