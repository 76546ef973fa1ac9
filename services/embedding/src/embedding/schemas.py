"""What goes over the wire, and the limits on it."""

import base64
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from modelkit import Embedding, mend_surrogates
from modelkit.encoder import TextKind

MAX_TEXTS = 128
MAX_TEXT_CHARS = 32_768
MAX_BODY_BYTES = 8 << 20
DECIMALS = 8  # below the resolution of float32 at the size that components of a unit vector have


def _mended(value: Any) -> Any:
    return mend_surrogates(value) if isinstance(value, str) else value


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_CHARS), BeforeValidator(_mended)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]


class EmbedRequest(BaseModel):
    """Texts of one kind. Blank ones are embedded as they are."""

    model_config = ConfigDict(extra="forbid")

    texts: Texts
    kind: TextKind


class EmbedResponse(BaseModel):
    """Vectors in the order of the texts, each of length 1; `truncated` says which texts did not fit the model's window."""

    vectors: list[list[float]]
    model: str
    revision: str
    precision: str
    dimension: int
    fingerprint: str
    truncated: list[bool]
    elapsed_ms: float


class OpenAIRequest(BaseModel):
    """OpenAI's shape; `input_type` (default passage) is ours, and fields that do not change a vector are ignored."""

    input: Text | Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    input_type: TextKind = "passage"


class OpenAIEmbedding(BaseModel):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class OpenAIUsage(BaseModel):
    """Tokens that were run, special ones included."""

    prompt_tokens: int
    total_tokens: int


class OpenAIResponse(BaseModel):
    """OpenAI's shape, and the fingerprint."""

    object: Literal["list"] = "list"
    data: list[OpenAIEmbedding]
    model: str
    usage: OpenAIUsage
    fingerprint: str


class Limits(BaseModel):
    """Limits of a request."""

    texts: int = MAX_TEXTS
    text_chars: int = MAX_TEXT_CHARS
    body_bytes: int = MAX_BODY_BYTES


class Info(BaseModel):
    """What the service is."""

    service: str
    version: str
    model: str
    revision: str
    precision: str
    pooling: str
    query_prefix: str
    passage_prefix: str
    dimension: int
    fingerprint: str
    deadline_s: float
    limits: Limits = Limits()


def numbers(embedding: Embedding) -> list[float]:
    """The vector as JSON numbers, without digits that mean nothing."""
    rounded: list[float] = embedding.vector.astype(float).round(DECIMALS).tolist()
    return rounded


def base64_floats(embedding: Embedding) -> str:
    """The vector as base64 of little-endian float32."""
    return base64.b64encode(embedding.vector.astype("<f4").tobytes()).decode("ascii")
