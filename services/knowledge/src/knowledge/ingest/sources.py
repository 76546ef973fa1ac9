"""Reads a folder: YAML chunk files, JSONL, Markdown, text, HTML, PDF. Never fetches anything; one bad file never stops the rest."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from knowledge.ingest.documents import MAX_TITLE_CHARS, DocumentInput, Reject, Unreadable, validation_reason
from knowledge.ingest.headings import first_heading
from knowledge.ingest.html import read_html
from knowledge.ingest.pdf import read_pdf
from servicekit.hygiene import clean_text

MAX_FILE_BYTES = 64 * 1024 * 1024
MARKDOWN, HTML, PDF = (".md", ".markdown"), (".html", ".htm"), (".pdf",)
SUFFIXES = (".yaml", ".yml", ".jsonl", ".ndjson", *MARKDOWN, ".txt", *HTML, *PDF)
DOCUMENT_FIELDS = frozenset(DocumentInput.model_fields) - {"markdown"}
FRONT_MATTER_FIELDS = DOCUMENT_FIELDS - {"id", "content", "chunks"}
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)

Item = tuple[str, DocumentInput | Reject]
"""(place, what was found there)."""


class _NoAliases(yaml.SafeLoader):
    """The safe loader without aliases: a small file must not unfold into a large one."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)


def find_files(root: Path) -> list[Path]:
    """The files of a folder that can be read, in a stable order. Hidden ones and links that lead out of it are left out."""
    inside = root.resolve()
    return sorted(
        path
        for path in root.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
        and path.is_file()
        and path.resolve().is_relative_to(inside)
    )


def read_file(path: Path, root: Path) -> Iterator[Item]:
    """The documents of one file, and what of it cannot be taken."""
    place = path.relative_to(root).as_posix()
    name = path.relative_to(root).with_suffix("").as_posix()
    kind = path.suffix.lower()
    lines, chunk_file = kind in (".jsonl", ".ndjson"), kind in (".yaml", ".yml")
    # Lines and chunk files name their documents inside: what cannot be read there could be any document.
    named = None if lines or chunk_file else name
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            yield place, Reject(place, f"larger than the limit of {MAX_FILE_BYTES} bytes", named)
            return
        if kind in HTML + PDF:
            yield place, _page(path.read_bytes(), place, name, pdf=kind in PDF)
            return
        text = path.read_text(encoding="utf-8-sig")
    except Unreadable as error:
        yield place, Reject(place, str(error), named)
        return
    except (OSError, UnicodeDecodeError) as error:
        yield place, Reject(place, f"cannot be read as UTF-8 text ({type(error).__name__})", named)
        return
    if lines:
        yield from _lines(text, place)
    elif chunk_file:
        yield place, _yaml(text, place, name)
    else:
        yield place, _text(text, place, name, markdown=kind in MARKDOWN)


def _lines(text: str, place: str) -> Iterator[Item]:
    for number, line in enumerate(text.split("\n"), start=1):  # other line ends may stand inside a string
        if not line.strip():
            continue
        where = f"{place} line {number}"
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError):
            yield where, Reject(where, "not valid JSON")
            continue
        yield where, to_document(raw, where)


def _yaml(text: str, place: str, name: str) -> DocumentInput | Reject:
    raw = _load(text, place)
    if isinstance(raw, Reject):
        return raw
    if not isinstance(raw, dict):
        return Reject(place, "not a mapping with chunks")
    return to_document({"id": name, **_fields(raw)}, place)


def _load(text: str, place: str) -> Any | Reject:
    try:
        return yaml.load(text, Loader=_NoAliases)  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}" if mark is not None else ""
        return Reject(place, f"not valid YAML{at}")


def _fields(raw: dict[Any, Any], own: frozenset[str] = DOCUMENT_FIELDS) -> dict[str, Any]:
    """Keys that are no field of a document are its metadata: nothing an author wrote is lost."""
    fields = {str(key): value for key, value in raw.items()}
    found = {key: value for key, value in fields.items() if key in own}
    extra = {key: value for key, value in fields.items() if key not in own}
    found["metadata"] = {**extra, **(found.get("metadata") or {})}
    return found


def _text(text: str, place: str, name: str, *, markdown: bool) -> DocumentInput | Reject:
    fields: dict[str, Any] = {}
    title = Path(name).name
    if markdown and (front := _FRONT_MATTER.match(text)):
        # What cannot be read could have held permissions: it is a reject, never a document with those of the command line.
        raw = _load(front[1], place)
        if isinstance(raw, Reject):
            return Reject(place, f"front matter: {raw.reason}", name)
        if isinstance(raw, dict):
            fields, text = _fields(raw, FRONT_MATTER_FIELDS), text[front.end() :]
    if markdown:
        title = first_heading(text)[:MAX_TITLE_CHARS] or title
    found = to_document({"id": name, "title": title, **fields, "content": text, "markdown": markdown}, place)
    return replace(found, document_id=name) if isinstance(found, Reject) else found


def _page(raw: bytes, place: str, name: str, *, pdf: bool) -> DocumentInput | Reject:
    """HTML, which becomes Markdown, or a PDF. Its own title and language win over the file's name and the command line."""
    found = read_pdf(raw) if pdf else read_html(raw)
    if not pdf and "title" not in found:
        found["title"] = first_heading(found["content"])
    found["title"] = (found.get("title") or Path(name).name)[:MAX_TITLE_CHARS]
    return to_document({"id": name, **found, "markdown": not pdf}, place)


def to_document(raw: Any, place: str) -> DocumentInput | Reject:
    """Validate one document; the reject names fields and limits, never values."""
    try:
        return DocumentInput.model_validate(raw)
    except ValidationError as error:
        given = raw.get("id") if isinstance(raw, dict) else None
        # As the document would have been named: pruning compares with it.
        name = clean_text(given).strip() if isinstance(given, str) else None
        return Reject(place, validation_reason(error), name or None)
