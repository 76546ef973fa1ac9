"""`knowledge explain`: the receipt for people, and what it needs."""

import copy
import json
from typing import Any

import httpx
import jwt
import pytest

from services.knowledge.tests.serving import SECRET
from services.knowledge.tests.test_cli import DEVELOPMENT, PRODUCTION, Gateway, answer, gateway, result_line, run

__all__ = ["gateway"]

LONG_ID = "f" * 64
RECEIPT: dict[str, Any] = {
    "deadline_ms": 8000.0,
    "stages": [
        {"name": "embed", "start_ms": 0.0, "elapsed_ms": 20.0, "left_ms": 8000.0},
        {"name": "rerank", "start_ms": 50.0, "elapsed_ms": 800.0, "left_ms": 7950.0},
    ],
    "legs": [
        {"scope": "", "sub_query": 0, "leg": "vector", "hits": 50, "below_floor": 3, "failed": False, "timed_out": True,
         "shards_failed": False, "weight": 1.0, "factor": 1.0,
         "top": [{"id": "a", "rank": 1, "score": 0.8312}, {"id": LONG_ID, "rank": 2, "score": 0.8}]},
    ],
    "fusion": {"rrf_k": 60, "weights": {"lexical": 0.03, "vector": 1.0}},
    "budget": {"initial_k": 15, "max_document_chars": 500, "budget_chars": 7500, "sent_documents": 2, "sent_chars": 612, "query_chars": 15},
    "head": [
        {"scope": "", "id": "a", "hybrid_rank": 3, "rank_after": 1, "chars_sent": 500, "rerank": 0.9412, "moved": 2},
        {"scope": "", "id": LONG_ID, "hybrid_rank": 1, "rank_after": 2, "chars_sent": 112, "rerank": None, "moved": -1},
    ],
    "identifiers": {"strong": ["pol-55012"], "soft": []},
}  # fmt: skip


def explained(**fields: Any) -> dict[str, Any]:
    """An answer with its receipt."""
    line = {**result_line(1, 3, "[bold]Gießen[/bold]", 0.9412), "id": "a"}
    why = {"why": ["The vector leg found it at rank 1.", "Reranking scored it 0.941; it moved from 3 to 1."]}
    return {**answer(results=[{**line, "explain": why}]), "receipt": copy.deepcopy(RECEIPT), **fields}


def test_it_prints_the_receipt_for_people(gateway: Gateway) -> None:
    """Legs, fusion, the head with its moves, characters against the budget, time against the deadline, reasons; titles are text."""
    gateway.response = httpx.Response(200, json=explained())
    result = run("explain", "Wie oft gießen?")
    assert result.exit_code == 0, result.stderr
    for piece in (
        "strong pol-55012",
        "timed_out",
        "1. [bold]Gießen[/bold] (0.831)",
        "2. fffffffffff… (0.8)",
        "60 + rank",
        "lexical 0.03, vector 1",
        "+2",
        "-1",
        "0.941",
        "2 of at most 15 passages, 612 of 7500 characters (at most 500 each); question: 15",
        "left of 8000",
        "7950",
        "- The vector leg found it at rank 1.",
        "reranked: 15 of 15 passages",
    ):
        assert piece in result.stdout, piece


def test_the_waterfall_begins_where_the_stage_began(gateway: Gateway) -> None:
    """The bar of the rerank stage begins after that of the embedding and takes most of the width."""
    gateway.response = httpx.Response(200, json=explained())
    lines = run("explain", "x").stdout.splitlines()
    [embed], [rerank] = ([line for line in lines if line.startswith(f"{name} ")] for name in ("embed", "rerank"))
    assert (embed.count("█"), rerank.count("█")) == (1, 45)
    assert embed.index("█") < rerank.index("█")


def test_what_is_sent(gateway: Gateway) -> None:
    """`explain` among what was given, with a minted token that holds the operator's role beside the named ones."""
    gateway.response = httpx.Response(200, json=explained())
    run("explain", "frage", "--top-k", "3", "--role", "editor", "--no-rerank", env={**DEVELOPMENT, "AUTH_OPERATOR_ROLE": "ops"})
    [request] = gateway.requests
    assert json.loads(request.content) == {"query": "frage", "top_k": 3, "rerank": False, "explain": True}
    claims = jwt.decode(request.headers["authorization"].removeprefix("Bearer "), SECRET, algorithms=["HS256"])
    assert claims["roles"] == ["editor", "ops"]


def test_a_token_of_ones_own_needs_no_signing_keys(gateway: Gateway) -> None:
    """In production the operator brings a token."""
    gateway.response = httpx.Response(200, json=explained())
    assert run("explain", "x", env={"GATEWAY_TOKEN": "abc"}).exit_code == 0
    assert gateway.requests[0].headers["authorization"] == "Bearer abc"
    assert run("explain", "x", env=PRODUCTION).exit_code == 2


def test_json_is_the_receipt(gateway: Gateway) -> None:
    """And nothing else, on stdout."""
    gateway.response = httpx.Response(200, json=explained())
    assert json.loads(run("explain", "x", "--json").stdout) == RECEIPT


def test_a_token_without_the_role_is_one_sentence(gateway: Gateway) -> None:
    """The gateway's own warning says which role is missing; exit status 1."""
    gateway.response = httpx.Response(200, json=answer(warnings=["explain: left out, because the token lacks the role ops"]))
    result = run("explain", "x", "--token", "abc")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "lacks the role ops" in result.stderr


@pytest.mark.parametrize("fields", [{"results": []}, {"rerank": {**answer()["rerank"], "status": "fallback", "reason": "transport"}}])
def test_nothing_found_and_fallbacks_are_shown_too(gateway: Gateway, fields: dict[str, Any]) -> None:
    """The line on reranking is always the last."""
    gateway.response = httpx.Response(200, json=explained(**fields))
    result = run("explain", "x")
    assert result.exit_code == 0, result.stderr
    assert "reranked" in result.stdout.splitlines()[-1]
