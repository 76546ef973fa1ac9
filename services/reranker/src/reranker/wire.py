"""The shapes that clients of other rerankers speak: the list of Cohere, Jina and vLLM, and TEI's bare array.

`/v1/rerank` and `/v2/rerank` speak the list; `/rerank` speaks all, and `api` tells which.

None of them knows a partial answer: a deadline that passes first is 503, and no passage is left out because the top is settled.
Fields that only steer another server are ignored, as those servers do; what would change the result is honoured or refused. A blank
passage has no score and so no line, in any of them.
"""

from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from reranker.outcome import Outcome, Scored
from reranker.schemas import MAX_DOCUMENTS, Document, Query, RerankRequest
from reranker.scorer import Scorer
from reranker.service import RESPONSES, authorised, best_first, service_of
from servicekit.problems import Problem


def _text_of(value: Any) -> Any:
    """Cohere's v1, Jina and vLLM take passages as strings or as objects with a text."""
    return value["text"] if isinstance(value, dict) and isinstance(value.get("text"), str) else value


WrappedDocument = Annotated[Document, BeforeValidator(_text_of)]


class ListRequest(BaseModel):
    """The request of Cohere (v1, v2), Jina and vLLM."""

    model_config = ConfigDict(extra="ignore")

    query: Query
    documents: Annotated[list[WrappedDocument], Field(max_length=MAX_DOCUMENTS)]
    model: str | None = None
    top_n: int | None = Field(None, ge=0, description="0 or absent: all")
    return_documents: bool = False
    raw_scores: bool = Field(False, description="logits instead of probabilities, where the model has logits")
    truncate: bool = Field(True, description="false: a pair that does not fit is refused instead of cut")


class TextOf(BaseModel):
    """A passage, echoed."""

    text: str


class ListResult(BaseModel):
    """One scored passage."""

    index: int
    relevance_score: float
    document: TextOf | None = None


class Usage(BaseModel):
    """Tokens that were run."""

    prompt_tokens: int
    total_tokens: int


class ListResponse(BaseModel):
    """What the three have in common, and what their clients insist on."""

    id: str
    object: Literal["rerank"] = "rerank"
    model: str
    results: list[ListResult]
    usage: Usage
    meta: dict[str, Any]


class TextsRequest(BaseModel):
    """TEI's request: `texts` tells it from this service's own."""

    model_config = ConfigDict(extra="ignore")

    query: Query
    texts: Annotated[list[Document], Field(max_length=MAX_DOCUMENTS)]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = Field(None, description="false: a pair that does not fit is refused instead of cut")


class TextRank(BaseModel):
    """One line of TEI's bare array."""

    index: int
    score: float
    text: str | None = None


router = APIRouter()


@router.post(
    "/v1/rerank",
    responses=RESPONSES,
    response_model_exclude_none=True,
    dependencies=[Depends(authorised)],
    summary="As Cohere, Jina and vLLM have it",
)
@router.post(
    "/v2/rerank",
    responses=RESPONSES,
    response_model_exclude_none=True,
    dependencies=[Depends(authorised)],
    summary="As Cohere and vLLM have it",
)
async def rerank_list(request: Request, body: ListRequest) -> ListResponse:
    """All passages or none are scored, best first; `top_n` cuts what is returned."""
    service = service_of(request)
    outcome = await service.rank(request, RerankRequest(query=body.query, documents=body.documents, model=body.model))
    refuse_cut(outcome, "documents", allowed=body.truncate)
    scorer = service.scheduler.get().model.scorer
    results = [
        ListResult(
            index=each.index,
            relevance_score=shown(scorer, each, raw=body.raw_scores),
            document=TextOf(text=body.documents[each.index]) if body.return_documents else None,
        )
        for each in best_first(outcome)
    ]
    tokens = sum(each.tokens for each in outcome.scored)
    version = "1" if request.url.path.startswith("/v1/") else "2"
    return ListResponse(
        id=str(uuid4()),
        model=service.info.model,
        results=results[: body.top_n or None],
        usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
        meta={"api_version": {"version": version}, "billed_units": {"search_units": 1}},
    )


async def rerank_texts(request: Request, body: TextsRequest) -> list[TextRank]:
    """TEI's answer: a bare array, best first."""
    service = service_of(request)
    outcome = await service.rank(request, RerankRequest(query=body.query, documents=body.texts))
    refuse_cut(outcome, "texts", allowed=body.truncate is not False)
    scorer = service.scheduler.get().model.scorer
    return [
        TextRank(
            index=each.index,
            score=shown(scorer, each, raw=body.raw_scores),
            text=body.texts[each.index] if body.return_text else None,
        )
        for each in best_first(outcome)
    ]


def shown(scorer: Scorer, each: Scored, *, raw: bool) -> float:
    """The score to show; the logit where it is wanted and there is one."""
    logit = scorer.logit(each.raw) if raw else None
    return scorer.public(each.raw) if logit is None else logit


def refuse_cut(outcome: Outcome, field: str, *, allowed: bool) -> None:
    """Refuse what had to be cut, if the caller wants that.

    Raises:
        Problem: 422, naming the first passage that does not fit.
    """
    cut = next((each.index for each in outcome.scored if each.truncated), None)
    if cut is not None and not allowed:
        detail = f"{field}.{cut}: does not fit into the model with the query, and truncate is false"
        raise Problem(422, "too_many_tokens", detail)
