"""`POST /search/stream`: the hybrid list at once, the reranked one when it is ready, as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.sse import EventSourceResponse, format_sse_event
from opentelemetry import trace
from starlette.types import Receive, Scope, Send

from knowledge.api.answers import AnswerResponse, answer_body, hybrid_body
from knowledge.api.dependencies import Caller, GatewayDep
from knowledge.api.errors import problem_of
from knowledge.api.schemas import SearchRequest
from knowledge.api.search import RESPONSES, admitted, asked
from knowledge.errors import RequestError
from knowledge.models import Answer, Outcome, Query
from knowledge.telemetry import ERROR_TYPE
from servicekit.disconnect import CLIENT_CLOSED_REQUEST, ClientGoneError, run_until_disconnect
from servicekit.problems import Problem, current_trace_id

EVENTS = {Outcome.APPLIED: "reranked", Outcome.PARTIAL: "reranked", Outcome.FALLBACK: "fallback", Outcome.SKIPPED: "skipped"}
LINGER_S = 10.0
"""Beyond the deadline, for callers who read slowly; who reads nothing at all keeps no place longer."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
EXAMPLE = 'event: hybrid\ndata: {"results": [...], "ranking": "hybrid", "rerank": null, ...}\n\n'

log = structlog.get_logger(__name__)
router = APIRouter(tags=["search"])
STREAMED: dict[int | str, dict[str, Any]] = {
    **{status: response for status, response in RESPONSES.items() if status != 200},
    200: {
        "description": "`hybrid`, then one of `reranked`, `fallback`, `skipped` (the answer of `POST /search`) and `error` (a problem), "
        "then `done`. In `hybrid` the member `rerank` is null",
        "content": {EventSourceResponse.media_type: {"schema": {"type": "string"}, "example": EXAMPLE}},
    },
}


@router.post("/search/stream", responses=STREAMED, response_class=Response, summary="The same as events: hybrid at once, then reranked")
async def search_stream(request: Request, body: SearchRequest, gateway: GatewayDep, identity: Caller) -> Response:
    """Body, identity, limits and deadline are those of `POST /search`; what cannot be served at all is answered as it is there."""
    query, deadline = asked(body, gateway, identity)
    async with AsyncExitStack() as held:
        held.enter_context(admitted(gateway))
        answers = await held.enter_async_context(aclosing(gateway.pipeline.stream(query, identity, deadline)))
        try:
            first = await run_until_disconnect(request, anext(answers))
        except ClientGoneError:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        events = await held.enter_async_context(aclosing(_events(first, answers, query)))
        return Events(events, held.pop_all(), deadline.left() + LINGER_S)


class Events(EventSourceResponse):
    """Events for a caller who may leave at any time; what the search holds is released with the last of them, or with the caller."""

    def __init__(self, events: AsyncIterator[bytes], held: AsyncExitStack, longest_s: float) -> None:
        super().__init__(events, headers=HEADERS)
        self._held = held
        self._longest_s = longest_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        async with self._held:
            try:
                async with asyncio.timeout(self._longest_s):
                    await run_until_disconnect(Request(scope, receive), self.stream_response(send))
            except ClientGoneError:
                # Nobody receives it; those who count and log requests on the way out learn how this one ended.
                await send({"type": "http.response.start", "status": CLIENT_CLOSED_REQUEST, "headers": []})
            except TimeoutError:
                log.warning("search.stream_not_read")


async def _events(first: Answer, answers: AsyncGenerator[Answer, None], query: Query) -> AsyncGenerator[bytes, None]:
    trace_id = current_trace_id()
    yield _event("hybrid", hybrid_body(first, trace_id=trace_id, explain=query.explain))
    try:
        answer = await anext(answers)
        yield _event(EVENTS[answer.rerank.status], answer_body(answer, trace_id=trace_id, explain=query.explain))
    except RequestError as error:
        yield _failed(problem_of(error))
    except Exception as error:  # noqa: BLE001 - the status is sent: this is the last place where the caller can be told
        log.error("internal_error", error=type(error).__name__, place="search_stream")
        yield _failed(Problem(500, "internal", "The service met an error of its own; the trace id finds it in the log."))
    yield _event("done", {})


def _failed(problem: Problem) -> bytes:
    span = trace.get_current_span()
    span.set_attribute(ERROR_TYPE, problem.code)
    span.set_status(trace.StatusCode.ERROR)
    return format_sse_event(event="error", data_str=bytes(problem.response().body).decode())


def _event(name: str, body: dict[str, Any]) -> bytes:
    return format_sse_event(event=name, data_str=bytes(AnswerResponse(body).body).decode())
