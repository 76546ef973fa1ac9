"""When more scores would most likely not change the top of a ranking any more."""

from bisect import insort
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settling:
    """The top is settled when so many passages in a row have missed it.

    Attributes:
        top: how many results count as the top, 1 or more.
        after: passages in a row, 1 or more.
    """

    top: int
    after: int


class Top:
    """The best so far, of scores that come one by one in the order in which they are run.

    A score equal to the last of the top misses it, unless its index is lower: results are by (score descending, index ascending).
    """

    def __init__(self, rule: Settling) -> None:
        self._rule = rule
        self._best: list[tuple[float, int]] = []
        self._missed = 0

    def settled_by(self, raw: float, index: int) -> bool:
        """Whether the top is settled now that this score has come."""
        mine = (-raw, index)
        insort(self._best, mine)
        missed = len(self._best) > self._rule.top and self._best.pop() == mine
        self._missed = self._missed + 1 if missed else 0
        return self._missed >= self._rule.after
