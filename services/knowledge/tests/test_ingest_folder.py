"""A folder as a source: permissions of the command line, duplicates, pruning, the rejects file."""

import json
from pathlib import Path

import pytest

from knowledge.ingest.documents import Reject
from knowledge.ingest.folder import Defaults, Report, ingest_folder, write_rejects
from knowledge.ingest.ingestor import Ingestor
from services.knowledge.tests.fakes import FakeBackend, FakeEmbedder, record

READERS = Defaults(roles=("reader",))


class Folder:
    """A folder and an index."""

    def __init__(self, root: Path) -> None:
        self.root, self.backend = root / "docs", FakeBackend()
        self.root.mkdir()

    def write(self, **files: str) -> None:
        """Write files; `__` stands for the dot of the ending."""
        for name, content in files.items():
            (self.root / name.replace("__", ".")).write_text(content)

    async def ingest(self, *, prune: bool = False, defaults: Defaults = READERS, source: str = "files", tenant: str = "acme") -> Report:
        """One run of the command."""
        ingestor = Ingestor(self.backend, FakeEmbedder(), text_fields=("title", "content"), info_timeout_s=5.0)
        return await ingest_folder(
            self.root, ingestor=ingestor, store=self.backend, tenant=tenant, source=source, defaults=defaults, prune=prune
        )

    @property
    def documents(self) -> list[str]:
        """The ids in the index."""
        return sorted({one.document_id for one in self.backend.records.values()})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder."""
    return Folder(tmp_path)


async def test_everything_in_a_folder_goes_in(folder: Folder) -> None:
    """One document a text file, one a line, with counts."""
    folder.write(a__md="# A\n\nWasser.", b__txt="Licht.", c__jsonl='{"id": "c1", "content": "x"}\n{"id": "c2", "content": "y"}\n')
    report = await folder.ingest()
    assert folder.documents == ["a", "b", "c1", "c2"]
    assert (report.documents, report.chunks, report.written, report.rejects) == (4, 4, 4, [])


async def test_permissions_of_the_command_are_for_documents_without_their_own(folder: Folder) -> None:
    """Roles and subjects are added together, and never widen what a document names."""
    folder.write(a__txt="Wasser.", b__jsonl='{"id": "own", "content": "x", "allowed_subjects": ["ada"]}')
    await folder.ingest(defaults=Defaults(("reader",), ("bob",)))
    found = {one.document_id: (one.allowed_roles, one.allowed_subjects) for one in folder.backend.records.values()}
    assert found == {"a": (("reader",), ("bob",)), "own": ((), ("ada",))}


async def test_the_language_of_the_command_is_for_documents_that_name_none(folder: Folder) -> None:
    """A document's own language stays; without the option it is undetermined."""
    folder.write(a__txt="Wasser.", b__jsonl='{"id": "own", "content": "x", "language": "en"}')
    await folder.ingest(defaults=Defaults(language="de"))
    assert {one.document_id: one.language for one in folder.backend.records.values()} == {"a": "de", "own": "en"}
    await folder.ingest()
    assert {one.document_id: one.language for one in folder.backend.records.values()} == {"a": "und", "own": "en"}


async def test_documents_that_nobody_sees_are_counted(folder: Folder) -> None:
    """Without permissions they go in, and the report says so."""
    folder.write(a__txt="Wasser.")
    assert (await folder.ingest(defaults=Defaults())).invisible == 1
    assert folder.documents == ["a"]


async def test_a_second_document_of_one_id_is_a_reject(folder: Folder) -> None:
    """The first one stays, across files too."""
    folder.write(a__txt="erster", b__jsonl='{"id": "a", "content": "zweiter"}\n{"id": "b", "content": "x"}\n{"id": "b", "content": "y"}')
    report = await folder.ingest()
    assert [reject.place for reject in report.rejects] == ["b.jsonl line 1", "b.jsonl line 3"]
    assert sorted(one.content for one in folder.backend.records.values()) == ["erster", "x"]


async def test_one_bad_file_stops_no_other(folder: Folder) -> None:
    """The rest goes in and the reject is in the report."""
    folder.write(a__yaml="chunks: [", b__txt="Licht.")
    report = await folder.ingest()
    assert (folder.documents, [reject.place for reject in report.rejects]) == (["b"], ["a.yaml"])


async def test_without_prune_nothing_is_deleted(folder: Folder) -> None:
    """A file that is gone leaves its document where it is."""
    folder.write(a__txt="a", b__txt="b")
    await folder.ingest()
    (folder.root / "a.txt").unlink()
    await folder.ingest()
    assert folder.documents == ["a", "b"]


async def test_prune_deletes_what_is_gone(folder: Folder) -> None:
    """And names it."""
    folder.write(a__txt="a", b__txt="b")
    await folder.ingest()
    (folder.root / "a.txt").unlink()
    assert (await folder.ingest(prune=True)).pruned == ["a"]
    assert folder.documents == ["b"]


async def test_prune_stays_within_source_and_tenant(folder: Folder) -> None:
    """Documents of another source, of the API and of another tenant are not this folder's business."""
    folder.backend.records = {
        "1": record("1", source="api", document_id="api"),
        "2": record("2", source="other", document_id="other"),
        "3": record("3", source="files", tenant="globex", document_id="theirs"),
        "4": record("4", source="files", document_id="gone"),
    }
    folder.write(b__txt="b")
    assert (await folder.ingest(prune=True)).pruned == ["gone"]
    assert folder.documents == ["api", "b", "other", "theirs"]


async def test_prune_spares_a_document_whose_file_became_unreadable(folder: Folder) -> None:
    """Its reject explains its absence; others that are gone still go."""
    folder.write(a__txt="a", b__txt="b", c__txt="c")
    await folder.ingest()
    (folder.root / "a.txt").write_bytes(b"\xff\xfe")
    (folder.root / "b.txt").unlink()
    assert (await folder.ingest(prune=True)).pruned == ["b"]
    assert folder.documents == ["a", "c"]


async def test_prune_is_refused_where_a_reject_could_be_any_document(folder: Folder) -> None:
    """A line that does not parse could be the document that seems to be gone."""
    folder.write(a__jsonl='{"id": "x", "content": "x"}\n{"id": "y", "content": "y"}')
    await folder.ingest()
    folder.write(a__jsonl='{"id": "x", "content": "x"}\n{"id": "y", "content": ')
    report = await folder.ingest(prune=True)
    assert (report.pruned, report.prune_refused) == ([], True)
    assert folder.documents == ["x", "y"]


async def test_prune_spares_a_document_whose_chunk_file_broke(folder: Folder) -> None:
    """A YAML file may name an id of its own: when it breaks, its document must survive."""
    folder.write(a__yaml="id: handbook\nchunks: [{content: Wasser}]", b__txt="b")
    await folder.ingest()
    folder.write(a__yaml="id: handbook\nchunks: [{content: Wasser}")
    await folder.ingest(prune=True)
    assert folder.documents == ["b", "handbook"]


@pytest.mark.parametrize(
    "line",
    [
        '{"id": " x ", "nope": 1}',
        '{"id": "x", "nope": 1}',
        '{"id": "x\\u0000", "content": " "}',
        '{"id": "x", "chunks": []}',
        '{"id": "", "content": "x"}',
        '{"id": "  ", "content": "x"}',
    ],
)
async def test_prune_spares_a_document_whose_line_is_rejected(folder: Folder, line: str) -> None:
    """Whatever is wrong with the line, and however its id is written."""
    folder.write(a__jsonl='{"id": "x", "content": "x"}', b__txt="b")
    await folder.ingest()
    folder.write(a__jsonl=line)
    await folder.ingest(prune=True)
    assert folder.documents == ["b", "x"]


async def test_prune_of_an_empty_folder_is_refused(folder: Folder) -> None:
    """A folder that was not mounted must not empty the index."""
    folder.write(a__txt="a")
    await folder.ingest()
    (folder.root / "a.txt").unlink()
    report = await folder.ingest(prune=True)
    assert (report.pruned, report.prune_refused) == ([], True)
    assert folder.documents == ["a"]


def test_the_rejects_file_holds_one_object_a_line_and_replaces_the_old_one(tmp_path: Path) -> None:
    """Place, reason and ids; an old list never looks like a new one."""
    path = tmp_path / "rejects.jsonl"
    write_rejects([Reject("a.txt", "grund ä", "a", "c"), Reject("b.txt", "x")], path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"place": "a.txt", "reason": "grund ä", "document_id": "a", "chunk_id": "c"}
    assert lines[1]["document_id"] is None
    write_rejects([], path)
    assert path.read_text() == ""
    assert [one.name for one in tmp_path.iterdir()] == ["rejects.jsonl"]


async def test_small_files_share_embedding_calls_and_writes(folder: Folder) -> None:
    """Fifty files: one write."""
    folder.write(**{f"f{number}__txt": f"Text {number}." for number in range(50)})
    report = await folder.ingest()
    assert (report.documents, report.written, len(folder.backend.writes)) == (50, 50, 1)
