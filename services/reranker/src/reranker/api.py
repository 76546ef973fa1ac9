"""The route of the service's own shape, which others share, told apart by the request."""

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Discriminator, Tag

from reranker.outcome import Outcome
from reranker.schemas import Info, RerankRequest, RerankResponse, Result, UnscoredResult
from reranker.scorer import Scorer
from reranker.service import RESPONSES, authorised, best_first, service_of
from reranker.settings import RerankSettings
from reranker.settling import Settling
from reranker.wire import ListRequest, ListResponse, TextRank, TextsRequest, rerank_list, rerank_texts
from servicekit.problems import SHAPE

OWN, LIST, TEXTS = f"{SHAPE}own", f"{SHAPE}list", f"{SHAPE}texts"
FOREIGN = frozenset(
    {
        *("return_documents", "raw_scores", "rank_fields", "max_tokens_per_doc", "max_chunks_per_doc", "truncate", "truncation"),
        *("truncate_prompt_tokens", "truncation_side", "max_tokens_per_query", "use_activation", "activation", "instruction"),
        *("chat_template_kwargs", "priority", "request_id", "user"),
    }
)
"""Fields of the list shape that the own one has not. A field that neither has is a mistake, and refused."""


def shape_of(body: object) -> str:
    """Which shape a body has: TEI's says `texts`; vLLM's and Infinity's clients come here too, and say something of theirs."""
    names = set(body) if isinstance(body, dict) else set()
    if isinstance(body, TextsRequest) or ("texts" in names and "documents" not in names):
        return TEXTS
    return LIST if isinstance(body, ListRequest) or names & FOREIGN else OWN


Asked = Annotated[
    Annotated[RerankRequest, Tag(OWN)] | Annotated[ListRequest, Tag(LIST)] | Annotated[TextsRequest, Tag(TEXTS)], Discriminator(shape_of)
]

router = APIRouter()


@router.post(
    "/rerank",
    responses=RESPONSES,
    response_model_exclude_none=True,
    dependencies=[Depends(authorised)],
    summary="Scores of passages for a question",
)
async def rerank(request: Request, body: Asked) -> RerankResponse | ListResponse | list[TextRank]:
    """This service's own answer; with `texts` TEI's bare array, with a field of Cohere's, Jina's or vLLM's their list.

    Passages are scored in the order given, or in the one that the server's RERANK_CASCADE_MODEL puts them in. A blank one is not
    run, and one whose score is no number is named.

    A deadline that passes first makes the answer 503 `timeout`, or with `allow_partial` a `partial` one of what was scored by
    then; with nothing scored it is 503 in any case. `allow_partial` speaks of the deadline only: one bad pair never fails a
    request, nor do passages that the server's RERANK_SETTLED_AFTER left out (`settled`).
    """
    if isinstance(body, TextsRequest):
        return await rerank_texts(request, body)
    if isinstance(body, ListRequest):
        return await rerank_list(request, body)
    service = service_of(request)
    started = time.perf_counter()
    outcome = await service.rank(request, body, settling_of(body, service.settings))
    scorer = service.scheduler.get().model.scorer
    complete = all(each.reason == "empty" for each in outcome.unscored)
    if not complete:
        service.instruments.partial()
    return RerankResponse(
        status="complete" if complete else "partial",
        results=results_of(outcome, scorer)[: body.top_n],
        unscored=[UnscoredResult(index=each.index, reason=each.reason) for each in outcome.unscored],
        model=service.info.model,
        revision=service.info.revision,
        precision=service.info.precision,
        score_kind=scorer.score_kind,
        elapsed_ms=round((time.perf_counter() - started) * 1000, 1),
    )


def settling_of(body: RerankRequest, settings: RerankSettings) -> Settling | None:
    """When the rest of a request's passages need not be scored; None: never."""
    after = settings.rerank_settled_after
    return Settling(body.top_n or settings.rerank_settled_top, after) if after else None


def results_of(outcome: Outcome, scorer: Scorer) -> list[Result]:
    """One line a scored passage, best first."""
    return [
        Result(
            index=each.index,
            score=scorer.public(each.raw),
            logit=scorer.logit(each.raw),
            truncated=each.truncated,
            tokens=each.tokens,
        )
        for each in best_first(outcome)
    ]


@router.get("/info", summary="Model, budget and limits")
async def info(request: Request) -> Info:
    """Known before the model is loaded."""
    return service_of(request).info
