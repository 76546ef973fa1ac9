"""Runs pairs: takes requests in, keeps the workers busy with what `backlog` picks, and answers when the time has come.

A worker is a thread that runs one pair at a time. A request waits for its scores, or for its deadline: then what nobody waits
for any more is dropped, and ended where it runs. A run that does not end at once delays no answer.
"""

import asyncio
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import structlog

from modelkit import Deadline
from modelkit.serving import Clock, busy
from modelkit.session import RunFailed, RunTerminated
from reranker.backlog import PROMISED_PAIRS, Backlog, Job, Task
from reranker.cache import CachedScore, PairKeys, ScoreCache, score_cache
from reranker.cost import CostModel
from reranker.outcome import Outcome, Scores
from reranker.scorer import BoundQuery, Pair, Scorer

MIN_RETRY_MS = 100
PREPARED_CHARS = 16_384
"""Characters tokenised at a time, so that requests take turns there too."""
STOP_S = 5.0
STALE_S = 5.0
"""Seconds without a run after which nobody knows how fast the machine is now."""

Cache = Literal["pairs", "passages"]
Lookup = Literal["hit", "joined", "miss"]

log = structlog.get_logger(__name__)


class Observer(Protocol):
    """Who is told of each pair; `telemetry.Instruments` is one."""

    def pair(self, outcome: str) -> None:
        """A document of an answer got a score or not."""

    def run(self, seconds: float) -> None:
        """A pair was run."""

    def lookup(self, cache: Cache, result: Lookup) -> None:
        """Something was known, on its way for another request, or neither."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A document that is not blank; `pair` is made where the score was not known."""

    index: int
    key: bytes
    pair: Pair | None


class Scheduler:
    """Scores requests.

    Args:
        scorer: the model.
        workers: how many runs at once.
        cost: predicts how long a run takes; learns from each.
        observer: is told of each pair.
        clock: the one that deadlines are on.
        cache: scores of pairs seen before.
        model: id, revision and precision of the model: they tell it from others in the cache.
    """

    def __init__(
        self,
        scorer: Scorer,
        workers: int,
        cost: CostModel,
        observer: Observer,
        clock: Clock,
        *,
        cache: ScoreCache | None = None,
        model: tuple[str, ...] = (),
    ) -> None:
        self.scorer = scorer
        self._cost = cost
        self._observer = observer
        self._clock = clock
        self._cache = cache if cache is not None else score_cache(0)
        self.model = model
        self._backlog = Backlog(workers, self._price)
        self._wake = threading.Condition()
        """Held while backlog or cache is touched."""
        self._closed = False
        self._ran_at = clock()
        self._tokenising = ThreadPoolExecutor(workers, thread_name_prefix="rerank-tokenise")
        self._threads = [threading.Thread(target=self._work, name=f"rerank-{n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Pairs accepted and not started."""
        with self._wake:
            return self._backlog.waiting

    def backlog_s(self) -> float:
        """Predicted seconds until all that is accepted will be done."""
        with self._wake:
            return self._backlog.seconds(self._clock())

    async def rank(self, query: str, documents: Sequence[str], deadline: Deadline, *, allow_partial: bool = False) -> Outcome:
        """Score the documents in the order given until all are done or the deadline is near.

        Cancelling this drops the pairs that have not started, and ends those that run.

        Args:
            query: the question.
            documents: in the order in which they matter.
            deadline: when the answer must leave.
            allow_partial: whether some of the scores are of use; else a request that cannot get all is not begun.

        Raises:
            NotServed: `busy`, with the time after which the same request could be served.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish(error: BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, done, error)

        scores = Scores(documents, finish)
        job = Job(self._clock(), deadline.at, scores)
        try:
            prepared = asyncio.ensure_future(self._prepare(query, scores, deadline))
            if await _within(prepared, deadline):
                self._accept(job, *prepared.result(), allow_partial=allow_partial)
                if await _within(done, deadline):
                    done.result()
        finally:
            with self._wake:
                self._backlog.drop(job)
                outcome = scores.outcome()
        for reason in ["scored"] * len(outcome.scored) + [each.reason for each in outcome.unscored]:
            self._observer.pair(reason)
        return outcome

    async def _prepare(self, query: str, scores: Scores, deadline: Deadline) -> tuple[BoundQuery, list[_Prepared]]:
        """Tokenise what is not known, a few documents at a time."""
        loop, keys = asyncio.get_running_loop(), PairKeys(self.model, query)
        bound = await loop.run_in_executor(self._tokenising, self.scorer.bind, query)
        prepared: list[_Prepared] = []
        for indices in _portions(scores.documents, scores.open):
            if deadline.passed:
                break
            prepared += await loop.run_in_executor(self._tokenising, self._prepare_some, bound, keys, scores.documents, indices)
        return bound, prepared

    def _prepare_some(self, bound: BoundQuery, keys: PairKeys, documents: Sequence[str], indices: Sequence[int]) -> list[_Prepared]:
        found = [(index, keys.key(documents[index])) for index in indices]
        with self._wake:
            known = {key for _, key in found if key in self._cache}
        return [_Prepared(index, key, None if key in known else bound.pair(documents[index])) for index, key in found]

    def _accept(self, job: Job, bound: BoundQuery, prepared: Sequence[_Prepared], *, allow_partial: bool) -> None:
        """Promise to serve the job, and queue it.

        Raises:
            NotServed: `busy`.
        """
        with self._wake:
            now = self._clock()
            for each in prepared:
                self._join(job, bound, each)
            wanted, fitting = len(job.waiting), self._backlog.fits_idle(job, now)
            hopeless = fitting < (min(1, wanted) if allow_partial else wanted)
            # Predictions too dark to let anybody in would never be corrected: after a pause one request may try.
            job.probe = hopeless and now - self._ran_at > STALE_S
            if hopeless and not job.probe:
                job.scores.finish(None)  # no overload: it would not be done in time by a service that has nothing else to do
                return
            job.promise(0 if hopeless else min(wanted, fitting, PROMISED_PAIRS) if allow_partial else wanted)
            late = self._backlog.late_by(job, now)
            if late > 0:
                raise busy(max(MIN_RETRY_MS, math.ceil(late * 1000)))
            self._backlog.add(job)
            self._settle(job)
            self._wake.notify_all()

    def _join(self, job: Job, bound: BoundQuery, prepared: _Prepared) -> None:
        """Take the score if it is known, wait for it if it is on its way, else ask for it."""
        index, key = prepared.index, prepared.key
        known = self._cache.get(key)
        if known is not None:
            self._observer.lookup("pairs", "hit")
            job.scores.add(index, known.raw, known.tokens, truncated=known.truncated)
            return
        task = self._backlog.tasks.get(key) or next((each for each in job.waiting if each.key == key), None)
        if task is not None:
            self._observer.lookup("pairs", "joined")
            job.join(task, index)
            return
        pair = prepared.pair or bound.pair(job.scores.documents[index])
        if not pair.tokens.content.any():
            job.scores.empty(index)
            return
        self._observer.lookup("pairs", "miss")
        cost_s = sum(map(self._cost.average_s, bound.runs(pair)))
        job.join(Task(key, bound, pair, cost_s), index)

    def _price(self, task: Task) -> float:
        """Seconds within which the pair will end; cheaper than when it was accepted if its passage has become known."""
        return sum(map(self._cost.predict_s, task.bound.runs(task.pair)))

    def _settle(self, job: Job) -> None:
        """Answer if there is nothing more to wait for."""
        if not job.waiting and not job.running:
            self._backlog.drop(job)
            job.scores.finish(None)

    def _work(self) -> None:
        while (task := self._take()) is not None:
            runs = task.bound.runs(task.pair)
            started = self._clock()
            raw, error = _score(task)
            seconds = self._clock() - started
            if raw is not None:
                self._observer.run(seconds)
                if len(runs) == 1:  # of several, nobody knows which took how long
                    self._learn(runs[0], seconds, started)
            self._deliver(task, raw, error)

    def _take(self) -> Task | None:
        """The next pair, as soon as there is one; None at the end."""
        with self._wake:
            while not self._closed:
                task, closed = self._backlog.next(self._clock())
                for job in closed:
                    self._settle(job)
                if task is not None:
                    return task
                self._wake.wait()
            return None

    def _learn(self, tokens: int, seconds: float, started: float) -> None:
        if started - self._ran_at > STALE_S:
            self._cost.forget_pace()
        self._cost.learn(tokens, seconds)
        self._ran_at = self._clock()

    def _deliver(self, task: Task, raw: float | None, error: Exception | None) -> None:
        pair = task.pair
        with self._wake:
            waiters = self._backlog.end(task)
            if raw is not None and math.isfinite(raw) and self._cache.maxsize:
                self._cache[task.key] = CachedScore(raw, len(pair.tokens), pair.truncated)
            for job, indices in list(waiters.items()):
                if error is not None:
                    self._backlog.drop(job)
                    job.scores.finish(error)
                    continue
                for index in indices:
                    if raw is not None:
                        job.scores.add(index, raw, len(pair.tokens), truncated=pair.truncated)
                self._settle(job)

    def close(self) -> None:
        """End what runs, answer who waits, and wait for the threads: the native library must not outlive the interpreter."""
        with self._wake:
            self._closed = True
            for job in self._backlog.drop_all():
                job.scores.finish(None)
            self._wake.notify_all()
        self._tokenising.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            thread.join(STOP_S)


def _score(task: Task) -> tuple[float | None, Exception | None]:
    """The raw score; not a number where the runtime failed on this pair; or the bug that it met; or neither: it was ended."""
    try:
        return task.bound.score(task.pair, task.stop), None
    except RunTerminated:
        return None, None
    except RunFailed as failure:
        log.warning("run_failed", error=str(failure))
        return math.nan, None
    except Exception as error:  # noqa: BLE001 - it belongs to the requests that wait for this pair, not to this thread
        return None, error


def _portions(documents: Sequence[str], indices: Sequence[int]) -> Iterator[list[int]]:
    """Indices in portions of at most PREPARED_CHARS, or of one document."""
    portion: list[int] = []
    chars = 0
    for index in indices:
        if portion and chars + len(documents[index]) > PREPARED_CHARS:
            yield portion
            portion, chars = [], 0
        portion.append(index)
        chars += len(documents[index])
    if portion:
        yield portion


async def _within(future: "asyncio.Future[Any]", deadline: Deadline) -> bool:
    """Wait for the future until the deadline; whether it was in time. It is cancelled if not."""
    try:
        await asyncio.wait({future}, timeout=deadline.left_s)
        return future.done()
    finally:
        if not future.done():
            future.cancel()


def _resolve(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)
