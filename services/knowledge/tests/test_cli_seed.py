"""`knowledge seed`: which examples come in, for whom, and what it refuses; and what the examples must hold to be of use."""

import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from knowledge.cli import app
from knowledge.cli.seed import repository_examples
from knowledge.ingest.documents import DocumentInput
from knowledge.ingest.sources import find_files, read_file
from services.knowledge.tests.fakes import FakeBackend, FakeEmbedder

DEVELOPMENT = {"KNOWLEDGE_ENV": "development"}
NAMES = ("houseplants", "insurance", "facts")


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """One command; what it raised by mistake fails the test."""
    result = CliRunner().invoke(app, ["seed", *arguments], env=DEVELOPMENT if env is None else env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def documents(name: str) -> list[DocumentInput]:
    """The documents of an example, every one of them valid."""
    root = repository_examples() / name / "corpus"
    found = [item for path in find_files(root) for _, item in read_file(path, root)]
    assert all(isinstance(one, DocumentInput) for one in found)
    return [one for one in found if isinstance(one, DocumentInput)]


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> FakeEmbedder:
    """The embedding-service."""
    fake = FakeEmbedder()
    monkeypatch.setattr(sys.modules["knowledge.cli.ingest"], "new_embedder", lambda *_: fake)
    return fake


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBackend:
    """The index; the command runs in an empty folder."""
    fake = FakeBackend()
    monkeypatch.setattr(sys.modules["knowledge.cli.ingest"], "new_backend", lambda *_: fake)
    monkeypatch.chdir(tmp_path)
    return fake


class TestSeed:
    """The command."""

    @pytest.mark.parametrize(
        ("name", "roles"),
        [
            ("houseplants", {("reader",): 105}),
            ("insurance", {("adjuster", "underwriter"): 34, ("adjuster",): 18, ("underwriter",): 8}),
            (
                "facts",
                {
                    ("companion", f"{kind}-{language}"): count
                    for language in ("de", "en", "es")
                    for kind, count in (("person", 5), ("entity", 6))
                },
            ),
        ],
    )
    def test_an_example_comes_in_with_its_roles_and_source(
        self, backend: FakeBackend, name: str, roles: dict[tuple[str, ...], int]
    ) -> None:
        """All of it, in the development tenant, under its name as the source, visible to whom it is meant for."""
        result = run(name)
        assert result.exit_code == 0, result.output
        found = list(backend.records.values())
        assert {(one.tenant, one.source) for one in found} == {("default", name)}
        assert Counter(one.allowed_roles for one in found) == roles
        assert list(Path.cwd().iterdir()) == []

    @pytest.mark.parametrize("name", NAMES)
    def test_two_searches_to_copy(self, name: str) -> None:
        """Each on a line of its own that a shell takes apart as meant, with a role that sees something."""
        lines = run(name).stdout.split("Try:\n")[1].splitlines()
        known = {role for one in documents(name) for role in one.allowed_roles} or {"reader"}
        assert len(lines) == 2
        for line in lines:
            program, command, question, option, role = shlex.split(line)
            assert (program, command, option) == ("knowledge", "search", "--role")
            assert question
            assert role in known

    def test_a_second_run_does_nothing(self, embedder: FakeEmbedder) -> None:
        """Nothing is embedded or written twice."""
        run("facts")
        before = len(embedder.texts)
        assert "0 chunks written, 0 embedded, 0 deleted" in run("facts").stdout
        assert len(embedder.texts) == before

    def test_it_deletes_nothing(self, backend: FakeBackend) -> None:
        """Examples stand beside each other, and beside what was there."""
        for name in NAMES:
            run(name)
        assert Counter(one.source for one in backend.records.values()) == {"houseplants": 105, "insurance": 60, "facts": 33}

    @pytest.mark.parametrize("env", [{}, {"KNOWLEDGE_ENV": "production"}])
    def test_it_refuses_in_production(self, backend: FakeBackend, env: dict[str, str]) -> None:
        """One sentence with both ways out, status 2, nothing written."""
        result = run("insurance", env=env)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "KNOWLEDGE_ENV=development" in result.stderr
        assert "knowledge ingest" in result.stderr
        assert backend.writes == []

    def test_examples_that_are_not_there_are_one_sentence(self, backend: FakeBackend, tmp_path: Path) -> None:
        """With the folder that was looked for and the option that names another."""
        result = run("insurance", "--examples", str(tmp_path / "nowhere"))
        assert (result.exit_code, result.stdout) == (1, "")
        assert str(tmp_path / "nowhere" / "insurance") in result.stderr
        assert "--examples" in result.stderr
        assert backend.writes == []

    def test_a_folder_of_ones_own(self, backend: FakeBackend, tmp_path: Path) -> None:
        """--examples takes another folder of the same form."""
        corpus = tmp_path / "mine" / "facts" / "corpus"
        corpus.mkdir(parents=True)
        (corpus / "a.md").write_text("# A\n\nWasser.")
        result = run("facts", "--examples", str(tmp_path / "mine"))
        assert result.exit_code == 0, result.output
        assert [one.document_id for one in backend.records.values()] == ["a"]

    def test_what_cannot_be_taken_is_status_one(self, tmp_path: Path) -> None:
        """As with `knowledge ingest`: shown, and no searches offered."""
        corpus = tmp_path / "mine" / "facts" / "corpus"
        corpus.mkdir(parents=True)
        (corpus / "a.yaml").write_text("chunks: [")
        result = run("facts", "--examples", str(tmp_path / "mine"))
        assert (result.exit_code, "rejected: a.yaml" in result.stdout, "Try:" in result.stdout) == (1, True, False)

    def test_an_unknown_example_is_a_usage_error(self) -> None:
        """That lists the known ones."""
        result = run("recipes")
        assert result.exit_code == 2
        assert all(name in result.stderr for name in NAMES)

    def test_a_dead_embedding_service_is_one_sentence(self, embedder: FakeEmbedder) -> None:
        """The one of `knowledge ingest`."""
        embedder.down = True
        result = run("facts")
        assert (result.exit_code, "EMBEDDING_URL" in result.stderr) == (1, True)


class TestExamples:
    """What the examples must hold to be of use."""

    def test_insurance_is_about_60_records_of_300_to_900_characters(self) -> None:
        """As the page on the examples says."""
        lengths = [len(chunk["content"].strip()) for one in documents("insurance") for chunk in one.chunks or []]
        assert len(lengths) == 60
        assert (min(lengths) >= 300, max(lengths) <= 900) == (True, True)

    def test_insurance_has_its_near_misses(self) -> None:
        """Numbers that differ by one digit, by their order, or by their length, each with a reason for its premium."""
        titles = [chunk["title"] for one in documents("insurance") for chunk in one.chunks or [] if one.category == "premiums"]
        for number in ("POL-55012", "POL-55021", "POL-55102", "POL-5501", "POL-56012"):
            assert sum(f"on {number} " in title for title in titles) == 1
        text = "\n".join(chunk["content"] for one in documents("insurance") for chunk in one.chunks or [])
        assert all(number in text for number in ("CLM-2024-0118", "CLM-2024-0181", "CLM-2024-1018", "CLM-2023-0118"))

    def test_facts_are_the_same_in_three_languages(self) -> None:
        """The same keys in the same order, the scope as category and as metadata."""
        found = {(one.language, one.category): [chunk["id"] for chunk in one.chunks or []] for one in documents("facts")}
        assert set(found) == {(language, scope) for language in ("de", "en", "es") for scope in ("person", "entity")}
        for scope in ("person", "entity"):
            assert found["de", scope] == found["en", scope] == found["es", scope]
        assert all(chunk["metadata"] == {"scope": one.category} for one in documents("facts") for chunk in one.chunks or [])

    def test_the_page_on_the_examples_names_each(self) -> None:
        """docs/examples.md keeps up with the command."""
        page = (repository_examples().parent / "docs" / "examples.md").read_text(encoding="utf-8")
        assert [name for name in NAMES if f"knowledge seed {name}" not in page] == []
