"""What `POST /documents` takes: a body that is read as it arrives, and the documents in it."""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from knowledge.errors import InvalidRequest
from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.lines import MAX_LINE_BYTES, Line, arriving_lines
from knowledge.ingest.sources import to_document
from servicekit.disconnect import ClientGoneError
from servicekit.problems import Problem

MAX_DOCUMENTS = 1000
"""In a JSON array, and in an answer that comes in one piece."""

MAX_JSON_BYTES = 16 * 1024 * 1024
BATCH = 64
"""Documents that are taken together, at most: outcomes are told and a caller who left is noticed after each batch."""

READ_AHEAD = 8
"""Parts of the body, of up to some hundred kilobytes each."""

NDJSON = "application/x-ndjson"
LINES = frozenset({NDJSON, "application/jsonl"})

Item = tuple[str, DocumentInput | Reject]
"""(place, what was found there)."""


class Arriving:
    """The body as it arrives: a few parts are read ahead, so that it is known early when the caller leaves."""

    def __init__(self, request: Request) -> None:
        self.caller_left = False
        self._complete = False
        self._begun = asyncio.Event()
        self._ahead: asyncio.Queue[Message | Exception] = asyncio.Queue(READ_AHEAD)
        self._reading = asyncio.create_task(self._read(request.receive))

    async def _read(self, receive: Receive) -> None:
        reading = True
        while reading:
            found: Message | Exception
            try:
                found = await receive()
                self.caller_left = found["type"] == "http.disconnect"
            except Exception as error:  # noqa: BLE001 - raised again where the body is taken
                found = error
            self._begun.set()
            reading = not self.caller_left and not isinstance(found, Exception)
            await self._ahead.put(found)

    async def begun(self) -> None:
        """Wait for the first part: a caller who asks whether to send at all (`Expect: 100-continue`) is told so by that, and only then."""
        await self._begun.wait()

    async def parts(self) -> AsyncIterator[bytes]:
        """The body.

        Raises:
            ClientGoneError: the caller went away before its end.
            BodyTooLarge: it passed the limit.
        """
        while not self._complete:
            found = await self._ahead.get()
            if isinstance(found, Exception):
                raise found
            if found["type"] == "http.disconnect":
                raise ClientGoneError
            self._complete = not found.get("more_body", False)
            yield found.get("body", b"")

    def close(self) -> None:
        """Nothing more is to be read."""
        self._reading.cancel()


class Streamed(StreamingResponse):
    """Without Starlette's own watch for the caller, which would take parts of the body away."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's own signature
        """Answer while the body is still arriving."""
        await self.stream_response(send)


def batches(items: list[Item]) -> Iterator[list[Item]]:
    """A bounded number of documents, none of them twice: the audit says what the one before left."""
    batch: list[Item] = []
    ids: set[str] = set()
    for place, one in items:
        name = None if isinstance(one, Reject) else one.id
        if len(batch) == BATCH or name in ids:
            yield batch
            batch, ids = [], set()
        batch.append((place, one))
        ids.update([name] if name is not None else [])
    if batch:
        yield batch


async def lines_of(body: Arriving) -> AsyncIterator[list[Item]]:
    """The documents of NDJSON, those together that arrived together."""
    async for lines in arriving_lines(body.parts()):
        # A long line takes time that searches on this event loop must not wait for.
        yield await asyncio.to_thread(_of_lines, lines)


def _of_lines(lines: list[Line]) -> list[Item]:
    return [_of_line(f"line {number}", line) for number, line in lines if line is None or line.strip()]


def _of_line(place: str, line: bytes | None) -> Item:
    if line is None:
        return place, Reject(place, f"longer than the limit of {MAX_LINE_BYTES} bytes")
    return _of_json(place, _json(line))


async def limited(found: AsyncIterable[list[Item]]) -> AsyncIterator[list[Item]]:
    """As many as an answer in one piece holds, then a reject for the others. All are read: callers send first and listen then."""
    taken = 0
    async for items in found:
        if taken > MAX_DOCUMENTS:
            continue
        yield items[: MAX_DOCUMENTS - taken]
        taken += len(items)
        if taken > MAX_DOCUMENTS:
            reason = f"nothing after the first {MAX_DOCUMENTS} documents was taken; with Accept: {NDJSON} there is no such limit"
            yield [("body", Reject("body", reason))]


async def json_documents(body: Arriving) -> list[Item]:
    """The documents of a JSON body, all of them: it is one value, so nothing of it is known before its end."""
    raw = bytearray()
    async for part in body.parts():
        raw += part
        if len(raw) > MAX_JSON_BYTES:
            detail = f"body: larger than the limit of {MAX_JSON_BYTES} bytes; as NDJSON it may be larger"
            raise Problem(413, "body_too_large", detail, headers={"Connection": "close"}, extra={"limit": MAX_JSON_BYTES})
    whole = await asyncio.to_thread(_json, bytes(raw))
    if isinstance(whole, _Bad) or not isinstance(whole, dict | list):
        raise InvalidRequest("body", "must be a JSON array of documents, one document, or NDJSON")
    found = whole if isinstance(whole, list) else [whole]
    if not 1 <= len(found) <= MAX_DOCUMENTS:
        raise InvalidRequest("body", f"must hold 1 to {MAX_DOCUMENTS} documents")
    return [_of_json(f"item {number}", one) for number, one in enumerate(found, start=1)]


async def whole(items: list[Item]) -> AsyncIterator[list[Item]]:
    """All of them at once."""
    yield items


def _of_json(place: str, one: Any) -> Item:
    return place, Reject(place, "not valid JSON") if isinstance(one, _Bad) else to_document(one, place)


class _Bad:
    """What did not parse."""


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return _Bad()
