"""`POST /search` and `GET /search`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Query as QueryString
from fastapi.responses import JSONResponse, Response

from knowledge.api.answers import AnswerResponse, answer_body
from knowledge.api.dependencies import Caller, Gateway, GatewayDep
from knowledge.api.queries import deadline_s, to_query
from knowledge.api.schemas import AnswerBody, ProblemBody, SearchParameters, SearchRequest
from knowledge.deadline import Deadline
from knowledge.errors import Overloaded
from knowledge.models import Answer, Identity, Outcome, Query
from servicekit.disconnect import CLIENT_CLOSED_REQUEST, ClientGoneError, run_until_disconnect
from servicekit.problems import current_trace_id

FALLBACK_HEADER = "X-Reranker-Fallback"

router = APIRouter(tags=["search"])
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": AnswerBody, "description": "Results, whatever became of reranking; the header says so on a fallback"},
    **{
        status: {"model": ProblemBody, "description": text}
        for status, text in {
            401: "No token, or one that does not hold",
            422: "A field breaks its limit; names both",
            503: "No leg answered, too many searches in flight, or the signing keys cannot be had",
            504: "The deadline passed before any leg had answered",
        }.items()
    },
}


@router.post("/search", responses=RESPONSES, response_class=JSONResponse, summary="Search, fuse, rerank in time")
async def search(request: Request, body: SearchRequest, gateway: GatewayDep, identity: Caller) -> Response:
    """Answer in hybrid order, reranked as far as time allows."""
    return await _answer(request, body, gateway, identity)


@router.get("/search", responses=RESPONSES, response_class=JSONResponse, summary="The same for simple callers")
async def search_simply(
    request: Request, parameters: Annotated[SearchParameters, QueryString()], gateway: GatewayDep, identity: Caller
) -> Response:
    """The same search with `q` and `top_k` out of the query string."""
    return await _answer(request, SearchRequest(query=parameters.q, top_k=parameters.top_k), gateway, identity)


async def _answer(request: Request, body: SearchRequest, gateway: Gateway, identity: Identity) -> Response:
    query, deadline = asked(body, gateway, identity)
    with admitted(gateway):
        try:
            answer: Answer = await run_until_disconnect(request, gateway.pipeline.search(query, identity, deadline))
        except ClientGoneError:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
    headers = {}
    if answer.rerank.status is Outcome.FALLBACK and answer.rerank.reason is not None:
        headers[FALLBACK_HEADER] = answer.rerank.reason.value
    return AnswerResponse(answer_body(answer, trace_id=current_trace_id(), explain=query.explain), headers=headers)


def asked(body: SearchRequest, gateway: Gateway, identity: Identity) -> tuple[Query, Deadline]:
    """What is searched, and until when.

    Raises:
        InvalidRequest: names the field and the limit.
    """
    settings = gateway.settings
    query = to_query(body, settings, may_explain=settings.identity.auth_operator_role in identity.roles)
    return query, Deadline.after(deadline_s(body, settings), gateway.clock)


@contextmanager
def admitted(gateway: Gateway) -> Iterator[None]:
    """One of the places for searches, for as long as it takes.

    Raises:
        Overloaded: there is none.
    """
    if gateway.searches_in_flight >= gateway.settings.search.max_concurrent_searches:
        raise Overloaded("Too many searches in flight; nothing was done.", retry_after_s=1)
    gateway.searches_in_flight += 1
    try:
        yield
    finally:
        gateway.searches_in_flight -= 1
