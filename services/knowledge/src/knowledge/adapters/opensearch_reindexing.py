"""Two indices that are brought to hold the same, and the swap of the alias from one to the other."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from opensearchpy import AsyncOpenSearch

from knowledge.adapters import opensearch_documents as documents
from knowledge.adapters.compounds import NO_COMPOUND_WORDS, CompoundWords
from knowledge.adapters.opensearch_client import translated
from knowledge.adapters.opensearch_indices import Indices, Pair, TwinState, fingerprint_of
from knowledge.adapters.opensearch_mapping import Described, check, index_body, index_name
from knowledge.adapters.opensearch_queries import Json, search_body
from knowledge.adapters.stored import NOT_EMBEDDED
from knowledge.errors import BackendError, IndexMismatch
from knowledge.models import Difference, IndexFacts, LegQuery, Record

LISTED = 5_000
"""Chunks of a listing in one request: ids, hashes and versions, no text."""

FETCHED = 200
"""Chunks fetched with text and vector in one request: about 2 MB of JSON."""

NAMES = 100
SEARCH_MS = 30_000
HEALTHY_S = 60
RECOVERED_S = 20
CONFLICT = "refused: 409 "


@dataclass(frozen=True, slots=True)
class _Listed:
    """A chunk as a listing shows it."""

    id: str
    key: str
    record_hash: str
    embed_hash: str
    version: tuple[int, int]


class OpenSearchReindexing:
    """`knowledge.ports.Reindexing` on a cluster.

    Args:
        client: belongs to this object from now on.
        alias: the name that is searched.
        replicas: copies of a new index beside the first; None for one where there is a second node.
        compounds: parts of German compounds, for a new index.
        shards: parts of a new index.
    """

    def __init__(
        self,
        client: AsyncOpenSearch,
        alias: str,
        *,
        replicas: int | None = None,
        compounds: CompoundWords = NO_COMPOUND_WORDS,
        shards: int = 1,
    ) -> None:
        self._client = client
        self._alias = alias
        self._replicas = replicas
        self._shards = shards
        self._compounds = compounds
        self._indices = Indices(client, alias, replicas, compounds, shards)

    async def begin(self, fingerprint: str, dimension: int) -> "OpenSearchPair":
        """An index of this release's mapping beside the one behind the alias, marked so that every writer writes to both."""
        pair = await self._pair()
        if pair.state is TwinState.KEPT and pair.twin is not None:
            raise BackendError(
                f"The index before this one, {pair.twin.name}, is still kept for a rollback. `knowledge retire` deletes it, "
                "`knowledge rollback` goes back to it."
            )
        if pair.twin is not None:
            try:
                check(pair.twin, self._alias, fingerprint, dimension, self._compounds)
            except IndexMismatch:
                message = f"The index {pair.twin.name} was begun for another embedding model or release. "
                raise BackendError(message + "`knowledge retire` deletes it; or go on with what it was begun with.") from None
            if not await self._is_lost(pair.twin.name):
                return OpenSearchPair(self._client, self._alias, self._indices, pair.current, pair.twin)
            # Half built, its only copy gone with a node: nothing of it is needed, and writes wait for it.
            await self.retire()
        name = await self._create(fingerprint, dimension)
        await self._indices.mark(pair.current, name, TwinState.BUILDING)
        marked = await self._pair()
        if marked.twin is None or marked.twin.name != name:
            raise BackendError("Another reindex was begun at the same moment; run `knowledge reindex` again to join it.")
        return OpenSearchPair(self._client, self._alias, self._indices, marked.current, marked.twin)

    async def _is_lost(self, name: str) -> bool:
        """Whether an index has a part without any copy that could be read, and gets none within `RECOVERED_S`."""
        with translated():
            wait = {"wait_for_status": "yellow", "timeout": f"{RECOVERED_S}s", "ignore": 408}
            health = await self._client.cluster.health(index=name, params={**wait, "request_timeout": RECOVERED_S + 5})
            return bool(health["status"] == "red")

    async def _create(self, fingerprint: str, dimension: int) -> str:
        first = index_name(self._alias, fingerprint, dimension, self._compounds)
        body = index_body(None, fingerprint, dimension, self._replicas, self._compounds, self._shards)
        for name in (first, *(f"{first}-{number}" for number in range(2, NAMES))):
            if await self._indices.create(name, body):
                return name
        raise BackendError(f"There are {NAMES} indices called {first}-..., all of this model and mapping. Delete those that nobody needs.")

    async def previous(self) -> "OpenSearchPair":
        """The index behind the alias, and the kept one to go back to."""
        pair = await self._pair()
        if pair.twin is None or pair.state is not TwinState.KEPT:
            raise BackendError(f"No index before {pair.current.name} is kept, so there is nothing to go back to.")
        return OpenSearchPair(self._client, self._alias, self._indices, pair.current, pair.twin)

    async def retire(self) -> str | None:
        """Take the mark away, then delete: in this order no writer waits for an index that is gone."""
        pair = await self._pair()
        if pair.twin is None:
            return None
        await self._indices.mark(pair.current, None, None)
        with translated():
            await self._client.indices.delete(index=pair.twin.name)
        return pair.twin.name

    async def _pair(self) -> Pair:
        pair = await self._indices.look()
        if pair is None:
            raise BackendError(f"There is no index behind {self._alias}. `knowledge ingest` makes one; or correct OPENSEARCH_INDEX.")
        return pair

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class OpenSearchPair:
    """`knowledge.ports.IndexPair` on two indices of one cluster."""

    def __init__(self, client: AsyncOpenSearch, alias: str, indices: Indices, source: Described, target: Described) -> None:
        self._client = client
        self._alias = alias
        self._indices = indices
        self._source = source
        self._target = target
        self.source = IndexFacts(source.name, fingerprint_of(source), source.dimension)
        self.target = IndexFacts(target.name, fingerprint_of(target), target.dimension)

    async def counts(self) -> tuple[int, int]:
        """Chunks that can be searched."""
        await self._refresh()
        with translated():
            source, target = [await self._client.count(index=one.name) for one in (self.source, self.target)]
            return int(source["count"]), int(target["count"])

    async def _refresh(self) -> None:
        for one in (self.source, self.target):
            await documents.refresh(self._client, one.name)

    async def differences(self) -> AsyncIterator[Sequence[Difference]]:
        """Both listings side by side, in the order of the chunk ids."""
        await self._refresh()
        batch: list[Difference] = []
        async for ours, theirs in _merged(self._listing(self.source.name), self._listing(self.target.name)):
            if found := self._difference(ours, theirs):
                batch.append(found)
            if len(batch) == FETCHED:
                yield batch
                batch = []
        if batch:
            yield batch

    def _difference(self, ours: _Listed | None, theirs: _Listed | None) -> Difference | None:
        same = ours is not None and theirs is not None and ours.record_hash == theirs.record_hash
        if same and theirs is not None and theirs.embed_hash != NOT_EMBEDDED:
            return None
        one = ours or theirs
        return Difference(one.key, ours is not None, theirs.version if theirs else None) if one else None

    async def _listing(self, index: str) -> AsyncIterator[_Listed]:
        body: Json = {
            "size": LISTED,
            "_source": False,
            "docvalue_fields": ["id", "record_hash", "embed_hash"],
            "seq_no_primary_term": True,
            "sort": [{"id": "asc"}],
            "track_total_hits": False,
        }
        while True:
            hits = (await documents.search(self._client, index, body))["hits"]["hits"]
            for hit in hits:
                (chunk_id,), (record_hash,), (embed_hash,) = (hit["fields"][name] for name in body["docvalue_fields"])
                yield _Listed(chunk_id, hit["_id"], record_hash, embed_hash, (hit["_seq_no"], hit["_primary_term"]))
            if len(hits) < LISTED:
                return
            body["search_after"] = hits[-1]["sort"]

    async def recheck(self, keys: Sequence[str]) -> list[Difference]:
        """By key, not by search: what a writer has just written counts."""
        fields = ["id", "record_hash", "embed_hash"]
        found: list[Difference] = []
        for start in range(0, len(keys), LISTED):
            some = keys[start : start + LISTED]
            # The target first: what it has then must not be older than the version that is read with it.
            target, source = [await self._get(one.name, some, fields) for one in (self.target, self.source)]
            for key in some:
                difference = self._difference(_listed(source.get(key)), _listed(target.get(key)))
                found += [difference] if difference else []
        return found

    async def _get(self, index: str, keys: Sequence[str], fields: list[str] | None) -> dict[str, Json]:
        with translated():
            options = {"_source_includes": ",".join(fields)} if fields else {}
            answer = await self._client.mget(index=index, body={"ids": list(keys)}, params=options)
            errors = [one["error"] for one in answer["docs"] if "error" in one]
            if errors:
                raise BackendError("OpenSearch could not read all of the index; try again.")
            return {one["_id"]: one for one in answer["docs"] if one["found"]}

    async def records(self, keys: Sequence[str]) -> dict[str, Record]:
        """The chunks as they are in the source, vectors included."""
        found: dict[str, Record] = {}
        for start in range(0, len(keys), FETCHED):
            docs = await self._get(self.source.name, keys[start : start + FETCHED], None)
            with translated():
                found.update((key, documents.record_of(doc["_source"])) for key, doc in docs.items())
        return found

    async def write_target(self, changes: Sequence[tuple[Difference, Record | None]]) -> None:
        """In bulk, each on condition that the target still has what the difference was seen with."""
        actions = [documents.conditional(one.key, record, one.target_version) for one, record in changes if record or one.target_version]
        for batch in documents.batches(actions):
            failures = [one for one in await documents.bulk(self._client, self.target.name, batch) if not one.reason.startswith(CONFLICT)]
            if failures:
                raise BackendError(f"{self.target.name} refused {len(failures)} chunks; the first: {failures[0].reason}.")

    async def sample(self, size: int) -> list[tuple[Record, Record]]:
        """Drawn by the source; those that the target has too."""
        query = {"function_score": {"random_score": {"seed": secrets.randbelow(2**31), "field": "_seq_no"}}}
        answer = await documents.search(self._client, self.source.name, {"size": size, "query": query})
        ours = {hit["_id"]: hit["_source"] for hit in answer["hits"]["hits"]}
        theirs = await self._get(self.target.name, list(ours), None) if ours else {}
        with translated():
            return [
                (documents.record_of(source), documents.record_of(theirs[key]["_source"])) for key, source in ours.items() if key in theirs
            ]

    async def search(self, facts: IndexFacts, query: LegQuery) -> list[str]:
        """As the gateway would search that index."""
        body = search_body(query, SEARCH_MS)
        if body is None:
            return []
        return [hit["_source"]["id"] for hit in (await documents.search(self._client, facts.name, body))["hits"]["hits"]]

    async def swap(self) -> None:
        """Name the source as what is kept, wait until every started copy of the target is whole, then move the alias in one step."""
        pair = await self._indices.look()
        if pair is None or [one.name for one in pair.written] != [self.source.name, self.target.name]:
            raise BackendError(f"The indices behind {self._alias} were changed by somebody else; nothing was swapped.")
        await self._indices.mark(self._target, self.source.name, TwinState.KEPT)
        await self._refresh()
        with translated():
            wait = {"wait_for_status": "yellow", "wait_for_no_initializing_shards": "true", "timeout": f"{HEALTHY_S}s"}
            health = await self._client.cluster.health(index=self.target.name, params={**wait, "request_timeout": HEALTHY_S + 5})
            if health["timed_out"]:
                raise BackendError(f"{self.target.name} is not ready to be searched after {HEALTHY_S} s; look at the cluster's health.")
            remove = {"remove": {"index": self.source.name, "alias": self._alias, "must_exist": True}}
            add = {"add": {"index": self.target.name, "alias": self._alias}}
            await self._client.indices.update_aliases(body={"actions": [remove, add]})


def _listed(doc: dict[str, Any] | None) -> _Listed | None:
    if doc is None:
        return None
    source = doc["_source"]
    return _Listed(source["id"], doc["_id"], source["record_hash"], source["embed_hash"], (doc["_seq_no"], doc["_primary_term"]))


async def _merged(source: AsyncIterator[_Listed], target: AsyncIterator[_Listed]) -> AsyncIterator[tuple[_Listed | None, _Listed | None]]:
    """Two listings in the order of ids as one, with None where one of them lacks an id."""
    ours, theirs = await anext(source, None), await anext(target, None)
    while ours is not None or theirs is not None:
        if theirs is None or (ours is not None and ours.id < theirs.id):
            yield ours, None
            ours = await anext(source, None)
        elif ours is None or theirs.id < ours.id:
            yield None, theirs
            theirs = await anext(target, None)
        else:
            yield ours, theirs
            ours, theirs = await asyncio.gather(anext(source, None), anext(target, None))
