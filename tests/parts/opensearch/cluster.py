"""Several nodes that form one cluster, one of which can be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.parts.opensearch.find import find_launch
from tests.parts.opensearch.launch import Jvm
from tests.parts.opensearch.node import WAIT_S, Node, NodeError, Setting, free_ports, running

__all__ = ["Cluster", "three_nodes"]

NAMES = ("node-1", "node-2", "node-3")
HEAP = "384m"


@dataclass(frozen=True)
class Cluster:
    """Running nodes by name."""

    nodes: Mapping[str, Node]

    def kill(self, name: str) -> None:
        """End a node as a power cut would, without a word to the others.

        Raises NodeError where its process cannot be found: this needs a system with /proc.
        """
        config = str(Path(str(self.nodes[name].settings["path.data"])).parent / "config")
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = entry.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if f"-Dopensearch.path.conf={config}" in arguments and arguments[0].endswith("java"):
                os.kill(int(entry.parent.name), signal.SIGKILL)
                return
        raise NodeError(f"the process of {name} was not found under /proc")


@contextmanager
def three_nodes(env: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Yield a cluster of three nodes that has formed. Raises MissingPart or NodeError."""
    environment = os.environ if env is None else env
    launch = find_launch(environment)
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    name = f"kgtest-{uuid4().hex[:12]}"

    def settings(node: str) -> dict[str, Setting]:
        return {
            "cluster.name": name,
            "node.name": node,
            "transport.port": ports[node],
            "discovery.type": None,
            "discovery.seed_hosts": [f"127.0.0.1:{port}" for port in ports.values()],
            "cluster.initial_cluster_manager_nodes": list(NAMES),
        }

    with ExitStack() as stack, ThreadPoolExecutor(len(NAMES)) as pool:
        # Together, because none is ready before the others are there.
        contexts = {node: running(launch, environment, settings=settings(node), jvm=Jvm(HEAP), wait_s=WAIT_S) for node in NAMES}
        started = {node: pool.submit(stack.enter_context, context) for node, context in contexts.items()}
        yield Cluster({node: future.result() for node, future in started.items()})
