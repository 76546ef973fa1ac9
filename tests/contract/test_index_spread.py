"""OPENSEARCH_SHARDS and OPENSEARCH_REPLICAS arrive in every index that the gateway or a reindex makes, and in the template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from knowledge.app import DISTRIBUTION, new_backend, new_reindexing
from knowledge.settings import SearchSettings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, Asked, OpenSearchPlace, lexical, record

pytestmark = pytest.mark.opensearch


@pytest.fixture
def place(opensearch_url: str) -> Iterator[OpenSearchPlace]:
    """An alias on the node."""
    made = OpenSearchPlace(opensearch_url)
    yield made
    made.remove()


def settings(place: OpenSearchPlace, **changes: Any) -> SearchSettings:
    """Of a gateway on this alias."""
    return SearchSettings(search_backend="opensearch", opensearch_url=place.url, opensearch_index=place.alias, **changes)


async def opened(search: SearchSettings) -> None:
    """Open the index once, as a gateway does at its start, with a few passages."""
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    backend = new_backend(search, telemetry)
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    assert await backend.write(TENANT, [record(f"p{number}", "wasser") for number in range(9)], []) == []
    assert len(await Asked(backend).ids(lexical("wasser"))) == 9
    await backend.aclose()
    telemetry.shutdown()


def index_settings(place: OpenSearchPlace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the index behind the alias, and of the template."""
    (index,) = place.call("GET", f"{place.alias}/_settings").values()
    (template,) = place.call("GET", f"_index_template/{place.alias}")["index_templates"]
    return index["settings"]["index"], template["index_template"]["template"]["settings"]["index"]


async def test_a_gateway_makes_its_index_so(place: OpenSearchPlace) -> None:
    """As asked; an index that is there is served as it is, and the template follows the settings."""
    await opened(settings(place, opensearch_shards=3, opensearch_replicas=0))
    for made in index_settings(place):
        assert (made["number_of_shards"], made["number_of_replicas"], made.get("auto_expand_replicas", "false")) == ("3", "0", "false")
    await opened(settings(place))
    index, template = index_settings(place)
    assert index["number_of_shards"] == "3"
    assert (template["number_of_shards"], template["auto_expand_replicas"]) == ("1", "0-1")


async def test_a_reindex_makes_its_index_so(place: OpenSearchPlace) -> None:
    """The mapping is the same, so both fit the same gateway."""
    await opened(settings(place))
    first, _ = index_settings(place)
    assert (first["number_of_shards"], first["auto_expand_replicas"]) == ("1", "0-1")
    reindexing = new_reindexing(settings(place, opensearch_shards=2, opensearch_replicas=0))
    pair = await reindexing.begin(FINGERPRINT, DIMENSION)
    await pair.swap()
    await reindexing.aclose()
    second, _ = index_settings(place)
    assert (second["number_of_shards"], second["number_of_replicas"]) == ("2", "0")
