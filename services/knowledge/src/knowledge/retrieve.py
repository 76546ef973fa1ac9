"""Retrieve and fuse: embed once, search once, then floors, prior, fusion and identifier tiers.

Everything here works on what the permission filter let through; nothing here can widen it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from knowledge.deadline import Deadline
from knowledge.errors import BackendError, DeadlineExceeded, EmbeddingError, SearchUnavailable
from knowledge.explain import DEAF, NotedLeg, Trail
from knowledge.fusion import LegList, coordination_level, fuse, lexical_factor
from knowledge.identifiers import Identifiers, query_identifiers, tiers
from knowledge.models import Candidate, Degraded, Embeddings, Hit, Leg, LegQuery, LegResult, Query, Scope, Visibility, join_text
from knowledge.ports import Embedder, SearchBackend
from knowledge.settings import SearchSettings, TimeSettings
from knowledge.telemetry import Instruments

EMBEDDING_SHARE = 0.6
"""The part of the time left that embedding may use up: a late embedding must leave the lexical legs time to answer."""

EMBEDDING_PROVIDER = "knowledge-embedding"

NO_FLOOR_WARNING = "min_similarity: not applied, because the vector leg is degraded"


@dataclass(frozen=True, slots=True)
class ScopeHybrid:
    """The hybrid list of one scope, best first."""

    scope: Scope
    candidates: tuple[Candidate, ...]
    degraded: tuple[Degraded, ...] = ()
    warnings: tuple[str, ...] = ()
    strong: frozenset[str] = frozenset()
    """The strong identifiers of the question, which form the tiers."""


@dataclass(frozen=True, slots=True)
class _Body:
    """One leg query with its place: which scope and which sub-query it belongs to."""

    scope: int
    sub_query: int
    query: LegQuery


class Retriever:
    """Turns a query into the hybrid list of each of its scopes."""

    def __init__(
        self,
        backend: SearchBackend,
        embedder: Embedder,
        *,
        search: SearchSettings,
        time: TimeSettings,
        initial_k: int,
        metrics: Instruments,
    ) -> None:
        self._backend = backend
        self._embedder = embedder
        self._search = search
        self._time = time
        self._initial_k = initial_k
        self._metrics = metrics
        self._weights: Mapping[Leg, float] = {
            Leg.LEXICAL: search.lexical_weight,
            Leg.VECTOR: search.vector_weight,
            Leg.IDENTIFIER: search.identifier_weight,
        }

    async def retrieve(self, query: Query, visibility: Visibility, deadline: Deadline, trail: Trail = DEAF) -> list[ScopeHybrid]:
        """The hybrid list of each scope, in request order.

        Raises:
            SearchUnavailable: no scope had a leg that answered.
            DeadlineExceeded: the time was gone before any leg answered.
        """
        with trail.stage("embed"):
            embeddings = await self._embed(query.searched, deadline)
        identifiers = query_identifiers((query.text, *query.sub_queries))
        if trail.listens:
            trail.identifiers, trail.weights, trail.rrf_k = identifiers, self._weights, self._search.rrf_k
        bodies = self._bodies(query, visibility, embeddings, identifiers)
        with trail.stage("retrieve"):
            results = await self._msearch(bodies, deadline)
        with trail.stage("fuse"):
            hybrids = [
                self._hybrid(query, scope, own, identifiers, trail, vector_missing=embeddings is None)
                for scope, own in zip(query.scopes, _by_scope(query, bodies, results), strict=True)
            ]
        if all(hybrid is None for hybrid in hybrids):
            raise SearchUnavailable("No leg of the search answered; try again.", retry_after_s=1)
        failed = (Degraded.LEXICAL, Degraded.VECTOR)
        return [hybrid or ScopeHybrid(scope, (), failed) for hybrid, scope in zip(hybrids, query.scopes, strict=True)]

    async def _embed(self, texts: Sequence[str], deadline: Deadline) -> Embeddings | None:
        """One call for all sub-queries; None if it failed or was late: the lexical legs answer then."""
        wait = min(self._time.embedding_timeout_s, deadline.left() * EMBEDDING_SHARE)
        with self._metrics.stage("embed"):
            try:
                with self._metrics.operation("embeddings", provider=EMBEDDING_PROVIDER):
                    async with asyncio.timeout(wait):
                        return await self._embedder.embed(texts, "query", wait)
            except (EmbeddingError, TimeoutError):
                return None

    def _bodies(self, query: Query, visibility: Visibility, embeddings: Embeddings | None, identifiers: Identifiers) -> list[_Body]:
        bodies: list[_Body] = []
        for scope_index, scope in enumerate(query.scopes):
            depth = max(self._search.retrieval_depth, self._initial_k, scope.top_k)
            for sub_query, text in enumerate(query.searched):
                base = LegQuery(Leg.LEXICAL, visibility, depth, scope.filters, text=text, language=query.language)
                legs = [base]
                if embeddings is not None:
                    vector, fingerprint = embeddings.vectors[sub_query], embeddings.fingerprint
                    legs.append(replace(base, leg=Leg.VECTOR, text="", vector=vector, fingerprint=fingerprint))
                if sub_query == 0 and identifiers.all:
                    # The identifiers of all sub-queries are looked up once a scope: they do not depend on the sub-query.
                    legs.append(replace(base, leg=Leg.IDENTIFIER, text="", identifiers=identifiers.all))
                bodies.extend(_Body(scope_index, sub_query, leg) for leg in legs)
        return bodies

    async def _msearch(self, bodies: Sequence[_Body], deadline: Deadline) -> list[LegResult]:
        wait = deadline.cap(self._time.retrieval_timeout_s)
        with self._metrics.stage("retrieve"):
            try:
                async with asyncio.timeout(wait):
                    return await self._backend.msearch([body.query for body in bodies], wait)
            except (BackendError, TimeoutError) as error:
                if deadline.left() <= 0:
                    raise DeadlineExceeded("The deadline passed before any leg of the search had answered.") from error
                raise SearchUnavailable("The search backend did not answer; try again.", retry_after_s=1) from error

    def _hybrid(
        self,
        query: Query,
        scope: Scope,
        own: Sequence[tuple[_Body, LegResult]],
        identifiers: Identifiers,
        trail: Trail,
        *,
        vector_missing: bool,
    ) -> ScopeHybrid | None:
        """Floor, prior, fusion and tiers of one scope; None where neither words nor vectors answered."""
        if all(result.failed for body, result in own if body.query.leg is not Leg.IDENTIFIER):
            self._note(trail, scope, own, [LegList(body.query.leg, body.sub_query, ()) for body, _ in own])
            return None
        degraded = _degradation([(body.query.leg, result) for body, result in own], vector_missing=vector_missing)
        strong = frozenset(identifiers.strong)
        lists = [LegList(body.query.leg, body.sub_query, result.hits) for body, result in own]
        if Degraded.VECTOR not in degraded:
            # Before the floor, which may take the best lexical passage out: how well words fit does not depend on it.
            lists = [weigh_words(one, query.searched[one.sub_query], self._search) for one in lists]
        warnings: tuple[str, ...] = ()
        if scope.min_similarity is not None:
            if Degraded.VECTOR in degraded:
                warnings = (NO_FLOOR_WARNING,)
            else:
                lists = apply_floor(lists, scope.min_similarity, strong, drop_lexical=query.drop_lexical_below_floor)
        if query.use_importance:
            lists = [_by_importance(one) if one.leg is Leg.VECTOR else one for one in lists]
        lists = [order_identifier_leg(one, lists) if one.leg is Leg.IDENTIFIER else one for one in lists]
        self._note(trail, scope, own, lists)
        fused = fuse(lists, self._weights, self._search.rrf_k, len(query.searched))
        ranked = tiers(fused, [len(strong.intersection(candidate.passage.identifiers)) for candidate in fused])
        wanted = frozenset(identifiers.all)
        candidates = tuple(
            replace(
                candidate,
                hybrid_rank=rank,
                matched_identifiers=tuple(name for name in candidate.passage.identifiers if name in wanted),
            )
            # Without identifiers the fused candidates are what they were.
            if wanted
            else candidate
            for rank, candidate in enumerate(ranked[: max(self._initial_k, scope.top_k)], start=1)
        )
        return ScopeHybrid(scope, candidates, degraded, warnings, strong)

    def _note(self, trail: Trail, scope: Scope, own: Sequence[tuple[_Body, LegResult]], lists: Sequence[LegList]) -> None:
        if trail.listens:
            weighed = zip(own, lists, strict=True)
            trail.legs += [NotedLeg(scope.name, result, fused, self._weights[fused.leg]) for (_, result), fused in weighed]


def _by_scope(query: Query, bodies: Sequence[_Body], results: Sequence[LegResult]) -> list[list[tuple[_Body, LegResult]]]:
    own: list[list[tuple[_Body, LegResult]]] = [[] for _ in query.scopes]
    for body, result in zip(bodies, results, strict=True):
        own[body.scope].append((body, result))
    return own


def weigh_words(one: LegList, text: str, search: SearchSettings) -> LegList:
    """A lexical list with the factor that the words shared by `text` and its best passage give it; any other as it is."""
    if one.leg is not Leg.LEXICAL or not one.hits:
        return one
    best = one.hits[0].passage
    level = coordination_level(text, join_text(search.text_fields, best.title, best.content, best.metadata))
    return replace(one, factor=lexical_factor(level, search.lexical_weight, search.lexical_weight_max))


def _degradation(results: Sequence[tuple[Leg, LegResult]], *, vector_missing: bool) -> tuple[Degraded, ...]:
    found = {Degraded(leg.value) for leg, result in results if result.failed}
    if vector_missing:
        found.add(Degraded.VECTOR)
    if any(result.timed_out for _, result in results):
        found.add(Degraded.TIMED_OUT)
    if any(result.shards_failed for _, result in results):
        found.add(Degraded.SHARDS)
    return tuple(item for item in Degraded if item in found)


def apply_floor(lists: Sequence[LegList], floor: float, strong: frozenset[str], *, drop_lexical: bool) -> list[LegList]:
    """Take hits below `floor` (raw cosine) out of the vector leg; with `drop_lexical` also lexical hits not known to reach it.

    Passages that hold a strong identifier of the query are exempt.
    """
    reached = {hit.passage.id for one in lists if one.leg is Leg.VECTOR for hit in one.hits if hit.score >= floor}

    def stays(leg: Leg, hit: Hit) -> bool:
        if strong.intersection(hit.passage.identifiers):
            return True
        if leg is Leg.VECTOR:
            return hit.score >= floor
        return hit.passage.id in reached or not drop_lexical

    return [replace(one, hits=tuple(hit for hit in one.hits if stays(one.leg, hit))) for one in lists]


def _by_importance(one: LegList) -> LegList:
    ordered = sorted(one.hits, key=lambda hit: (-hit.score * hit.passage.importance, hit.passage.id))
    return replace(one, hits=tuple(ordered))


def order_identifier_leg(one: LegList, others: Sequence[LegList]) -> LegList:
    """Order by (matched identifiers desc, best rank in any other leg asc, chunk id asc).

    Many passages hold the same short term; among those the other legs know better than the order of their ids.
    """
    best: dict[str, int] = {}
    for other in others:
        if other.leg is not Leg.IDENTIFIER:
            for rank, hit in enumerate(other.hits, start=1):
                best[hit.passage.id] = min(rank, best.get(hit.passage.id, rank))
    ordered = sorted(one.hits, key=lambda hit: (-hit.score, best.get(hit.passage.id, len(best) + 1), hit.passage.id))
    return replace(one, hits=tuple(ordered))
