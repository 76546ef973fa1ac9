"""Flat reciprocal rank fusion of legs and sub-queries, after Cormack, Clarke and Büttcher (SIGIR 2009).

A chunk's score is the sum over all (sub-query, leg) lists that hold it of `weight_leg / (n_subqueries x (RRF_K + rank))`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from knowledge.models import Candidate, Hit, Leg, Passage


@dataclass(frozen=True, slots=True)
class LegList:
    """The hits of one leg for one sub-query, best first."""

    leg: Leg
    sub_query: int
    hits: Sequence[Hit]


@dataclass(slots=True)
class _Fused:
    passage: Passage
    terms: dict[str, float] = field(default_factory=dict)
    best_rank: int = 2**31
    similarity: float | None = None
    bm25: float | None = None

    @property
    def score(self) -> float:
        # fsum is exact before its one rounding, so the score does not depend on the order of the legs.
        return math.fsum(self.terms.values())


def fuse(lists: Sequence[LegList], weights: Mapping[Leg, float], rrf_k: int, n_sub_queries: int) -> list[Candidate]:
    """All chunks of all lists, each once, by (score desc, best leg rank asc, chunk id asc)."""
    fused: dict[str, _Fused] = {}
    for one in lists:
        for rank, hit in enumerate(one.hits, start=1):
            entry = fused.setdefault(hit.passage.id, _Fused(hit.passage))
            entry.terms[f"{one.leg.value}:{one.sub_query}"] = weights[one.leg] / (n_sub_queries * (rrf_k + rank))
            entry.best_rank = min(entry.best_rank, rank)
            if one.leg is Leg.VECTOR:
                entry.similarity = hit.score if entry.similarity is None else max(entry.similarity, hit.score)
            elif one.leg is Leg.LEXICAL:
                entry.bm25 = hit.score if entry.bm25 is None else max(entry.bm25, hit.score)
    ordered = sorted(fused.values(), key=lambda entry: (-entry.score, entry.best_rank, entry.passage.id))
    return [
        Candidate(entry.passage, rank, entry.score, entry.similarity, entry.bm25, terms=entry.terms)
        for rank, entry in enumerate(ordered, start=1)
    ]
