"""`POST /documents`, `GET` and `DELETE /documents/{id}`: writing inside the token's tenant, reading what search would show."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from knowledge.api.dependencies import Caller, Gateway, GatewayDep, Writer
from knowledge.api.schemas import ProblemBody
from knowledge.errors import EmbeddingError, InvalidRequest, NotFound, SearchUnavailable
from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.ingestor import Outcome
from knowledge.ingest.sources import to_document
from knowledge.models import Identity, StoredDocument, Visibility
from servicekit.hygiene import clean_text

SOURCE = "api"
MAX_DOCUMENTS = 1000
NDJSON = "application/x-ndjson"

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
    """One item a document, in order."""

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
    """Take each document by itself: what is wrong with one is said in its item and stops no other."""
    items: list[dict[str, Any]] = []
    for place, found in _parse(await request.body(), request.headers.get("content-type", "")):
        if isinstance(found, Reject):
            items.append(_item(Outcome(found.document_id or "", place, rejects=[found])))
        else:
            items.append(_item(await _put(gateway, writer, place, found)))
    return JSONResponse({"items": items})


async def _put(gateway: Gateway, writer: Identity, place: str, document: DocumentInput) -> Outcome:
    before = await gateway.store.permissions(writer.tenant, document.id)
    try:
        [outcome] = await gateway.ingestor.ingest([(place, document)], tenant=writer.tenant, source=SOURCE)
    except EmbeddingError as error:
        raise SearchUnavailable("The embedding-service did not answer, so nothing was written; try again.", retry_after_s=2) from error
    after = await gateway.store.permissions(writer.tenant, document.id)
    _audit("document.written", writer, document.id, before, after, status=outcome.status)
    return outcome


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


def _parse(body: bytes, content_type: str) -> Iterator[tuple[str, DocumentInput | Reject]]:
    if content_type.partition(";")[0].strip().lower() in (NDJSON, "application/jsonl"):
        raw = [(f"line {number}", line) for number, line in enumerate(body.splitlines(), start=1) if line.strip()]
        parsed = [(place, _json(line)) for place, line in raw]
    else:
        whole = _json(body)
        if isinstance(whole, _Bad) or not isinstance(whole, dict | list):
            raise InvalidRequest("body", "must be a JSON array of documents, one document, or NDJSON")
        parsed = [(f"item {number}", one) for number, one in enumerate(whole if isinstance(whole, list) else [whole], start=1)]
    if not 1 <= len(parsed) <= MAX_DOCUMENTS:
        raise InvalidRequest("body", f"must hold 1 to {MAX_DOCUMENTS} documents")
    for place, one in parsed:
        yield place, Reject(place, "not valid JSON") if isinstance(one, _Bad) else to_document(one, place)


class _Bad:
    """What did not parse."""


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return _Bad()


def _item(outcome: Outcome) -> dict[str, Any]:
    return {
        "place": outcome.place,
        "id": outcome.document_id or None,
        "status": outcome.status,
        "chunks": outcome.chunks,
        "embedded": outcome.embedded,
        "written": outcome.written,
        "deleted": outcome.deleted,
        "errors": [f"{reject.place}: {reject.reason}" for reject in outcome.rejects],
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


Permissions = tuple[tuple[str, ...], tuple[str, ...]] | None


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
