"""The legs of each question, run once on a backend: what weights are chosen on without asking again."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from knowledge.fusion import LegList, coordination_level, fuse, lexical_factor
from knowledge.identifiers import query_identifiers, tiers
from knowledge.models import Hit, Leg, LegQuery, Passage, Visibility
from knowledge.ports import Backend, Embedder
from knowledge.retrieve import order_identifier_leg
from tests.quality.data import DataSet, Question
from tests.quality.rankings import DEADLINE_S, DEPTH, IDENTITY

QUESTIONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a hybrid list, named as the settings are; the vector leg's is 1."""

    lexical: float
    lexical_max: float
    identifier: float

    def __str__(self) -> str:
        lexical = f"{self.lexical:g} to {self.lexical_max:g}" if self.lexical_max > self.lexical else f"{self.lexical:g}"
        return f"{lexical}, {self.identifier:g}"


@dataclass(frozen=True, slots=True)
class Legs:
    """The hits of each leg for one question, its coordination level with the best lexical one, and its strong identifiers."""

    question: Question
    lists: tuple[LegList, ...]
    level: int
    strong: frozenset[str]

    def fused(self, weights: Weights, rrf_k: int) -> list[Passage]:
        """The passages in the order of the gateway: fused, then the tiers of strong identifiers."""
        factor = lexical_factor(self.level, weights.lexical, weights.lexical_max)
        lists = [replace(one, factor=factor) if one.leg is Leg.LEXICAL else one for one in self.lists]
        by_leg = {Leg.LEXICAL: weights.lexical, Leg.VECTOR: 1.0, Leg.IDENTIFIER: weights.identifier}
        passages = [candidate.passage for candidate in fuse(lists, by_leg, rrf_k, 1)]
        return tiers(passages, [len(self.strong.intersection(passage.identifiers)) for passage in passages]) if self.strong else passages

    def leg(self, leg: Leg) -> list[Passage]:
        """The passages of one leg."""
        return [hit.passage for one in self.lists if one.leg is leg for hit in one.hits]


async def run_legs(data: DataSet, backend: Backend, embedder: Embedder, on_question: Callable[[], None]) -> list[Legs]:
    """All legs of all questions; passages without their contents, which no measure of order needs."""
    found = []
    for start in range(0, len(data.questions), QUESTIONS_AT_ONCE):
        batch = data.questions[start : start + QUESTIONS_AT_ONCE]
        vectors = (await embedder.embed([question.text for question in batch], "query", DEADLINE_S)).vectors
        for question, vector in zip(batch, vectors, strict=True):
            found.append(await _legs(question, vector, backend))
            on_question()
    return found


async def _legs(question: Question, vector: tuple[float, ...], backend: Backend) -> Legs:
    base = LegQuery(Leg.LEXICAL, Visibility.of(IDENTITY), DEPTH, text=question.text)
    queries = [base, replace(base, leg=Leg.VECTOR, text="", vector=vector)]
    identifiers = query_identifiers([question.text])
    if identifiers.all:
        queries.append(replace(base, leg=Leg.IDENTIFIER, text="", identifiers=identifiers.all))
    results = await backend.msearch(queries, DEADLINE_S)
    best = results[0].hits[0].passage if results[0].hits else None
    level = coordination_level(question.text, f"{best.title}\n{best.content}") if best else 0
    lists = [LegList(query.leg, 0, [_slim(hit) for hit in result.hits]) for query, result in zip(queries, results, strict=True)]
    lists = [order_identifier_leg(one, lists) if one.leg is Leg.IDENTIFIER else one for one in lists]
    return Legs(question, tuple(lists), level, frozenset(identifiers.strong))


def _slim(hit: Hit) -> Hit:
    return replace(hit, passage=replace(hit.passage, content="", title="", metadata={}))
