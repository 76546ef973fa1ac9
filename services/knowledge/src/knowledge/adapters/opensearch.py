"""The OpenSearch search backend: one `_msearch` a search, an alias in front of the index, `_bulk` for writing."""

import asyncio
from array import array
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from opensearchpy.exceptions import ConnectionError as Unreachable
from opensearchpy.exceptions import ConnectionTimeout, RequestError
from opentelemetry.trace import Tracer
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random

from knowledge.adapters import opensearch_documents as documents
from knowledge.adapters import opensearch_examination as examination
from knowledge.adapters.opensearch_client import IndexAbsent, connect, translated
from knowledge.adapters.opensearch_mapping import Described, check, index_body, index_name
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
from knowledge.adapters.stored import UNKNOWN_MODEL, is_unicode, refusals, sees_nothing, union
from knowledge.errors import BackendError, IndexMismatch
from knowledge.models import Finding, LegQuery, LegResult, Record, Statistics, StoredChunk, StoredDocument, Visibility, WriteFailure

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
        pool_size: connections at most; each search takes one.
        replicas: copies of the index beside the first, when the gateway creates it; None for one where there is a second node.
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
        pool_size: int = 32,
        replicas: int | None = None,
    ) -> None:
        self._client = connect(url, username=username, password=password, ca_file=ca_file, pool_size=pool_size)
        self._alias = alias
        self._tracer = tracer
        self._replicas = replicas
        self._index: Described | None = None
        self._expected: tuple[str | None, int | None] = (None, None)

    async def msearch(self, queries: Sequence[LegQuery], timeout_s: float) -> list[LegResult]:
        """All legs in one round trip. A body that can find nothing is not sent."""
        ends_at = monotonic() + timeout_s
        bodies = [search_body(query, max(1, int(timeout_s * SHARD_SHARE * 1000))) for query in queries]
        sent = [(query, body) for query, body in zip(queries, bodies, strict=True) if body is not None]
        if not sent:
            return [LegResult() for _ in queries]
        with search_span(self._tracer, "opensearch", self._alias, len(sent)) as span:
            lines = [line for query, body in sent for line in (search_header(query), body)]
            with translated():
                items = (await self._ask(lines, ends_at, span.trace_id))["responses"]
                found = iter([self._result(query, item) for (query, _), item in zip(sent, items, strict=True)])
            results = [LegResult() if body is None else next(found) for body in bodies]
            span.legs(results)
            return results

    async def _ask(self, lines: list[Json], ends_at: float, trace_id: str) -> dict[str, Any]:
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
                    body=lines, index=self._alias, params={"request_timeout": left}, headers={"X-Opaque-Id": trace_id}
                )
        return answer

    def _result(self, query: LegQuery, item: dict[str, Any]) -> LegResult:
        # An index that was never there is empty; one that was there and is gone is a failure.
        return LegResult() if self._index is None and is_absent(item) else leg_result(query, item)

    async def ready(self) -> bool:
        """Whether the cluster answers, and the index, once seen, is there and fits."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                found = await self._describe()
            if found is None:
                return self._index is None
            check(found, self._alias, *self._expected)
        except (BackendError, TimeoutError):
            return False
        self._index = found
        return True

    async def examine(self) -> list[Finding]:
        """The cluster and the index behind the alias."""
        return await examination.examine(self._client, self._alias)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def open(self, *, fingerprint: str | None, dimension: int | None) -> None:
        """Create index and alias together, or check them."""
        found = await self._describe()
        if found is None and fingerprint is not None and dimension is not None:
            await self._create(fingerprint, dimension)
            found = await self._describe()
            if found is None:
                name = index_name(self._alias, fingerprint, dimension)
                raise IndexMismatch(
                    f"The index {name} is there, but the alias {self._alias} is not. Put the alias on it, or delete the index."
                )
        if found is not None:
            check(found, self._alias, fingerprint, dimension)
            self._index = found
        if fingerprint is not None:
            self._expected = (fingerprint, dimension)

    async def _describe(self) -> Described | None:
        """The index behind the alias; None if there is none."""
        with translated():
            # An absent index is no failure that the client should log.
            found = await self._client.indices.get_mapping(index=self._alias, params={"ignore": 404})
            if is_absent(found):
                return None
            indices = [Described(name, one["mappings"]) for name, one in sorted(found.items())]
        if self._alias in found:
            raise IndexMismatch(
                f"{self._alias} is an index and must be an alias, so that an index can be replaced. "
                "Name another alias in OPENSEARCH_INDEX, or delete that index."
            )
        if len(indices) > 1:
            names = ", ".join(one.name for one in indices)
            raise IndexMismatch(f"The alias {self._alias} points to several indices ({names}). Take it off all but one of them.")
        return indices[0] if indices else None

    async def _create(self, fingerprint: str, dimension: int) -> None:
        name = index_name(self._alias, fingerprint, dimension)
        with translated():
            try:
                await self._client.indices.create(index=name, body=index_body(self._alias, fingerprint, dimension, self._replicas))
            except RequestError as error:
                # Another replica was quicker: its index came together with the alias.
                if error.error != "resource_already_exists_exception":
                    raise

    async def stored_chunks(self, tenant: str, document_id: str) -> list[StoredChunk]:
        """The chunks of a document."""
        rows = await self._rows(_of_document(tenant, document_id), ["id", "embed_hash", "record_hash"])
        return [StoredChunk(row["id"], row["embed_hash"], row["record_hash"]) for row in rows]

    async def stored_vectors(self, tenant: str, embed_hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Vectors of the tenant by embed_hash."""
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
            try:
                answer = await documents.search(self._client, self._alias, body)
            except IndexAbsent:
                return {}
            sources = [hit["_source"] for hit in answer["hits"]["hits"]]
            # The engine keeps float32 and writes the shortest decimals of it.
            found.update((source["embed_hash"], tuple(array("f", source["vector"]))) for source in sources)
        return found

    async def write(self, tenant: str, upserts: Sequence[Record], delete_ids: Sequence[str]) -> list[WriteFailure]:
        """Bulk requests of bounded size, one outcome an item, then one refresh."""
        if self._index is None:
            self._index = await self._describe()
        if self._index is None:
            raise BackendError(UNKNOWN_MODEL)
        refused = refusals(tenant, upserts, self._index.dimension)
        actions = [documents.upsert(record) for record in upserts if record.id not in refused]
        actions += [documents.removal(tenant, name) for name in delete_ids if is_unicode(name)]
        failures = list(refused.values())
        for batch in documents.batches(actions):
            failures += await documents.bulk(self._client, self._alias, batch)
        if actions:
            await documents.refresh(self._client, self._alias)
        return failures

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
        """Remove a document by query inside the tenant."""
        try:
            return await documents.delete_by_query(self._client, self._alias, _of_document(tenant, document_id))
        except IndexAbsent:
            return 0

    async def document_ids(self, tenant: str, source: str) -> set[str]:
        """The documents of a source."""
        try:
            return await documents.document_ids(self._client, self._alias, [{"term": {"tenant": tenant}}, {"term": {"source": source}}])
        except IndexAbsent:
            return set()

    async def statistics(self, tenant: str | None) -> Statistics:
        """What the index behind the alias holds."""
        found = await self._describe()
        if found is None:
            return Statistics(None, None, ())
        check(found, self._alias, None, None)
        filters = [] if tenant is None else [{"term": {"tenant": tenant}}]
        sources = await documents.sources(self._client, self._alias, filters)
        return Statistics(str(found.meta.get("fingerprint")), found.dimension, tuple(sources))

    async def _rows(self, filters: list[Json], fields: list[str]) -> list[Json]:
        try:
            return [row async for row in documents.scan(self._client, self._alias, filters, fields)]
        except IndexAbsent:
            return []


def _of_document(tenant: str, document_id: str) -> list[Json]:
    return [{"term": {"tenant": tenant}}, {"term": {"document_id": document_id}}]
