"""Bring a new index to hold what the searched one holds, show that it answers as well, then swap. Searches and writes go on.

Every writer writes to both indices while they are a pair, so only what was there before, and what was being written at the moment of a
look, has to be brought over. A round lists both indices, chunk by chunk, and brings over every difference: what is missing, what is
older, what was deleted or revoked meanwhile. The last round is one whose differences are gone when looked at again, by key.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from knowledge.errors import BackendError, EmbeddingError
from knowledge.ingest.identity import embed_hash
from knowledge.ingest.vectors import Embedding
from knowledge.models import Difference, IndexFacts, Leg, LegQuery, Record, Visibility
from knowledge.ports import IndexPair

LAST_ROUND = 2_000
"""Differences of a round that may be the last: few enough to be looked at again one by one."""

ROUNDS = 50
SETTLE_TRIES = 20
SETTLE_PAUSE_S = 0.1
"""Between looks at a chunk that is being written: a writer is done with both indices within moments, or is told that it failed."""

SAMPLE = 50
SAMPLE_CHARS = 200
SAMPLE_DEPTH = 10
ALLOWED_LOSS = 0.05
"""The part of the sample that may find itself in the old index and not in the new one: another analysis ranks a little differently."""


@dataclass(slots=True)
class Progress:
    """What a synchronisation has done so far."""

    rounds: int = 0
    brought: int = 0
    removed: int = 0
    embedded: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both indices side by side: chunks, and how many of the sampled passages each of their legs finds by their own words or vector."""

    source_chunks: int
    target_chunks: int
    sampled: int
    found: dict[Leg, tuple[int, int]]

    @property
    def worse(self) -> list[Leg]:
        """The legs that lost more than `ALLOWED_LOSS` of the sample."""
        return [leg for leg, (source, target) in self.found.items() if source - target > ALLOWED_LOSS * self.sampled]


class Synchronisation:
    """Makes the target of a pair equal to its source.

    Args:
        pair: the two.
        embedding: of the target's model; called only for chunks that have no vector of it yet.
        on_progress: called after every step.
    """

    def __init__(self, pair: IndexPair, embedding: Embedding, on_progress: Callable[[Progress], None] = lambda _: None) -> None:
        self._pair = pair
        self._embedding = embedding
        self._on_progress = on_progress
        self.progress = Progress()

    async def run(self) -> None:
        """Until a round finds nothing that does not settle. May be broken off and run again at any time.

        Raises:
            BackendError: the cluster failed, or the indices do not become equal.
            EmbeddingError: texts that have no vector of the target's model cannot be embedded.
        """
        for _ in range(ROUNDS):
            self.progress.rounds += 1
            found: list[str] = []
            async for batch in self._pair.differences():
                await self._bring(batch)
                found += [one.key for one in batch] if len(found) <= LAST_ROUND else []
            if len(found) <= LAST_ROUND and await self._settled(found):
                return
        raise BackendError(f"After {ROUNDS} rounds {self._pair.target.name} still differs; is something writing to it past the gateway?")

    async def _settled(self, keys: list[str]) -> bool:
        for _ in range(SETTLE_TRIES):
            left = await self._pair.recheck(keys)
            if not left:
                return True
            await self._bring(left)
            await asyncio.sleep(SETTLE_PAUSE_S)
        return False

    async def _bring(self, batch: Sequence[Difference]) -> None:
        # Read after the target's versions: whatever is written meanwhile wins, in the target by its version, here by being newer.
        records = await self._pair.records([one.key for one in batch if one.in_source])
        ready = await self._with_vectors(records)
        changes = [(one, ready.get(one.key)) for one in batch]
        await self._pair.write_target(changes)
        self.progress.brought += len(ready)
        self.progress.removed += sum(record is None and one.target_version is not None for one, record in changes)
        self._on_progress(self.progress)

    async def _with_vectors(self, records: dict[str, Record]) -> dict[str, Record]:
        """The records as the target keeps them: with its model's vector, and the hash of what that was made of."""
        target = self._pair.target.fingerprint
        if target == self._pair.source.fingerprint:
            ready = {key: record for key, record in records.items() if record.vector or record.embed_hash}
        else:
            ready = {}
        waiting = [key for key in records if key not in ready]
        for key, vector in zip(waiting, await self._embedding.embed([records[key].text for key in waiting]), strict=True):
            if isinstance(vector, EmbeddingError):
                raise vector
            ready[key] = replace(records[key], vector=vector, embed_hash=embed_hash(target, records[key].text))
        self.progress.embedded += len(waiting)
        return ready


async def compare(pair: IndexPair) -> Comparison:
    """Count, and search passages at random by their own words and vectors in both, as somebody who may see them."""
    counts = await pair.counts()  # which also makes searchable what the last round wrote
    sample = [(ours, theirs) for ours, theirs in await pair.sample(SAMPLE) if ours.allowed_roles or ours.allowed_subjects]
    found: dict[Leg, tuple[int, int]] = {}
    for leg in (Leg.LEXICAL, Leg.VECTOR):
        source = [await _finds_itself(pair, pair.source, leg, ours) for ours, _ in sample]
        target = [await _finds_itself(pair, pair.target, leg, theirs) for _, theirs in sample]
        found[leg] = (sum(source), sum(target))
    return Comparison(*counts, len(sample), found)


async def _finds_itself(pair: IndexPair, facts: IndexFacts, leg: Leg, record: Record) -> bool:
    subject = next(iter(record.allowed_subjects), "")
    visibility = Visibility(record.tenant, subject, frozenset(record.allowed_roles))
    text = record.text[:SAMPLE_CHARS] if leg is Leg.LEXICAL else ""
    query = LegQuery(leg, visibility, SAMPLE_DEPTH, text=text, language=record.language or None, vector=record.vector)
    return record.id in await pair.search(facts, query)
