"""Nobody sees a passage that their identity does not allow: in each leg, in each look-up, for every filter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knowledge.models import Leg, LegQuery, Visibility
from knowledge.ports import Backend
from tests.contract.conftest import BACKENDS, make_place
from tests.contract.places import (
    DIMENSION,
    FINGERPRINT,
    TENANT,
    TIMEOUT_S,
    Asked,
    embed,
    identifier,
    lexical,
    record,
    seen_by,
    vector,
)

TEXT = "gemeinsamer text"
PASSAGES = [
    record("by-role", TEXT, identifiers=("ph",), allowed_roles=("reader", "gärtner")),
    record("by-subject", TEXT, identifiers=("ph",), allowed_roles=(), allowed_subjects=("ann", "bob")),
    record("by-both", TEXT, identifiers=("ph",), allowed_roles=("admin",), allowed_subjects=("ann",)),
    record("nobody", TEXT, identifiers=("ph",), allowed_roles=(), allowed_subjects=()),
    record("odd-role", TEXT, identifiers=("ph",), allowed_roles=("Reader 1", "a b", "", "ro\x00le")),
    record("role-as-subject", TEXT, identifiers=("ph",), allowed_roles=("carl",), allowed_subjects=("reader-2",)),
]
STRANGE = record("foreign", TEXT, tenant="other", identifiers=("ph",), allowed_roles=("reader",), allowed_subjects=("ann",))


@pytest.mark.parametrize(
    ("visibility", "expected"),
    [
        (seen_by("reader"), {"by-role"}),
        (seen_by("gärtner"), {"by-role"}),
        (seen_by("reader", "admin"), {"by-role", "by-both"}),
        (seen_by(subject="ann"), {"by-subject", "by-both"}),
        (seen_by("reader", subject="ann"), {"by-role", "by-subject", "by-both"}),
        (seen_by(), set()),
        (seen_by("READER", "read", "reader ", "reade*", "*", "reader,admin", "%", "' OR 1=1 --"), set()),
        (seen_by("Reader 1"), {"odd-role"}),
        (seen_by("Reader"), set()),
        (seen_by("1"), set()),
        (seen_by(""), {"odd-role"}),
        (seen_by("ro\x00le"), {"odd-role"}),
        (seen_by("ro"), set()),
        (seen_by(subject="carl"), set()),
        (seen_by("reader-2"), set()),
        (seen_by("ann"), set()),
        (seen_by(subject=""), set()),
        (seen_by("\ud800", subject="\udfff"), set()),
        (seen_by(*(f"role-{index}" for index in range(2000)), "reader"), {"by-role"}),
        (seen_by("reader", subject="ann", tenant="other"), {"foreign"}),
        (seen_by("reader", subject="ann", tenant="OTHER"), set()),
        (seen_by("reader", subject="ann", tenant=""), set()),
        (seen_by("reader", subject="ann", tenant="acme\ud800"), set()),
    ],
)
async def test_each_leg_and_document_obey_the_permissions(
    backend: Backend, asked: Asked, visibility: Visibility, expected: set[str]
) -> None:
    """The rule of `Visibility.allows`, exactly, everywhere."""
    await backend.write(TENANT, PASSAGES, [])
    await backend.write("other", [STRANGE], [])
    for query in (lexical(TEXT, visibility), vector(TEXT, visibility), identifier("ph", visibility=visibility)):
        assert set(await asked.ids(query)) == expected
    found = [await backend.document(one.document_id, visibility) for one in (*PASSAGES, STRANGE)]
    assert {chunk.id for document in found if document for chunk in document.chunks} == expected


async def test_a_document_shows_only_its_visible_chunks(backend: Backend) -> None:
    """Hidden chunks leave no trace in what is shown, not even in the permissions."""
    chunks = [
        record("two", "zwei", document_id="d", ordinal=1, allowed_roles=("reader",), tags=("t",), category="c"),
        record("one", "eins", document_id="d", ordinal=0, allowed_roles=("boss",), allowed_subjects=("ann",)),
        record("ten", "zehn", document_id="d", ordinal=10, allowed_roles=("reader", "guest"), tags=("t",), category="c"),
    ]
    await backend.write(TENANT, chunks, [])
    document = await backend.document("d", seen_by("reader"))
    assert document is not None
    assert [chunk.id for chunk in document.chunks] == ["two", "ten"]
    assert (document.allowed_roles, document.allowed_subjects) == (("guest", "reader"), ())
    assert (document.title, document.tags, document.category) == ("Document two", ("t",), "c")
    assert await backend.document("d", seen_by("guest", tenant="other")) is None
    assert await backend.document("absent", seen_by("reader")) is None
    assert await backend.document("\ud800", seen_by("reader")) is None
    assert await backend.permissions(TENANT, "d") == (("boss", "guest", "reader"), ("ann",))
    assert await backend.permissions("other", "d") is None


async def test_a_permission_change_counts_at_once(backend: Backend, asked: Asked) -> None:
    """Once the write is acknowledged the old permission finds nothing, on any leg, and the new one does."""
    first = record("a", TEXT, identifiers=("ph",), allowed_roles=("reader",))
    await backend.write(TENANT, [first], [])
    for round_ in range(5):
        old, new = ("reader", "guest") if round_ % 2 == 0 else ("guest", "reader")
        await backend.write(TENANT, [replace(first, allowed_roles=(new,))], [])
        for role, expected in ((old, []), (new, ["a"])):
            seen = seen_by(role)
            for query in (lexical(TEXT, seen), vector(TEXT, seen), identifier("ph", visibility=seen)):
                assert await asked.ids(query) == expected
        assert await backend.document("doc-a", seen_by(old)) is None


@pytest.fixture(scope="module", params=BACKENDS)
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Backend]]:
    """One backend for many questions, in a loop of its own, with passages of all kinds of permissions in two tenants."""
    place = make_place(request.param, tmp_path_factory.mktemp("corpus"), request)
    with asyncio.Runner() as runner:
        backend = place.connect()
        runner.run(backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION))
        for tenant in TENANTS:
            runner.run(backend.write(tenant, [one for one in CORPUS if one.tenant == tenant], []))
        yield runner, backend
        runner.run(backend.aclose())
    place.remove()


TENANTS = ("a", "b")
ROLES = ("r0", "r1", "r2", "R0", "r0 r1", "")
SUBJECTS = ("s0", "s1", "r0", "")
WORDS = ("wasser", "licht", "erde", "pH", "6.2", "blatt")
LANGUAGES = ("de", "en", "fr")
CATEGORIES = ("pflege", "licht")
CORPUS = [
    record(
        f"{tenant}{index:03}",
        f"{WORDS[index % 6]} {WORDS[index // 6 % 6]}",
        tenant=tenant,
        language=LANGUAGES[index % 3],
        category=CATEGORIES[index % 2],
        tags=(f"t{index % 4}",),
        metadata={"room": f"m{index % 5}"},
        identifiers=("ph",) if index % 2 else ("ph", "pol-1"),
        allowed_roles=tuple(role for bit, role in enumerate(ROLES) if index * 7 + 3 & 1 << bit),
        allowed_subjects=tuple(subject for bit, subject in enumerate(SUBJECTS) if index * 5 & 1 << bit),
    )
    for tenant in TENANTS
    for index in range(60)
]
BY_ID = {one.id: one for one in CORPUS}

visibilities = st.builds(
    Visibility,
    st.sampled_from((*TENANTS, "c")),
    st.sampled_from((*SUBJECTS, "s2")) | st.text(max_size=5),
    st.frozensets(st.sampled_from((*ROLES, "r3", "*")) | st.text(max_size=5), max_size=4),
)
filters = st.lists(
    st.sampled_from([("language", LANGUAGES), ("category", CATEGORIES), ("tags", ("t0", "t1", "t2")), ("room", ("m0", "m1"))]).flatmap(
        lambda field: st.tuples(st.just(field[0]), st.lists(st.sampled_from(field[1]), max_size=2).map(tuple))
    ),
    max_size=2,
).map(tuple)
queries = st.builds(
    LegQuery,
    st.sampled_from(Leg),
    visibilities,
    st.integers(1, 60),
    filters,
    text=st.lists(st.sampled_from(WORDS) | st.text(max_size=8), min_size=1, max_size=4).map(" ".join),
    language=st.sampled_from((None, *LANGUAGES)),
    vector=st.sampled_from(WORDS).map(embed),
    identifiers=st.lists(st.sampled_from(("ph", "pol-1", "none")), min_size=1, max_size=3).map(tuple),
)


@settings(max_examples=300, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(query=queries)
def test_no_leg_returns_what_the_rule_denies(corpus: tuple[asyncio.Runner, Backend], query: LegQuery) -> None:
    """Whatever is asked, each hit is allowed and fits the filters; vector and identifier legs miss none that is."""
    runner, backend = corpus
    (result,) = runner.run(backend.msearch([query], TIMEOUT_S))
    assert not result.failed
    allowed = {one.id for one in CORPUS if _allowed(query, one.id)}
    found = [hit.passage.id for hit in result.hits]
    assert len(found) == len(set(found)) <= query.size
    assert set(found) <= allowed
    assert list(result.hits) == sorted(result.hits, key=lambda hit: (-hit.score, hit.passage.id))
    if query.leg is Leg.VECTOR:
        assert len(found) == min(query.size, len(allowed))
    if query.leg is Leg.IDENTIFIER:
        matching = {name for name in allowed if set(query.identifiers) & set(BY_ID[name].identifiers)}
        assert len(found) == min(query.size, len(matching))


def _allowed(query: LegQuery, name: str) -> bool:
    one = BY_ID[name]
    values = {"language": {one.language}, "category": {one.category}, "tags": set(one.tags), "room": {one.metadata["room"]}}
    return query.visibility.allows(tenant=one.tenant, allowed_roles=one.allowed_roles, allowed_subjects=one.allowed_subjects) and all(
        values[field] & set(accepted) for field, accepted in query.filters
    )
