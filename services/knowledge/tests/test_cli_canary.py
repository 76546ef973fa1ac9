"""`knowledge canary`: three exit statuses, one sentence, one line for those who watch."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog

from services.knowledge.tests.test_cli import DEVELOPMENT, PRODUCTION, Gateway, answer, gateway, result_line, run

__all__ = ["gateway"]

QUESTION = "Zwiebelkuchen?"
ASKED = ("canary", "--query", QUESTION, "--expect", "doc-1")
FALLBACK = {**answer()["rerank"], "status": "fallback", "reason": "transport"}


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """The command sets logging up for its process; here the process goes on."""
    root = logging.getLogger()
    handlers, level, levels = root.handlers[:], root.level, {name: logging.getLogger(name).level for name in ("httpx", "httpcore")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()


def found(document: str = "doc-1", *, rerank_score: float | None = 0.9, **fields: Any) -> httpx.Response:
    """An answer with this document on top and `doc-2` below."""
    lines = [(1, document, rerank_score), (2, "doc-2", 0.5)]
    results = [{**result_line(rank, rank, QUESTION, score), "id": f"chunk-{name}", "document_id": name} for rank, name, score in lines]
    return httpx.Response(200, json=answer(results=results, trace_id="0" * 32, **fields))


def line_of(stderr: str) -> dict[str, Any]:
    """The one structured line."""
    [line] = [json.loads(one) for one in stderr.splitlines() if one.startswith("{")]
    assert line["event"] == "canary.checked"
    return line  # type: ignore[no-any-return]


@pytest.mark.parametrize("expected", ["doc-1", "chunk-doc-1"])
def test_on_top_and_reranked_is_zero(gateway: Gateway, expected: str) -> None:
    """By the id of the passage or of its document."""
    gateway.response = found()
    result = run("canary", "--query", QUESTION, "--expect", expected, "--deadline-ms", "900")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "the expected passage is on top; reranking: applied, 850 ms.\n"
    line = line_of(result.stderr)
    assert (line["outcome"], line["reason"], line["rerank"], line["level"]) == ("passed", None, "applied", "info")
    assert json.loads(gateway.requests[0].content) == {"query": QUESTION, "deadline_ms": 900}


@pytest.mark.parametrize(
    ("response", "reason", "words"),
    [
        (found("doc-9"), "not_found", "not among the 2 results"),
        (found(rerank_score=None), "not_reranked", "not reranked: applied"),
        (httpx.Response(503, json={"code": "search_unavailable", "detail": "No leg."}), "refused", "search_unavailable"),
        (httpx.Response(502, text="<html>"), "no_gateway", "not JSON"),
        (httpx.ConnectError("refused"), "no_answer", "ConnectError"),
    ],
)
def test_anything_else_is_one_with_its_reason(gateway: Gateway, response: Any, reason: str, words: str) -> None:
    """One sentence on stderr, nothing on stdout, the same reason in the line for those who watch, and no text of the question."""
    gateway.response = response
    result = run(*ASKED)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    line = line_of(result.stderr)
    assert (line["outcome"], line["reason"], line["level"]) == ("failed", reason, "error")
    assert "Zwiebelkuchen" not in result.stderr


def test_not_on_top_names_the_rank(gateway: Gateway) -> None:
    """Second is not first."""
    gateway.response = found()
    result = run("canary", "--query", QUESTION, "--expect", "doc-2")
    assert (result.exit_code, line_of(result.stderr)["reason"]) == (1, "not_on_top")
    assert "at rank 2" in result.stderr


@pytest.mark.parametrize(("option", "status"), [((), 1), (("--allow-fallback",), 0)])
def test_the_hybrid_order_passes_only_where_it_is_allowed(gateway: Gateway, option: tuple[str, ...], status: int) -> None:
    """The fallback's reason stands in the sentence and in the line."""
    gateway.response = found(rerank_score=None, rerank=FALLBACK)
    result = run(*ASKED, *option)
    assert result.exit_code == status, result.stderr
    assert "fallback (transport)" in result.output
    assert line_of(result.stderr)["rerank_reason"] == "transport"


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (ASKED, PRODUCTION),
        (("canary", "--query", " ", "--expect", "doc-1"), DEVELOPMENT),
        (("canary", "--query", "x", "--expect", ""), DEVELOPMENT),
        (("canary", "--query", "x"), DEVELOPMENT),
        (ASKED, {**DEVELOPMENT, "LOG_LEVEL": "LOUD"}),
    ],
)
def test_a_wrong_configuration_is_two(gateway: Gateway, arguments: tuple[str, ...], env: dict[str, str]) -> None:
    """No token to bring and none to mint, a blank question, a missing expectation, a wrong setting: nobody is asked."""
    result = run(*arguments, env=env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert gateway.requests == []


def test_the_token_is_in_no_output(gateway: Gateway) -> None:
    """Neither where it passes nor where it fails."""
    for gateway.response in (found(), found("doc-9"), httpx.ConnectError("refused")):
        assert "very-secret" not in run(*ASKED, env={"GATEWAY_TOKEN": "very-secret"}).output
