"""The shapes that other rerankers' clients speak."""

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from reranker.outcome import Outcome, Scored
from reranker.wire import refuse_cut
from servicekit.problems import Problem

StartApp = Callable[..., AbstractAsyncContextManager[Any]]

DOCUMENTS = ["the sun", "water the plant today", "water it", "the plant likes water"]
QUERY = "water the plant"


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_the_list_shape_is_what_cohere_jina_and_vllm_have_in_common(start_app: StartApp, version: str) -> None:
    """Best first, by index, with usage and meta; no passage is echoed unless it is asked for."""
    async with start_app() as running:
        response = await running.client.post(f"/{version}/rerank", json={"query": QUERY, "documents": DOCUMENTS, "model": ""})
    body = response.json()
    assert response.status_code == 200
    assert [one["index"] for one in body["results"]] == [1, 3, 0, 2]
    assert set(body["results"][0]) == {"index", "relevance_score"}
    assert body["results"][0]["relevance_score"] == pytest.approx(1 / (1 + math.exp(-3)))
    assert (body["object"], body["model"]) == ("rerank", "ms-marco-minilm-l12-v2")
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] > 0
    assert body["meta"]["api_version"]["version"] == version[1:]


@pytest.mark.parametrize("field", [{"return_documents": False}, {"truncate_prompt_tokens": -1}, {"raw_scores": True}])
async def test_the_shared_path_speaks_the_list_to_who_says_something_of_it(start_app: StartApp, field: dict[str, Any]) -> None:
    """Clients of vLLM and Infinity ask here."""
    async with start_app() as running:
        body = (await running.client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, **field})).json()
        own = (await running.client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, "model": ""})).json()
    assert [one["index"] for one in body["results"]] == [1, 3, 0, 2]
    assert "relevance_score" in body["results"][0]
    assert own["status"] == "complete"


async def test_a_mistyped_field_of_the_own_shape_is_refused(start_app: StartApp) -> None:
    """It is nobody's."""
    async with start_app() as running:
        response = await running.client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, "allow_partal": True})
    assert response.status_code == 422
    assert response.json()["detail"] == "allow_partal: unknown field"


async def test_passages_may_be_objects_and_are_echoed_as_such(start_app: StartApp) -> None:
    """As Cohere's v1 and Jina send them."""
    request = {"query": QUERY, "documents": [{"text": text} for text in DOCUMENTS], "return_documents": True, "top_n": 2}
    async with start_app() as running:
        body = (await running.client.post("/v1/rerank", json=request)).json()
    assert [one["document"]["text"] for one in body["results"]] == [DOCUMENTS[1], DOCUMENTS[3]]


async def test_top_n_of_zero_is_all(start_app: StartApp) -> None:
    """As vLLM has it."""
    async with start_app() as running:
        body = (await running.client.post("/v2/rerank", json={"query": QUERY, "documents": DOCUMENTS, "top_n": 0})).json()
    assert len(body["results"]) == len(DOCUMENTS)


async def test_fields_that_steer_other_servers_are_ignored(start_app: StartApp) -> None:
    """Clients send what their own server knows."""
    request = {"query": QUERY, "documents": DOCUMENTS, "max_tokens_per_doc": 9, "priority": 0, "rank_fields": ["text"], "user": "x"}
    async with start_app() as running:
        assert (await running.client.post("/v2/rerank", json=request)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_raw_scores_are_logits(start_app: StartApp, path: str) -> None:
    """Where the model has them."""
    async with start_app() as running:
        body = (await running.client.post(path, json={"query": QUERY, "documents": DOCUMENTS, "raw_scores": True})).json()
    assert body["results"][0]["relevance_score"] == 3.0


async def test_texts_get_teis_bare_array(start_app: StartApp) -> None:
    """At the path that this service's own shape has: `texts` tells them apart."""
    async with start_app() as running:
        plain = (await running.client.post("/rerank", json={"query": QUERY, "texts": DOCUMENTS})).json()
        echoed = (
            await running.client.post("/rerank", json={"query": QUERY, "texts": DOCUMENTS, "return_text": True, "raw_scores": True})
        ).json()
    assert [one["index"] for one in plain] == [1, 3, 0, 2]
    assert set(plain[0]) == {"index", "score"}
    assert echoed[0] == {"index": 1, "score": 3.0, "text": DOCUMENTS[1]}


@pytest.mark.parametrize(
    ("path", "field"), [("/rerank", "documents"), ("/rerank", "texts"), ("/v1/rerank", "documents"), ("/v2/rerank", "documents")]
)
async def test_empty_lists_are_answered_and_too_long_ones_named(start_app: StartApp, path: str, field: str) -> None:
    """Whatever the shape."""
    async with start_app(rerank_scored_chars_budget=20) as running:
        empty = await running.client.post(path, json={"query": QUERY, field: []})
        many = await running.client.post(path, json={"query": QUERY, field: ["x"] * 101})
        long = await running.client.post(path, json={"query": QUERY, field: ["x" * 21]})
    assert empty.status_code == 200
    assert (empty.json() if field == "texts" else empty.json()["results"]) == []
    assert many.status_code == 422
    assert f"{field}" in many.json()["detail"]
    assert "100" in many.json()["detail"]
    assert long.json()["code"] == "scored_chars_exceeded"


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_an_unknown_model_is_named_with_what_is_there(start_app: StartApp, path: str) -> None:
    """404, as their own servers."""
    async with start_app() as running:
        response = await running.client.post(path, json={"query": QUERY, "documents": DOCUMENTS, "model": "rerank-v9"})
    assert response.status_code == 404
    assert "ms-marco-minilm-l12-v2" in response.json()["detail"]


@pytest.mark.parametrize(("path", "field"), [("/rerank", "texts"), ("/v1/rerank", "documents"), ("/v2/rerank", "documents")])
async def test_a_deadline_is_never_answered_in_part(start_app: StartApp, path: str, field: str) -> None:
    """These shapes could not say so."""
    async with start_app(seconds_per_token=0.5) as running:
        response = await running.client.post(path, json={"query": QUERY, field: DOCUMENTS}, headers={"X-Deadline-Ms": "5000"})
    assert response.status_code in (429, 503)
    assert response.json()["status"] in ("busy", "timeout")


def test_a_cut_pair_is_refused_where_cutting_is() -> None:
    """`truncate: false` names the first passage that does not fit."""
    outcome = Outcome((Scored(0, 1.0, 9, truncated=False), Scored(1, 2.0, 512, truncated=True)), ())
    refuse_cut(outcome, "texts", allowed=True)
    with pytest.raises(Problem, match=r"^texts\.1: does not fit") as refused:
        refuse_cut(outcome, "texts", allowed=False)
    assert (refused.value.status, refused.value.code) == (422, "too_many_tokens")


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_the_key_is_asked_for_here_too(start_app: StartApp, path: str) -> None:
    """Every shape is behind it."""
    async with start_app(rerank_api_key="k") as running:
        response = await running.client.post(path, json={"query": QUERY, "documents": DOCUMENTS})
    assert response.status_code == 401
