"""Many texts over few cores, one text a run, within a deadline."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from modelkit import Embedding
from modelkit.encoder import TextKind
from modelkit.manifest import ModelSpec, Precision
from modelkit.serving import Deadline, timed_out


class TextEncoder(Protocol):
    """What the engine needs of a model."""

    def embed(self, text: str, kind: TextKind) -> Embedding:
        """The vector of one text; called from several threads at once."""


class Engine:
    """Embeds with as many single-threaded runs at once as there are cores. One text a run: a vector never depends on others.

    Args:
        encoder: the model.
        workers: how many runs at once.
    """

    def __init__(self, encoder: TextEncoder, workers: int) -> None:
        self._encoder = encoder
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="embed")

    async def embed(self, texts: Sequence[str], kind: TextKind, deadline: Deadline) -> list[Embedding]:
        """The vectors in the order of the texts. No further text is started once the deadline has passed or the caller is gone.

        Raises:
            NotServed: `timeout`.
        """
        loop = asyncio.get_running_loop()
        results: dict[int, Embedding] = {}
        # Every request has at most one text for each worker in the queue, so requests take turns text by text.
        remaining = iter(enumerate(texts))

        async def work() -> None:
            for index, text in remaining:
                if deadline.passed:
                    return
                results[index] = await loop.run_in_executor(self._pool, self._encoder.embed, text, kind)

        tasks = [asyncio.create_task(work()) for _ in range(min(self._workers, len(texts)))]
        try:
            await asyncio.wait(tasks, timeout=deadline.left_s)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome
        if len(results) < len(texts):
            raise timed_out()
        return [results[index] for index in range(len(texts))]

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def fingerprint(spec: ModelSpec, precision: Precision) -> str:
    """What must be equal for two vectors to be comparable, as one word."""
    parts = {
        "model": spec.id,
        "revision": spec.precisions[precision].revision,
        "precision": precision,
        "pooling": spec.pooling,
        "query_prefix": spec.query_prefix,
        "passage_prefix": spec.passage_prefix,
        "dimension": spec.dimension,
    }
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
