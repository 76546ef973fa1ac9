"""Which pair runs when, and which do not run any more.

Pairs run in the order given, one a run, on as many threads as there are usable cores. Before a pair is started the time that
it will take is held against the deadline: what has been scored by then is the answer. A request has at most one pair for each
thread in the queue, so that requests take turns pair by pair.
"""

import asyncio
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol

from modelkit import Deadline, is_blank
from modelkit.serving import Clock
from reranker.pace import Pace
from reranker.scorer import BoundQuery, Scorer

Reason = Literal["deadline", "empty", "nan"]


@dataclass(frozen=True, slots=True)
class Scored:
    """A pair with its raw score."""

    index: int
    raw: float
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Unscored:
    """A pair without a score, and why."""

    index: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """Every document of a request, scored or not, each list by index."""

    scored: tuple[Scored, ...]
    unscored: tuple[Unscored, ...]

    def missed(self, reason: Reason) -> bool:
        """Whether any pair has no score for this reason."""
        return any(each.reason == reason for each in self.unscored)


class Observer(Protocol):
    """Who is told of each pair; `telemetry.Instruments` is one."""

    def pair(self, outcome: str, seconds: float | None = None) -> None:
        """One pair ended like this."""


class Scheduler:
    """Runs pairs.

    Args:
        scorer: the model.
        workers: how many runs at once.
        pace: predicts the next pair's time.
        observer: is told of each pair.
        clock: for measuring; deadlines bring their own.
    """

    def __init__(self, scorer: Scorer, workers: int, pace: Pace, observer: Observer, clock: Clock) -> None:
        self.scorer = scorer
        self._workers = workers
        self._pace = pace
        self._observer = observer
        self._clock = clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="rerank")
        self._requests: set[_Run] = set()

    @property
    def waiting(self) -> int:
        """Pairs accepted and not started."""
        return sum(run.waiting for run in self._requests)

    def backlog_s(self) -> float:
        """Seconds until what waits now will be done."""
        return self.waiting * self._pace.usual_s() / self._workers

    async def rank(self, query: str, documents: Sequence[str], deadline: Deadline) -> Outcome:
        """Score the documents in the order given until all are done or the deadline is near.

        Cancelling this drops the pairs that have not started.
        """
        run = _Run(documents, deadline)
        self._requests.add(run)
        try:
            if run.waiting:
                await self._score(query, run)
        finally:
            run.stopped.set()
            self._requests.discard(run)
        outcome = run.outcome()
        for unscored in outcome.unscored:
            self._observer.pair(unscored.reason)
        return outcome

    async def _score(self, query: str, run: "_Run") -> None:
        loop = asyncio.get_running_loop()

        async def work(bound: BoundQuery) -> None:
            for index in run.remaining:
                await loop.run_in_executor(self._pool, self._one, bound, run, index)

        async def work_all() -> None:
            bound = await loop.run_in_executor(self._pool, self._bind, query, run)
            if bound is not None:
                await asyncio.gather(*(work(bound) for _ in range(min(self._workers, run.waiting))))

        # A run that takes longer than predicted does not make the answer late: its result is left behind.
        task = asyncio.create_task(work_all())
        try:
            await asyncio.wait({task}, timeout=run.deadline.left_s)
        finally:
            run.stopped.set()
            if not task.done():
                task.cancel()
        if task.done():
            task.result()

    def _bind(self, query: str, run: "_Run") -> BoundQuery | None:
        """In a worker thread."""
        return None if run.stopped.is_set() or run.deadline.passed else self.scorer.bind(query)

    def _one(self, bound: BoundQuery, run: "_Run", index: int) -> None:
        """One pair, in a worker thread."""
        if run.stopped.is_set():
            return
        pair = bound.pair(run.documents[index])
        if not pair.content.any():
            run.unscored[index] = "empty"
            return
        if not run.deadline.allows(self._pace.predict_s(len(pair))):
            run.stopped.set()  # those behind it would make the scored ones no prefix
            return
        started = self._clock()
        raw = bound.score(pair)
        seconds = self._clock() - started
        self._pace.learn(len(pair), seconds)
        if run.stopped.is_set() and run.deadline.passed:
            return
        if math.isfinite(raw):
            run.scored[index] = Scored(index, raw, len(pair), pair.truncated)
            self._observer.pair("scored", seconds)
        else:
            run.unscored[index] = "nan"

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Run:
    """The state of one request."""

    def __init__(self, documents: Sequence[str], deadline: Deadline) -> None:
        self.documents = documents
        self.deadline = deadline
        self.stopped = threading.Event()
        self.scored: dict[int, Scored] = {}
        self.unscored: dict[int, Reason] = {i: "empty" for i, text in enumerate(documents) if is_blank(text)}
        self.waiting = len(documents) - len(self.unscored)
        self.remaining = self._take()

    def _take(self) -> Iterator[int]:
        """Indices in the order given, until the run is stopped; shared by the workers, in the event loop's thread only."""
        for index in range(len(self.documents)):
            if self.stopped.is_set():
                return
            if index not in self.unscored:
                self.waiting -= 1
                yield index

    def outcome(self) -> Outcome:
        scored = dict(self.scored)
        unscored = {i: self.unscored.get(i, "deadline") for i in range(len(self.documents)) if i not in scored}
        return Outcome(tuple(scored[i] for i in sorted(scored)), tuple(Unscored(i, reason) for i, reason in sorted(unscored.items())))
