"""Which pair runs next, and who can be promised an answer. No threads and no clock here: the time is handed in.

A request is due when it has waited for STRETCH times the work that is left of it, or at its deadline if that is earlier: who asks
for little is served soon, and nobody is overtaken for longer than his own work justifies. This order gives way to the deadlines
as soon as it would break a promise: then the promised pair with the earliest deadline runs.
"""

import heapq
import math
from bisect import insort
from collections.abc import Callable, Iterable, Sequence

from modelkit.session import Stop
from reranker.model import PricedQuery
from reranker.outcome import Scores
from reranker.scorer import Pair

STRETCH = 8.0
RESERVE = 0.1
"""Share of the time left that a promise keeps free where others are in front: the machine may slow down before its turn comes."""
PROMISED_PAIRS = 2
"""What a request that allows a partial answer is promised at least: fewer are no ranking."""


class Task:
    """A pair to be run once, for every request that waits for it.

    Args:
        key: equal for pairs that have the same score.
        query: bound to its model.
        pair: with one of its documents.
        cost_s: predicted seconds, as a share of the work of many.
    """

    def __init__(self, key: bytes, query: PricedQuery, pair: Pair, cost_s: float) -> None:
        self.key = key
        self.query = query
        self.pair = pair
        self.cost_s = cost_s
        self.stop = Stop()
        """Ends the run."""
        self.started = False
        self.waiters: dict[Job, list[int]] = {}


class Job:
    """A request in the queue.

    Args:
        arrived: when it came.
        deadline: when it must be answered.
        scores: where its scores go.
    """

    def __init__(self, arrived: float, deadline: float, scores: Scores) -> None:
        self.arrived = arrived
        self.deadline = deadline
        self.scores = scores
        self.waiting: dict[Task, bool] = {}
        """In the order given; True for those that were promised."""
        self.running: set[Task] = set()
        self.probe = False
        """Its first pair runs even if it is predicted to end too late: to learn whether that is true."""
        self.held = False
        """None of its pairs is started yet: their order is not known. They count as work and as promised all the same."""
        self.remaining_s = self.promised_s = self.longest_s = 0.0
        self.promised = 0

    def join(self, task: Task, index: int) -> None:
        """Wait for the pair, with the document at this index."""
        indices = task.waiters.setdefault(self, [])
        indices.append(index)
        if task.started:
            self.running.add(task)
        elif task not in self.waiting:
            self.waiting[task] = False
            self.remaining_s += task.cost_s

    def promise(self, pairs: int) -> None:
        """Claim the first pairs for sure, and no others."""
        claimed = list(self.waiting)[:pairs]
        self.waiting = {task: number < pairs for number, task in enumerate(self.waiting)}
        self.promised = len(claimed)
        self.promised_s = sum(task.cost_s for task in claimed)
        self.longest_s = max((task.cost_s for task in claimed), default=0.0)

    def arrange(self, order: Sequence[int]) -> None:
        """Wait in this order of the documents' indices; as many pairs as before are promised, the first ones."""
        places = {index: place for place, index in enumerate(order)}
        self.waiting = dict.fromkeys(sorted(self.waiting, key=lambda task: min(places[index] for index in task.waiters[self])), False)
        self.promise(self.promised)

    def dearest_first(self) -> None:
        """Wait in the order of their cost; as many pairs as before are promised, the first ones."""
        self.waiting = dict.fromkeys(sorted(self.waiting, key=lambda task: -task.cost_s), False)
        self.promise(self.promised)

    def leave(self, task: Task) -> None:
        """The pair does not wait any more."""
        if self.waiting.pop(task):
            self.promised -= 1
            self.promised_s -= task.cost_s
        self.remaining_s -= task.cost_s

    def urgency(self) -> tuple[float, float, int]:
        """The smallest is due first."""
        return min(self.deadline, self.arrived + STRETCH * self.remaining_s), self.deadline, len(self.waiting)


class Backlog:
    """All work accepted and not done.

    Args:
        workers: how many pairs run at once.
        price: seconds within which a pair will end that is started now.
    """

    def __init__(self, workers: int, price: Callable[[Task], float]) -> None:
        self.workers = workers
        self.tasks: dict[bytes, Task] = {}
        """Waiting or running, by key; none that was told to end."""
        self._price = price
        self._jobs: list[Job] = []
        self._running: dict[Task, float] = {}

    @property
    def waiting(self) -> int:
        """Pairs not started."""
        return sum(not task.started for task in self.tasks.values())

    def seconds(self, now: float) -> float:
        """Until all that is accepted will be done."""
        work = sum(task.cost_s for task in self.tasks.values() if not task.started)
        return (work + sum(max(0.0, end - now) for end in self._running.values())) / self.workers

    def fits_idle(self, job: Job, now: float) -> int:
        """How many of its first pairs would end in time if there was nothing else."""
        ends = finishes([now] * self.workers, ([task.cost_s] for task in job.waiting))
        return sum(end <= job.deadline for end in _running_maximum(ends))

    def late_by(self, job: Job, now: float) -> float:
        """0 if the promise of `job`, not yet added, can be given without breaking another; else the seconds after which it could be.

        In front of it stands all the work of those whose deadlines are not later, not only what they were promised: else more
        would be let in than can be served well.
        """
        seen: set[Task] = set()
        ahead = [_costs(each.waiting, seen) for each in self._jobs if each.deadline <= job.deadline]
        own = _costs((task for task, promised in job.waiting.items() if promised), set(seen))
        others = self._jobs or self._running
        due = job.deadline - (RESERVE * max(0.0, job.deadline - now) if others else 0.0)
        late = finishes(self._free(now), [*ahead, own])[-1] - due if own else 0.0
        broken = self._broken_by(job, now)
        if max(late, broken) <= 0:
            return 0.0
        rest = [_costs(each.waiting, seen) for each in self._jobs if each.deadline > job.deadline]
        drained = max(finishes(self._free(now), [*ahead, *rest, own])) - due
        return max(late, broken, drained)

    def _broken_by(self, job: Job, now: float) -> float:
        """0, or seconds until the promises that only this job would break are kept: then it could come again."""
        late_anyway = self._late(self._jobs, now)
        late = self._late(sorted([*self._jobs, job], key=_deadline), now)
        waits = [end - (job.deadline if each is job else now) for each, end in late.items() if each not in late_anyway]
        return max(waits, default=0.0)

    def _late(self, jobs: Sequence[Job], now: float, start: Task | None = None) -> dict[Job, float]:
        """The promises that will be broken if `start` runs now and then deadlines alone give the order, and when they end."""
        free, seen = self._free(now), set[Task]()
        if start is not None:
            free[-1] = now + start.cost_s
            seen.add(start)
        claims = [_costs((task for task, promised in job.waiting.items() if promised), seen) for job in jobs]
        ends = finishes(free, claims)
        return {job: end for job, end in zip(jobs, ends, strict=True) if end > job.deadline}

    def _free(self, now: float) -> list[float]:
        """When each worker will be free."""
        busy = [max(now, end) for end in self._running.values()]
        return [*busy, *[now] * (self.workers - len(busy))]

    def add(self, job: Job) -> None:
        """Accept a job; those of its tasks that are new come in with it."""
        insort(self._jobs, job, key=_deadline)
        for task in job.waiting:
            self.tasks.setdefault(task.key, task)

    def next(self, now: float) -> tuple[Task | None, list[Job]]:
        """The pair to run now, started; and the jobs that were closed because their next pair would end too late."""
        closed = []
        while (job := self._pick(now)) is not None:
            task = next(iter(job.waiting))
            price = self._price(task)
            if now + price > job.deadline and not job.probe:
                self.close(job)
                closed.append(job)
                continue
            job.probe = False
            task.started = True
            self._running[task] = now + price
            for waiter in task.waiters:
                waiter.leave(task)
                waiter.running.add(task)
            return task, closed
        return None, closed

    def end(self, task: Task) -> dict[Job, list[int]]:
        """The run has ended: those who waited for it, with the indices of their documents."""
        self._running.pop(task, None)
        self._forget(task)
        for job in task.waiters:
            job.running.discard(task)
        return task.waiters

    def close(self, job: Job, *, keep: int = 0) -> None:
        """Start none of its pairs any more, or only so many."""
        for task in list(job.waiting)[keep:]:
            job.leave(task)
            del task.waiters[job]
            if not task.waiters:
                self._forget(task)

    def drop(self, job: Job) -> None:
        """Nobody waits for the job any more; runs that nobody else waits for are told to end."""
        self.close(job)
        for task in job.running:
            del task.waiters[job]
            if not task.waiters:
                task.stop.request()
                self._forget(task)
        job.running.clear()
        if job in self._jobs:
            self._jobs.remove(job)

    def drop_all(self) -> list[Job]:
        """Give up everything; returns the jobs."""
        jobs = list(self._jobs)
        for job in jobs:
            self.drop(job)
        return jobs

    def _forget(self, task: Task) -> None:
        if self.tasks.get(task.key) is task:
            del self.tasks[task.key]

    def _pick(self, now: float) -> Job | None:
        ready = [job for job in self._jobs if job.waiting and not job.held]
        if not ready:
            return None
        due = min(ready, key=Job.urgency)
        promised = next((job for job in self._jobs if job.promised), due)
        if promised is due or self._harmless(next(iter(due.waiting)), now):
            return due
        return None if promised.held else promised

    def _harmless(self, start: Task, now: float) -> bool:
        """Whether no promise is broken if this pair runs now, and then deadlines alone give the order."""
        if self._plenty(start, now):
            return True
        before = self._late(self._jobs, now)
        return all(job in before for job in self._late(self._jobs, now, start))

    def _plenty(self, start: Task, now: float) -> bool:
        """The same without playing it through, by Graham's bound on the makespan: often enough to say yes, never wrongly."""
        work = [start.cost_s, *(max(0.0, end - now) for end in self._running.values())]
        total, longest = sum(work), max(work)
        for job in self._jobs:
            if not job.promised:
                continue
            total += job.promised_s
            longest = max(longest, job.longest_s)
            if now + total / self.workers + (1 - 1 / self.workers) * longest > job.deadline:
                return False
        return True


def finishes(free: Sequence[float], claims: Iterable[Sequence[float]]) -> list[float]:
    """When each list of runs is done if the workers take run after run in the order given.

    Args:
        free: when each worker will be free.
        claims: seconds of each run; an empty list is done at once.
    """
    workers = list(free)
    heapq.heapify(workers)
    ends = []
    for costs in claims:
        end = -math.inf
        for cost in costs:
            end = max(end, workers[0] + cost)
            heapq.heapreplace(workers, workers[0] + cost)
        ends.append(end)
    return ends


def _running_maximum(ends: Iterable[float]) -> list[float]:
    highest, found = -math.inf, []
    for end in ends:
        highest = max(highest, end)
        found.append(highest)
    return found


def _costs(tasks: Iterable[Task], seen: set[Task]) -> list[float]:
    """Of those not seen before: a pair that several wait for is run once."""
    fresh = [task for task in tasks if task not in seen]
    seen.update(fresh)
    return [task.cost_s for task in fresh]


def _deadline(job: Job) -> float:
    return job.deadline
