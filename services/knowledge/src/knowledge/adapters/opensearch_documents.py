"""Documents in OpenSearch: write in bulk, delete by query, look up."""

import asyncio
import hashlib
import json
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opensearchpy import AsyncOpenSearch
from opensearchpy.exceptions import ConnectionError as Unreachable
from opensearchpy.exceptions import ConnectionTimeout, TransportError
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)

from knowledge.adapters.analysis import analyzer_of
from knowledge.adapters.opensearch_client import encode, error_type, translated
from knowledge.adapters.opensearch_queries import Json
from knowledge.adapters.stored import facets
from knowledge.errors import BackendError
from knowledge.models import Record, SourceStatistics, WriteFailure

WRITE_TIMEOUT_S = 60.0
BULK_BYTES = 1_000_000
"""Of one bulk request: above a mebibyte the client would hold up the event loop while it sends."""

BULK_ITEMS = 500
REQUESTS_AT_ONCE = 2
ATTEMPTS = 6
PAGE = 500
EXACT_DOCUMENTS = 40_000
"""Of a source: more are estimated, within about a percent."""

COPIED = (
    *("id", "tenant", "document_id", "chunk_key", "ordinal", "source", "document_title", "title", "content", "language", "category"),
    *("importance", "embed_hash", "record_hash"),
)
LISTS = ("tags", "allowed_roles", "allowed_subjects", "identifiers")
"""Fields of a record that are stored as they are."""

BUSY = 429
BLOCKED = "cluster_block_exception"


def key(tenant: str, chunk_id: str) -> str:
    """The `_id`: made of the tenant too, so that no write or delete ever meets another tenant's chunk."""
    return hashlib.sha256(json.dumps([tenant, chunk_id]).encode()).hexdigest()


def stored_source(record: Record) -> Json:
    """A record as it is stored. Its text stands in the field of its language."""
    source: Json = {name: getattr(record, name) for name in COPIED}
    source |= {name: list(getattr(record, name)) for name in LISTS}
    source |= {"metadata": dict(record.metadata), "facets": list(facets(record.metadata))}
    source["text"] = {analyzer_of(record.language): record.text}
    if record.vector:
        source["vector"] = list(record.vector)
    return source


def record_of(source: Json) -> Record:
    """The record that `stored_source` was made of."""
    (text,) = source["text"].values()
    lists: dict[str, Any] = {name: tuple(source[name]) for name in LISTS}
    # The engine keeps float32 and writes the shortest decimals of it.
    vector = tuple(array("f", source.get("vector", ())))
    copied: dict[str, Any] = {name: source[name] for name in COPIED}
    return Record(**copied, **lists, text=text, metadata=source["metadata"], vector=vector)


@dataclass(frozen=True, slots=True)
class Action:
    """One item of a bulk request, encoded."""

    chunk_id: str
    lines: bytes


def upsert(record: Record) -> Action:
    """Write a record, whether or not it is there."""
    return Action(record.id, _lines({"index": {"_id": key(record.tenant, record.id)}}, stored_source(record)))


def removal(tenant: str, chunk_id: str) -> Action:
    """Remove a chunk, whether or not it is there."""
    return Action(chunk_id, _lines({"delete": {"_id": key(tenant, chunk_id)}}))


def conditional(target_key: str, record: Record | None, version: tuple[int, int] | None) -> Action:
    """Write or (None) remove by `_id`, on condition that this version (sequence number, primary term) is still there, or nothing."""
    held = {"_id": target_key} if version is None else {"_id": target_key, "if_seq_no": version[0], "if_primary_term": version[1]}
    if record is None:
        return Action(target_key, _lines({"delete": held}))
    return Action(record.id, _lines({"create" if version is None else "index": held}, stored_source(record)))


def _lines(*values: Json) -> bytes:
    return b"".join(encode(value) + b"\n" for value in values)


def batches(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """Requests of bounded size, in order."""
    batch: list[Action] = []
    size = 0
    for action in actions:
        if batch and (len(batch) == BULK_ITEMS or size + len(action.lines) > BULK_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(action)
        size += len(action.lines)
    if batch:
        yield batch


def _worth_another_try(error: BaseException) -> bool:
    if isinstance(error, ConnectionTimeout):
        return False
    return isinstance(error, Unreachable) or (isinstance(error, TransportError) and error.status_code == BUSY)


async def bulk(client: AsyncOpenSearch, index: str, actions: Sequence[Action]) -> list[WriteFailure]:
    """Send one batch; what the cluster is too busy for is sent again a few times, later each time.

    Raises:
        BackendError: the request as a whole failed.
    """
    failures: list[WriteFailure] = []
    pending = list(actions)

    async def send() -> bool:
        """Whether some actions were turned away for now."""
        nonlocal pending
        pending, refused = await _bulk_once(client, index, pending)
        failures.extend(refused)
        return bool(pending)

    again = AsyncRetrying(
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.1, max=5),
        retry=retry_if_exception(_worth_another_try) | retry_if_result(bool),
        retry_error_callback=_last_outcome,
    )
    with translated():
        await again(send)
    return failures + [WriteFailure(action.chunk_id, f"refused: {BUSY} too busy") for action in pending]


async def bulk_all(client: AsyncOpenSearch, index: str, actions: Sequence[Action]) -> list[WriteFailure]:
    """Send all, a few requests at once, so that a node's cores have work while one answer is on its way.

    Raises:
        BackendError: a request as a whole failed.
    """
    limit = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def send(batch: Sequence[Action]) -> list[WriteFailure]:
        async with limit:
            return await bulk(client, index, batch)

    outcomes = await asyncio.gather(*map(send, batches(actions)), return_exceptions=True)
    # All have ended before the first failure is told: nothing of this write is under way when it is tried again.
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [failure for outcome in outcomes if not isinstance(outcome, BaseException) for failure in outcome]


def _last_outcome(state: RetryCallState) -> object:
    """After the last try: its result, or its error."""
    return state.outcome.result() if state.outcome else None


async def _bulk_once(client: AsyncOpenSearch, index: str, actions: list[Action]) -> tuple[list[Action], list[WriteFailure]]:
    """The actions to send again, and those that are refused for good."""
    body = b"".join(action.lines for action in actions)
    answer = await client.bulk(body=body, index=index, params={"request_timeout": WRITE_TIMEOUT_S})
    busy: list[Action] = []
    refused: list[WriteFailure] = []
    for action, item in zip(actions, answer["items"], strict=True):
        (outcome,) = item.values()
        if "error" not in outcome:
            continue
        # A full disk answers 429 too, and stays full: trying again only hides it.
        if outcome["status"] == BUSY and outcome["error"]["type"] != BLOCKED:
            busy.append(action)
        else:
            refused.append(WriteFailure(action.chunk_id, f"refused: {outcome['status']} {error_type(outcome['error']['type'])}"))
    return busy, refused


async def refresh(client: AsyncOpenSearch, index: str) -> None:
    """Make everything written so far searchable on every copy."""
    with translated():
        await client.indices.refresh(index=index, params={"request_timeout": WRITE_TIMEOUT_S})


async def delete_by_query(client: AsyncOpenSearch, index: str, filters: list[Json]) -> int:
    """Remove all that match; how many there were. A chunk that was written meanwhile is removed by another round.

    Raises:
        BackendError: something may be left.
    """
    body = {"query": {"bool": {"filter": filters}}}
    options = {"refresh": "true", "conflicts": "proceed", "request_timeout": WRITE_TIMEOUT_S}
    removed = 0
    for _ in range(ATTEMPTS):
        await refresh(client, index)
        with translated():
            answer = await client.delete_by_query(index=index, body=body, params=options)
            removed += int(answer["deleted"])
            if answer["failures"] or answer["timed_out"]:
                break
            if not answer["version_conflicts"]:
                return removed
    raise BackendError("OpenSearch did not remove every chunk of the document; try again.")


async def scan(client: AsyncOpenSearch, index: str, filters: list[Json], fields: list[str]) -> AsyncIterator[Json]:
    """The stored fields of all that match, in the order of a document.

    Raises:
        IndexAbsent: there is no index.
        BackendError: a page failed, or lacks a shard.
    """
    body: Json = {
        "size": PAGE,
        "query": {"bool": {"filter": filters}},
        "_source": fields,
        "sort": [{"document_id": "asc"}, {"ordinal": "asc"}, {"id": "asc"}],
        "track_total_hits": False,
    }
    while True:
        hits = (await search(client, index, body))["hits"]["hits"]
        for hit in hits:
            yield hit["_source"]
        if len(hits) < PAGE:
            return
        body["search_after"] = hits[-1]["sort"]


async def search(client: AsyncOpenSearch, index: str, body: Json) -> dict[str, Any]:
    """A search that is complete or an error: the writer decides by it what to write and what to remove."""
    with translated():
        answer: dict[str, Any] = await client.search(index=index, body=body, params={"allow_partial_search_results": "false"})
        if answer["timed_out"] or answer["_shards"]["failed"]:
            raise BackendError("OpenSearch could not read all of the index; try again.")
        return answer


async def document_ids(client: AsyncOpenSearch, index: str, filters: list[Json]) -> set[str]:
    """The distinct documents among all that match."""
    return {bucket["key"]["document_id"] async for bucket in _buckets(client, index, filters, ("document_id",), {})}


async def sources(client: AsyncOpenSearch, index: str, filters: list[Json]) -> list[SourceStatistics]:
    """Tenants and their sources, with the numbers of documents and chunks."""
    distinct = {"documents": {"cardinality": {"field": "document_id", "precision_threshold": EXACT_DOCUMENTS}}}
    return [
        SourceStatistics(bucket["key"]["tenant"], bucket["key"]["source"], bucket["documents"]["value"], bucket["doc_count"])
        async for bucket in _buckets(client, index, filters, ("tenant", "source"), distinct)
    ]


async def _buckets(client: AsyncOpenSearch, index: str, filters: list[Json], fields: tuple[str, ...], within: Json) -> AsyncIterator[Json]:
    """Each combination of the values of `fields` among all that match, in order."""
    pages: Json = {"size": PAGE, "sources": [{name: {"terms": {"field": name}}} for name in fields]}
    body = {"size": 0, "query": {"bool": {"filter": filters}}, "aggs": {"found": {"composite": pages, "aggs": within}}}
    while True:
        page = (await search(client, index, body))["aggregations"]["found"]
        for bucket in page["buckets"]:
            yield bucket
        if "after_key" not in page:
            return
        pages["after"] = page["after_key"]
