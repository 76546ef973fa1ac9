"""A real OpenSearch node with the k-NN plugin for the tests."""

from __future__ import annotations

from tests.parts import MissingPart
from tests.parts.opensearch.find import find_or_start
from tests.parts.opensearch.node import Node, NodeError

__all__ = ["MissingPart", "Node", "NodeError", "find_or_start"]
