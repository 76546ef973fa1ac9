"""What only the embedded backend has: a file that survives `kill -9`, threads that end in time, other programs' files."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from opentelemetry.trace import NoOpTracer

from knowledge.adapters.embedded import EmbeddedBackend
from knowledge.adapters.embedded_schema import APPLICATION_ID, connect
from knowledge.errors import BackendError, IndexMismatch
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, Asked, lexical, record, seen_by, vector

WRITER = """
import asyncio, sys
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, EmbeddedPlace, record
from pathlib import Path

async def main():
    backend = EmbeddedPlace(Path(sys.argv[1])).connect()
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    version = 0
    while True:
        version += 1
        chunks = [record(f"c{index}", f"fassung{version} wort", document_id="d", record_hash=str(version)) for index in range(20)]
        await backend.write(TENANT, chunks, [])
        print(version, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file will be; its folder is not there yet."""
    return tmp_path / "state" / "index.db"


@pytest.fixture
async def backend(path: Path) -> AsyncIterator[EmbeddedBackend]:
    """An opened backend."""
    opened = EmbeddedBackend(path, tracer=NoOpTracer(), threads=2)
    await opened.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    yield opened
    await opened.aclose()


def test_a_killed_writer_leaves_whole_documents(tmp_path: Path) -> None:
    """Whenever it is killed: what it acknowledged is there, what it did not is there as a whole or not at all."""
    for round_ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(3 + round_):
                writer.stdout.readline()
            time.sleep(0.003 * round_)
            os.kill(writer.pid, signal.SIGKILL)
            acknowledged = [int(line) for line in writer.stdout.read().split()]
        last = max(acknowledged, default=3 + round_)
        connection = connect(tmp_path / "index.db", busy_timeout_s=5, writer=True)
        (versions,) = connection.execute("SELECT group_concat(DISTINCT record_hash) FROM passages")
        assert int(versions[0]) in (last, last + 1)
        assert connection.execute("SELECT count(*) FROM passages").get == 20
        assert connection.execute("SELECT count(*) FROM text_de WHERE text_de MATCH ?", (f'"fassung{versions[0]}"',)).get == 20
        assert connection.execute("SELECT count(*) FROM vectors").get == 20
        assert connection.pragma("integrity_check") == "ok"
        assert connection.execute("PRAGMA foreign_key_check").get is None
        connection.close()


async def test_many_may_make_the_file_at_once(tmp_path: Path) -> None:
    """None finds half a file, none is turned away, and nothing is left beside it."""
    for round_ in range(15):
        path = tmp_path / str(round_) / "index.db"
        backends = [EmbeddedBackend(path, tracer=NoOpTracer(), threads=1) for _ in range(6)]
        await asyncio.gather(*(one.open(fingerprint=FINGERPRINT, dimension=DIMENSION) for one in backends))
        await asyncio.gather(*(one.write(TENANT, [record(str(index))], []) for index, one in enumerate(backends)))
        assert await Asked(backends[0]).ids(lexical("text")) == [str(index) for index in range(6)]
        for one in backends:
            await one.aclose()
        assert list(path.parent.iterdir()) == [path]


async def test_the_file_is_its_owners_alone(backend: EmbeddedBackend, path: Path) -> None:
    """It holds every passage and who may see it; so do the files beside it."""
    await backend.write(TENANT, [record("a")], [])
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


async def test_a_reader_cannot_write(backend: EmbeddedBackend, path: Path) -> None:
    """A search has no way to change anything."""
    connection = connect(path, busy_timeout_s=1, writer=False)
    with pytest.raises(apsw.ReadOnlyError):
        connection.execute("DELETE FROM passages")
    connection.close()
    assert await backend.ready()


async def test_legs_that_were_in_time_stay(backend: EmbeddedBackend) -> None:
    """The time-out takes the leg that it interrupts and those after it, never those before it."""
    await backend.write(TENANT, [record(f"p{index}", f"wort w{index % 7}") for index in range(1000)], [])
    queries = [lexical("w3"), *([vector("wort", size=1)] * 40_000)]
    started = time.monotonic()
    results = await backend.msearch(queries, 8.0)
    assert time.monotonic() - started < 12
    assert len(results) == len(queries)
    assert len(results[0].hits) == 50
    assert results[-1].failed
    assert results[-1].timed_out
    failed = [result.failed for result in results]
    assert failed == sorted(failed)
    assert len(await Asked(backend).hits(vector("wort"))) == 50


async def test_a_cancelled_search_frees_its_thread(backend: EmbeddedBackend) -> None:
    """With both threads busy for callers that went away, the next search still answers soon."""
    await backend.write(TENANT, [record(f"p{index}", "wort") for index in range(1000)], [])
    tasks = [asyncio.create_task(backend.msearch([vector("wort")] * 20_000, 60)) for _ in range(4)]
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    started = time.monotonic()
    assert len(await Asked(backend).hits(lexical("wort"))) == 50
    assert time.monotonic() - started < 5
    assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*tasks, return_exceptions=True))


async def test_a_search_that_never_got_a_thread_is_late(backend: EmbeddedBackend) -> None:
    """It is an error within its time, not a wait."""
    await backend.write(TENANT, [record(f"p{index}", "wort") for index in range(1000)], [])
    tasks = [asyncio.create_task(backend.msearch([vector("wort")] * 20_000, 3)) for _ in range(2)]
    await asyncio.sleep(0.05)
    with pytest.raises(BackendError, match="late"):
        await backend.msearch([lexical("wort")], 0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_searching_does_not_block_the_loop(backend: EmbeddedBackend) -> None:
    """Other requests go on while threads search."""
    await backend.write(TENANT, [record(f"p{index}", "wort") for index in range(1000)], [])
    search = asyncio.create_task(backend.msearch([vector("wort")] * 200, 30))
    turns = 0
    while not search.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 5
    assert not any(result.failed for result in search.result())


async def test_one_search_sees_one_state(backend: EmbeddedBackend) -> None:
    """A passage that is rewritten meanwhile never shows its old text on one leg and its new one on another."""
    before, after = record("a", "alt gleich"), record("a", "neu gleich")
    await backend.write(TENANT, [before], [])

    async def rewrite() -> None:
        for round_ in range(40):
            await backend.write(TENANT, [after if round_ % 2 == 0 else before], [])

    rewriting = asyncio.create_task(rewrite())
    while not rewriting.done():
        results = await backend.msearch([lexical("gleich"), *([vector("alt gleich")] * 20), lexical("gleich")], 10)
        assert len({hit.passage.content for result in results for hit in result.hits}) == 1
    await rewriting


async def test_a_busy_file_is_an_error_that_says_so(path: Path) -> None:
    """A writer of another process is waited for, not for ever; searches never wait."""
    backend = EmbeddedBackend(path, tracer=NoOpTracer(), busy_timeout_s=0.1)
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.write(TENANT, [record("a", "wort")], [])
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BackendError, match="another process"):
        await backend.write(TENANT, [record("b", "wort")], [])
    assert await Asked(backend).ids(lexical("wort")) == ["a"]
    other.execute("ROLLBACK")
    other.close()
    assert await backend.write(TENANT, [record("b", "wort")], []) == []
    await backend.aclose()


async def test_a_failed_write_leaves_everything_as_it_was(backend: EmbeddedBackend, path: Path) -> None:
    """What fails in the middle of a transaction takes all of it back."""
    await backend.write(TENANT, [record("a", "alt")], [])
    breaker = apsw.Connection(str(path))
    breaker.execute("CREATE TRIGGER broken BEFORE INSERT ON vectors BEGIN SELECT RAISE(ABORT, 'geheim'); END")
    with pytest.raises(BackendError) as caught:
        await backend.write(TENANT, [record("b", "neu"), record("a", "neu")], ["a"])
    assert "geheim" not in str(caught.value)
    breaker.execute("DROP TRIGGER broken")
    breaker.close()
    assert await Asked(backend).ids(lexical("alt neu")) == ["a"]
    assert await backend.write(TENANT, [record("b", "neu")], []) == []


async def test_files_of_others_are_left_alone(path: Path) -> None:
    """A foreign database, a file that is none, a folder: each stops the start with a sentence, and nothing is changed."""
    path.parent.mkdir()
    foreign = apsw.Connection(str(path))
    foreign.execute("CREATE TABLE bills (amount)")
    foreign.close()
    text = path.with_name("notes.txt")
    text.write_text("No database at all, but long enough to be looked at. " * 50)
    for file, error in ((path, IndexMismatch), (text, IndexMismatch), (path.parent, BackendError)):
        before = file.read_bytes() if file.is_file() else b""
        backend = EmbeddedBackend(file, tracer=NoOpTracer())
        with pytest.raises(error, match="index"):
            await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
        assert not await backend.ready()
        await backend.aclose()
        assert (file.read_bytes() if file.is_file() else b"") == before


async def test_a_file_of_another_release_is_turned_away(backend: EmbeddedBackend, path: Path) -> None:
    """Schema or text analysis of another version: both versions and two ways out are named."""
    connection = connect(path, busy_timeout_s=1, writer=True)
    assert connection.pragma("application_id") == APPLICATION_ID
    connection.execute("UPDATE meta SET value = 99 WHERE name = 'analysis'")
    connection.close()
    other = EmbeddedBackend(path, tracer=NoOpTracer())
    with pytest.raises(IndexMismatch, match=r"text analysis 99.* or start the release"):
        await other.open(fingerprint=None, dimension=None)
    await other.aclose()
    assert not await backend.ready()


async def test_before_open_and_after_close_it_says_so(path: Path) -> None:
    """No traceback of SQLite, and readiness raises nothing."""
    backend = EmbeddedBackend(path, tracer=NoOpTracer())
    assert not await backend.ready()
    with pytest.raises(BackendError):
        await backend.msearch([lexical("x")], 1)
    await backend.open(fingerprint=None, dimension=None)
    await backend.aclose()
    await backend.aclose()
    assert not await backend.ready()
    with pytest.raises(BackendError, match="closed"):
        await backend.document("d", seen_by("reader"))
