"""What became of each document of a request."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from modelkit import is_blank
from reranker.settling import Settling, Top

Reason = Literal["deadline", "settled", "empty", "nan"]


@dataclass(frozen=True, slots=True)
class Scored:
    """A document with its raw score, the tokens of its pair, and whether some of query or document did not fit."""

    index: int
    raw: float
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Unscored:
    """A document without a score, and why."""

    index: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """Every document of a request, scored or not, each list by index."""

    scored: tuple[Scored, ...]
    unscored: tuple[Unscored, ...]

    def missed(self, reason: Reason) -> bool:
        """Whether any document has no score for this reason."""
        return any(each.reason == reason for each in self.unscored)


class Scores:
    """Collects the scores of one request until all that matter are there, or until nobody waits any longer.

    Args:
        documents: as they were given.
        finish: is called once, when there is nothing more to wait for; gets the error that ended it, if one did.
        settling: when the rest need not be scored; None: never.
    """

    def __init__(self, documents: Sequence[str], finish: Callable[[BaseException | None], None], settling: Settling | None = None) -> None:
        self.documents = documents
        self.finish = finish
        self.order: Sequence[int] = range(len(documents))
        """Indices in the order in which they are to be scored."""
        self._settling = settling
        self._scored: dict[int, Scored] = {}
        self._unscored: dict[int, Reason] = {i: "empty" for i, text in enumerate(documents) if is_blank(text)}

    @property
    def open(self) -> list[int]:
        """Indices that are neither scored nor known to have no score, as they were given."""
        return [i for i in range(len(self.documents)) if not self._known(i)]

    @property
    def settled(self) -> bool:
        """Whether the rest need not be scored."""
        return self._settling is not None and self._reached()[1] == "settled"

    def add(self, index: int, raw: float, tokens: int, *, truncated: bool) -> None:
        """A score has come; one that is no finite number never leaves."""
        if math.isfinite(raw):
            self._scored[index] = Scored(index, raw, tokens, truncated)
        else:
            self._unscored[index] = "nan"

    def empty(self, index: int) -> None:
        """Nothing of the document is left to be scored."""
        self._unscored[index] = "empty"

    def ranking(self) -> list[int]:
        """All indices, best first, ties as they were given, and last those without a score."""
        indices = range(len(self.documents))
        return sorted(indices, key=lambda i: -self._scored[i].raw if i in self._scored else math.inf)

    def outcome(self) -> Outcome:
        """The first in order: behind one that was not reached, or by which the top was settled, scores do not count.

        Which of those had come by chance (another worker, the cache) would change from call to call.
        """
        end, reason = self._reached()
        reached = set(self.order[:end])
        found: dict[int, Reason] = {}
        for i in range(len(self.documents)):
            if i not in reached:
                found[i] = "empty" if self._unscored.get(i) == "empty" else reason
            elif i in self._unscored:
                found[i] = self._unscored[i]
        scored = tuple(self._scored[i] for i in range(len(self.documents)) if i not in found)
        return Outcome(scored, tuple(Unscored(i, why) for i, why in found.items()))

    def _known(self, index: int) -> bool:
        return index in self._scored or index in self._unscored

    def _reached(self) -> tuple[int, Reason]:
        """How many of the order count, and why no more do."""
        top = Top(self._settling) if self._settling else None
        for place, index in enumerate(self.order):
            if not self._known(index):
                return place, "deadline"
            scored = self._scored.get(index)  # one without a score neither misses the top nor is in it
            if top and scored and top.settled_by(scored.raw, index):
                return place + 1, "settled"
        return len(self.order), "deadline"
