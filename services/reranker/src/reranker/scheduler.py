"""Runs pairs: takes requests in, keeps the workers busy with what `backlog` picks, and answers when the time has come.

A worker is a thread that runs one pair at a time. A request waits for its scores, or for its deadline: then what nobody waits
for any more is dropped, and ended where it runs. A run that does not end at once delays no answer.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Sequence

from modelkit import Deadline
from modelkit.serving import Clock, busy
from reranker import cascade
from reranker.backlog import PROMISED_PAIRS, Backlog, Job, Task
from reranker.cache import CachedScore, ScoreCache, score_cache
from reranker.model import Lookup, Model, Observer
from reranker.outcome import Outcome, Scores
from reranker.preparing import Prepared, Preparing
from reranker.settling import Settling

__all__ = ["MIN_RETRY_MS", "Observer", "Scheduler"]

MIN_RETRY_MS = 100
STOP_S = 5.0


class Scheduler:
    """Scores requests.

    Args:
        model: whose scores are the answer.
        workers: how many runs at once, of all models together.
        clock: the one that deadlines are on.
        cache: scores of pairs seen before.
        small: a cheaper model, which is asked for the order where time will not do for all pairs.
    """

    def __init__(self, model: Model, workers: int, clock: Clock, *, cache: ScoreCache | None = None, small: Model | None = None) -> None:
        self.model = model
        self._small = small
        self._clock = clock
        self._cache = cache if cache is not None else score_cache(0)
        self._backlog = Backlog(workers, lambda task: task.query.price_s(task.pair))
        self._wake = threading.Condition()
        """Held while backlog or cache is touched."""
        self._closed = False
        self._preparing = Preparing(workers, self._known)
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

    async def rank(
        self,
        query: str,
        documents: Sequence[str],
        deadline: Deadline,
        *,
        allow_partial: bool = False,
        settling: Settling | None = None,
    ) -> Outcome:
        """Score the documents until all are done, the top is settled, or the deadline is near.

        They are scored in the order given; if some of the scores are of use, time will not do for all, and there is a small model, in
        the order that this puts them in. Cancelling this drops the pairs that have not started, and ends those that run.

        Args:
            query: the question.
            documents: in the order in which they matter.
            deadline: when the answer must leave.
            allow_partial: whether some of the scores are of use; else a request that cannot get all is not begun.
            settling: when the rest need not be scored; None: never.

        Raises:
            NotServed: `busy`, with the time after which the same request could be served.
        """
        job, done = self._new_job(documents, deadline, settling)
        first, ordered = self._new_job(documents, deadline)
        try:
            async with asyncio.timeout(deadline.left_s) as limit:
                prepared = await self._preparing.prepare(self.model, query, job.scores, deadline)
                small = await self._prepare_small(query, first, prepared, deadline) if allow_partial else []
                if self._accept(job, prepared, first, small, allow_partial=allow_partial):
                    await self._order(first, ordered, job)
                await done
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            with self._wake:
                self._backlog.drop(first)
                self._backlog.drop(job)
                outcome = job.scores.outcome()
                self._wake.notify_all()  # a worker may stand still for the sake of a promise that is void now
        for reason, count in Counter(("scored",) * len(outcome.scored) + tuple(each.reason for each in outcome.unscored)).items():
            self.model.observer.pairs(reason, count)
        return outcome

    def _new_job(
        self, documents: Sequence[str], deadline: Deadline, settling: Settling | None = None
    ) -> tuple[Job, "asyncio.Future[None]"]:
        """A job, and what is done when there is nothing more to wait for."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish(error: BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, done, error)

        return Job(self._clock(), deadline.at, Scores(documents, finish, settling)), done

    async def _prepare_small(self, query: str, first: Job, prepared: Sequence[Prepared], deadline: Deadline) -> list[Prepared]:
        """The small model's pairs, if there is such a model and use for it."""
        if self._small is None or cascade.all_fit(prepared, self._backlog.workers, self._clock(), deadline.at):
            return []
        return await self._preparing.prepare(self._small, query, first.scores, deadline)

    def _known(self, keys: Sequence[bytes]) -> set[bytes]:
        with self._wake:
            return {key for key in keys if key in self._cache}

    def _accept(self, job: Job, prepared: Sequence[Prepared], first: Job, small: Sequence[Prepared], *, allow_partial: bool) -> bool:
        """Promise to serve the job, and queue it; whether behind `first`, which has the pairs of `small`.

        Raises:
            NotServed: `busy`.
        """
        with self._wake:
            now = self._clock()
            self._join_all(job, prepared, self.model)
            wanted, fitting = len(job.waiting), self._backlog.fits_idle(job, now)
            hopeless = fitting < (min(1, wanted) if allow_partial else wanted)
            # Predictions too dark to let anybody in would never be corrected: after a pause one request may try.
            job.probe = hopeless and self.model.stale
            if job.scores.settled or (hopeless and not job.probe):
                # Known scores are enough; or it would not be done in time by a service that has nothing else to do: no overload.
                job.scores.finish(None)
                return False
            promised = 0 if hopeless else min(wanted, fitting, PROMISED_PAIRS) if allow_partial else wanted
            led = bool(small) and not hopeless and self._lead(first, small, job, promised, now)
            if not led:
                job.promise(promised)
                late = self._backlog.late_by(job, now)
                if late > 0:
                    raise busy(max(MIN_RETRY_MS, math.ceil(late * 1000)))
                self._backlog.add(job)
            self._settle(job)
            self._wake.notify_all()
            return led

    def _lead(self, first: Job, small: Sequence[Prepared], job: Job, promised: int, now: float) -> bool:
        """Queue the small model's pairs in front of the job, if there is time for it."""
        if self._small is not None:
            self._join_all(first, small, self._small)
        led = cascade.lead(self._backlog, first, job, promised, now)
        self._settle(first)
        return led

    async def _order(self, first: Job, ordered: "asyncio.Future[None]", job: Job) -> None:
        """Wait for the small model, for its share of the time at most; then let the job run."""
        ended, _ = await asyncio.wait({ordered}, timeout=max(0.0, first.deadline - self._clock()))
        for each in ended:
            each.result()
        with self._wake:
            self._backlog.drop(first)
            cascade.follow(first, job)
            self._settle(job)
            self._wake.notify_all()

    def _join_all(self, job: Job, prepared: Sequence[Prepared], model: Model) -> None:
        """Each of them, and count what was known: once for all, because each count takes as long as a look-up."""
        for result, count in Counter(self._join(job, each) for each in prepared).items():
            if result is not None:
                model.observer.lookup("pairs", result, count)

    def _join(self, job: Job, prepared: Prepared) -> Lookup | None:
        """Take the score if it is known, wait for it if it is on its way, else ask for it; None if there is nothing to be scored."""
        index, key, query = prepared.index, prepared.key, prepared.query
        known = self._cache.get(key)
        if known is not None:
            job.scores.add(index, known.raw, known.tokens, truncated=known.truncated)
            return "hit"
        task = self._backlog.tasks.get(key) or next((each for each in job.waiting if each.key == key), None)
        if task is not None:
            job.join(task, index)
            return "joined"
        pair = prepared.pair or query.pair(job.scores.documents[index])
        if not pair.tokens.content.any():
            job.scores.empty(index)
            return None
        job.join(Task(key, query, pair, query.cost_s(pair)), index)
        return "miss"

    def _settle(self, job: Job) -> None:
        """Answer if there is nothing more to wait for."""
        if job.held:  # in which order its scores count is not known
            return
        if job.scores.settled or not (job.waiting or job.running):
            self._backlog.drop(job)
            job.scores.finish(None)

    def _work(self) -> None:
        while (task := self._take()) is not None:
            self._deliver(task, *task.query.score(task.pair, task.stop))

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
        self._preparing.close()
        for thread in self._threads:
            thread.join(STOP_S)


def _resolve(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)
