"""Streams, receipts and the canary over the real services with real weights."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from examples.demo.services import Service
from tests.e2e.conftest import QUESTION, Stack, ask, post, projected, token

pytestmark = pytest.mark.models

OPERATOR = ("reader", "knowledge-operator")
GONE_S = 15.0


def streamed(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any], float]]:
    """(event, data, when it came) as each event comes."""
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: ")), time.monotonic()


def stream(gateway: Service, body: dict[str, Any], bearer: str | None = None) -> list[tuple[str, dict[str, Any], float]]:
    """All events of one streamed search."""
    headers = {"Authorization": f"Bearer {bearer or token('reader')}"}
    with httpx.stream("POST", f"{gateway.url}/search/stream", json=body, headers=headers, timeout=60, trust_env=False) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(streamed(response))


def test_the_hybrid_list_comes_first_and_the_reranked_one_after_it(gateway: Service) -> None:
    """Two lists, each that of its own search; the first is there before the second was scored."""
    (first, hybrid, hybrid_at), (second, reranked, reranked_at), (last, _, _) = stream(gateway, {"query": QUESTION})
    assert (first, second, last) == ("hybrid", "reranked", "done")
    assert (hybrid["rerank"], hybrid["ranking"]) == (None, "hybrid")
    assert projected(hybrid) == projected(ask(gateway, {"query": QUESTION, "rerank": False}))
    assert projected(reranked) == projected(ask(gateway, {"query": QUESTION}))
    # Half of what reranking took, because sending takes some of it.
    assert (reranked_at - hybrid_at) * 1000 > reranked["rerank"]["elapsed_ms"] / 2 > 0


def test_a_fallback_is_an_event_with_its_reason(stack: Stack) -> None:
    """With the reranker gone: the same list twice, and `fallback` between them and the end."""
    gateway = stack.gateway(RERANKER_URL="http://127.0.0.1:9")
    (_, hybrid, _), (event, fallback, _), _ = stream(gateway, {"query": QUESTION})
    assert (event, fallback["rerank"]["reason"]) == ("fallback", "transport")
    assert projected(fallback) == projected(hybrid)


def test_a_refusal_is_an_ordinary_problem(gateway: Service) -> None:
    """Before the first event there is a status to answer with."""
    response = post(f"{gateway.url}/search/stream", {"query": QUESTION, "top_k": 0})
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")


def test_a_caller_who_leaves_is_499_in_the_log(stack: Stack) -> None:
    """The connection closes after the first event; the gateway says so, counts the search as cancelled and serves the next one."""
    gateway = stack.gateway(MAX_CONCURRENT_SEARCHES="1")
    headers = {"Authorization": f"Bearer {token('reader')}"}
    body = {"query": QUESTION}
    with httpx.stream("POST", f"{gateway.url}/search/stream", json=body, headers=headers, timeout=60, trust_env=False) as response:
        assert next(streamed(response))[0] == "hybrid"
    ends = time.monotonic() + GONE_S
    while not (lines := left(gateway)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert lines, "the access log has no 499"
    assert ask(gateway, body)["results"]
    page = httpx.get(f"{gateway.url}/metrics", timeout=10, trust_env=False).text
    assert 'knowledge_searches_total{reranker_outcome="cancelled"} 1.0' in page


def left(gateway: Service) -> list[dict[str, Any]]:
    """The access lines of callers who went away."""
    lines = [json.loads(line) for line in gateway.log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "request" and line["status"] == 499]


def test_a_receipt_holds_what_the_services_did(gateway: Service) -> None:
    """Stages within the whole, both legs, fifteen passages within the budget, moves; over the stream it is the same."""
    answer = ask(gateway, {"query": QUESTION, "explain": True}, token(*OPERATOR))
    receipt = answer["receipt"]
    assert [stage["name"] for stage in receipt["stages"]] == ["embed", "retrieve", "fuse", "rerank", "merge"]
    assert sum(stage["elapsed_ms"] for stage in receipt["stages"]) <= answer["elapsed_ms"] + 1
    assert {leg["leg"] for leg in receipt["legs"]} == {"lexical", "vector"}
    assert 0 < receipt["budget"]["sent_chars"] <= receipt["budget"]["budget_chars"]
    assert (receipt["budget"]["sent_documents"], len(receipt["head"])) == (15, 15)
    assert any(line["moved"] for line in receipt["head"])
    last = stream(gateway, {"query": QUESTION, "explain": True}, token(*OPERATOR))[1][1]
    assert last["receipt"]["head"] == receipt["head"]
    assert last["receipt"]["legs"] == receipt["legs"]


def test_receipts_are_for_operators(gateway: Service) -> None:
    """Others get their answer, and a warning."""
    answer = ask(gateway, {"query": QUESTION, "explain": True})
    assert "receipt" not in answer
    assert any("knowledge-operator" in warning for warning in answer["warnings"])


def test_the_command_line_explains(stack: Stack, gateway: Service) -> None:
    """`knowledge explain` prints legs, head, budget, time and reasons."""
    done = stack.command("knowledge", "explain", QUESTION, GATEWAY_URL=gateway.url)
    assert done.returncode == 0, done.stderr
    for words in ("Legs", "Head", "Time", "Why here", "15 of at most 15 passages", "leg found it at rank", "reranked: 15 of 15"):
        assert words in done.stdout


def test_the_canary_sings_and_falls_silent(stack: Stack, gateway: Service) -> None:
    """0 where the passage is on top and reranked, 1 where it is not or was not, 2 without a token; fallbacks where they are allowed."""
    top = ask(gateway, {"query": QUESTION})["results"][0]["document_id"]
    known = ("knowledge", "canary", "--query", QUESTION, "--expect")
    done = stack.command(*known, top, GATEWAY_URL=gateway.url)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr)["event"] == "canary.checked"
    assert QUESTION not in done.stderr
    assert stack.command(*known, "no-such-document", GATEWAY_URL=gateway.url).returncode == 1
    assert stack.command(*known, top, GATEWAY_URL=gateway.url, KNOWLEDGE_ENV="production", AUTH_AUDIENCE="x").returncode == 2
    plain = stack.gateway(RERANKER_URL="http://127.0.0.1:9")
    first = ask(plain, {"query": QUESTION})["results"][0]["document_id"]
    refused = stack.command(*known, first, GATEWAY_URL=plain.url)
    assert (refused.returncode, "not reranked: fallback (transport)" in refused.stderr) == (1, True)
    assert stack.command(*known, first, "--allow-fallback", GATEWAY_URL=plain.url).returncode == 0
