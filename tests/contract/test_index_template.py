"""The composable index template: whoever makes an index of the gateway's name gets the gateway's mapping."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.trace import NoOpTracer

from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.adapters.opensearch_client import connect
from knowledge.adapters.opensearch_mapping import META, index_name
from knowledge.adapters.opensearch_template import index_template, put_template
from knowledge.lexicon import Lexicon
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, Asked, OpenSearchPlace, lexical, record

pytestmark = pytest.mark.opensearch


@pytest.fixture
def place(opensearch_url: str) -> Iterator[OpenSearchPlace]:
    """An alias on the node."""
    made = OpenSearchPlace(opensearch_url)
    yield made
    made.remove()


async def opened(place: OpenSearchPlace, fingerprint: str = FINGERPRINT, lexicon: Lexicon | None = None) -> None:
    """Open the index once, as a gateway does at its start."""
    backend = place.connect(lexicon=lexicon or Lexicon())
    await backend.open(fingerprint=fingerprint, dimension=DIMENSION)
    await backend.aclose()


def template(place: OpenSearchPlace) -> dict[str, Any]:
    """The template as the cluster has it."""
    (found,) = place.call("GET", f"_index_template/{place.alias}")["index_templates"]
    return dict(found["index_template"])


async def test_an_index_made_by_hand_has_the_right_mapping(place: OpenSearchPlace) -> None:
    """Deleted and made anew, without a body: mapping, settings and `_meta` are those of the gateway, and with the alias it serves."""
    await opened(place, lexicon=Lexicon(compound_words=("Mangel",)))
    ((name, own),) = place.call("GET", place.alias).items()
    place.call("DELETE", name)
    place.call("PUT", name)
    made = place.call("GET", name)[name]
    assert made["mappings"] == own["mappings"]
    assert made["settings"]["index"]["analysis"] == own["settings"]["index"]["analysis"]
    assert made["settings"]["index"]["knn"] == "true"
    assert made["aliases"] == {}
    place.call("PUT", f"{name}/_alias/{place.alias}")
    backend = place.connect(lexicon=Lexicon(compound_words=("Mangel",)))
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.write(TENANT, [record("a", "Stickstoffmangel")], [])
    assert await Asked(backend).ids(lexical("Mangel")) == ["a"]
    await backend.aclose()


async def test_only_the_gateways_own_names_are_taken(place: OpenSearchPlace) -> None:
    """A further name of the same index is; one that merely begins like the alias is not."""
    await opened(place)
    (name,) = place.call("GET", place.alias)
    assert template(place)["index_patterns"] == [f"{index_name(place.alias, FINGERPRINT, DIMENSION)}*"]
    for other, taken in ((f"{name}-2", True), (f"{place.alias}-logs", False), (f"{place.alias}-test-0123456789", False)):
        place.call("PUT", other)
        assert (META in place.call("GET", other)[other]["mappings"].get("_meta", {})) is taken


async def test_the_template_says_everything_explicitly(place: OpenSearchPlace) -> None:
    """Engine, space, graph and the strict mapping; no alias, since a restored index must not join the one that is searched."""
    await opened(place)
    found = template(place)
    assert found["_meta"][META]["fingerprint"] == FINGERPRINT
    assert found["_meta"] == found["template"]["mappings"]["_meta"]
    assert "aliases" not in found["template"]
    mappings = found["template"]["mappings"]
    assert mappings["dynamic"] == "strict"
    method = mappings["properties"]["vector"]["method"]
    assert (method["engine"], method["space_type"], method["parameters"]) == ("lucene", "cosinesimil", {"m": 16, "ef_construction": 128})


async def test_the_template_follows_the_mapping(place: OpenSearchPlace) -> None:
    """One of another release is replaced; the next start finds it as it should be and puts nothing."""
    old = index_template(place.alias, FINGERPRINT, DIMENSION, 0)
    old["_meta"] = {META: {"mapping_hash": "0ld"}}
    place.call("PUT", f"_index_template/{place.alias}", old | {"version": 7})
    await opened(place)
    found = template(place)
    assert found["_meta"][META]["mapping_hash"] != "0ld"
    assert "version" not in found
    # Marked by hand: a template that is put again loses the mark.
    place.call("PUT", f"_index_template/{place.alias}", found | {"version": 8})
    await opened(place)
    assert template(place)["version"] == 8


async def test_two_gateways_at_once_have_one_template(place: OpenSearchPlace) -> None:
    """Neither is turned away."""
    await asyncio.gather(*(opened(place) for _ in range(6)))
    assert template(place)["priority"] == 500
    assert len(place.call("GET", f"_alias/{place.alias}")) == 1


async def test_a_template_of_somebody_else_is_left_alone(place: OpenSearchPlace) -> None:
    """Of the same name; or of the same priority and pattern, which the cluster refuses. The index is made all the same."""
    foreign = {"index_patterns": [f"{place.alias}-foreign*"], "priority": 1, "template": {}}
    place.call("PUT", f"_index_template/{place.alias}", foreign)
    await opened(place)
    assert template(place)["priority"] == 1
    client = connect(place.url, username=None, password=None, ca_file=None, pool_size=1)
    place.call("DELETE", f"_index_template/{place.alias}")
    foreign = {"index_patterns": [f"{place.alias}-*"], "priority": 500, "template": {}}
    place.call("PUT", f"_index_template/{place.alias}-foreign", foreign)
    assert not await put_template(client, place.alias, index_template(place.alias, FINGERPRINT, DIMENSION, 0))
    await client.close()
    await opened(place)
    backend = OpenSearchBackend(place.url, place.alias, tracer=NoOpTracer(), pool_size=1)
    assert await backend.ready()
    await backend.aclose()
