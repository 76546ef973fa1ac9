"""`POST /documents`, `GET` and `DELETE /documents/{id}`: writing inside the token's tenant, reading what search would show."""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from knowledge.api.dependencies import Caller, Gateway, GatewayDep, Writer
from knowledge.api.schemas import ProblemBody
from knowledge.api.uploads import LINES, MAX_DOCUMENTS, NDJSON, Arriving, Item, Streamed, batches, json_documents, limited, lines_of, whole
from knowledge.errors import BackendError, EmbeddingError, InvalidRequest, NotFound, SearchUnavailable
from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.ingestor import Outcome
from knowledge.models import Identity, StoredDocument, Visibility
from servicekit.disconnect import CLIENT_CLOSED_REQUEST, ClientGoneError
from servicekit.hygiene import clean_text
from servicekit.problems import BodyTooLarge

SOURCE = "api"
LOOKUPS = 8
Permissions = tuple[tuple[str, ...], tuple[str, ...]] | Literal["unknown"] | None
UNANSWERED = "the search backend or the embedding-service did not answer; send it again"

audit = structlog.get_logger("audit")
router = APIRouter(tags=["documents"])
DocumentId = Annotated[str, Path(min_length=1, max_length=512)]
PROBLEMS: dict[int | str, dict[str, Any]] = {status: {"model": ProblemBody} for status in (401, 403, 404, 422, 503)}


class ItemBody(BaseModel):
    """What became of one document."""

    place: str
    id: str | None
    status: str
    chunks: int
    embedded: int
    written: int
    deleted: int
    errors: list[str]


class ItemsBody(BaseModel):
    """One item a document, in order; with `Accept: application/x-ndjson` one a line, as soon as it is known."""

    items: list[ItemBody]


EXAMPLE = [{"id": "handbook/watering", "title": "Watering", "content": "Water when the top 3 cm are dry.", "language": "en",
            "allowed_roles": ["reader"]}]  # fmt: skip
BODY_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}, "example": EXAMPLE},
            NDJSON: {"schema": {"type": "string"}},
        },
    }
}


@router.post(
    "/documents",
    responses={200: {"model": ItemsBody}, **PROBLEMS},
    openapi_extra=BODY_SCHEMA,
    response_class=JSONResponse,
    summary="Put documents in (JSON array or NDJSON); searchable when acknowledged",
)
async def put_documents(request: Request, gateway: GatewayDep, writer: Writer) -> Response:
    """Take each document by itself: what is wrong with one is said in its item and stops no other.

    NDJSON is taken as it arrives, and no faster than it can be embedded and written.
    """
    body = Arriving(request)
    answer = Response(status_code=CLIENT_CLOSED_REQUEST)
    try:
        with suppress(ClientGoneError):
            answer = await _answer(request, gateway, writer, body)
    finally:
        if not isinstance(answer, Streamed):
            body.close()
    return answer


async def _answer(request: Request, gateway: Gateway, writer: Identity, body: Arriving) -> Response:
    streamed = NDJSON in request.headers.get("accept", "").lower()
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() in LINES:
        found = lines_of(body) if streamed else limited(lines_of(body))
    else:
        found = whole(await json_documents(body))
    outcomes = _outcomes(gateway, writer, body, found, streamed=streamed)
    if streamed:
        await _open(gateway)
        await body.begun()
        return Streamed(_told(outcomes, body), media_type=NDJSON, headers={"X-Accel-Buffering": "no"})
    items = [_item(one) async for some in outcomes for one in some]
    if not items:
        raise InvalidRequest("body", f"must hold 1 to {MAX_DOCUMENTS} documents")
    return JSONResponse({"items": items})


async def _outcomes(
    gateway: Gateway, writer: Identity, body: Arriving, found: AsyncIterable[list[Item]], *, streamed: bool
) -> AsyncIterator[list[Outcome]]:
    """What became of what arrived, batch by batch, until the caller leaves."""
    async for items in found:
        for batch in batches(items):
            if body.caller_left:
                raise ClientGoneError
            documents = [(place, one) for place, one in batch if not isinstance(one, Reject)]
            try:
                written = iter(await _put(gateway, writer, documents))
            except (SearchUnavailable, BackendError):
                if not streamed:
                    raise
                written = iter([Outcome(one.id, place, rejects=[Reject(place, UNANSWERED, one.id)]) for place, one in documents])
            told = [
                Outcome(one.document_id or "", place, rejects=[one]) if isinstance(one, Reject) else next(written) for place, one in batch
            ]
            gateway.ingestor.count(told)
            yield told


async def _put(gateway: Gateway, writer: Identity, documents: list[tuple[str, DocumentInput]]) -> list[Outcome]:
    """Write a batch and audit it.

    Raises:
        SearchUnavailable, BackendError: nothing of it was written.
    """
    if not documents:
        return []
    names = [document.id for _, document in documents]
    before = await _permissions(gateway, writer.tenant, names)
    try:
        outcomes = await gateway.ingestor.ingest(documents, tenant=writer.tenant, source=SOURCE)
    except EmbeddingError as error:
        raise _no_embedding() from error
    after: dict[str, Permissions] = dict.fromkeys(names, "unknown")
    with suppress(BackendError):
        after = await _permissions(gateway, writer.tenant, names)
    for outcome in outcomes:
        name = outcome.document_id
        _audit("document.written", writer, name, before[name], after[name], status=outcome.status)
    return outcomes


async def _permissions(gateway: Gateway, tenant: str, names: list[str]) -> dict[str, Permissions]:
    limit = asyncio.Semaphore(LOOKUPS)

    async def look_up(name: str) -> Permissions:
        async with limit:
            return await gateway.store.permissions(tenant, name)

    return dict(zip(names, await asyncio.gather(*map(look_up, names)), strict=True))


async def _open(gateway: Gateway) -> None:
    """While the answer can still be another one."""
    try:
        await gateway.ingestor.open()
    except EmbeddingError as error:
        raise _no_embedding() from error


def _no_embedding() -> SearchUnavailable:
    return SearchUnavailable("The embedding-service did not answer, so nothing was written; try again.", retry_after_s=2)


async def _told(outcomes: AsyncIterator[list[Outcome]], body: Arriving) -> AsyncIterator[bytes]:
    """The items as lines; what ends them early is the last of them."""
    try:
        async for some in outcomes:
            yield b"".join(map(_line, some))
    except ClientGoneError:
        return
    except BodyTooLarge:
        yield _line(Outcome("", "body", rejects=[Reject("body", "larger than the limit: nothing after the item before this was taken")]))
    finally:
        body.close()


def _line(outcome: Outcome) -> bytes:
    return json.dumps(_item(outcome)).encode() + b"\n"


@router.get("/documents/{document_id:path}", responses=PROBLEMS, summary="A document, as far as the token may see it")
async def get_document(document_id: DocumentId, gateway: GatewayDep, identity: Caller) -> dict[str, Any]:
    """Hidden and absent are the same 404; permissions are shown to writers only."""
    document = await gateway.store.document(clean_text(document_id), Visibility.of(identity))
    if document is None:
        raise NotFound("There is no such document for this token.")
    return _document(document, show_permissions=gateway.settings.identity.auth_write_role in identity.roles)


@router.delete("/documents/{document_id:path}", responses=PROBLEMS, summary="Remove a document; unfindable when acknowledged")
async def delete_document(document_id: DocumentId, gateway: GatewayDep, writer: Writer) -> dict[str, Any]:
    """Inside the token's tenant, whether or not the writer may read it."""
    before = await gateway.store.permissions(writer.tenant, clean_text(document_id))
    deleted = await gateway.store.delete_document(writer.tenant, clean_text(document_id))
    if not deleted:
        raise NotFound("There is no such document in this tenant.")
    _audit("document.deleted", writer, document_id, before, None, status="deleted")
    return {"id": document_id, "deleted_chunks": deleted}


def _item(outcome: Outcome) -> dict[str, Any]:
    return {
        "place": outcome.place,
        "id": outcome.document_id or None,
        "status": outcome.status,
        "chunks": outcome.chunks,
        "embedded": outcome.embedded,
        "written": outcome.written,
        "deleted": outcome.deleted,
        "errors": [clean_text(f"{reject.place}: {reject.reason}") for reject in outcome.rejects],
    }


def _document(document: StoredDocument, *, show_permissions: bool) -> dict[str, Any]:
    body = {
        "id": document.document_id,
        "title": document.title,
        "language": document.language,
        "category": document.category,
        "tags": list(document.tags),
        "source": document.source,
        "chunks": [
            {"id": chunk.id, "title": chunk.title, "content": chunk.content, "metadata": dict(chunk.metadata)} for chunk in document.chunks
        ],
    }
    if show_permissions:
        body |= {"allowed_roles": list(document.allowed_roles), "allowed_subjects": list(document.allowed_subjects)}
    return body


def _audit(event: str, writer: Identity, document_id: str, before: Permissions, after: Permissions, *, status: str) -> None:
    audit.info(
        event,
        tenant=writer.tenant,
        subject=writer.subject,
        document_id=document_id,
        status=status,
        permissions_before=before,
        permissions_after=after,
    )
