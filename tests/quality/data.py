"""The data sets: a folder of YAML chunk files with questions and topics, or BEIR's layout with graded judgements."""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.sources import find_files, read_file

ROLE = "reader"
DEFAULT_SETS = ("kamerplanter", "xquad-de")
JUDGED_SETS = ("scifact", "cranfield", "cosqa", "xquad-de", "xquad-de2en")
"""The sets that fusion is judged on."""

HALVED = ("xquad-de", "xquad-de2en")
"""Sets without a development split: the even articles are theirs."""


class DataMissing(RuntimeError):
    """The data is not where it was said to be; the message says what was looked for."""


@dataclass(frozen=True, slots=True)
class Topic:
    """What shows a topic in a text: a regular expression or any keyword."""

    pattern: re.Pattern[str] | None
    keywords: tuple[str, ...]

    def shown_in(self, text: str) -> bool:
        """Whether the text shows it."""
        if self.pattern is not None and self.pattern.search(text):
            return True
        folded = text.casefold()
        return any(word.casefold() in folded for word in self.keywords)


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what is expected of its results: topics, or grades by document id."""

    id: str
    text: str
    topics: tuple[Topic, ...] = ()
    grades: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataSet:
    """A corpus with its questions. `measure` is `context@5` with topics and `nDCG@10` with grades."""

    name: str
    measure: str
    documents: Sequence[tuple[str, DocumentInput]]
    questions: Sequence[Question]


def load(root: Path, names: Sequence[str]) -> list[DataSet]:
    """The data sets under `root`: itself, if it holds one, else the named folders.

    Raises:
        DataMissing: a folder or a file is not there.
    """
    if not root.is_dir():
        raise DataMissing(f"EVAL_DATA={root} is no folder. Name one with data sets, or leave it out to use the one carried here.")
    folders = [root] if (root / "questions.jsonl").exists() or (root / "queries.jsonl").exists() else [root / name for name in names]
    return [_load_one(folder) for folder in folders]


def _load_one(folder: Path) -> DataSet:
    if (folder / "questions.jsonl").exists():
        return _topics(folder)
    if (folder / "queries.jsonl").exists():
        return _beir(folder)
    raise DataMissing(f"{folder} holds neither questions.jsonl nor queries.jsonl, so it is no data set.")


def _topics(folder: Path) -> DataSet:
    topics = {row["topic"]: _topic(row) for row in _rows(folder / "topics.jsonl")}
    questions = [
        Question(row["id"], row["question"], tuple(topics[name] for name in row["expected_topics"] if name in topics))
        for row in _rows(folder / "questions.jsonl")
    ]
    documents = _passages(folder / "chunks.jsonl") if (folder / "chunks.jsonl").exists() else _files(folder / "corpus")
    return DataSet(folder.resolve().name, "context@5", documents, [question for question in questions if question.topics])


def _files(corpus: Path) -> list[tuple[str, DocumentInput]]:
    """The documents of a folder, read as `knowledge ingest` reads them."""
    documents = []
    for path in find_files(corpus):
        for place, document in read_file(path, corpus):
            if isinstance(document, Reject):
                raise DataMissing(f"{place}: {document.reason}")
            documents.append((place, document.model_copy(update={"allowed_roles": [ROLE]})))
    return documents


def _passages(path: Path) -> list[tuple[str, DocumentInput]]:
    """The documents of a file with one passage a line, distractors included, put together by the part of the id before `#`."""
    found: dict[str, dict[str, Any]] = {}
    for row in _rows(path):
        name, _, chunk = row["_id"].partition("#")
        fields = {"id": name, "title": row["document_title"], "language": row["language"], "allowed_roles": [ROLE], "chunks": []}
        found.setdefault(name, fields)["chunks"].append({"id": chunk, "title": row["title"], "content": row["text"]})
    return [(name, DocumentInput.model_validate(fields)) for name, fields in found.items()]


def _topic(row: dict[str, Any]) -> Topic:
    pattern = re.compile(row["pattern"]) if row.get("pattern") else None
    return Topic(pattern, tuple(row.get("keywords") or ()))


def _beir(folder: Path) -> DataSet:
    language = "de" if folder.name.endswith("-de") else "en"
    documents = []
    for row in _rows(folder / "corpus.jsonl"):
        # cranfield holds blank documents, which ingestion refuses and nothing could find.
        if not row["text"].strip():
            continue
        chunk = {"id": "0", "title": row.get("title", ""), "content": row["text"]}
        fields = {
            "id": row["_id"],
            "title": row.get("title", ""),
            "language": language,
            "allowed_roles": [ROLE],
            "chunks": [chunk],
        }
        documents.append((row["_id"], DocumentInput.model_validate(fields)))
    return DataSet(folder.name, "nDCG@10", documents, _judged(folder, "test"))


def load_split(folder: Path, data: DataSet, split: str) -> DataSet:
    """The same corpus with the questions of another split, such as `dev` or `train`."""
    return replace(data, questions=_judged(folder, split))


def held_out(question: Question) -> bool:
    """Whether a question of a halved set is for testing: the article of its best passage is odd, so no article is in both halves.

    An article is the second part of an id such as `de-07-3-1`.
    """
    return int(next(iter(question.grades)).split("-")[1]) % 2 == 1


def _judged(folder: Path, split: str) -> list[Question]:
    grades: dict[str, dict[str, int]] = {}
    with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8") as source:
        for row in csv.DictReader(source, delimiter="\t"):
            grades.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    asked = (row for row in _rows(folder / "queries.jsonl") if row["_id"] in grades)
    return [Question(row["_id"], row["text"], grades=grades[row["_id"]]) for row in asked]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        raise DataMissing(f"{path} is missing.")
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)
