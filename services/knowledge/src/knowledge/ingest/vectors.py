"""Texts to vectors: in batches across documents, smaller ones where the service is late, each text's failure by itself."""

from collections.abc import Sequence

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from knowledge.errors import EmbeddingError
from knowledge.ports import Embedder

EMBED_BATCH = 16
"""Texts in one call: on two cores the service needs about two seconds for sixteen of the largest chunks, and has four."""

EMBED_ATTEMPTS = 4
MAX_BACKOFF_S = 5.0

Vector = tuple[float, ...]


class Embedding:
    """The embedding-service during one run.

    Args:
        embedder: the service.
        fingerprint: of the model that the index was made for; vectors of another one are a failure.
        timeout_s: for each call.
    """

    def __init__(self, embedder: Embedder, *, fingerprint: str, timeout_s: float) -> None:
        self._embedder = embedder
        self._fingerprint = fingerprint
        self._timeout_s = timeout_s
        self._doubtful = False

    async def embed(self, texts: Sequence[str]) -> list[Vector | EmbeddingError]:
        """A vector for each text, or why there is none."""
        found: list[Vector | EmbeddingError] = []
        for start in range(0, len(texts), EMBED_BATCH):
            found += await self._batch(texts[start : start + EMBED_BATCH])
        return found

    async def _batch(self, texts: Sequence[str]) -> list[Vector | EmbeddingError]:
        """One batch; a late or busy service gets halves of it, down to single texts."""
        if len(texts) == 1:
            return [await self._single(texts[0])]
        try:
            return list(await self._call(texts))
        except EmbeddingError:
            middle = len(texts) // 2
            return await self._batch(texts[:middle]) + await self._batch(texts[middle:])

    async def _single(self, text: str) -> Vector | EmbeddingError:
        """One text, with pauses between tries; after one that failed for good the next ones are tried once, until one succeeds."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(1 if self._doubtful else EMBED_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=MAX_BACKOFF_S),
            retry=retry_if_exception_type(EmbeddingError),
            reraise=True,
        )
        try:
            return (await retrying(self._call, [text]))[0]
        except EmbeddingError as error:
            self._doubtful = True
            return error

    async def _call(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        found = await self._embedder.embed(texts, "passage", self._timeout_s)
        if found.fingerprint != self._fingerprint:
            raise EmbeddingError("another_model")
        self._doubtful = False
        return found.vectors
