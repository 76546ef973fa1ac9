"""Flat reciprocal rank fusion of legs and sub-queries, after Cormack, Clarke and Büttcher (SIGIR 2009).

A chunk's score is the sum over all (sub-query, leg) lists that hold it of `weight_leg x factor / (n_subqueries x (RRF_K + rank))`.
The factor is 1 but for lexical lists whose best passage shares many words with its query (`lexical_factor`).
"""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from knowledge.models import Candidate, Hit, Leg, Passage

WORD = re.compile(r"\w{4,}")
"""Words that count as shared: most shorter ones are function words, which any two texts of a language share."""

STEM = 5
"""Words are the same if they begin with the same letters, so many of them: a stemmer for all languages that write with spaces."""


@dataclass(frozen=True, slots=True)
class LegList:
    """The hits of one leg for one sub-query, best first."""

    leg: Leg
    sub_query: int
    hits: Sequence[Hit]
    factor: float = 1.0
    """What the weight of the leg is multiplied by in this list."""


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


def coordination_level(query: str, text: str) -> int:
    """How many distinct words of the query the text holds: words of four letters or more, by their first five, whatever their case."""
    return len(_stems(query) & _stems(text))


def _stems(text: str) -> set[str]:
    return {word[:STEM] for word in WORD.findall(unicodedata.normalize("NFKC", text.casefold()))}


def lexical_factor(level: int, weight: float, highest: float) -> float:
    """What a lexical list's weight is multiplied by: the number of pairs of shared words, at least 1.

    BM25 is as good as its words are many: a passage that holds six words of a question is about the same thing, one that holds two of
    them may be about anything, and in another language they hardly meet. The count is taken from texts, not from BM25 scores, whose
    scale is the engine's own, and from the best passage alone, so that no depth changes it.

    Args:
        level: the coordination level of the query with the best passage of the list; 0 for an empty list.
        weight: the leg's weight.
        highest: what the product of both may reach; at `weight` or below it the factor is always 1.
    """
    if highest <= weight or weight <= 0:
        return 1.0
    return min(max(1.0, level * (level - 1) / 2), highest / weight)


def fuse(lists: Sequence[LegList], weights: Mapping[Leg, float], rrf_k: int, n_sub_queries: int) -> list[Candidate]:
    """All chunks of all lists, each once, by (score desc, best leg rank asc, chunk id asc)."""
    fused: dict[str, _Fused] = {}
    for one in lists:
        term, weight = f"{one.leg.value}:{one.sub_query}", weights[one.leg] * one.factor
        for rank, hit in enumerate(one.hits, start=1):
            entry = fused.get(hit.passage.id)
            if entry is None:
                entry = fused[hit.passage.id] = _Fused(hit.passage)
            entry.terms[term] = weight / (n_sub_queries * (rrf_k + rank))
            entry.best_rank = min(entry.best_rank, rank)
            if one.leg is Leg.VECTOR:
                entry.similarity = hit.score if entry.similarity is None else max(entry.similarity, hit.score)
            elif one.leg is Leg.LEXICAL:
                entry.bm25 = hit.score if entry.bm25 is None else max(entry.bm25, hit.score)
    # Each score is computed once: there are a hundred entries, and every search comes by here.
    scored = [(entry.score, entry) for entry in fused.values()]
    scored.sort(key=lambda one: (-one[0], one[1].best_rank, one[1].passage.id))
    return [
        Candidate(entry.passage, rank, score, entry.similarity, entry.bm25, terms=entry.terms)
        for rank, (score, entry) in enumerate(scored, start=1)
    ]
