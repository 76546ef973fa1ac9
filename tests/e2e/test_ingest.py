"""`knowledge ingest` as a process: killed at any moment and run again, it leaves the index of one clean run."""

import json
import shutil
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from examples.demo.services import clean_environment
from knowledge.adapters.analysis import ANALYZERS
from knowledge.adapters.embedded_schema import LINKS, connect
from tests.e2e.conftest import CORPUS, Stack

pytestmark = pytest.mark.models

COMMAND = ("knowledge", "ingest", "--allowed-roles", "reader", "--source", "files", "--prune")


def contents(path: Path) -> dict[str, object]:
    """Everything that the file holds, down to the terms of the full-text tables, whatever the order of its rows."""
    columns = "id, tenant, document_id, chunk_key, ordinal, source, embed_hash, record_hash, title, content, allowed_roles, metadata"
    with closing(connect(path, busy_timeout_s=5, writer=True)) as connection:
        found: dict[str, object] = {
            "passages": sorted(connection.execute(f"SELECT {columns} FROM passages")),  # noqa: S608 - names of this file
            "vectors": sorted(connection.execute("SELECT id, vector FROM vectors JOIN passages ON key = passage")),
        }
        for name in LINKS:
            rows = connection.execute(f"SELECT value, id FROM passage_{name} JOIN passages ON key = passage")  # noqa: S608 - as above
            found[name] = sorted(rows)
        for name in ANALYZERS:
            connection.execute(f"CREATE VIRTUAL TABLE temp.terms_{name} USING fts5vocab(main, text_{name}, instance)")
            rows = connection.execute(f"SELECT term, id, offset FROM temp.terms_{name} JOIN passages ON key = doc")  # noqa: S608 - as above
            found[f"terms {name}"] = sorted(rows)
    assert found["passages"]
    assert found["terms de"]
    return found


@pytest.mark.parametrize("after_s", [0.8, 1.6, 2.6])
def test_killed_and_run_again_equals_one_clean_run(stack: Stack, tmp_path: Path, after_s: float) -> None:
    """Kill -9 while it works, then the same command: the same rows as an undisturbed run."""
    clean, killed = tmp_path / "clean.db", tmp_path / "killed.db"
    done = stack.command(*COMMAND, str(CORPUS), EMBEDDED_PATH=str(clean))
    assert done.returncode == 0, done.stdout + done.stderr
    env = clean_environment({**stack.settings, "EMBEDDED_PATH": str(killed)})
    process = subprocess.Popen([*COMMAND, str(CORPUS)], env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)  # the moment is the test's parameter: no clock can be passed into a process that is to be killed
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    again = stack.command(*COMMAND, str(CORPUS), EMBEDDED_PATH=str(killed))
    assert again.returncode == 0, again.stdout + again.stderr
    assert contents(killed) == contents(clean)
    third = stack.command(*COMMAND, str(CORPUS), EMBEDDED_PATH=str(killed))
    assert "0 chunks written, 0 embedded, 0 deleted" in third.stdout


def test_what_cannot_be_taken_is_reported_and_the_rest_goes_in(stack: Stack, tmp_path: Path) -> None:
    """A file that does not parse, a chunk without text and a duplicate id are listed; status 1; everything else is in."""
    corpus = tmp_path / "corpus"
    shutil.copytree(CORPUS / "licht", corpus / "licht")
    (corpus / "broken.yaml").write_text("title: [unclosed\n", encoding="utf-8")
    (corpus / "aliases.yaml").write_text("a: &a [x]\nb: *a\n", encoding="utf-8")
    chunks = [{"id": "a", "content": "Gut."}, {"id": "b", "content": "  "}, {"id": "a", "content": "Noch einmal."}]
    (corpus / "mixed.yaml").write_text(json.dumps({"title": "Gemischt", "chunks": chunks}), encoding="utf-8")
    (corpus / "lines.jsonl").write_text(
        '{"id": "one", "content": "Eins."}\nnot json\n{"id": "one", "content": "Zwei."}\n', encoding="utf-8"
    )
    (corpus / "note.md").write_text("# Notiz\n\nEin Absatz.\n", encoding="utf-8")
    (corpus / "plain.txt").write_text("Nur Text.", encoding="utf-8")
    rejects = tmp_path / "rejects.jsonl"
    done = stack.command(*COMMAND, str(corpus), "--rejects", str(rejects), EMBEDDED_PATH=str(tmp_path / "k.db"))
    assert done.returncode == 1
    places = sorted(json.loads(line)["place"] for line in rejects.read_text(encoding="utf-8").splitlines())
    assert places == [
        "aliases.yaml",
        "broken.yaml",
        "lines.jsonl line 2",
        "lines.jsonl line 3",
        "mixed.yaml chunk 2",
        "mixed.yaml chunk 3",
    ]
    licht = sum(1 for _ in (CORPUS / "licht").glob("*.yaml"))
    assert f"{licht + 4} documents" in done.stdout
    assert "nothing pruned" in done.stdout


def test_documents_that_left_the_folder_are_pruned(stack: Stack, tmp_path: Path) -> None:
    """--prune deletes what is absent, once nothing was rejected, and only of this source."""
    corpus, path = tmp_path / "corpus", str(tmp_path / "k.db")
    corpus.mkdir()
    for name in ("one", "two"):
        (corpus / f"{name}.txt").write_text(f"Text {name}.", encoding="utf-8")
    other = stack.command("knowledge", "ingest", str(corpus), "--source", "other", "--allowed-roles", "reader", EMBEDDED_PATH=path)
    assert other.returncode == 0
    (corpus / "three.txt").write_text("Text three.", encoding="utf-8")
    stack.command(*COMMAND, str(corpus), EMBEDDED_PATH=path)
    (corpus / "three.txt").unlink()
    done = stack.command(*COMMAND, str(corpus), EMBEDDED_PATH=path)
    assert "pruned 1 documents" in done.stdout
