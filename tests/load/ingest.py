"""The gateway's ingestion without models against `opensearch-py`'s `parallel_bulk` on the same documents, slice by slice in turns."""

import asyncio
import random
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter

from opentelemetry.trace import NoOpTracer

from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.ingest.documents import DocumentInput
from knowledge.ingest.ingestor import Ingestor
from knowledge.models import Record
from tests.load.figures import MeasurementFailed, SideBySide
from tests.load.passages import DIMENSION, FINGERPRINT, SOURCE, TEXT_FIELDS, Passages, Vectors, records_of
from tests.load.scale import Advance
from tests.load.scale_gateway import KnownVectors
from tests.load.scale_stack import Node, bulk_actions, refresh, wait_until_quiet, write_in_bulk
from tests.load.stack import TENANT

PASSAGES = 20_000
SLICES = 10
INFO_TIMEOUT_S = 5.0

Slice = Sequence[tuple[DocumentInput, Vectors]]


def steps() -> int:
    """What `measure` tells `advance` in all."""
    return 2 * PASSAGES


async def measure(node: Node, passages: Passages, advance: Advance) -> SideBySide:
    """Seconds of each slice: `gateway` is the ingestor as `knowledge ingest` runs it, but for reading files and embedding."""
    found, documents = SideBySide(), list(passages.documents(PASSAGES))
    bounds = [round(len(documents) * number / SLICES) for number in range(SLICES + 1)]
    with node.alias() as ours, node.alias() as theirs:
        for alias in (ours, theirs):
            await _create(node, alias)
        for first, last in pairwise(bounds):
            await _slice(node, (ours, theirs), documents[first:last], found, advance)
        for alias in (ours, theirs):
            if (counted := node.client.count(index=alias)["count"]) != PASSAGES:
                raise MeasurementFailed(f"an index holds {counted} passages, not {PASSAGES}")
    return found


async def _create(node: Node, alias: str) -> None:
    """Both indices are the gateway's."""
    backend = OpenSearchBackend(node.url, alias, tracer=NoOpTracer())
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.aclose()


async def _slice(node: Node, aliases: tuple[str, str], some: Slice, found: SideBySide, advance: Advance) -> None:
    """The same documents by both sides, which comes first left to chance; each is searchable at the end, and merges end in between."""
    records = [record for document, vectors in some for record in records_of(document, vectors)]
    sides = [True, False]
    random.shuffle(sides)
    for gateway in sides:
        if gateway:
            found.gateway.append(await _through_gateway(node, aliases[0], some, records))
        else:
            found.parts.append(await asyncio.to_thread(_by_hand, node, aliases[1], records))
        for alias in aliases:
            wait_until_quiet(node, alias)
        advance(len(records))


async def _through_gateway(node: Node, alias: str, some: Slice, records: Sequence[Record]) -> float:
    embedder = KnownVectors({one.text: one.vector for one in records}, fingerprint=FINGERPRINT, dimension=DIMENSION)
    backend = OpenSearchBackend(node.url, alias, tracer=NoOpTracer())
    ingestor = Ingestor(backend, embedder, text_fields=TEXT_FIELDS, info_timeout_s=INFO_TIMEOUT_S)
    try:
        await ingestor.open()
        started = perf_counter()
        outcomes = await ingestor.ingest(((document.id, document) for document, _ in some), tenant=TENANT, source=SOURCE)
        seconds = perf_counter() - started
    finally:
        await backend.aclose()
    if any(outcome.rejects for outcome in outcomes):
        raise MeasurementFailed("the gateway refused a document")
    return seconds


def _by_hand(node: Node, alias: str, records: Sequence[Record]) -> float:
    actions = list(bulk_actions(records, alias))
    started = perf_counter()
    write_in_bulk(node, actions)
    refresh(node, alias)
    return perf_counter() - started
