"""What goes over the wire, and the limits on it."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from modelkit import is_blank, mend_surrogates
from reranker.outcome import Reason
from reranker.scorer import Kind, ScoreKind

MAX_DOCUMENTS = 100
MAX_DOCUMENT_CHARS = 16_384
MAX_QUERY_CHARS = 4_096
MAX_BODY_BYTES = 4 << 20
MAX_DEADLINE_MS = 600_000


def _mended(value: Any) -> Any:
    return mend_surrogates(value) if isinstance(value, str) else value


def _not_blank(text: str) -> str:
    if is_blank(text):
        raise ValueError("must hold more than white space")
    return text


Query = Annotated[str, StringConstraints(max_length=MAX_QUERY_CHARS), BeforeValidator(_mended), AfterValidator(_not_blank)]
Document = Annotated[str, StringConstraints(max_length=MAX_DOCUMENT_CHARS), BeforeValidator(_mended)]


class RerankRequest(BaseModel):
    """A question and the passages to put in order."""

    model_config = ConfigDict(extra="forbid")

    query: Query
    documents: Annotated[list[Document], Field(max_length=MAX_DOCUMENTS)]
    top_n: int | None = Field(None, ge=1, description="how many results to return; all are scored")
    deadline_ms: int | None = Field(None, ge=1, le=MAX_DEADLINE_MS)
    allow_partial: bool = Field(False, description="at the deadline answer with what has been scored")
    model: str | None = None


class Result(BaseModel):
    """A scored document; `index` is its place in the request."""

    index: int
    score: float
    logit: float | None = None
    truncated: bool
    tokens: int


class UnscoredResult(BaseModel):
    """A document without a score."""

    index: int
    reason: Reason


class RerankResponse(BaseModel):
    """Results by (score descending, index ascending). `complete`: every document that is not blank has a score."""

    status: Literal["complete", "partial"]
    results: list[Result]
    unscored: list[UnscoredResult]
    model: str
    revision: str
    precision: str
    score_kind: ScoreKind
    elapsed_ms: float


class Limits(BaseModel):
    """Limits of a request."""

    documents: int = MAX_DOCUMENTS
    document_chars: int = MAX_DOCUMENT_CHARS
    query_chars: int = MAX_QUERY_CHARS
    body_bytes: int = MAX_BODY_BYTES


class Info(BaseModel):
    """What the service is. 0 and empty mean off; a precision of `auto` is decided when the model is loaded."""

    service: str
    version: str
    model: str
    revision: str
    kind: Kind
    precision: str
    score_kind: ScoreKind
    deadline_s: float
    scored_chars_budget: int
    cascade_model: str
    settled_after: int
    limits: Limits = Limits()
