"""A scheduler on scorers without a model, and the means to hold and to watch it."""

import asyncio
import threading
import time
from collections.abc import Callable

from modelkit import Deadline
from reranker.cache import ScoreCache, score_cache
from reranker.cost import CostModel
from reranker.fake import FakeScorer, ManualClock, Score
from reranker.model import Model
from reranker.outcome import Outcome
from reranker.scheduler import Scheduler
from reranker.settling import Settling

LIMIT_S = 20


class Counts:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.runs = 0
        self.lookups: list[str] = []

    def pairs(self, outcome: str, count: int) -> None:
        """Remember."""
        self.outcomes += [outcome] * count

    def run(self, seconds: float) -> None:
        """Count."""
        self.runs += 1

    def lookup(self, cache: str, result: str, count: int = 1) -> None:
        """Remember."""
        self.lookups += [result] * count

    def of(self, model: str) -> "Counts":
        """The same."""
        return self


class Held:
    """A score that says when its run has begun, and ends when it is let go or told to end."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.release = threading.Event()
        self.scorer: FakeScorer | None = None

    def __call__(self, _: str, document: str) -> float:
        """1, in the end."""
        self.started.release()
        ends = time.monotonic() + LIMIT_S
        while not self.release.wait(0.002) and time.monotonic() < ends:
            if self.scorer is not None and self.scorer.stops[document].requested:
                break
        return 1.0

    async def begun(self, runs: int = 1) -> None:
        """Wait until so many more runs have begun."""
        for _ in range(runs):
            assert await asyncio.to_thread(self.started.acquire, timeout=LIMIT_S)


class Bench:
    """A scheduler and what it stands on; with `small` a second model, which scores by it."""

    def __init__(
        self,
        score: Score | None = None,
        *,
        workers: int = 1,
        seconds_per_token: float = 0.0,
        cache: int = 0,
        small: Score | None = None,
        small_seconds_per_token: float = 0.0,
    ) -> None:
        clock = ManualClock()
        self.scorer = FakeScorer(clock, seconds_per_token=seconds_per_token, **({"score": score} if score else {}))
        self.small = FakeScorer(clock, seconds_per_token=small_seconds_per_token, **({"score": small} if small else {}))
        self.counts, self.small_counts = Counts(), Counts()
        self.cache: ScoreCache = score_cache(cache)
        model = Model(self.scorer, CostModel(seconds_per_token), self.counts, clock, ("large",))
        self.small_model = Model(self.small, CostModel(small_seconds_per_token), self.small_counts, clock, ("small",))
        self.scheduler = Scheduler(model, workers, clock, cache=self.cache, small=self.small_model if small else None)

    def rank(
        self, *documents: str, left_s: float = 30.0, partial: bool = False, query: str = "q", settling: Settling | None = None
    ) -> "asyncio.Task[Outcome]":
        """Begin a request."""
        deadline = Deadline(self.scorer.clock() + left_s, self.scorer.clock)
        return asyncio.create_task(self.scheduler.rank(query, documents, deadline, allow_partial=partial, settling=settling))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that the workers bring about."""

        def poll() -> bool:
            ends = time.monotonic() + LIMIT_S
            while not condition() and time.monotonic() < ends:
                threading.Event().wait(0.001)
            return condition()

        assert await asyncio.to_thread(poll)
