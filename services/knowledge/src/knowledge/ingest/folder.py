"""`knowledge ingest DIR`: a folder as a source, with progress, pruning and a rejects file."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from knowledge.ingest.documents import UNDETERMINED, DocumentInput, Reject
from knowledge.ingest.ingestor import Ingestor, Outcome
from knowledge.ingest.sources import Item, find_files, read_file
from knowledge.ports import DocumentStore


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the command line says of documents that do not say it themselves."""

    roles: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    language: str = UNDETERMINED

    def fill(self, document: DocumentInput) -> DocumentInput:
        """`document` with these permissions, unless it has its own, and this language, unless it names one."""
        update: dict[str, object] = {}
        if not (document.allowed_roles or document.allowed_subjects):
            update |= {"allowed_roles": list(self.roles), "allowed_subjects": list(self.subjects)}
        if document.language == UNDETERMINED:
            update["language"] = self.language
        return document.model_copy(update=update)


@dataclass(slots=True)
class Report:
    """What a run did."""

    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    written: int = 0
    deleted_chunks: int = 0
    pruned: list[str] = field(default_factory=list)
    prune_refused: bool = False
    invisible: int = 0
    rejects: list[Reject] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one document in."""
        self.documents += 1
        self.chunks += outcome.chunks
        self.embedded += outcome.embedded
        self.written += outcome.written
        self.deleted_chunks += outcome.deleted
        self.rejects.extend(outcome.rejects)


async def ingest_folder(
    root: Path,
    *,
    ingestor: Ingestor,
    store: DocumentStore,
    tenant: str,
    source: str,
    defaults: Defaults,
    prune: bool,
    on_document: Callable[[Outcome], None] = lambda _: None,
    on_file: Callable[[Path], None] = lambda _: None,
) -> Report:
    """Bring in every document under `root`; with `prune` remove those of `source` that are no longer there.

    `on_file` is called in another thread, when a file has been read; `on_document` here, when a document is in.

    Raises:
        EmbeddingError, BackendError: nothing can be done at all.
    """
    report = Report()
    seen: set[str] = set()

    def documents() -> Iterator[tuple[str, DocumentInput]]:
        # Across files, so that many small ones share embedding calls and writes.
        for path in find_files(root):
            yield from _distinct(read_file(path, root), seen, defaults, report)
            on_file(path)

    def done(outcome: Outcome) -> None:
        report.add(outcome)
        on_document(outcome)

    await ingestor.ingest(documents(), tenant=tenant, source=source, on_document=done)
    if prune:
        await _prune(store, tenant, source, seen, report)
    return report


def _distinct(items: Iterable[Item], seen: set[str], defaults: Defaults, report: Report) -> Iterator[tuple[str, DocumentInput]]:
    for place, item in items:
        if isinstance(item, Reject):
            report.rejects.append(item)
        elif item.id in seen:
            report.rejects.append(Reject(place, "id: there is a document with this id before it", item.id))
        else:
            seen.add(item.id)
            document = defaults.fill(item)
            report.invisible += not (document.allowed_roles or document.allowed_subjects)
            yield place, document


async def _prune(store: DocumentStore, tenant: str, source: str, seen: set[str], report: Report) -> None:
    """Delete what is absent, but nothing whose absence a reject could explain; an empty folder explains nothing."""
    rejected = {reject.document_id for reject in report.rejects}
    if None in rejected or not seen:
        report.prune_refused = True
        return
    for document_id in sorted(await store.document_ids(tenant, source) - seen - {name for name in rejected if name}):
        await store.delete_document(tenant, document_id)
        report.pruned.append(document_id)


def write_rejects(rejects: Iterable[Reject], path: Path) -> None:
    """One JSON object a line, replaced as a whole: an old list never looks like a new one."""
    lines = "".join(json.dumps(asdict(reject), ensure_ascii=False) + "\n" for reject in rejects)
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(lines, encoding="utf-8")
    temporary.replace(path)
