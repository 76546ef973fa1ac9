"""A small model first: when time will not do for all pairs, it scores them all, and the large one then takes the best first.

The request stands in the backlog twice: `first` with the small model's pairs, `job` with the large one's, which is held until the
order is known. Both are let in at once or not at all, so nobody is sent away after work was done for him.
"""

from collections.abc import Iterable

from reranker.backlog import Backlog, Job, finishes
from reranker.preparing import Prepared

SHARE = 0.2
"""Of the time left, for the small model at most: from about here on its order wins less than its time costs (docs/decisions/0017)."""


def all_fit(prepared: Iterable[Prepared], workers: int, now: float, deadline: float) -> bool:
    """Whether an idle service would score all of them in time; others' requests do not count: load must not bring about more work."""
    costs = [each.query.cost_s(each.pair) for each in prepared if each.pair is not None]
    return finishes([now] * workers, [costs])[0] <= deadline


def lead(backlog: Backlog, first: Job, job: Job, pairs: int, now: float) -> bool:
    """Queue both, `job` held and promised so many pairs, if no promise is broken and `first` ends within its share; whether so.

    The dearest pairs are promised: whichever the small model puts first will not cost more.
    """
    first.deadline = now + SHARE * (job.deadline - now)
    first.promise(len(first.waiting))
    fits = backlog.late_by(first, now) <= 0
    backlog.add(first)
    if fits:
        job.dearest_first()
        job.promise(pairs)
        if backlog.late_by(job, now) <= 0:
            job.held = True
            backlog.add(job)
            return True
        job.arrange(job.scores.order)
    _leave_out(backlog, first)
    return False


def _leave_out(backlog: Backlog, first: Job) -> None:
    """Drop it; after a pause its first pair runs alone, for nobody: else a model that is thought too dear would never be known better."""
    if not any(task.query.model.stale for task in first.waiting):
        backlog.drop(first)
        return
    backlog.close(first, keep=1)
    first.promise(0)
    first.probe = True


def follow(first: Job, job: Job) -> None:
    """Let `job` run, best first by the small scores; in the order given unless all of them came in time."""
    if not first.scores.open:
        job.scores.order = first.scores.ranking()
    job.arrange(job.scores.order)
    job.held = False
