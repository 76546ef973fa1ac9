"""What the pages ask while they are open. All of it needs a session, each POST its CSRF token too."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse

from frontend.gateway import EVENT_STREAM, STREAM_HEADERS, passed_on
from frontend.schemas import AnswerRequest, SearchRequest
from frontend.site import Caller, Operator, SiteDep, not_forged
from servicekit.problems import Problem

MAX_MINUTES = 24 * 60

router = APIRouter(prefix="/api")


@router.post("/search", dependencies=[Depends(not_forged)])
async def search(site: SiteDep, person: Caller, body: SearchRequest) -> Response:
    """The gateway's answer."""
    return passed_on(await site.gateway.search(person, body.for_gateway()))


@router.post("/search/stream", dependencies=[Depends(not_forged)])
async def search_stream(site: SiteDep, person: Caller, body: SearchRequest) -> Response:
    """The gateway's events as they come."""
    return await site.gateway.stream(person, body.for_gateway())


@router.post("/answer", dependencies=[Depends(not_forged)])
async def answer(site: SiteDep, person: Caller, body: AnswerRequest) -> Response:
    """An answer in words with citations, as it is written. The search is done anew here: a browser hands in no passages."""
    if site.answers is None:
        raise Problem(404, "answers_off", "Written answers are switched off here.")
    request = SearchRequest(query=body.query, view=body.view)
    found = passed_on(await site.gateway.search(person, request.for_gateway()))
    if found.status_code != 200:
        return found
    return StreamingResponse(site.answers.write(body.query, bytes(found.body)), media_type=EVENT_STREAM, headers=STREAM_HEADERS)


@router.get("/console")
async def console(site: SiteDep, _: Operator, minutes: Annotated[int, Query(ge=5, le=MAX_MINUTES)] = 60) -> Response:
    """Fallbacks of the last minutes: over time by reason, and one by one with their traces."""
    return JSONResponse(await site.console.look(minutes))
