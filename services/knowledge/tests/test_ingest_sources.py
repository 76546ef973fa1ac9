"""Reading a folder: which files, which documents, and what is said of those that cannot be taken."""

import json
from pathlib import Path
from typing import Any

import pytest

from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.sources import find_files, read_file, to_document

MARKER = "Zwiebelkuchen"


def read(folder: Path, name: str, content: str | bytes) -> list[tuple[str, DocumentInput | Reject]]:
    """The items of one file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_file(path, folder))


def document(folder: Path, name: str, content: str) -> DocumentInput:
    """The one document of a file."""
    [(_, found)] = read(folder, name, content)
    assert isinstance(found, DocumentInput), found
    return found


def reject(folder: Path, name: str, content: str | bytes) -> Reject:
    """The one reject of a file; it repeats nothing of the file."""
    [(place, found)] = read(folder, name, content)
    assert isinstance(found, Reject), found
    assert found.place == place
    assert MARKER not in found.reason
    return found


def test_files_are_found_in_a_stable_order(tmp_path: Path) -> None:
    """Known endings in any case, in folders below; hidden ones and others are left out."""
    for name in ("b.md", "a.YAML", "sub/c.txt", "sub/d.jsonl", ".hidden.md", ".git/e.md", "f.png", "g.yml", "h.ndjson"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [path.relative_to(tmp_path).as_posix() for path in find_files(tmp_path)] == [
        "a.YAML",
        "b.md",
        "g.yml",
        "h.ndjson",
        "sub/c.txt",
        "sub/d.jsonl",
    ]


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    """A folder can only bring in what is inside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text("secret")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "link.md").symlink_to(tmp_path / "outside" / "secret.md")
    (folder / "linked").symlink_to(tmp_path / "outside")
    (folder / "own.md").write_text("x")
    assert [path.name for path in find_files(folder)] == ["own.md"]


def test_a_folder_inside_a_hidden_folder_can_be_read(tmp_path: Path) -> None:
    """What is hidden counts below the folder that was named, not above it."""
    folder = tmp_path / ".cache" / "docs"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("x")
    assert len(find_files(folder)) == 1


def test_markdown_takes_its_title_from_the_first_heading(tmp_path: Path) -> None:
    """The id is the path without its ending; without a heading the name is the title."""
    found = document(tmp_path, "sub/gießen.md", "Vorwort\n\n# Gießen\n\nWasser.\n\n# Zweites\n")
    assert (found.id, found.title, found.markdown) == ("sub/gießen", "Gießen", True)
    assert document(tmp_path, "leer.md", "Wasser.").title == "leer"


def test_front_matter_of_markdown_is_what_it_says(tmp_path: Path) -> None:
    """Title, permissions and the like; other keys are metadata, an id among them: the path is the id. Its lines are no text."""
    text = "---\ntitle: Gießen\nlanguage: de\nallowed_roles: [board]\nid: x\nautor: Ada\n---\n\n# Kopf\n\nWasser.\n"
    found = document(tmp_path, "a.md", text)
    assert (found.id, found.title, found.language, found.allowed_roles) == ("a", "Gießen", "de", ["board"])
    assert (found.metadata, found.content.strip()) == ({"id": "x", "autor": "Ada"}, "# Kopf\n\nWasser.")
    assert document(tmp_path, "b.md", "---\r\nautor: Ada\r\n---\r\n# Kopf\r\n\r\nWasser.").title == "Kopf"


@pytest.mark.parametrize("front", [f"allowed_roles: [{MARKER}", "allowed_roles: board", "a: &a [1]\nb: *a"])
def test_front_matter_that_cannot_be_read_is_a_reject(tmp_path: Path, front: str) -> None:
    """It could have held permissions; the document is known, so that others can be pruned."""
    assert reject(tmp_path, "a.md", f"---\n{front}\n---\nWasser.").document_id == "a"


@pytest.mark.parametrize("text", ["---\nnur Text\n---\nWasser.", "---\nWasser.", "Wasser.\n---\ntitle: x\n---\n", "---\n---\nWasser."])
def test_rules_in_markdown_are_no_front_matter(tmp_path: Path, text: str) -> None:
    """Only a mapping at the very beginning is."""
    assert document(tmp_path, "a.md", text).content == text


def test_plain_text_is_a_document(tmp_path: Path) -> None:
    """With a byte order mark or without."""
    found = document(tmp_path, "notiz.txt", "\ufeffWasser.")
    assert (found.id, found.title, found.content, found.markdown) == ("notiz", "notiz", "Wasser.", False)


def test_yaml_chunk_files(tmp_path: Path) -> None:
    """Keys that are no field of a document become metadata; an id of its own wins over the path."""
    found = document(
        tmp_path, "a/b.yaml", "title: T\nlanguage: de\nautor: Ada\nmetadata: {x: 1}\nchunks:\n  - id: c\n    content: Wasser\n"
    )
    assert (found.id, found.title, found.metadata) == ("a/b", "T", {"autor": "Ada", "x": 1})
    assert found.chunks == [{"id": "c", "content": "Wasser"}]
    assert document(tmp_path, "a/c.yaml", "id: own\nchunks: [{content: x}]").id == "own"


@pytest.mark.parametrize(
    "content",
    [
        f"title: {MARKER}\nchunks: [",
        f"- {MARKER}",
        MARKER,
        "",
        "a: &x [1]\nb: *x\n",
        "chunks: &a [{content: x}]\nmetadata: {again: *a}",
        "!!python/object/apply:os.system [echo]",
        "a: !unknown x",
        "x: " + "[" * 5000,
        "key: [1, 2\nother: 3",
        "\t- tabs",
        "? [a, b]\n: c",
    ],
    ids=range(12),
)
def test_yaml_that_cannot_be_taken_is_a_reject(tmp_path: Path, content: str) -> None:
    """Broken, with aliases, with tags, no mapping, too deep: a reject with the place and no error."""
    found = reject(tmp_path, "broken.yaml", content)
    assert found.place == "broken.yaml"


def test_a_small_yaml_file_cannot_unfold_into_a_large_one(tmp_path: Path) -> None:
    """A billion laughs end at the first alias."""
    layers = ["a0: &a0 [lol, lol, lol, lol]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 30)]
    assert "YAML" in reject(tmp_path, "laughs.yaml", "\n".join(layers)).reason


def test_a_yaml_error_names_the_line(tmp_path: Path) -> None:
    """So that the author finds it."""
    assert "line 2" in reject(tmp_path, "x.yaml", "title: ok\n\tchunks: x\n").reason


@pytest.mark.parametrize(
    "extra",
    [
        "stand: 2024-01-01",
        "stand: 2024-01-01T10:00:00Z",
        "wert: .nan",
        "wert: .inf",
        "bytes: !!binary aGFsbG8=",
        "menge: !!set {a, b}",
        "m: {1: a, b: c}",
        "5: fünf",
    ],
)
def test_yaml_values_that_json_does_not_know_are_kept_or_rejected_but_never_an_error(tmp_path: Path, extra: str) -> None:
    """Dates, sets, bytes, NaN and keys that are no strings: metadata is what JSON can hold, or the document is a reject."""
    [(_, found)] = read(tmp_path, "x.yaml", f"{extra}\nchunks: [{{content: x}}]")
    if isinstance(found, DocumentInput):
        assert json.dumps(found.metadata, allow_nan=False, sort_keys=True)


def test_an_unquoted_date_in_a_yaml_file_does_not_lose_the_document(tmp_path: Path) -> None:
    """Authors write dates without quotes: the date is kept as its ISO text."""
    found = document(tmp_path, "x.yaml", "stand: 2024-01-31\nchunks: [{content: x}]")
    assert found.metadata == {"stand": "2024-01-31"}


def test_jsonl_takes_each_line_by_itself(tmp_path: Path) -> None:
    """One bad line is a reject with its number; blank lines are nothing."""
    lines = [json.dumps({"id": "a", "content": "x"}), "", f"{{{MARKER}", "[1]", json.dumps({"id": "b"}), json.dumps({"content": "x"})]
    items = read(tmp_path, "x.jsonl", "\n".join(lines))
    assert [place for place, _ in items] == ["x.jsonl line 1", "x.jsonl line 3", "x.jsonl line 4", "x.jsonl line 5", "x.jsonl line 6"]
    kinds = [type(found).__name__ for _, found in items]
    assert kinds == ["DocumentInput", "Reject", "Reject", "DocumentInput", "Reject"]
    assert MARKER not in str(items)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_jsonl_lines_end_at_line_feeds_only(tmp_path: Path, separator: str) -> None:
    """Other separators are text inside a JSON string (the controls among them come escaped)."""
    raw = json.dumps({"id": "a", "content": f"eins{separator}zwei"}, ensure_ascii=False)
    items = read(tmp_path, "x.jsonl", raw + "\r\n" + raw.replace('"a"', '"b"'))
    assert [type(found).__name__ for _, found in items] == ["DocumentInput", "DocumentInput"]


@pytest.mark.parametrize(
    ("raw", "expected"), [({"id": "a", "nope": 1}, "a"), ({"nope": 1}, None), ({"id": 5, "content": "x"}, None), ([], None), (None, None)]
)
def test_a_reject_names_the_document_where_it_could_be_read(raw: Any, expected: str | None) -> None:
    """What could be anything is None: then nothing may be pruned."""
    found = to_document(raw, "place")
    assert isinstance(found, Reject)
    assert found.document_id == expected


@pytest.mark.parametrize("given", ["", "   ", "\x00"])
def test_an_id_that_is_none_is_unknown_in_the_reject(given: str) -> None:
    """A blank id names no document: it could be anything."""
    found = to_document({"id": given, "content": "x"}, "place")
    assert isinstance(found, Reject)
    assert found.document_id is None


@pytest.mark.parametrize("given", [" a ", "a\x00", "\ta"])
def test_the_id_in_a_reject_is_the_one_that_the_document_would_have(given: str) -> None:
    """Trimmed and cleaned like an accepted one, or pruning would not recognise it."""
    accepted, rejected = to_document({"id": given, "content": "x"}, "p"), to_document({"id": given, "nope": 1}, "p")
    assert isinstance(accepted, DocumentInput)
    assert isinstance(rejected, Reject)
    assert rejected.document_id == accepted.id == "a"


@pytest.mark.parametrize(("name", "known"), [("x.txt", "x"), ("x.md", "x"), ("x.jsonl", None)])
def test_a_file_that_is_not_utf8_is_a_reject(tmp_path: Path, name: str, known: str | None) -> None:
    """Whose id is known only where one file is one document with the file's own name."""
    assert reject(tmp_path, name, b"\xff\xfe\x00W").document_id == known


def test_a_yaml_file_that_cannot_be_read_could_hold_any_document(tmp_path: Path) -> None:
    """A chunk file may name its own id, so a broken one explains the absence of any document."""
    assert reject(tmp_path, "x.yaml", "id: own\nchunks: [").document_id is None
    assert reject(tmp_path, "y.yaml", b"\xff\xfe\x00W").document_id is None


def test_a_file_that_is_too_large_is_a_reject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit; it is not read."""
    monkeypatch.setattr("knowledge.ingest.sources.MAX_FILE_BYTES", 10)
    assert "10 bytes" in reject(tmp_path, "x.txt", "x" * 11).reason


def test_a_file_that_may_not_be_read_is_a_reject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unreadable file stops no other."""

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "PermissionError" in reject(tmp_path, "x.txt", "x").reason
