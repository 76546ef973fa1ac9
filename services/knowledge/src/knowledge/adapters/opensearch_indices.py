"""Which index is searched and which are written: the one behind the alias, and its twin while that is built beside or kept for rollback.

The index behind the alias names its twin in `_meta`, so that one look at the alias tells a process both. Whoever writes looks before and
after (`on_all`): what is acknowledged is in every index that could be searched or swapped in by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Any, TypeVar

from opensearchpy import AsyncOpenSearch
from opensearchpy.exceptions import RequestError

from knowledge.adapters.compounds import NO_COMPOUND_WORDS, CompoundWords
from knowledge.adapters.opensearch_client import IndexAbsent, translated
from knowledge.adapters.opensearch_mapping import META, Described, check, index_body, index_name
from knowledge.adapters.opensearch_queries import is_absent
from knowledge.adapters.opensearch_template import index_template, put_template
from knowledge.errors import BackendError, IndexMismatch

T = TypeVar("T")

LOOK_AGAIN_S = 5.0
"""After this a search has the alias looked at again, beside it: so long a process may go on with the twin after a swap."""

LOOKS = 10
TWIN = "twin"


class TwinState(StrEnum):
    """What the other index is for. Only a kept one is whole, and may be searched."""

    BUILDING = "building"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Pair:
    """The index behind the alias, and its twin."""

    current: Described
    twin: Described | None = None
    state: TwinState | None = None

    @property
    def written(self) -> tuple[Described, ...]:
        """Every write goes to these, in this order."""
        return (self.current,) if self.twin is None else (self.current, self.twin)

    @property
    def searchable(self) -> tuple[Described, ...]:
        """Each of these holds everything."""
        return self.written if self.state is TwinState.KEPT else (self.current,)


def fingerprint_of(index: Described) -> str:
    """The embedding model that an index was made for."""
    return str(index.meta.get("fingerprint"))


class Indices:
    """The indices behind one alias, as last seen by this process."""

    def __init__(
        self, client: AsyncOpenSearch, alias: str, replicas: int | None, compounds: CompoundWords = NO_COMPOUND_WORDS, shards: int = 1
    ) -> None:
        self._client = client
        self._compounds = compounds
        self._alias = alias
        self._replicas = replicas
        self._shards = shards
        self._seen: tuple[Described, ...] = ()
        self._seen_at = 0.0
        self._mismatch: IndexMismatch | None = None
        self.known = False
        """Whether an index was ever seen: one that was never there is empty, one that is gone is a failure."""
        self._looking: asyncio.Task[None] | None = None
        self.expected: tuple[str | None, int | None] = (None, None)
        """Fingerprint and dimension of this process's embedding model, where it is known."""

    async def open(self, fingerprint: str | None, dimension: int | None) -> None:
        """Create index and alias together, or check that one that holds everything fits; then have the template for such indices."""
        found = await self.look()
        if found is None and fingerprint is not None and dimension is not None:
            await self._create(fingerprint, dimension)
            found = await self.look()
            if found is None:
                name = index_name(self._alias, fingerprint, dimension, self._compounds)
                raise IndexMismatch(
                    f"The index {name} is there, but the alias {self._alias} is not. Put the alias on it, or delete the index."
                )
        if found is not None:
            self._remember(self._fitting(found, fingerprint, dimension))
        if fingerprint is not None:
            self.expected = (fingerprint, dimension)
        if fingerprint is not None and dimension is not None:
            template = index_template(self._alias, fingerprint, dimension, self._replicas, self._compounds, self._shards)
            await put_template(self._client, self._alias, template)

    async def adopt(self) -> bool:
        """Look, and search from now on what fits. False if there is nothing (any more).

        Raises:
            IndexMismatch: none of what holds everything fits: nothing is searched until that changes.
            BackendError: the cluster cannot be reached.
        """
        try:
            found = await self.look()
            fits = self._fitting(found, *self.expected) if found else ()
        except IndexMismatch as error:
            self._seen, self._mismatch = (), error
            raise
        if fits:
            self._remember(fits)
        else:
            self._seen, self._mismatch = (), None
        return bool(fits) or not self.known

    def _remember(self, fits: tuple[Described, ...]) -> None:
        self._seen, self._seen_at, self._mismatch, self.known = fits, monotonic(), None, True

    def _fitting(self, pair: Pair, fingerprint: str | None, dimension: int | None) -> tuple[Described, ...]:
        """What may be searched, that of this process's embedding model first. Raises the mismatch of the index behind the alias."""
        fits: list[Described] = []
        for index in pair.searchable:
            with suppress(IndexMismatch):
                check(index, self._alias, fingerprint, dimension, self._compounds)
                fits.append(index)
        if not fits:
            check(pair.current, self._alias, fingerprint, dimension, self._compounds)
        # Whoever meets the other embedding model for a moment finds its index too: the mapping alone must fit for that.
        for index in pair.searchable:
            with suppress(IndexMismatch):
                check(index, self._alias, None, None, self._compounds)
                fits.extend(() if index in fits else (index,))
        return tuple(fits)

    def searched(self, fingerprint: str) -> Described | None:
        """The index for vectors of this model, of none for words alone; None where no index was seen yet.

        After a change of the embedding model this is what keeps both spaces apart: the vectors choose the index.

        Raises:
            IndexMismatch: what was there last does not fit.
        """
        if self.known and monotonic() - self._seen_at > LOOK_AGAIN_S and self._looking is None:
            self._looking = asyncio.create_task(self._look_again())
        if self._mismatch is not None:
            raise IndexMismatch(str(self._mismatch))
        wanted = (index for index in self._seen if not fingerprint or fingerprint_of(index) == fingerprint)
        return next(wanted, self._seen[0] if self._seen else None)

    async def _look_again(self) -> None:
        try:
            with suppress(BackendError):  # the searches themselves say that the cluster is gone
                await self.adopt()
        finally:
            self._looking, self._seen_at = None, monotonic()

    async def aclose(self) -> None:
        """End a look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    def is_own(self, index: Described) -> bool:
        """Whether vectors of this process's embedding model belong into the index."""
        own = self.expected[0] or (fingerprint_of(self._seen[0]) if self._seen else None)
        return own in (None, fingerprint_of(index))

    async def on_all(self, work: Callable[[Described], Awaitable[T]], *, brings_vectors: bool = False) -> list[T]:
        """Do it on the index behind the alias, then on its twin, and look again: a twin that came meanwhile gets it too.

        Raises:
            IndexAbsent: there is none, or it vanished meanwhile.
            IndexMismatch: `brings_vectors`, and none of them was made for this process's embedding model.
        """
        done: dict[str, T] = {}
        failed: dict[str, BackendError] = {}
        for _ in range(LOOKS):
            pair = await self.look()
            if pair is None:
                raise IndexAbsent("There is no index behind the alias.")
            if brings_vectors and not any(map(self.is_own, pair.written)):
                check(pair.current, self._alias, *self.expected, self._compounds)
            for index in pair.written:
                if index.name in failed:
                    raise failed[index.name]
            waiting = [index for index in pair.written if index.name not in done]
            if not waiting:
                return [done[index.name] for index in pair.written]
            for index in waiting:
                try:
                    done[index.name] = await work(index)
                except BackendError as error:
                    # If it was retired meanwhile, the next look says so, and nobody needs it.
                    failed[index.name] = error
        raise BackendError("The indices behind the alias changed all the time; try again.")

    async def look(self) -> Pair | None:
        """The indices as they are now; None if there is no alias.

        Raises:
            IndexMismatch: an index in the alias's place, or an alias on several.
            BackendError: the cluster cannot be reached.
        """
        found = await self._mappings(self._alias)
        if not found:
            return None
        if self._alias in found:
            raise IndexMismatch(
                f"{self._alias} is an index and must be an alias, so that an index can be replaced. "
                "Name another alias in OPENSEARCH_INDEX, or delete that index."
            )
        if len(found) > 1:
            names = ", ".join(sorted(found))
            raise IndexMismatch(f"The alias {self._alias} points to several indices ({names}). Take it off all but one of them.")
        (current,) = found.values()
        marker = current.meta.get(TWIN)
        if not marker:
            return Pair(current)
        with translated():
            name, state = str(marker["index"]), TwinState(marker["state"])
        # A twin that somebody deleted is none.
        twin = (await self._mappings(name)).get(name)
        return Pair(current, twin, state) if twin else Pair(current)

    async def _mappings(self, name: str) -> dict[str, Described]:
        with translated():
            # An absent index is no failure that the client should log.
            found: dict[str, Any] = await self._client.indices.get_mapping(index=name, params={"ignore": 404})
            if is_absent(found):
                return {}
            return {one: Described(one, described["mappings"]) for one, described in found.items()}

    async def _create(self, fingerprint: str, dimension: int) -> None:
        name = index_name(self._alias, fingerprint, dimension, self._compounds)
        # Where another replica was quicker its index came together with the alias.
        body = index_body(self._alias, fingerprint, dimension, self._replicas, self._compounds, self._shards)
        await self.create(name, body)

    async def create(self, name: str, body: dict[str, Any]) -> bool:
        """Whether this process made the index; False if it is there already."""
        with translated():
            try:
                await self._client.indices.create(index=name, body=body)
            except RequestError as error:
                if error.error != "resource_already_exists_exception":
                    raise
                return False
        return True

    async def mark(self, index: Described, twin: str | None, state: TwinState | None) -> None:
        """Name the twin in `_meta` of an index, or take the name out."""
        meta = {key: value for key, value in index.meta.items() if key != TWIN}
        if twin is not None and state is not None:
            meta[TWIN] = {"index": twin, "state": state.value}
        with translated():
            await self._client.indices.put_mapping(index=index.name, body={"_meta": {META: meta}})
