"""What a content owner hands in, and what of it cannot be taken."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from servicekit.hygiene import clean

MAX_ID_CHARS = 512
MAX_TITLE_CHARS = 1024
MAX_CONTENT_CHARS = 2_000_000
MAX_CHUNKS = 10_000
MAX_LIST = 1000
LANGUAGE = r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})?$"
UNDETERMINED = "und"
"""ISO 639 for a language that nobody named."""

# Last in an annotation, so that it runs first: limits count what is left after cleaning.
Cleaned = BeforeValidator(clean)
Id = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ID_CHARS), Cleaned]
Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=256), Cleaned]
Title = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_TITLE_CHARS), Cleaned]
Content = Annotated[str, StringConstraints(max_length=MAX_CONTENT_CHARS), Cleaned]
Labels = Annotated[list[Label], Field(max_length=MAX_LIST)]
Metadata = Annotated[dict[str, Any], Cleaned]


class ChunkInput(BaseModel):
    """One passage as its author cut it."""

    model_config = ConfigDict(extra="forbid")

    id: Id | None = None
    title: Title = ""
    content: Content = ""
    metadata: Metadata = Field(default_factory=dict)


class DocumentInput(BaseModel):
    """A document: with `content`, which is split here, or with `chunks`, which are taken as they are.

    Without `allowed_roles` and `allowed_subjects` it is visible to nobody.
    """

    model_config = ConfigDict(extra="forbid")

    id: Id
    title: Title = ""
    content: Content = ""
    chunks: Annotated[list[Any], Field(max_length=MAX_CHUNKS)] | None = None
    language: Annotated[str, StringConstraints(pattern=LANGUAGE)] = UNDETERMINED
    category: Annotated[str, StringConstraints(strip_whitespace=True, max_length=256), Cleaned] = ""
    tags: Labels = Field(default_factory=list)
    allowed_roles: Labels = Field(default_factory=list)
    allowed_subjects: Labels = Field(default_factory=list)
    importance: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
    metadata: Metadata = Field(default_factory=dict)
    markdown: bool = Field(False, exclude=True, description="split `content` along its headings")

    @model_validator(mode="after")
    def _one_kind_of_content(self) -> "DocumentInput":
        if self.chunks is not None and self.content:
            raise ValueError("content and chunks: give one of them")
        return self


@dataclass(frozen=True, slots=True)
class Reject:
    """Something that could not be taken. Names where and why, never the text.

    `document_id` is None where not even that could be read: then nothing may be pruned, for it could be anything.
    """

    place: str
    reason: str
    document_id: str | None = None
    chunk_id: str | None = None


def primary_language(given: str | None) -> str | None:
    """The language without region or script: `de-AT` is searched and filtered as `de`."""
    tag = re.split("[-_]", (given or "").strip())[0].lower()
    return tag if re.fullmatch(LANGUAGE, tag) else None


class Unreadable(Exception):
    """A file that cannot be taken, with the sentence for its reject."""


def validation_reason(error: ValidationError) -> str:
    """Fields and limits of a validation error, without the values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    parts = [f"{'.'.join(map(str, item['loc'])) or 'document'}: {item['msg'].removeprefix('Value error, ')}" for item in found[:5]]
    return "; ".join(parts)
