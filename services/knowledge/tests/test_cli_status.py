"""`knowledge status`: what is there, and whether it fits."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from opentelemetry.trace import NoOpTracer
from typer.testing import CliRunner

from knowledge.adapters.embedded import EmbeddedBackend
from knowledge.cli import app
from knowledge.cli.status import where
from knowledge.settings import SearchSettings
from services.knowledge.tests.fakes import DIMENSION, FINGERPRINT, FakeEmbedder, record


class Index:
    """An embedded file, and the embedding-service as a fake."""

    def __init__(self, path: Path) -> None:
        self.path, self.embedder = path, FakeEmbedder()

    def fill(self) -> None:
        """Two sources in one tenant, one in another."""

        async def write() -> None:
            backend = EmbeddedBackend(self.path, tracer=NoOpTracer())
            await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
            await backend.write("acme", [record("a"), record("b"), record("c", document_id="doc-b"), record("d", source="[red]api")], [])
            await backend.write("globex", [record("a", tenant="globex")], [])
            await backend.aclose()

        asyncio.run(write())

    def status(self, *arguments: str, **env: str) -> Result:
        """One run of the command."""
        return CliRunner().invoke(app, ["status", *arguments], env={"EMBEDDED_PATH": str(self.path), **env})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Nothing yet; the command runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    found = Index(tmp_path / "knowledge.db")
    monkeypatch.setattr(sys.modules["knowledge.cli.status"], "new_embedder", lambda *_: found.embedder)
    return found


def test_documents_and_chunks_by_tenant_and_source(index: Index) -> None:
    """With the place and the model; names are no markup."""
    index.fill()
    result = index.status()
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["acme", "│", "[red]api", "│", "1", "│", "1"] in lines
    assert ["acme", "│", "files", "│", "2", "│", "3"] in lines
    assert ["globex", "│", "files", "│", "1", "│", "1"] in lines
    assert f"backend: embedded, {index.path}" in result.stdout
    assert f"{FINGERPRINT}, {DIMENSION} dimensions, fits fake" in result.stdout
    assert "rejects" not in result.stdout


def test_one_tenant_only(index: Index) -> None:
    """The others are not named."""
    index.fill()
    result = index.status("--tenant", "globex")
    assert "globex" in result.stdout
    assert "acme" not in result.stdout


def test_everything_as_json(index: Index) -> None:
    """For scripts, with the rejects of the last run where the file is."""
    index.fill()
    Path("rejects.jsonl").write_text('{"place": "a"}\n{"place": "b"}\n')
    found: dict[str, Any] = json.loads(index.status("--json").stdout)
    assert (found["backend"], found["where"], found["model"]["fits"]) == ("embedded", str(index.path), True)
    assert {"tenant": "acme", "source": "files", "documents": 2, "chunks": 3} in found["sources"]
    assert (found["rejects"]["count"], found["rejects"]["file"]) == (2, "rejects.jsonl")
    assert "rejects: 2 in rejects.jsonl, written 20" in index.status().stdout


def test_a_model_that_does_not_fit_is_status_1(index: Index) -> None:
    """Both are named; the counts are shown all the same."""
    index.fill()
    index.embedder.facts["fingerprint"] = "other/2"
    result = index.status()
    assert result.exit_code == 1
    assert "DOES NOT FIT" in result.stdout
    assert "other/2" in result.stdout
    assert "globex" in result.stdout
    assert json.loads(index.status("--json").stdout)["model"]["fits"] is False


def test_without_the_embedding_service_it_is_not_known(index: Index) -> None:
    """No failure: the index can be counted without it."""
    index.fill()
    index.embedder.down = True
    result = index.status()
    assert result.exit_code == 0
    assert "not known" in result.stdout
    assert "does not answer" in result.stdout


def test_without_an_index_nothing_is_indexed_and_nothing_is_made(index: Index) -> None:
    """Looking creates no file."""
    result = index.status()
    assert (result.exit_code, index.path.exists()) == (0, False)
    assert "nothing is indexed" in result.stdout


def test_a_file_that_is_no_index_is_a_sentence(index: Index) -> None:
    """Status 1, no traceback."""
    index.path.write_text("no database at all " * 100)
    result = index.status()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the index cannot be read" in result.stderr


def test_the_place_of_a_cluster_holds_no_password() -> None:
    """Whatever stands in the URL."""
    settings = SearchSettings(search_backend="opensearch", opensearch_url="https://user:secret@search.example:9200")
    assert where(settings) == "https://search.example:9200, alias knowledge"
