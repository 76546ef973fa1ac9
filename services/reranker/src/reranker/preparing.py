"""Tokenising, beside the scoring threads and a few documents at a time, so that requests take turns there too."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from modelkit import Deadline
from reranker.model import Model, PricedQuery
from reranker.outcome import Scores
from reranker.scorer import Pair

PORTION_CHARS = 16_384
"""Characters tokenised at a time."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document that is not blank, with its query; `pair` is made where the score was not known."""

    index: int
    key: bytes
    query: PricedQuery
    pair: Pair | None


class Preparing:
    """Makes pairs of a request's documents.

    Args:
        workers: threads.
        known: of some keys those whose scores need no pair.
    """

    def __init__(self, workers: int, known: Callable[[Sequence[bytes]], set[bytes]]) -> None:
        self._known = known
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="rerank-tokenise")

    async def prepare(self, model: Model, query: str, scores: Scores, deadline: Deadline) -> list[Prepared]:
        """What has no score yet, in the order given; at the deadline what was prepared by then."""
        loop = asyncio.get_running_loop()
        bound = await loop.run_in_executor(self._threads, model.bind, query)
        prepared: list[Prepared] = []
        for indices in _portions(scores.documents, scores.open):
            if deadline.passed:
                break
            prepared += await loop.run_in_executor(self._threads, self._prepare, bound, scores.documents, indices)
        return prepared

    def _prepare(self, query: PricedQuery, documents: Sequence[str], indices: Sequence[int]) -> list[Prepared]:
        found = [(index, query.key(documents[index])) for index in indices]
        known = self._known([key for _, key in found])
        return [Prepared(index, key, query, None if key in known else query.pair(documents[index])) for index, key in found]

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _portions(documents: Sequence[str], indices: Sequence[int]) -> Iterator[list[int]]:
    """Indices in portions of at most PORTION_CHARS, or of one document."""
    portion: list[int] = []
    chars = 0
    for index in indices:
        if portion and chars + len(documents[index]) > PORTION_CHARS:
            yield portion
            portion, chars = [], 0
        portion.append(index)
        chars += len(documents[index])
    if portion:
        yield portion
