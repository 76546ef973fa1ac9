"""The bodies of the API. Unknown fields are refused; limits that depend on settings are checked in `api.queries`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from knowledge.receipt import Receipt
from servicekit.hygiene import clean

MAX_QUERY_CHARS = 4096
MAX_TOP_K = 50
MAX_SUB_QUERIES = 8
MAX_SCOPES = 8
MAX_FILTER_VALUES = 64
MAX_FILTER_CHARS = 256

EXAMPLE_QUERY = "Meine unteren Blätter werden gelb, die oberen sind noch grün. Was fehlt?"

# Last in an annotation, so that it runs first: limits count what is left after cleaning.
Cleaned = BeforeValidator(clean)
QueryText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_CHARS), Cleaned]
SubQueryText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_QUERY_CHARS), Cleaned]
TopK = Annotated[int, Field(ge=1, le=MAX_TOP_K)]
Similarity = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
FilterValue = Annotated[str, StringConstraints(max_length=MAX_FILTER_CHARS), Cleaned]
FilterValues = Annotated[
    list[FilterValue],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(min_length=1, max_length=MAX_FILTER_VALUES),
]
FilterMap = Annotated[dict[str, FilterValues], Cleaned]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ScopeRequest(_Request):
    """One named part of a search."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
    filters: FilterMap = Field(default_factory=dict)
    top_k: TopK | None = None
    min_similarity: Similarity | None = None


class SearchRequest(_Request):
    """A search. Only `query` is required."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"query": EXAMPLE_QUERY}, {"query": EXAMPLE_QUERY, "top_k": 8, "deadline_ms": 2000}]},
    )

    query: QueryText = Field(description="1 to 4,096 characters after trimming")
    sub_queries: Annotated[list[SubQueryText], Field(max_length=MAX_SUB_QUERIES)] = Field(
        default_factory=list, description="searched instead of the question; blank ones are dropped; the question still reranks"
    )
    top_k: TopK | None = Field(None, description="results to return; RERANKER_TOP_K when absent")
    language: Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})?$|^all$")] | None = Field(
        None, description="chooses text fields and analyzers, never filters"
    )
    filters: FilterMap = Field(default_factory=dict, description="narrow the search; they can never widen what the token allows")
    scopes: Annotated[list[ScopeRequest], Field(max_length=MAX_SCOPES)] = Field(default_factory=list)
    rerank: bool = True
    rerank_depth: Annotated[int, Field(ge=1)] | None = None
    min_similarity: Similarity | None = Field(None, description="raw cosine, applied before reranking")
    min_similarity_mode: Literal["vector", "all"] = "vector"
    use_importance: bool | None = None
    deadline_ms: Annotated[int, Field(ge=100)] | None = None
    explain: bool = Field(False, description="with the operator's role: `receipt`, and reasons in each result")


class SearchParameters(_Request):
    """The query string of `GET /search`."""

    q: QueryText
    top_k: TopK | None = None


class ScoresBody(BaseModel):
    """Scores of different kinds, each in its own field; null where a leg did not hit or nothing was reranked."""

    rrf: float
    similarity: float | None
    bm25: float | None
    rerank: float | None


class ExplanationBody(BaseModel):
    """Why a passage stands where it does; empty unless an operator asked."""

    fusion_terms: dict[str, float] | None = Field(None, description="by leg and sub-query, such as `vector:0`; their sum is `scores.rrf`")
    importance: float | None = None
    why: list[str] | None = Field(None, description="sentences; they come with the receipt")


class ResultBody(BaseModel):
    """One passage."""

    id: str
    document_id: str
    title: str
    content: str
    language: str
    metadata: dict[str, Any]
    rank: int
    hybrid_rank: int
    scores: ScoresBody
    matched_identifiers: list[str]
    explain: ExplanationBody


class RerankBody(BaseModel):
    """What became of reranking."""

    status: str
    reason: str | None
    provider: str | None
    model: str | None
    score_kind: str | None
    candidates: int
    scored: int
    elapsed_ms: float


class ScopeBody(BaseModel):
    """The results of one scope."""

    name: str
    results: list[ResultBody]
    ranking: str
    rerank: RerankBody
    degraded: list[str]


class AnswerBody(BaseModel):
    """The answer of a search."""

    results: list[ResultBody]
    scopes: list[ScopeBody]
    ranking: Literal["reranked", "partially_reranked", "hybrid"]
    rerank: RerankBody
    degraded: list[str]
    warnings: list[str]
    elapsed_ms: float
    trace_id: str
    receipt: Receipt | None = Field(None, description="only with `explain`, and for operators; left out otherwise")


class ProblemBody(BaseModel):
    """RFC 9457 problem."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    trace_id: str
