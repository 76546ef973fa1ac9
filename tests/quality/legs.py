"""The legs of each question, run once on a backend: what weights are chosen on without asking again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from knowledge.fusion import LegList, fuse
from knowledge.identifiers import query_identifiers
from knowledge.models import Candidate, Hit, Leg, LegQuery, Passage, Visibility
from knowledge.ports import Backend, Embedder
from knowledge.retrieve import order_identifier_leg
from tests.quality.data import DataSet, Question
from tests.quality.rankings import DEADLINE_S, DEPTH, IDENTITY

QUESTIONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Legs:
    """The hits of each leg for one question."""

    question: Question
    lists: tuple[LegList, ...]

    def fused(self, weights: dict[Leg, float], rrf_k: int) -> list[Passage]:
        """The passages in fused order, tiers left out: they do not depend on weights."""
        candidates: list[Candidate] = fuse(self.lists, weights, rrf_k, 1)
        return [candidate.passage for candidate in candidates]

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
            found.append(Legs(question, await _lists(question, vector, backend)))
            on_question()
    return found


async def _lists(question: Question, vector: tuple[float, ...], backend: Backend) -> tuple[LegList, ...]:
    base = LegQuery(Leg.LEXICAL, Visibility.of(IDENTITY), DEPTH, text=question.text)
    queries = [base, replace(base, leg=Leg.VECTOR, text="", vector=vector)]
    identifiers = query_identifiers([question.text]).all
    if identifiers:
        queries.append(replace(base, leg=Leg.IDENTIFIER, text="", identifiers=identifiers))
    results = await backend.msearch(queries, DEADLINE_S)
    lists = [LegList(query.leg, 0, [_slim(hit) for hit in result.hits]) for query, result in zip(queries, results, strict=True)]
    return tuple(order_identifier_leg(one, lists) if one.leg is Leg.IDENTIFIER else one for one in lists)


def _slim(hit: Hit) -> Hit:
    return replace(hit, passage=replace(hit.passage, content="", title="", metadata={}))


def split_in_half(legs: Sequence[Legs], *, second: bool) -> list[Legs]:
    """One half of the questions, by the article that their best passage comes from, so that no article is in both halves.

    An article is the second part of an id such as `de-07-3-1`.
    """
    return [one for one in legs if (int(next(iter(one.question.grades)).split("-")[1]) % 2 == 1) is second]
