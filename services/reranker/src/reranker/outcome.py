"""What became of each document of a request."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from modelkit import is_blank

Reason = Literal["deadline", "empty", "nan"]


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
    """Collects the scores of one request until all are there, or until nobody waits any longer.

    Args:
        documents: in the order in which they are to be scored.
        finish: is called once, when there is nothing more to wait for; gets the error that ended it, if one did.
    """

    def __init__(self, documents: Sequence[str], finish: Callable[[BaseException | None], None]) -> None:
        self.documents = documents
        self.finish = finish
        self._scored: dict[int, Scored] = {}
        self._unscored: dict[int, Reason] = {i: "empty" for i, text in enumerate(documents) if is_blank(text)}

    @property
    def open(self) -> list[int]:
        """Indices that are neither scored nor known to have no score."""
        return [i for i in range(len(self.documents)) if i not in self._scored and i not in self._unscored]

    @property
    def any(self) -> bool:
        """Whether there is a score."""
        return bool(self._scored)

    def add(self, index: int, raw: float, tokens: int, *, truncated: bool) -> None:
        """A score has come; one that is no finite number never leaves."""
        if math.isfinite(raw):
            self._scored[index] = Scored(index, raw, tokens, truncated)
        else:
            self._unscored[index] = "nan"

    def empty(self, index: int) -> None:
        """Nothing of the document is left to be scored."""
        self._unscored[index] = "empty"

    def outcome(self) -> Outcome:
        """The scored prefix: behind the first document that was not reached, scores do not count.

        Which of those had come by chance (another worker, the cache) would change from call to call.
        """
        end = next(iter(self.open), len(self.documents))
        scored = tuple(self._scored[i] for i in range(end) if i in self._scored)
        unscored = [(i, self._unscored.get(i, "deadline")) for i in range(len(self.documents)) if i >= end or i not in self._scored]
        return Outcome(scored, tuple(Unscored(i, reason) for i, reason in unscored))
