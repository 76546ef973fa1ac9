"""What need not be computed twice: scores of pairs, and token vectors of passages. Both are exact, and bounded.

A score is a function of model, revision, precision, query and document, so an entry never goes out of date. Keys are hashes of
length-prefixed fields: no two different pairs share one, and no text is kept.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from modelkit import Tokens
from servicekit.hygiene import clean_text

Halves = NDArray[np.float16]
ENTRY_BYTES = 512
"""About what an entry costs besides its vectors."""


def digest(*fields: str) -> "hashlib._Hash":
    """The hash of cleaned texts, each behind its length; more may be added by `extend`."""
    found = hashlib.sha256()
    for field in fields:
        extend(found, field)
    return found


def extend(hash_: "hashlib._Hash", field: str) -> None:
    """Add a field."""
    content = clean_text(field).encode()
    hash_.update(len(content).to_bytes(8, "big"))
    hash_.update(content)


class PairKeys:
    """Keys of a query's pairs.

    Args:
        model: whatever tells models apart: id, revision, precision.
        query: the query.
    """

    def __init__(self, model: tuple[str, ...], query: str) -> None:
        self._base = digest(*model, query)

    def key(self, document: str) -> bytes:
        """The key of the pair with a document."""
        found = self._base.copy()
        extend(found, document)
        return found.digest()


@dataclass(frozen=True, slots=True)
class CachedScore:
    """A finite raw score, and what else is told of a pair."""

    raw: float
    tokens: int
    truncated: bool


ScoreCache = LRUCache[bytes, CachedScore]
"""Entries are of one size (about 300 bytes), so that their number bounds the memory. Not safe for threads."""


def score_cache(entries: int) -> ScoreCache:
    """A cache of at most so many scores; 0 keeps none."""
    return LRUCache(maxsize=entries)


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage as it was run, and the vectors of its own tokens, [tokens, dimension], of length 1 but for the rounding."""

    tokens: Tokens
    vectors: Halves

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        arrays = (self.tokens.ids, self.tokens.type_ids, self.tokens.content, self.vectors)
        return ENTRY_BYTES + sum(each.nbytes for each in arrays)


class PassageCache:
    """Token vectors of the passages used last, as half-precision floats.

    Args:
        max_bytes: what all of them may take; 0 keeps none.
        observe: is told of each look-up whether it hit.
    """

    def __init__(self, max_bytes: int, observe: Callable[[bool], None] = lambda _: None) -> None:
        self._passages: LRUCache[bytes, Passage] = LRUCache(max_bytes, getsizeof=lambda passage: passage.bytes)
        self._observe = observe
        self._lock = threading.Lock()

    def get(self, document: str) -> Passage | None:
        """The passage, if it is known."""
        with self._lock:
            found = self._passages.get(digest(document).digest())
        self._observe(found is not None)
        return found

    def put(self, document: str, passage: Passage) -> None:
        """Remember it, unless it alone is larger than all may be."""
        if passage.bytes <= self._passages.maxsize:
            with self._lock:
                self._passages[digest(document).digest()] = passage
