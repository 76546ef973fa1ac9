"""An upgrade of the cluster from the oldest supported version: what 2.19 wrote, 3.5 serves, and a reindex makes an index of its own."""

import os
from pathlib import Path
from uuid import uuid4

import pytest

from knowledge.app import DISTRIBUTION, new_backend, new_reindexing
from knowledge.settings import SearchSettings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from tests.cluster import scenarios
from tests.parts.opensearch.find import find_launch
from tests.parts.opensearch.node import Setting, running
from tests.parts.opensearch.secured import find_oldest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


async def go_through(url: str, *work: scenarios.Scenario) -> None:
    """One start of a gateway at this address."""
    search = SearchSettings(search_backend="opensearch", opensearch_url=url, opensearch_index="kgtest-upgrade")
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    store, reindexing = new_backend(search, telemetry), new_reindexing(search)
    for scenario in work:
        await scenario(store, reindexing)
    await store.aclose()
    await reindexing.aclose()
    telemetry.shutdown()


async def test_an_index_of_2_19_is_served_by_3_5(tmp_path: Path) -> None:
    """One node, stopped and started again as another version on the same data."""
    same: dict[str, Setting] = {"path.data": str(tmp_path / "data"), "cluster.name": f"kgtest-{uuid4().hex[:12]}"}
    with running(find_oldest(os.environ), os.environ, settings=same) as node:
        await go_through(node.url, scenarios.prepare, scenarios.serve)
    with running(find_launch(os.environ), os.environ, settings=same) as node:
        await go_through(node.url, scenarios.serve, scenarios.reindex, scenarios.serve, scenarios.examine)
