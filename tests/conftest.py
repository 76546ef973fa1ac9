"""Parts that several suites share."""

from collections.abc import Iterator

import pytest

from tests.parts.opensearch import find_or_start


@pytest.fixture(scope="session")
def opensearch_url() -> Iterator[str]:
    """A real node for the whole run; without any the error names the ways to get one."""
    with find_or_start() as node:
        yield node.url
