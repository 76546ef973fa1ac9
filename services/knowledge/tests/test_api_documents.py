"""`POST`, `GET` and `DELETE /documents`: inside the token's tenant, with the search's own permission rule, one outcome an item."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from knowledge.errors import BackendError
from services.knowledge.tests.fakes import FakeBackend, FakeEmbedder, record
from services.knowledge.tests.serving import Served, bearer, served

WRITER = bearer(roles=("knowledge-writer",), subject="wilma")
BOTH = bearer(roles=("knowledge-writer", "reader"), subject="wilma")
MARKER = "Zwiebelkuchen"


@pytest.fixture
async def gateway() -> AsyncIterator[Served]:
    """An empty gateway."""
    async with served() as running:
        yield running


def document(name: str = "d1", text: str = "wasser", **fields: Any) -> dict[str, Any]:
    """A document that readers may see."""
    return {"id": name, "content": text, "language": "de", "allowed_roles": ["reader"], **fields}


async def put(gateway: Served, *documents: Any, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """The outcomes of `POST /documents`."""
    response = await gateway.http.post("/documents", json=list(documents), headers=headers or WRITER)
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    assert len(items) == len(documents)
    return items


async def found(gateway: Served, text: str = "wasser", headers: dict[str, str] | None = None) -> list[str]:
    """The documents that a search finds."""
    response = await gateway.http.post("/search", json={"query": text, "top_k": 50}, headers=headers or bearer())
    assert response.status_code == 200
    return [result["document_id"] for result in response.json()["results"]]


async def test_a_document_is_searchable_when_it_is_acknowledged(gateway: Served) -> None:
    """The item says what was done, and the next search finds it."""
    [item] = await put(gateway, document())
    assert item == {
        "place": "item 1",
        "id": "d1",
        "status": "indexed",
        "chunks": 1,
        "embedded": 1,
        "written": 1,
        "deleted": 0,
        "errors": [],
    }
    assert await found(gateway) == ["d1"]


async def test_the_same_document_again_is_unchanged(gateway: Served) -> None:
    """Nothing is embedded or written twice."""
    await put(gateway, document())
    [item] = await put(gateway, document())
    assert (item["status"], item["embedded"], item["written"]) == ("unchanged", 0, 0)
    assert len(gateway.backend.writes) == 1


async def test_one_document_may_come_without_a_list(gateway: Served) -> None:
    """A single object is a list of one."""
    response = await gateway.http.post("/documents", json=document(), headers=WRITER)
    assert [item["status"] for item in response.json()["items"]] == ["indexed"]


@pytest.mark.parametrize(
    "media_type", ["application/x-ndjson", "application/x-ndjson; charset=utf-8", "application/jsonl", "Application/X-NDJSON"]
)
async def test_one_bad_line_of_ndjson_stops_no_other(gateway: Served, media_type: str) -> None:
    """Each line is an item; the broken one is named by its number and not repeated."""
    lines = [json.dumps(document("a")), f"{{broken {MARKER}", "", json.dumps(document("b"))]
    response = await gateway.http.post("/documents", content="\n".join(lines), headers={**WRITER, "Content-Type": media_type})
    items = response.json()["items"]
    assert [(item["place"], item["status"]) for item in items] == [("line 1", "indexed"), ("line 2", "failed"), ("line 4", "indexed")]
    assert MARKER not in response.text
    assert sorted(await found(gateway)) == ["a", "b"]


async def test_ndjson_lines_may_hold_any_line_separator_of_unicode(gateway: Served) -> None:
    """U+2028 and U+0085 inside a string are text: only line feeds end a line of NDJSON."""
    line = json.dumps(document("a", "eins\u2028wasser\u0085drei"), ensure_ascii=False)
    response = await gateway.http.post(
        "/documents", content=f"{line}\r\n{line}", headers={**WRITER, "Content-Type": "application/x-ndjson"}
    )
    assert [item["status"] for item in response.json()["items"]] == ["indexed", "unchanged"]


BAD_DOCUMENTS: dict[str, tuple[Any, str]] = {
    "no id": ({"content": "x"}, "id"),
    "empty id": (document(""), "id"),
    "blank id": (document("  \t "), "id"),
    "id of control characters": (document("\x00"), "id"),
    "long id": (document("x" * 513), "id"),
    "id no string": (document(5), "id"),  # type: ignore[arg-type]
    "no content": ({"id": "a"}, "content"),
    "blank content": (document(text=" \n"), "content"),
    "content and chunks": (document(chunks=[{"content": "x"}]), "chunks"),
    "chunks empty": ({"id": "a", "chunks": []}, "chunks"),
    "chunks no list": ({"id": "a", "chunks": "x"}, "chunks"),
    "unknown field": (document(colour="red"), "colour"),
    "tenant of the body": (document(tenant="globex"), "tenant"),
    "importance over 1": (document(importance=1.5), "importance"),
    "bad language": (document(language="Deutsch"), "language"),
    "roles no list": (document(allowed_roles="reader"), "allowed_roles"),
    "a role that is empty": (document(allowed_roles=[""]), "allowed_roles"),
    "a role that is blank": (document(allowed_roles=["  "]), "allowed_roles"),
    "tags no strings": (document(tags=[5]), "tags"),
    "metadata no object": (document(metadata=[1]), "metadata"),
    "a list": ([document()], ""),
    "a string": (MARKER, ""),
    "null": (None, ""),
}


@pytest.mark.parametrize("kind", BAD_DOCUMENTS)
async def test_a_bad_document_fails_by_itself(gateway: Served, kind: str) -> None:
    """Its item names the field; the good document next to it goes in; nothing of the text comes back."""
    bad, field = BAD_DOCUMENTS[kind]
    items = await put(gateway, bad, document("good"))
    assert [item["status"] for item in items] == ["failed", "indexed"]
    assert field in items[0]["errors"][0]
    assert MARKER not in str(items)
    assert await found(gateway) == ["good"]


async def test_a_bad_chunk_makes_the_document_partial(gateway: Served) -> None:
    """The good chunks go in, the bad one is named by its number."""
    chunks = [
        {"id": "a", "content": "wasser"},
        {"id": "b"},
        {"id": "a", "content": "doppelt"},
        {"content": "wasser", "colour": MARKER},
        MARKER,
    ]
    [item] = await put(gateway, {"id": "d", "allowed_roles": ["reader"], "chunks": chunks})
    assert (item["status"], item["chunks"], len(item["errors"])) == ("partial", 1, 4)
    assert "chunk 2" in item["errors"][0]
    assert MARKER not in str(item)


@pytest.mark.parametrize("raw", ["", "{", "5", '"text"', "null", "[]", "[[[["])
async def test_a_body_that_is_no_list_of_documents_is_422(gateway: Served, raw: str) -> None:
    """Nothing to take items from."""
    response = await gateway.http.post("/documents", content=raw, headers={**WRITER, "Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")


async def test_more_than_a_thousand_documents_are_422(gateway: Served) -> None:
    """The limit is named and nothing is written."""
    response = await gateway.http.post("/documents", json=[document(str(number)) for number in range(1001)], headers=WRITER)
    assert response.status_code == 422
    assert "1000" in response.json()["detail"]
    assert gateway.backend.records == {}


@pytest.mark.parametrize("depth", [300, 700, 900])
async def test_deeply_nested_metadata_is_no_error(gateway: Served, depth: int) -> None:
    """An item that fails or a refusal, never a 500; the next document still goes in."""
    raw = '[{"id": "a", "content": "x", "metadata": {"x": ' + "[" * depth + "]" * depth + "}}]"
    response = await gateway.http.post("/documents", content=raw, headers={**WRITER, "Content-Type": "application/json"})
    assert response.status_code in (200, 422), response.text
    assert [item["status"] for item in await put(gateway, document())] == ["indexed"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_json_cannot_answer_break_no_search(gateway: Served, value: str) -> None:
    """A NaN in metadata must not make every search that finds the passage a 500: it is refused, or stored as what JSON can say."""
    raw = f'[{{"id": "a", "content": "wasser", "allowed_roles": ["reader"], "metadata": {{"x": [{value}]}}}}]'
    response = await gateway.http.post("/documents", content=raw, headers={**WRITER, "Content-Type": "application/json"})
    assert response.status_code == 200
    expected = [] if response.json()["items"][0]["status"] == "failed" else ["a"]
    assert await found(gateway) == expected
    for one in gateway.backend.records.values():
        assert json.dumps(one.metadata, allow_nan=False)


HUGE = {
    "lone surrogates": "\ud800" * 34_000,
    "NUL": "\x00" * 100_000,
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 5_500,
    "RTL": "مرحبا שלום \u202e" * 5_000,
    "special tokens": "</s>" * 25_000,
}


@pytest.mark.parametrize("kind", HUGE)
async def test_a_hundred_kilobytes_of_strange_text_go_in_and_are_found(gateway: Served, kind: str) -> None:
    """200, indexed and searchable; what comes back can be encoded."""
    raw = json.dumps([document("strange", "wasser " + HUGE[kind] + " wasser")])
    response = await gateway.http.post("/documents", content=raw, headers={**WRITER, "Content-Type": "application/json"})
    assert [item["status"] for item in response.json()["items"]] == ["indexed"], response.text[:500]
    assert "strange" in await found(gateway)
    whole = await gateway.http.get("/documents/strange", headers=bearer())
    assert whole.status_code == 200


@pytest.mark.parametrize(("method", "path"), [("POST", "/documents"), ("DELETE", "/documents/d1")])
async def test_writing_needs_the_writers_role(gateway: Served, method: str, path: str) -> None:
    """A reader gets 403, nobody 401, and nothing is changed."""
    await put(gateway, document())
    for headers, status, code in (
        (bearer(), 403, "forbidden"),
        (bearer(roles=("knowledge-operator",)), 403, "forbidden"),
        ({}, 401, "unauthenticated"),
    ):
        content = json.dumps([document(text="anders")]) if method == "POST" else None
        response = await gateway.http.request(method, path, content=content, headers=headers)
        assert (response.status_code, response.json()["code"]) == (status, code)
    assert len(gateway.backend.writes) == 1
    assert await found(gateway) == ["d1"]


async def test_the_writers_role_can_be_named() -> None:
    """AUTH_WRITE_ROLE decides."""
    async with served(auth_write_role="editor") as gateway:
        assert (await gateway.http.post("/documents", json=[document()], headers=WRITER)).status_code == 403
        assert (await gateway.http.post("/documents", json=[document()], headers=bearer(roles=("editor",)))).status_code == 200


async def test_writes_stay_in_the_tenant_of_the_token(gateway: Served) -> None:
    """Whatever the body says: the record is the token's tenant's, and the other tenant's document of the same id is another one."""
    await put(gateway, document(metadata={"tenant": "globex"}))
    other = bearer(roles=("knowledge-writer", "reader"), tenant="globex")
    await put(gateway, document(text="wasser von globex"), headers=other)
    assert {one.tenant for one in gateway.backend.records.values()} == {"acme", "globex"}
    assert await found(gateway) == await found(gateway, headers=other) == ["d1"]
    assert (await gateway.http.delete("/documents/d1", headers=other)).status_code == 200
    assert await found(gateway) == ["d1"]
    assert await found(gateway, headers=other) == []


async def test_writing_grants_no_reading(gateway: Served) -> None:
    """A writer without the document's role neither finds nor reads what it wrote."""
    await put(gateway, document())
    assert await found(gateway, headers=WRITER) == []
    assert (await gateway.http.get("/documents/d1", headers=WRITER)).status_code == 404


async def test_a_document_as_far_as_the_token_may_see_it(gateway: Served) -> None:
    """Title, language, chunks; the permissions for writers only."""
    await put(gateway, document(title="Titel", category="pflege", tags=["a", "b"], metadata={"x": 1}))
    reader = (await gateway.http.get("/documents/d1", headers=bearer())).json()
    assert (reader["id"], reader["title"], reader["language"], reader["category"], reader["tags"]) == (
        "d1",
        "Titel",
        "de",
        "pflege",
        ["a", "b"],
    )
    assert [chunk["content"] for chunk in reader["chunks"]] == ["wasser"]
    assert not [name for name in reader if name.startswith("allowed")]
    assert "allowed" not in str(reader["chunks"])
    writer = (await gateway.http.get("/documents/d1", headers=BOTH)).json()
    assert (writer["allowed_roles"], writer["allowed_subjects"]) == (["reader"], [])


async def test_hidden_and_absent_are_the_same_answer(gateway: Served) -> None:
    """Byte for byte, but for the trace id: nobody learns that a document exists."""
    await put(gateway, document("hidden", allowed_roles=["board"]))
    for headers in (bearer(), BOTH):
        hidden, absent = [await gateway.http.get(f"/documents/{name}", headers=headers) for name in ("hidden", "absent")]
        assert hidden.status_code == absent.status_code == 404
        assert hidden.headers.items() == absent.headers.items()
        assert _without_trace(hidden) == _without_trace(absent)


def _without_trace(response: httpx.Response) -> str:
    body = response.json()
    return response.text.replace(body["trace_id"], "")


async def test_deleting_what_is_not_there_is_404(gateway: Served) -> None:
    """Also for another tenant's document."""
    gateway.backend.records["x"] = record("x", tenant="globex", document_id="theirs")
    for name in ("theirs", "absent"):
        assert (await gateway.http.delete(f"/documents/{name}", headers=WRITER)).status_code == 404
    assert "x" in gateway.backend.records


async def test_a_delete_is_effective_when_it_is_acknowledged(gateway: Served) -> None:
    """The next search and the next read find nothing."""
    await put(gateway, document("a/b c.md", chunks=[{"content": "wasser"}, {"content": "wasser 2"}], content=""))
    response = await gateway.http.delete("/documents/a/b%20c.md", headers=WRITER)
    assert (response.status_code, response.json()["deleted_chunks"]) == (200, 2)
    assert await found(gateway) == []
    assert (await gateway.http.get("/documents/a/b%20c.md", headers=bearer())).status_code == 404


async def test_a_permission_change_is_effective_at_once_and_embeds_nothing(gateway: Served) -> None:
    """Taking a role away hides the passage with the acknowledgement; giving it back shows it again."""
    await put(gateway, document())
    embedded = len(gateway.embedder.texts)  # type: ignore[attr-defined]
    [item] = await put(gateway, document(allowed_roles=["board"]))
    assert (item["status"], item["embedded"], item["written"]) == ("indexed", 0, 1)
    assert await found(gateway) == []
    assert (await gateway.http.get("/documents/d1", headers=bearer())).status_code == 404
    await put(gateway, document(allowed_roles=[], allowed_subjects=["ada"]))
    assert await found(gateway) == ["d1"]
    passages = [text for texts, kind, _ in gateway.embedder.calls if kind == "passage" for text in texts]  # type: ignore[attr-defined]
    assert (embedded, passages) == (1, ["wasser"])


async def test_a_document_without_permissions_is_visible_to_nobody(gateway: Served) -> None:
    """Neither to readers nor to its writer."""
    await put(gateway, document(allowed_roles=[]))
    assert await found(gateway) == await found(gateway, headers=BOTH) == []


async def test_writes_are_audited_without_text(gateway: Served) -> None:
    """Subject, tenant, id, old and new permissions; nothing of title or content."""
    with capture_logs() as logs:
        await put(gateway, document(text=MARKER, title=MARKER))
        await put(gateway, document(text=MARKER, title=MARKER, allowed_roles=["board"], allowed_subjects=["ada"]))
        await gateway.http.delete("/documents/d1", headers=WRITER)
    lines = [line for line in logs if line["event"].startswith("document.")]
    assert [line["event"] for line in lines] == ["document.written", "document.written", "document.deleted"]
    assert all((line["tenant"], line["subject"], line["document_id"]) == ("acme", "wilma", "d1") for line in lines)
    changes = [(line["permissions_before"], line["permissions_after"]) for line in lines]
    first, second = (("reader",), ()), (("board",), ("ada",))
    assert changes == [(None, first), (first, second), (second, None)]
    assert MARKER not in str(logs)


async def test_a_failed_write_is_audited_as_failed(gateway: Served) -> None:
    """The audit never claims what did not happen."""
    gateway.backend.refused = {"wasser"}
    with capture_logs() as logs:
        [item] = await put(gateway, document())
    [line] = [line for line in logs if line["event"] == "document.written"]
    assert (line["status"], line["permissions_after"]) == (item["status"], None)
    assert item["status"] == "failed"


async def test_a_dead_embedding_service_is_503_and_writes_nothing() -> None:
    """Before it was ever heard the whole request fails; afterwards each document does."""
    embedder = FakeEmbedder()
    embedder.down = True
    async with served(embedder=embedder) as gateway:
        response = await gateway.http.post("/documents", json=[document()], headers=WRITER)
        assert (response.status_code, "retry-after" in response.headers) == (503, True)
        assert gateway.backend.records == {}


async def test_a_dead_backend_is_503(gateway: Served) -> None:
    """`search_unavailable`, on reading and on writing."""

    async def down(*_: object) -> Any:
        from knowledge.errors import BackendError

        raise BackendError(MARKER)

    gateway.backend.permissions = gateway.backend.document = gateway.backend.delete_document = down  # type: ignore[method-assign]
    for response in (
        await gateway.http.post("/documents", json=[document()], headers=WRITER),
        await gateway.http.get("/documents/d1", headers=bearer()),
        await gateway.http.delete("/documents/d1", headers=WRITER),
    ):
        assert response.status_code == 503
        assert MARKER not in response.text


async def test_a_body_over_sixteen_megabytes_is_413(gateway: Served) -> None:
    """Documents have a larger limit than searches, and it holds for streamed bodies too; a caller's fault is no error in the log."""
    limit = 16 * 1024 * 1024

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * (1024 * 1024)

    with capture_logs() as logs:
        response = await gateway.http.post("/documents", content=endless(), headers=WRITER)
    assert (response.status_code, response.json()["limit"]) == (413, limit)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == []


async def test_two_megabytes_of_documents_are_taken(gateway: Served) -> None:
    """More than a search body may have."""
    [item] = await put(gateway, document(text="Die Pflanze braucht Wasser. " * 70_000))
    assert item["status"] == "indexed"


async def test_backends_are_asked_for_the_token_s_tenant_only() -> None:
    """The document of another tenant with the same id and the same role stays hidden."""
    async with served(FakeBackend([record("x", tenant="globex", document_id="d1")])) as gateway:
        assert (await gateway.http.get("/documents/d1", headers=bearer())).status_code == 404


LINES = {**WRITER, "Content-Type": "application/x-ndjson", "Accept": "application/x-ndjson"}


class Conversation:
    """`POST /documents` as a caller who sends and listens by and by."""

    def __init__(self, gateway: Served, headers: dict[str, str]) -> None:
        self.status = 0
        self.complete = False
        self.received = 0
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        path = "/documents"
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        kind = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http"}
        where = {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "server": ("gateway", 80)}
        self.task = asyncio.ensure_future(gateway.app({**kind, **where, "headers": raw}, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        message = await self._to_app.get()
        self.received += 1
        return message

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.complete = not message.get("more_body", False)
        if message.get("body"):
            self._answers.put_nowait(message["body"])

    def say(self, *documents: Any, last: bool = False) -> None:
        """Send a part with these lines."""
        body = b"".join(json.dumps(one).encode() + b"\n" for one in documents)
        self._to_app.put_nowait({"type": "http.request", "body": body, "more_body": not last})

    def leave(self) -> None:
        """Go away."""
        self._to_app.put_nowait({"type": "http.disconnect"})

    async def hear(self) -> list[dict[str, Any]]:
        """The next items."""
        return [json.loads(line) for line in (await asyncio.wait_for(self._answers.get(), 5)).splitlines()]

    async def end(self) -> None:
        """Until the app is done with it."""
        await asyncio.wait_for(self.task, 5)


async def told(gateway: Served, *documents: Any) -> list[dict[str, Any]]:
    """The lines of a streamed answer."""
    body = "\n".join(json.dumps(one) for one in documents)
    response = await gateway.http.post("/documents", content=body, headers=LINES)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


async def test_each_line_is_answered_while_the_next_ones_are_still_to_come(gateway: Served) -> None:
    """The item is there, and the document searchable, before the caller has sent the rest."""
    caller = Conversation(gateway, LINES)
    for name in ("a", "b"):
        caller.say(document(name))
        [item] = await caller.hear()
        assert (item["id"], item["status"], caller.status) == (name, "indexed", 200)
        assert name in await found(gateway)
    caller.say("kein Dokument", document("c"), document("a"), last=True)
    items = await caller.hear()
    items += [] if len(items) == 3 else await caller.hear()
    assert [(item["place"], item["status"]) for item in items] == [("line 3", "failed"), ("line 4", "indexed"), ("line 5", "unchanged")]
    await caller.end()
    assert caller.complete


async def test_an_answer_by_line_holds_what_an_answer_in_one_piece_holds(gateway: Served) -> None:
    """The same items, for a JSON array too."""
    expected = await put(gateway, document("a"), {"id": "b"}, document("a"))
    async with served() as other:
        response = await other.http.post(
            "/documents", json=[document("a"), {"id": "b"}, document("a")], headers={**WRITER, "Accept": "application/x-ndjson"}
        )
        assert [json.loads(line) for line in response.text.splitlines()] == expected
    async with served() as other:
        items = await told(other, document("a"), {"id": "b"}, document("a"))
        assert [item["place"] for item in items] == ["line 1", "line 2", "line 3"]
        assert [{**item, "place": "", "errors": []} for item in items] == [{**item, "place": "", "errors": []} for item in expected]


async def test_a_caller_who_leaves_stops_the_work(gateway: Served) -> None:
    """What is being written is finished and audited; nothing after it is begun, and nothing is logged as an error."""
    with capture_logs() as logs:
        caller = Conversation(gateway, LINES)
        caller.say(document("a"))
        await caller.hear()
        caller.leave()
        await caller.end()
        caller = Conversation(gateway, LINES)
        caller.say(*[document(f"d{number}") for number in range(200)], last=True)
        caller.leave()
        await caller.end()
    written = {one.document_id for one in gateway.backend.records.values()}
    assert written - {"a"} in (set(), {f"d{number}" for number in range(64)})
    assert {line["document_id"] for line in logs if line["event"] == "document.written"} == written
    assert [line for line in logs if line["log_level"] == "error"] == []


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/json"])
async def test_a_caller_who_leaves_before_the_end_of_the_body_is_no_error(gateway: Served, content_type: str) -> None:
    """With an answer in one piece too."""
    with capture_logs() as logs:
        caller = Conversation(gateway, {**WRITER, "Content-Type": content_type})
        caller.say(document("a"))
        caller.leave()
        await caller.end()
    assert caller.status == 499
    assert [line for line in logs if line["log_level"] == "error"] == []


async def test_no_more_is_read_than_is_written(gateway: Served) -> None:
    """While a write waits, a few parts are read ahead and no more: a caller who is faster waits."""
    write, gate = gateway.backend.write, asyncio.Event()

    async def waiting(*given: Any) -> Any:
        await gate.wait()
        return await write(*given)

    gateway.backend.write = waiting  # type: ignore[method-assign]
    caller = Conversation(gateway, LINES)
    for number in range(30):
        caller.say(document(f"d{number}"), last=number == 29)
    await asyncio.sleep(0.2)
    assert caller.received <= 10
    gate.set()
    for _ in range(30):
        await caller.hear()
    await caller.end()
    assert len(gateway.backend.records) == 30


async def test_a_stream_has_no_limit_on_its_documents_and_shares_calls_and_writes(gateway: Served) -> None:
    """Also not that of a JSON array."""
    items = await told(gateway, *[document(f"d{number}", f"wasser {number}") for number in range(1200)])
    assert len(items) == 1200
    assert {item["status"] for item in items} == {"indexed"}
    assert len(gateway.backend.writes) <= 20
    assert len(gateway.embedder.calls) <= 80  # type: ignore[attr-defined]


async def test_an_answer_in_one_piece_names_what_was_not_taken(gateway: Served) -> None:
    """A thousand items, and a last one for everything after them."""
    body = "\n".join(json.dumps(document(f"d{number}")) for number in range(1100))
    response = await gateway.http.post("/documents", content=body, headers={**WRITER, "Content-Type": "application/x-ndjson"})
    *items, last = response.json()["items"]
    assert ({item["status"] for item in items}, len(items)) == ({"indexed"}, 1000)
    assert (last["status"], last["id"], last["place"]) == ("failed", None, "body")
    assert "1000" in last["errors"][0]
    assert len(gateway.backend.records) == 1000


async def test_a_line_that_is_too_long_stops_no_other(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its item names the limit."""
    monkeypatch.setattr("knowledge.ingest.lines.MAX_LINE_BYTES", 1000)
    items = await told(gateway, document("a"), document("b", MARKER * 100), document("c"))
    assert [item["status"] for item in items] == ["indexed", "failed", "indexed"]
    assert "longer than the limit" in items[1]["errors"][0]


async def test_a_stream_may_be_larger_than_a_json_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty megabytes in lines of one; its own limit ends it with a last item, after what had come before."""
    padded = [document(f"d{number}", metadata={"pad": "x" * (1024 * 1024)}) for number in range(20)]
    monkeypatch.setattr("knowledge.app.MAX_DOCUMENTS_BYTES", 64 * 1024 * 1024)
    async with served() as gateway:
        assert [item["status"] for item in await told(gateway, *padded)] == ["indexed"] * 20
        response = await gateway.http.post("/documents", content=b" " * (17 * 1024 * 1024), headers=WRITER)
        assert (response.status_code, response.json()["limit"]) == (413, 16 * 1024 * 1024)
    monkeypatch.setattr("knowledge.app.MAX_DOCUMENTS_BYTES", 1000)
    async with served() as gateway:
        caller = Conversation(gateway, LINES)
        for number in range(20):
            caller.say(document(f"d{number}"), last=number == 19)
        items: list[dict[str, Any]] = []
        while not items or items[-1]["place"] != "body":
            items += await caller.hear()
        await caller.end()
        assert "larger than the limit" in items[-1]["errors"][0]
        assert {item["id"] for item in items[:-1]} == {one.document_id for one in gateway.backend.records.values()}


async def test_a_stream_is_refused_before_it_begins_where_nothing_can_be_embedded() -> None:
    """503, not 200 with nothing but failures."""
    embedder = FakeEmbedder()
    embedder.down = True
    async with served(embedder=embedder) as gateway:
        response = await gateway.http.post("/documents", content=json.dumps(document()), headers=LINES)
        assert (response.status_code, "retry-after" in response.headers) == (503, True)


async def test_a_backend_that_fails_within_a_stream_fails_its_items(gateway: Served) -> None:
    """The answer goes on; nothing of the backend's own words."""
    permissions = gateway.backend.permissions

    async def flaky(tenant: str, name: str) -> Any:
        if name == "bad":
            raise BackendError(MARKER)
        return await permissions(tenant, name)

    gateway.backend.permissions = flaky  # type: ignore[method-assign]
    caller = Conversation(gateway, LINES)
    caller.say(document("bad"))
    [failed] = await caller.hear()
    caller.say(document("good"), last=True)
    [item] = await caller.hear()
    await caller.end()
    assert (failed["status"], item["status"]) == ("failed", "indexed")
    assert MARKER not in str(failed)


async def test_what_was_written_is_audited_even_if_the_backend_fails_after_it(gateway: Served) -> None:
    """The new permissions are unknown then; the line is there."""
    permissions = gateway.backend.permissions

    async def flaky(*given: Any) -> Any:
        if gateway.backend.records:
            raise BackendError(MARKER)
        return await permissions(*given)

    gateway.backend.permissions = flaky  # type: ignore[method-assign]
    with capture_logs() as logs:
        [item] = await put(gateway, document())
    [line] = [line for line in logs if line["event"] == "document.written"]
    assert (item["status"], line["permissions_before"], line["permissions_after"]) == ("indexed", None, "unknown")


async def test_a_document_twice_in_one_request_is_audited_in_its_order(gateway: Served) -> None:
    """What the second found is what the first left."""
    with capture_logs() as logs:
        await put(gateway, document(), document("other"), document(allowed_roles=["board"]))
    changes = [(line["permissions_before"], line["permissions_after"]) for line in logs if line.get("document_id") == "d1"]
    assert changes == [(None, (("reader",), ())), ((("reader",), ()), (("board",), ()))]
