"""The first runs: they cost more than later ones, and they teach what a run costs."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from modelkit.serving import Clock
from reranker.cost import CostModel
from reranker.scorer import Scorer

QUERY = "Wie oft braucht die Monstera Wasser?"
PASSAGE = "Die Monstera braucht einmal in der Woche Wasser. "
REPEATS = (1000, 1000, 1, 4, 16, 4, 1, 16, 10, 10, 10)
"""From the largest shape, whose memory is taken first, to the usual one, which the pace should remember."""


def warm_up(scorer: Scorer, cost: CostModel, workers: int, clock: Clock = time.monotonic) -> None:
    """Run each length on all workers at once, as it will be under load. The first round teaches nothing."""

    def run(passage: str) -> tuple[Sequence[int], float]:
        query = scorer.bind(QUERY)
        pair = query.pair(passage)
        runs, started = query.runs(pair), clock()
        query.score(pair)
        return runs, clock() - started

    with ThreadPoolExecutor(workers) as pool:
        for number, repeat in enumerate(REPEATS):
            # No text comes twice: late interaction would know it.
            timed = list(pool.map(run, (f"{number} {worker} " + PASSAGE * repeat for worker in range(workers))))
            for runs, seconds in timed[: workers * number]:
                whole = sum(runs)
                for tokens in runs:  # with late interaction two, the query's and the passage's: shared by their tokens
                    cost.learn(tokens, seconds * tokens / whole)
