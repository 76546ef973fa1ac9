"""The OpenSearch search backend: one `_msearch` a search, an alias in front of the index, `_bulk` for writing."""

import asyncio
from array import array
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from opensearchpy.exceptions import ConnectionError as Unreachable
from opensearchpy.exceptions import ConnectionTimeout
from opentelemetry.trace import Tracer
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random

from knowledge.adapters import opensearch_documents as documents
from knowledge.adapters import opensearch_examination as examination
from knowledge.adapters.analysis import compound_words
from knowledge.adapters.opensearch_client import IndexAbsent, connect, translated
from knowledge.adapters.opensearch_indices import Indices, TwinState, fingerprint_of
from knowledge.adapters.opensearch_mapping import Described, check
from knowledge.adapters.opensearch_queries import (
    PASSAGE_FIELDS,
    Json,
    is_absent,
    leg_result,
    passage,
    search_body,
    search_header,
    visible,
)
from knowledge.adapters.search_span import search_span
from knowledge.adapters.stored import UNKNOWN_MODEL, is_unicode, refusals, sees_nothing, storable, union, without_vector
from knowledge.adapters.synonyms import synonyms_of
from knowledge.errors import BackendError
from knowledge.lexicon import NO_LEXICON, Lexicon
from knowledge.models import (
    Finding,
    Leg,
    LegQuery,
    LegResult,
    Record,
    Statistics,
    StoredChunk,
    StoredDocument,
    Verdict,
    Visibility,
    WriteFailure,
)

READY_TIMEOUT_S = 2.0
SHARD_SHARE = 0.8
CLIENT_SHARE = 0.95
"""Parts of a search's time: what a shard may take, and after how much of it the client hangs up."""

LEAST_RETRY_S = 0.05
"""With less time left a broken connection is not tried again."""

VECTORS = 200
"""Vectors fetched in one request: about 2 MB of JSON."""


class OpenSearchBackend:
    """`knowledge.ports.Backend` on a cluster. `open` comes before everything else.

    Args:
        url: `https://host:9200`, or http.
        alias: the name that is searched and written; the index behind it is made by the gateway.
        tracer: makes one span a search.
        username: for basic authentication; None for none.
        password: belongs to `username`.
        ca_file: the certificate authority of the cluster, where the system does not know it.
        client_certificate: files of a certificate and its key, for a cluster that knows its callers by them.
        pool_size: connections at most; each search takes one.
        replicas: copies of the index beside the first, when the gateway creates it; None for one where there is a second node.
        shards: parts of the index, when the gateway creates it.
        lexicon: parts of German compounds, which decide what is indexed, and synonyms, which decide what is searched.
    """

    def __init__(
        self,
        url: str,
        alias: str,
        *,
        tracer: Tracer,
        username: str | None = None,
        password: str | None = None,
        ca_file: Path | None = None,
        client_certificate: tuple[Path, Path] | None = None,
        pool_size: int = 32,
        replicas: int | None = None,
        shards: int = 1,
        lexicon: Lexicon = NO_LEXICON,
    ) -> None:
        self._client = connect(
            url, username=username, password=password, ca_file=ca_file, client_certificate=client_certificate, pool_size=pool_size
        )
        self._alias = alias
        self._tracer = tracer
        self._compounds = compound_words(lexicon.compound_words)
        self._synonyms = synonyms_of(lexicon.synonyms)
        self._indices = Indices(self._client, alias, replicas, self._compounds, shards)

    async def msearch(self, queries: Sequence[LegQuery], timeout_s: float) -> list[LegResult]:
        """All legs in one round trip, on one index. A body that can find nothing is not sent, nor is a vector of another model."""
        ends_at = monotonic() + timeout_s
        fingerprint = next((query.fingerprint for query in queries if query.fingerprint), "")
        index = self._indices.searched(fingerprint)
        results = await self._search(index, queries, ends_at)
        if index is not None and any(one.failed or one.shards_failed for one in results):
            # The alias may have moved on a moment ago, and what it left may be deleted already.
            moved = await self._moved(index, fingerprint, ends_at)
            return await self._search(moved, queries, ends_at) if moved else results
        return results

    async def _moved(self, index: Described, fingerprint: str, ends_at: float) -> Described | None:
        """The index that is searched now; None if it is the same one, or nothing can be learnt in time."""
        try:
            async with asyncio.timeout(max(0.0, ends_at - monotonic())):
                await self._indices.adopt()
        except (BackendError, TimeoutError):
            return None
        now = self._indices.searched(fingerprint)
        return None if now is None or now.name == index.name else now

    async def _search(self, index: Described | None, queries: Sequence[LegQuery], ends_at: float) -> list[LegResult]:
        strange = index is not None and any(query.fingerprint not in ("", fingerprint_of(index)) for query in queries)
        results = [LegResult(failed=strange and query.leg is Leg.VECTOR) for query in queries]
        sent: list[tuple[int, LegQuery, Json]] = []
        for place, query in enumerate(queries):
            body = None if results[place].failed else search_body(query, _shard_ms(ends_at), self._synonyms)
            if body is not None:
                sent.append((place, query, body))
        if not sent:
            return results
        with search_span(self._tracer, "opensearch", self._alias, len(sent)) as span:
            lines = [line for _, query, body in sent for line in (search_header(query), body)]
            with translated():
                items = (await self._ask(index.name if index else self._alias, lines, ends_at, span.trace_id))["responses"]
                for (place, query, _), item in zip(sent, items, strict=True):
                    results[place] = self._result(query, item)
            span.legs(results)
            return results

    async def _ask(self, index: str, lines: list[Json], ends_at: float, trace_id: str) -> dict[str, Any]:
        """Send; a broken connection is tried once more if time is left, a late one never. The trace id joins the slow log."""

        def worth_another_try(error: BaseException) -> bool:
            broken = isinstance(error, Unreachable) and not isinstance(error, ConnectionTimeout)
            return broken and ends_at - monotonic() > LEAST_RETRY_S

        again = AsyncRetrying(
            stop=stop_after_attempt(2),
            wait=wait_random(0, LEAST_RETRY_S / 2),
            retry=retry_if_exception(worth_another_try),
            reraise=True,
        )
        answer: dict[str, Any] = {}
        async for attempt in again:
            with attempt:
                left = max(0.001, (ends_at - monotonic()) * CLIENT_SHARE)
                answer = await self._client.msearch(
                    body=lines, index=index, params={"request_timeout": left}, headers={"X-Opaque-Id": trace_id}
                )
        return answer

    def _result(self, query: LegQuery, item: dict[str, Any]) -> LegResult:
        # An index that was never there is empty; one that was there and is gone is a failure.
        return LegResult() if not self._indices.known and is_absent(item) else leg_result(query, item)

    async def ready(self) -> bool:
        """Whether the cluster answers, and the index, once seen, is there and fits."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                return await self._indices.adopt()
        except (BackendError, TimeoutError):
            return False

    async def examine(self) -> list[Finding]:
        """The cluster, the index behind the alias, and the one beside it."""
        findings = await examination.examine(self._client, self._alias)
        pair = await self._indices.look()
        if pair is not None and pair.twin is not None:
            detail = f"{pair.twin.name} is {pair.state} beside {pair.current.name} and gets every write; `knowledge retire` deletes it"
            findings.append(Finding(Verdict.OK if pair.state is TwinState.KEPT else Verdict.WARNING, "reindex", detail))
        return findings

    async def aclose(self) -> None:
        """Close the connections."""
        await self._indices.aclose()
        await self._client.close()

    async def open(self, *, fingerprint: str | None, dimension: int | None) -> None:
        """Create index and alias together, or check them."""
        await self._indices.open(fingerprint, dimension)

    async def stored_chunks(self, tenant: str, document_ids: Sequence[str]) -> dict[str, list[StoredChunk]]:
        """The chunks of documents. One that is not the same in every written index has no hashes: it must be written again."""
        found: dict[str, list[StoredChunk]] = {name: [] for name in document_ids}
        pair = await self._indices.look()
        if pair is None:
            return found
        filters: list[Json] = [{"term": {"tenant": tenant}}, {"terms": {"document_id": storable(document_ids)}}]
        fields = ["id", "document_id", "embed_hash", "record_hash"]
        tables = [{row["id"]: row async for row in documents.scan(self._client, index.name, filters, fields)} for index in pair.written]
        own = next((table for table, index in zip(tables, pair.written, strict=True) if self._indices.is_own(index)), tables[0])
        for name in dict.fromkeys(name for table in tables for name in table):
            rows = [table[name] for table in tables if name in table]
            same = len(rows) == len(tables) and len({row["record_hash"] for row in rows}) == 1
            hashes = (own[name]["embed_hash"], own[name]["record_hash"]) if same else ("", "")
            found[rows[0]["document_id"]].append(StoredChunk(name, *hashes))
        return found

    async def stored_vectors(self, tenant: str, embed_hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Vectors of the tenant by embed_hash."""
        pair = await self._indices.look()
        if pair is None:
            return {}
        index = next(filter(self._indices.is_own, pair.written), pair.current)
        found: dict[str, tuple[float, ...]] = {}
        wanted = list(dict.fromkeys(embed_hashes))
        for start in range(0, len(wanted), VECTORS):
            some = wanted[start : start + VECTORS]
            filters = [{"term": {"tenant": tenant}}, {"terms": {"embed_hash": some}}, {"exists": {"field": "vector"}}]
            body = {
                "size": len(some),
                "query": {"bool": {"filter": filters}},
                "collapse": {"field": "embed_hash"},
                "_source": ["embed_hash", "vector"],
            }
            answer = await documents.search(self._client, index.name, body)
            sources = [hit["_source"] for hit in answer["hits"]["hits"]]
            # The engine keeps float32 and writes the shortest decimals of it.
            found.update((source["embed_hash"], tuple(array("f", source["vector"]))) for source in sources)
        return found

    async def write(self, tenant: str, upserts: Sequence[Record], delete_ids: Sequence[str]) -> list[WriteFailure]:
        """Bulk requests of bounded size, one outcome an item, then one refresh; the same to every written index."""

        async def write_to(index: Described) -> list[WriteFailure]:
            own = upserts if self._indices.is_own(index) else [without_vector(record) for record in upserts]
            refused = refusals(tenant, own, index.dimension)
            actions = [documents.upsert(record) for record in own if record.id not in refused]
            actions += [documents.removal(tenant, name) for name in delete_ids if is_unicode(name)]
            failures = [*refused.values(), *await documents.bulk_all(self._client, index.name, actions)]
            if actions:
                await documents.refresh(self._client, index.name)
            return failures

        try:
            outcomes = await self._indices.on_all(write_to, brings_vectors=True)
        except IndexAbsent:
            if self._indices.known:
                raise
            raise BackendError(UNKNOWN_MODEL) from None
        return list({failure.id: failure for failures in outcomes for failure in failures}.values())

    async def document(self, document_id: str, visibility: Visibility) -> StoredDocument | None:
        """The visible chunks of a document, with the permissions of those."""
        if sees_nothing(visibility) or not is_unicode(document_id):
            return None
        filters = [*visible(visibility), {"term": {"document_id": document_id}}]
        rows = await self._rows(filters, [*PASSAGE_FIELDS, "document_title", "source", "allowed_roles", "allowed_subjects"])
        if not rows:
            return None
        first = rows[0]
        return StoredDocument(
            document_id,
            first["document_title"],
            first["language"],
            first["category"],
            tuple(first["tags"]),
            first["source"],
            union(row["allowed_roles"] for row in rows),
            union(row["allowed_subjects"] for row in rows),
            tuple(map(passage, rows)),
        )

    async def permissions(self, tenant: str, document_id: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Who may see any chunk of a document."""
        rows = await self._rows(_of_document(tenant, document_id), ["allowed_roles", "allowed_subjects"])
        if not rows:
            return None
        return union(row["allowed_roles"] for row in rows), union(row["allowed_subjects"] for row in rows)

    async def delete_document(self, tenant: str, document_id: str) -> int:
        """Remove a document by query inside the tenant, from every written index."""
        filters = _of_document(tenant, document_id)
        try:
            return max(await self._indices.on_all(lambda index: documents.delete_by_query(self._client, index.name, filters)))
        except IndexAbsent:
            if self._indices.known:
                raise
            return 0

    async def document_ids(self, tenant: str, source: str) -> set[str]:
        """The documents of a source."""
        try:
            return await documents.document_ids(self._client, self._alias, [{"term": {"tenant": tenant}}, {"term": {"source": source}}])
        except IndexAbsent:
            return set()

    async def statistics(self, tenant: str | None) -> Statistics:
        """What the index behind the alias holds."""
        pair = await self._indices.look()
        if pair is None:
            return Statistics(None, None, ())
        check(pair.current, self._alias, None, None, self._compounds)
        filters = [] if tenant is None else [{"term": {"tenant": tenant}}]
        sources = await documents.sources(self._client, self._alias, filters)
        return Statistics(fingerprint_of(pair.current), pair.current.dimension, tuple(sources))

    async def _rows(self, filters: list[Json], fields: list[str]) -> list[Json]:
        try:
            return [row async for row in documents.scan(self._client, self._alias, filters, fields)]
        except IndexAbsent:
            return []


def _shard_ms(ends_at: float) -> int:
    """What each shard may take, in milliseconds."""
    return max(1, int((ends_at - monotonic()) * SHARD_SHARE * 1000))


def _of_document(tenant: str, document_id: str) -> list[Json]:
    return [{"term": {"tenant": tenant}}, {"term": {"document_id": document_id}}]
