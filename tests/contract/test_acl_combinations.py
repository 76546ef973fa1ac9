"""Ten thousand random combinations of identities, permissions, filters, scopes, sub-queries and legs: nobody sees what they may not.

Each run draws a new seed; a failure names it, and `SEED` repeats it.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Literal

import pytest
from opentelemetry.metrics import NoOpMeter

from knowledge.deadline import Deadline
from knowledge.models import Embeddings, Filters, Identity, Leg, LegQuery, Passage, Query, Record, Scope, Visibility
from knowledge.pipeline import Pipeline
from knowledge.ports import Backend
from knowledge.rerank import RerankStage
from knowledge.retrieve import Retriever
from knowledge.settings import RerankerSettings, SearchSettings, TimeSettings
from knowledge.telemetry import Instruments
from tests.contract.conftest import BACKENDS, make_place
from tests.contract.places import DIMENSION, FINGERPRINT, TIMEOUT_S, embed, record

SEED: int | None = None
LEG_QUERIES = 10_000
LEGS_AT_ONCE = 50
SEARCHES = 250
TENANTS = ("a", "b")
ROLES = ("r0", "r1", "r2", "R0", "r0 r1", "r*", "", "ü", "r0\x1f")
SUBJECTS = ("s0", "s1", "r0", "", "*")
WORDS = ("wasser", "licht", "erde", "pH", "6.2", "blatt", "POL-55012")
FIELDS = {"language": ("de", "en", "fr"), "category": ("pflege", "licht"), "tags": ("t0", "t1", "t2"), "room": ("m0", "m1")}
TOP_K = 20

Corpus = dict[str, Record]
Asked = tuple[asyncio.Runner, Backend, Corpus, random.Random, int]


def some(rng: random.Random, values: Sequence[str], most: int) -> tuple[str, ...]:
    """Up to `most` of the values."""
    return tuple(rng.sample(values, rng.randint(0, min(most, len(values)))))


def make_corpus(rng: random.Random) -> Corpus:
    """Passages with permissions of all kinds, none among them, in two tenants."""
    found = {}
    for index in range(300):
        name = f"p{index:03}"
        found[name] = record(
            name,
            " ".join(rng.choices(WORDS, k=3)),
            tenant=rng.choice(TENANTS),
            language=rng.choice(FIELDS["language"]),
            category=rng.choice(FIELDS["category"]),
            tags=some(rng, FIELDS["tags"], 2),
            metadata={"room": rng.choice(FIELDS["room"])},
            identifiers=some(rng, ("ph", "6.2", "pol-55012"), 3),
            allowed_roles=some(rng, ROLES, 3),
            allowed_subjects=some(rng, SUBJECTS, 2),
        )
    return found


def make_identity(rng: random.Random) -> Identity:
    """Somebody, in a tenant that may not exist, with roles that may mean nothing."""
    roles = some(rng, (*ROLES, "r3", "%", "r0 OR r1"), 4)
    return Identity(rng.choice((*TENANTS, "c")), rng.choice((*SUBJECTS, "s2")), frozenset(roles))


def make_filters(rng: random.Random) -> Filters:
    """Up to three conditions; a field may stand in two of them."""
    names = rng.choices(tuple(FIELDS), k=rng.randint(0, 3))
    return tuple((name, tuple(rng.sample(FIELDS[name], rng.randint(1, len(FIELDS[name]))))) for name in names)


def may_see(one: Record, identity: Identity, filters: Filters) -> bool:
    """The rule, written once more: by itself, not by the product's code."""
    if one.tenant != identity.tenant:
        return False
    if not (set(one.allowed_roles) & identity.roles or identity.subject in one.allowed_subjects):
        return False
    values = {"language": {one.language}, "category": {one.category}, "tags": set(one.tags), "room": {one.metadata["room"]}}
    return all(values[name] & set(accepted) for name, accepted in filters)


@pytest.fixture(scope="module", params=BACKENDS)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """One filled backend for many questions."""
    seed = secrets.randbelow(2**32) if SEED is None else SEED
    rng = random.Random(seed)
    corpus = make_corpus(rng)
    place = make_place(request.param, tmp_path_factory.mktemp("acl"), request)
    with asyncio.Runner() as runner:
        backend = place.connect()
        runner.run(backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION))
        for tenant in TENANTS:
            failures = runner.run(backend.write(tenant, [one for one in corpus.values() if one.tenant == tenant], []))
            assert failures == []
        yield runner, backend, corpus, rng, seed
        runner.run(backend.aclose())
    place.remove()


def test_no_leg_shows_what_an_identity_may_not_see(asked: Asked) -> None:
    """Leg by leg: every hit is allowed, and the vector leg misses none that is."""
    runner, backend, corpus, rng, seed = asked
    seen = 0
    for _ in range(LEG_QUERIES // LEGS_AT_ONCE):
        drawn = [(make_identity(rng), make_filters(rng), rng.choice(list(Leg))) for _ in range(LEGS_AT_ONCE)]
        queries = [
            LegQuery(
                leg,
                Visibility.of(identity),
                rng.randint(1, 60),
                filters,
                text=" ".join(rng.choices(WORDS, k=2)),
                language=rng.choice((None, *FIELDS["language"])),
                vector=embed(rng.choice(WORDS)),
                identifiers=rng.choice((("ph",), ("6.2", "pol-55012"), ("none",))),
            )
            for identity, filters, leg in drawn
        ]
        results = runner.run(backend.msearch(queries, TIMEOUT_S * 4))
        for (identity, filters, leg), query, result in zip(drawn, queries, results, strict=True):
            assert not result.failed, seed
            allowed = {name for name, one in corpus.items() if may_see(one, identity, filters)}
            hits = {hit.passage.id for hit in result.hits}
            assert hits <= allowed, (seed, identity, filters, leg)
            if leg is Leg.VECTOR:
                assert len(hits) == min(query.size, len(allowed)), (seed, identity, filters)
            seen += len(hits)
    assert seen > LEG_QUERIES


class ToyEmbedder:
    """The suite's toy embedding behind the port."""

    async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
        """One vector a text."""
        return Embeddings(tuple(embed(text) for text in texts), "toy", FINGERPRINT)

    async def info(self, timeout_s: float) -> dict[str, object]:
        """Not asked here."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Nothing is open."""


def test_no_search_shows_what_an_identity_may_not_see(asked: Asked) -> None:
    """Through the whole pipeline, with scopes, sub-queries, floors and importance: every result of every scope is allowed."""
    runner, backend, corpus, rng, seed = asked
    search = SearchSettings()
    metrics = Instruments(NoOpMeter("tests"))
    retriever = Retriever(backend, ToyEmbedder(), search=search, time=TimeSettings(), initial_k=15, metrics=metrics)
    stage = RerankStage(None, RerankerSettings(), metrics, time.monotonic)
    pipeline = Pipeline(retriever, stage, search=search, reranker=RerankerSettings(), metrics=metrics)
    seen = 0
    for _ in range(SEARCHES):
        identity = make_identity(rng)
        scopes = tuple(Scope(f"s{index}", make_filters(rng), TOP_K, rng.choice((None, None, 0.1))) for index in range(rng.randint(1, 4)))
        query = Query(
            rng.choice(WORDS),
            tuple(dict.fromkeys(rng.choices(WORDS, k=rng.randint(0, 4)))),
            TOP_K,
            scopes,
            scoped=True,
            language=rng.choice((None, *FIELDS["language"])),
            drop_lexical_below_floor=rng.random() < 0.3,
            use_importance=rng.random() < 0.3,
        )
        answer = runner.run(pipeline.search(query, identity, Deadline.after(30)))
        for scope, given in zip(answer.scopes, scopes, strict=True):
            shown: list[Passage] = [result.candidate.passage for result in scope.results]
            assert len({one.id for one in shown}) == len(shown), seed
            for one in shown:
                assert may_see(corpus[one.id], identity, given.filters), (seed, identity, given.filters, one.id)
            seen += len(shown)
    assert seen > SEARCHES
