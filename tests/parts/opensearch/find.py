"""Find a node for the tests, or start one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from tests.parts import MissingPart
from tests.parts.opensearch import container, node
from tests.parts.opensearch.install import VERSION
from tests.parts.opensearch.java import MINIMUM
from tests.parts.opensearch.launch import Jvm, Launch, find_distribution, find_jars
from tests.parts.opensearch.node import WAIT_S, Node, Setting

__all__ = ["Source", "find_launch", "find_or_start", "find_source"]

_MISSING = (
    f"No OpenSearch for the tests: start Docker, or install Java {MINIMUM} or newer with Maven, "
    "or set TEST_OPENSEARCH_URL to a 3.x node with the k-NN plugin."
)
_MISSING_LAUNCH = (
    f"No OpenSearch to start: install Java {MINIMUM} or newer with Maven, or put the `opensearch` of a {VERSION} distribution on PATH."
)


@dataclass(frozen=True)
class Source:
    """Where a node comes from, and how to have it: `run(settings=..., jvm=..., wait_s=...)`."""

    origin: str
    run: Callable[..., AbstractContextManager[Node]]


@contextmanager
def find_or_start(
    env: Mapping[str, str] | None = None,
    *,
    settings: Mapping[str, Setting] | None = None,
    heap: str = "512m",
    wait_s: float = WAIT_S,
) -> Iterator[Node]:
    """Yield a node that answers; one that was started for it is stopped afterwards.

    `settings` come on top of the usual ones, None takes one out; a node that somebody else runs keeps its own.
    Raises MissingPart if this machine has no means to get a node, NodeError if one was started in vain.
    """
    source = find_source(os.environ if env is None else env)
    with source.run(settings=settings, jvm=Jvm(heap), wait_s=wait_s) as found:
        yield found


def find_source(env: Mapping[str, str]) -> Source:
    """Return the first source that this machine has, with its downloads done; raise MissingPart if it has none."""
    if url := env.get("TEST_OPENSEARCH_URL"):
        given = Node(url.rstrip("/"), "TEST_OPENSEARCH_URL")
        return Source(given.origin, lambda **_: nullcontext(given))
    launch: Launch | None = find_distribution(env)
    if launch is None and container.image_at_hand(env):
        return Source(container.IMAGE, container.running)
    launch = launch or find_jars(env)
    if launch is None:
        raise MissingPart(_MISSING)
    return Source(launch.origin, partial(node.running, launch, env))


def find_launch(env: Mapping[str, str]) -> Launch:
    """Return a way to run a node as a process of this machine, or raise MissingPart."""
    launch = find_distribution(env) or find_jars(env)
    if launch is None:
        raise MissingPart(_MISSING_LAUNCH)
    return launch
