"""The embedding-service's client: what is sent, what is accepted, and that every failure is an EmbeddingError with one word."""

import json
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider

from knowledge.adapters.embedding_http import HttpEmbedder
from knowledge.errors import EmbeddingError
from knowledge.models import Embeddings
from services.knowledge.tests.wires import Answer, Wire, always, raising, too_large, unused_port

TRACER = TracerProvider().get_tracer("test")
GOOD = {"vectors": [[1, 0.5], [0.0, 1.0]], "model": "e5", "fingerprint": "fp"}


def over(answer: Answer) -> tuple[HttpEmbedder, Wire]:
    """The embedder over a scripted wire."""
    wire = Wire(answer)
    return HttpEmbedder("http://embedding/", tracer=TRACER, client=wire.client()), wire


async def failure(answer: Answer) -> str:
    """The word of the failure."""
    with pytest.raises(EmbeddingError) as caught:
        await over(answer)[0].embed(["a", "b"], "query", 2.0)
    return str(caught.value)


async def test_vectors_come_back_in_order_with_the_fingerprint() -> None:
    """What the service answered, as tuples of floats."""
    found = await over(always(json=GOOD))[0].embed(["a", "b"], "query", 2.0)
    assert found == Embeddings(((1.0, 0.5), (0.0, 1.0)), "e5", "fp")
    assert found.dimension == 2


async def test_what_is_sent() -> None:
    """Texts and kind in one call; the deadline is a little below the wait."""
    embedder, wire = over(always(json=GOOD))
    await embedder.embed(["a", "b"], "passage", 2.0)
    [request] = wire.requests
    assert (request.method, str(request.url)) == ("POST", "http://embedding/embed")
    assert json.loads(request.content) == {"texts": ["a", "b"], "kind": "passage"}
    assert request.headers["X-Deadline-Ms"] == "1950"


async def test_the_deadline_is_never_zero_or_negative() -> None:
    """A wait of almost nothing still sends a valid header."""
    embedder, wire = over(always(json=GOOD))
    await embedder.embed(["a", "b"], "query", 0.01)
    assert wire.requests[0].headers["X-Deadline-Ms"] == "1"


def changed(**fields: Any) -> Answer:
    """The good answer with other fields."""
    return always(text=json.dumps({**GOOD, **fields}))


@pytest.mark.parametrize(
    "answer",
    [
        changed(vectors=[[1, 2]]),
        changed(vectors=[[1, 2], [1, 2], [1, 2]]),
        changed(vectors=[[1, 2], [1]]),
        changed(vectors=[[], []]),
        changed(vectors=[[1, "a"], [1, 2]]),
        changed(vectors=[[1, None], [1, 2]]),
        changed(vectors=[[1, float("nan")], [1, 2]]),
        changed(vectors=[[1, float("inf")], [1, 2]]),
        changed(vectors=[[1, 10**400], [1, 2]]),
        changed(vectors=[5, 6]),
        changed(vectors=None),
        changed(vectors={"a": [1]}),
        always(json={"model": "e5", "fingerprint": "fp"}),
        always(json={"vectors": GOOD["vectors"], "model": "e5"}),
        always(json=[1, 2]),
        always(json=None),
        always(text="<html>"),
        always(text=""),
        always(text="[" * 100_000),
        lambda _: too_large(GOOD),
    ],
)
async def test_garbage_is_a_malformed_response(answer: Answer) -> None:
    """The count, one dimension for all, finite numbers: what is not that is no embedding."""
    assert await failure(answer) == "malformed_response"


@pytest.mark.parametrize("status", [302, 400, 404, 422, 429, 500, 503])
async def test_another_status_is_named(status: int) -> None:
    """No redirect is followed and no body is read into the message."""
    assert await failure(always(status, text="secret text", headers={"Location": "http://evil.example"})) == f"http_{status}"


@pytest.mark.parametrize(
    ("kind", "word", "tries"),
    [
        (httpx.ReadTimeout, "timeout", 1),
        (httpx.PoolTimeout, "timeout", 1),
        (httpx.ConnectError, "transport", 2),
        (httpx.ReadError, "transport", 2),
    ],
)
async def test_failures_of_the_wire(kind: type[httpx.TransportError], word: str, tries: int) -> None:
    """A broken connection is tried once more, a time-out is not."""
    embedder, wire = over(raising(kind))
    with pytest.raises(EmbeddingError, match=word):
        await embedder.embed(["a", "b"], "query", 2.0)
    assert len(wire.requests) == tries


async def test_a_service_that_is_not_there() -> None:
    """Nobody listens: an EmbeddingError, with the product's own client."""
    embedder = HttpEmbedder(f"http://127.0.0.1:{unused_port()}", tracer=TRACER)
    with pytest.raises(EmbeddingError, match="transport"):
        await embedder.embed(["a"], "query", 2.0)
    await embedder.aclose()


async def test_info_needs_a_fingerprint_and_a_dimension() -> None:
    """Without either of them the index cannot be opened: that is a malformed answer, not a surprise later on."""
    good = {"fingerprint": "fp", "dimension": 384}
    assert await over(always(json=good))[0].info(1.0) == good
    for bad in (
        {"dimension": 384},
        {"fingerprint": 5, "dimension": 384},
        [],
        None,
        {"fingerprint": "fp"},
        {"fingerprint": "fp", "dimension": "many"},
    ):
        with pytest.raises(EmbeddingError, match="malformed_response"):
            await over(always(json=bad))[0].info(1.0)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (raising(httpx.ConnectError), "transport"),
        (raising(httpx.ReadTimeout), "transport|timeout"),
        (always(500), "transport|http_500"),
        (always(text="<html>"), "malformed_response"),
        (always(text="[" * 100_000), "malformed_response"),
        (lambda _: too_large({"fingerprint": "fp", "dimension": 3}), "malformed_response"),
    ],
)
async def test_an_info_that_cannot_be_had(answer: Answer, word: str) -> None:
    """Every failure is an EmbeddingError."""
    with pytest.raises(EmbeddingError, match=word):
        await over(answer)[0].info(1.0)
