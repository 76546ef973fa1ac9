"""Questions and passages of given lengths out of a data set; no two requests are alike, so that no cache helps."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.quality.data import load

PASSAGES = 15
CHARS = 500
SHORTEST, LONGEST = 80, 1800


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    query: str
    documents: list[str]


class Texts:
    """Endless requests; the same ones in each run."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        data = load(folder, names)[0]
        self.name = data.name
        self._chance = random.Random(7)
        self._questions = [question.text for question in data.questions]
        self._text = " ".join(f"{document.title} {document.content}" for _, document in data.documents)
        self._number = count(1)

    def equal(self, passages: int = PASSAGES) -> Asked:
        """Passages of 500 characters."""
        return self._asked([CHARS] * passages)

    def mixed(self, passages: int = PASSAGES) -> Asked:
        """Passages of 80 to 1,800 characters."""
        return self._asked([self._chance.randint(SHORTEST, LONGEST) for _ in range(passages)])

    def _asked(self, lengths: list[int]) -> Asked:
        question = f"{self._chance.choice(self._questions)} ({next(self._number)})"
        starts = [self._chance.randrange(len(self._text) - length) for length in lengths]
        return Asked(question, [self._text[start : start + length] for start, length in zip(starts, lengths, strict=True)])
