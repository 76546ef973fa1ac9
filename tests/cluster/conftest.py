"""Three real nodes, for tests that kill one."""

from collections.abc import Iterator

import pytest

from tests.parts.opensearch.cluster import Cluster, three_nodes


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes of one test's own."""
    with three_nodes() as formed:
        yield formed
