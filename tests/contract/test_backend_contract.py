"""What both search backends promise when they find passages, each promise proven on a file and on a real OpenSearch node."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from knowledge.errors import BackendError
from knowledge.models import Leg, LegQuery
from knowledge.ports import Backend
from tests.contract.places import (
    DIMENSION,
    FINGERPRINT,
    READER,
    TENANT,
    TIMEOUT_S,
    Asked,
    EmbeddedPlace,
    Place,
    embed,
    identifier,
    lexical,
    record,
    unit,
    vector,
)


async def test_a_hit_is_the_passage_and_nothing_about_permissions(backend: Backend, asked: Asked) -> None:
    """All that callers see comes back as it was written, on every leg."""
    written = record(
        "a",
        "Monstera gießen",
        category="pflege",
        tags=("wasser", "gießen"),
        metadata={"page": 3, "nested": {"deep": [1, None, {"x": 1.5}]}, "dotted.name": True, "": "empty"},
        identifiers=("pol-55012", "ph"),
        importance=0.25,
        allowed_roles=("reader", "secret-role"),
    )
    assert await backend.write(TENANT, [written], []) == []
    for query in (lexical("monstera"), vector("Monstera gießen"), identifier("ph")):
        (hit,) = await asked.hits(query)
        found = hit.passage
        assert (found.id, found.document_id, found.title) == ("a", "doc-a", "Title a")
        assert (found.content, found.language, found.importance) == ("Monstera gießen", "de", 0.25)
        assert found.identifiers == ("pol-55012", "ph")
        assert found.metadata == {**written.metadata, "category": "pflege", "tags": ["wasser", "gießen"]}
        assert "secret-role" not in repr(hit)


async def test_results_stand_in_the_order_of_the_queries(backend: Backend) -> None:
    """One result a query, also where a query can find nothing."""
    await backend.write(TENANT, [record("a", "eins"), record("b", "zwei")], [])
    queries = [lexical("zwei"), lexical("  "), lexical("eins"), identifier(), lexical("drei")]
    results = await backend.msearch(queries, TIMEOUT_S)
    assert [[hit.passage.id for hit in result.hits] for result in results] == [["b"], [], ["a"], [], []]
    assert await backend.msearch([], TIMEOUT_S) == []


async def test_the_vector_score_is_the_raw_cosine(backend: Backend, asked: Asked) -> None:
    """Near, far and opposite, best first, whatever the length of the vectors."""
    generator = np.random.default_rng(7)
    rows = [tuple(map(float, row * 10**exponent)) for exponent, row in enumerate(generator.standard_normal((6, DIMENSION)))]
    opposite = tuple(-value for value in embed("frage"))
    rows.append(opposite)
    await backend.write(TENANT, [record(f"p{index}", vector=row) for index, row in enumerate(rows)], [])
    hits = await asked.hits(vector("frage"))
    expected = {f"p{index}": float(unit(row) @ unit(embed("frage"))) for index, row in enumerate(rows)}
    assert [hit.passage.id for hit in hits] == sorted(expected, key=lambda name: -expected[name])
    assert [hit.score for hit in hits] == pytest.approx([expected[hit.passage.id] for hit in hits], abs=2e-6)
    assert hits[-1].score == pytest.approx(-1, abs=2e-6)


@pytest.mark.parametrize("leg", list(Leg))
async def test_a_leg_is_as_deep_as_asked(backend: Backend, asked: Asked, leg: Leg) -> None:
    """`size` hits if there are as many that are visible, however many others stand nearer."""
    hidden = [record(f"h{index:03}", "wasser", identifiers=("ph",), allowed_roles=("other",)) for index in range(150)]
    shown = [record(f"s{index:03}", f"wasser wort{index}", identifiers=("ph",)) for index in range(60)]
    assert await backend.write(TENANT, hidden + shown, []) == []
    query = {Leg.LEXICAL: lexical("wasser"), Leg.VECTOR: vector("wasser"), Leg.IDENTIFIER: identifier("ph")}[leg]
    all_of_them = await asked.hits(query)
    assert len(all_of_them) == 50
    assert all(hit.passage.id.startswith("s") for hit in all_of_them)
    fewer = LegQuery(query.leg, READER, 7, text=query.text, vector=query.vector, identifiers=query.identifiers)
    assert [hit.passage.id for hit in await asked.hits(fewer)] == [hit.passage.id for hit in all_of_them[:7]]


async def test_ties_are_ordered_by_chunk_id(backend: Backend, asked: Asked) -> None:
    """Equal scores give one order, whatever the order of writing, and the cut falls inside it."""
    names = [f"{index:02}" for index in range(30)]
    for name in np.random.default_rng(3).permutation(names):
        await backend.write(TENANT, [record(str(name), "gleicher text", identifiers=("ph",))], [])
    assert await asked.ids(lexical("text", size=20)) == names[:20]
    assert await asked.ids(identifier("ph", size=20)) == names[:20]
    assert await asked.ids(vector("gleicher text")) == names


async def test_the_identifier_leg_counts_distinct_matches(backend: Backend, asked: Asked) -> None:
    """More of them first; each counts once; only whole ones count."""
    await backend.write(
        TENANT,
        [
            record("one", identifiers=("pol-55012", "x")),
            record("two", identifiers=("pol-55012", "ph", "ph")),
            record("near", identifiers=("pol-55021", "0055012")),
            record("none"),
        ],
        [],
    )
    hits = await asked.hits(identifier("pol-55012", "ph", "ph"))
    assert [(hit.passage.id, hit.score) for hit in hits] == [("two", 2.0), ("one", 1.0)]


FILTERED = [
    record(
        "de",
        "pflanze",
        language="de",
        category="pflege",
        tags=("a", "b"),
        identifiers=("ph",),
        metadata={"room": "Bad", "level": 1},
    ),
    record("en", "pflanze", language="en", category="pflege", tags=("b",), identifiers=("ph",), metadata={"room": ["Bad", "Küche"]}),
    record("fr", "pflanze", language="fr", category="licht", tags=(), identifiers=("ph",), metadata={"level": 1.5, "on": True}),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ((), {"de", "en", "fr"}),
        ((("language", ("de",)),), {"de"}),
        ((("language", ("de", "fr")),), {"de", "fr"}),
        ((("category", ("pflege",)),), {"de", "en"}),
        ((("category", ("Pflege",)),), set()),
        ((("tags", ("a",)),), {"de"}),
        ((("tags", ("b",)), ("language", ("en",))), {"en"}),
        ((("tags", ("a", "b")),), {"de", "en"}),
        ((("tags", ("a",)), ("tags", ("b",))), {"de"}),
        ((("room", ("Bad",)),), {"de", "en"}),
        ((("room", ("Küche",)),), {"en"}),
        ((("room", ("Bad",)), ("room", ("Küche",))), {"en"}),
        ((("level", ("1",)),), {"de"}),
        ((("level", ("1.5",)),), {"fr"}),
        ((("on", ("true",)),), {"fr"}),
        ((("unknown", ("x",)),), set()),
        ((("language", ()),), set()),
        ((("room", ("\ud800",)),), set()),
        ((("room\x1fBad", ("Bad",)),), set()),
    ],
)
async def test_filters_narrow_every_leg(backend: Backend, asked: Asked, filters: tuple[object, ...], expected: set[str]) -> None:
    """Any value of a condition, all conditions together, exactly as written."""
    await backend.write(TENANT, FILTERED, [])
    for query in (lexical("pflanze", filters=filters), vector("pflanze", filters=filters), identifier("ph", filters=filters)):
        assert set(await asked.ids(query)) == expected


@pytest.mark.parametrize("vector_", [(value,) * DIMENSION for value in (0.0, 1e-46, 1e-30, 1e39, math.nan, math.inf)] + [()])
async def test_a_vector_without_a_cosine_finds_nothing(backend: Backend, asked: Asked, vector_: tuple[float, ...]) -> None:
    """It is no failure either: there is nothing that could be near."""
    await backend.write(TENANT, [record("a")], [])
    assert await asked.ids(LegQuery(Leg.VECTOR, READER, 10, vector=vector_)) == []


async def test_a_leg_that_fails_leaves_the_others(backend: Backend) -> None:
    """A vector of another dimension breaks its own leg only."""
    await backend.write(TENANT, [record("a", "wort")], [])
    wrong, right = await backend.msearch([LegQuery(Leg.VECTOR, READER, 10, vector=(1.0, 2.0)), lexical("wort")], TIMEOUT_S)
    assert wrong.failed
    assert wrong.hits == ()
    assert [hit.passage.id for hit in right.hits] == ["a"]


async def test_a_search_without_time_is_a_failure_and_no_empty_answer(backend: Backend) -> None:
    """Either the whole fails, or each leg says so; the next search is fine."""
    await backend.write(TENANT, [record(f"p{index}", "wort " * 50) for index in range(200)], [])
    try:
        results = await backend.msearch([lexical("wort"), vector("wort")], 0.0001)
    except BackendError:
        results = []
    assert all(result.failed for result in results)
    (after,) = await backend.msearch([lexical("wort")], TIMEOUT_S)
    assert len(after.hits) == 50


async def test_a_search_leaves_one_span_without_texts(place: Place) -> None:
    """What was asked and of whom stays out of the trace."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    backend = place.connect(provider.get_tracer("test"))
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.write(TENANT, [record("a", "geheimnis")], [])
    await backend.msearch([lexical("geheimnis"), vector("geheimnis")], TIMEOUT_S)
    await backend.msearch([LegQuery(Leg.VECTOR, READER, 10, vector=(1.0, 2.0))], TIMEOUT_S)
    await backend.aclose()
    good, bad = exporter.get_finished_spans()
    name = "index.db" if isinstance(place, EmbeddedPlace) else place.alias
    system = "sqlite" if isinstance(place, EmbeddedPlace) else "opensearch"
    assert (good.name, good.kind) == (f"msearch {name}", SpanKind.CLIENT)
    assert dict(good.attributes or {}) == {
        "db.system.name": system,
        "db.operation.name": "msearch",
        "db.collection.name": name,
        "db.operation.batch.size": 2,
    }
    assert good.status.is_unset
    assert not bad.status.is_ok
    assert (bad.attributes or {})["error.type"] == "leg_failed"
    whole = json.dumps([json.loads(span.to_json()) for span in (good, bad)])
    assert "geheimnis" not in whole
    assert TENANT not in whole
