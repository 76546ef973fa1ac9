"""`POST`, `GET` and `DELETE /documents`: inside the token's tenant, with the search's own permission rule, one outcome an item."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

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
