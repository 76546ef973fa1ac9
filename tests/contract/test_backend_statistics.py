"""What both backends say of what they hold: by tenant and source, without creating anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.trace import NoOpTracer

from knowledge.adapters.embedded import EmbeddedBackend
from knowledge.errors import BackendError, IndexMismatch
from knowledge.models import SourceStatistics, Statistics
from knowledge.ports import Backend
from tests.contract.places import DIMENSION, FINGERPRINT, EmbeddedPlace, Place, record


async def test_sources_are_counted_by_tenant(backend: Backend) -> None:
    """Documents and chunks, in order; what is removed is no longer counted."""
    chunks = [record(f"c{number}", document_id=f"d{number % 3}", source="files") for number in range(7)]
    await backend.write("acme", [*chunks, record("x", source="api")], [])
    await backend.write("globex", [record("c0", tenant="globex", source="files")], [])
    acme = (SourceStatistics("acme", "api", 1, 1), SourceStatistics("acme", "files", 3, 7))
    globex = SourceStatistics("globex", "files", 1, 1)
    assert await backend.statistics(None) == Statistics(FINGERPRINT, DIMENSION, (*acme, globex))
    assert (await backend.statistics("globex")).sources == (globex,)
    assert (await backend.statistics("nobody")).sources == ()
    await backend.delete_document("acme", "d0")
    assert (await backend.statistics("acme")).sources[1] == SourceStatistics("acme", "files", 2, 4)


async def test_many_sources_are_all_counted(backend: Backend) -> None:
    """More than one page of them."""
    await backend.write("acme", [record(f"c{number}", source=f"s{number:04}") for number in range(600)], [])
    found = (await backend.statistics("acme")).sources
    assert [one.source for one in found] == [f"s{number:04}" for number in range(600)]


async def test_an_empty_index_knows_its_model(backend: Backend) -> None:
    """And has no sources."""
    assert await backend.statistics(None) == Statistics(FINGERPRINT, DIMENSION, ())


async def test_where_there_is_no_index_none_is_made(place: Place) -> None:
    """Looking is not opening: neither a file nor an index appears."""
    looking = place.connect()
    assert await looking.statistics(None) == Statistics(None, None, ())
    await looking.aclose()
    if isinstance(place, EmbeddedPlace):
        assert not place.path.exists()
    else:
        assert place.call("GET", f"_cat/indices/{place.alias}*?format=json") == []


async def test_it_needs_no_open(place: Place, backend: Backend) -> None:
    """A command that only looks does not know the embedding model."""
    await backend.write("acme", [record("a")], [])
    looking = place.connect()
    assert (await looking.statistics(None)).sources == (SourceStatistics("acme", "tests", 1, 1),)
    await looking.aclose()


async def test_a_foreign_file_is_a_sentence(tmp_path: Path) -> None:
    """Not a number, and not a traceback."""
    (tmp_path / "x.db").write_text("no database at all " * 100)
    looking = EmbeddedBackend(tmp_path / "x.db", tracer=NoOpTracer())
    with pytest.raises(IndexMismatch):
        await looking.statistics(None)
    await looking.aclose()
    with pytest.raises(BackendError):
        await looking.statistics(None)
