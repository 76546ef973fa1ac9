"""German compounds: which words of the operator's list stand inside a token.

The rules are those of Lucene's DictionaryCompoundWordTokenFilter with `only_longest_match`, as OpenSearch 3.5 runs it (Lucene 10.3, read
in its byte code), so that both backends index the same.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

MIN_WORD = 5
"""Shorter tokens are not looked into."""

MIN_PART = 2
MAX_PART = 40
"""Letters of the shortest and the longest part that is looked for. Lucene's own 15 would pass over the longer words of a list."""


@dataclass(frozen=True, slots=True)
class CompoundWords:
    """The words that are looked for, each folded as the tokens are; none means that no token is looked into."""

    words: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        """What must be equal for an index to fit the list; empty for no list."""
        return hashlib.sha256("\n".join(sorted(self.words)).encode()).hexdigest()[:16] if self.words else ""

    def parts(self, token: str) -> Iterator[str]:
        """From left to right the longest word that begins at a place of a folded token; the search goes on behind it.

        The whole token may be one, and the parts need not cover it: `stickstoffmangels` gives `stickstoff` and `mangel`, never `stoff`.
        """
        if len(token) < MIN_WORD or not self.words:
            return
        start = 0
        while start <= len(token) - MIN_PART:
            ends = range(min(start + MAX_PART, len(token)), start + MIN_PART - 1, -1)
            end = next((end for end in ends if token[start:end] in self.words), None)
            if end is not None:
                yield token[start:end]
            start = end or start + 1


NO_COMPOUND_WORDS = CompoundWords()


def other_compound_words(where: str, another: str) -> str:
    """The sentence for an index that was built with another list.

    Args:
        where: the index.
        another: how to have a new one.
    """
    return (
        f"{where} was built with other words than those in GERMAN_COMPOUND_WORDS_FILE, or with none where there are some now. "
        f"Set GERMAN_COMPOUND_WORDS_FILE as it was, or {another}."
    )
