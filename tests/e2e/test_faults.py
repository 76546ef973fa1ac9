"""What happens when a part is slow, busy, broken or gone: hybrid order, in time, with the reason."""

import signal
import socket
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from examples.demo.services import Service, start, wait_ready
from tests.e2e.conftest import QUESTION, SECRET, Stack, ask, post, projected, token

pytestmark = pytest.mark.models

BODY = {"query": QUESTION, "top_k": 20}


def metric(service: Service, line: str) -> float:
    """The value of a Prometheus line that begins so; 0 without one."""
    page = httpx.get(f"{service.url}/metrics", timeout=10, trust_env=False).text
    return sum(float(one.rsplit(" ", 1)[1]) for one in page.splitlines() if one.startswith(line))


@pytest.fixture(scope="module")
def closed_port() -> Iterator[int]:
    """A port that refuses connections: bound, never listening."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_reranker_gone(stack: Stack, gateway: Service, closed_port: int) -> None:
    """Connection refused: `transport` in body, header, metric and log; the list is the one without reranking."""
    lonely = stack.gateway(RERANKER_URL=f"http://127.0.0.1:{closed_port}")
    response = post(f"{lonely.url}/search", BODY)
    answer = response.json()
    assert response.headers["X-Reranker-Fallback"] == "transport"
    assert (answer["ranking"], answer["rerank"]["status"], answer["rerank"]["reason"]) == ("hybrid", "fallback", "transport")
    assert projected(answer) == projected(ask(gateway, {**BODY, "rerank": False}))
    assert metric(lonely, 'reranker_fallbacks_total{reranker_fallback_reason="transport"') == 1
    assert '"reason": "transport"' in lonely.log.read_text()


def test_reranker_silent(stack: Stack, gateway: Service) -> None:
    """A server that accepts and never answers: `client_timeout`, soon after the deadline, hybrid order."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        lonely = stack.gateway(RERANKER_URL=f"http://127.0.0.1:{silent.getsockname()[1]}")
        answer = ask(lonely, {**BODY, "deadline_ms": 1500})
    assert answer["rerank"]["reason"] == "client_timeout"
    assert answer["elapsed_ms"] < 3500
    assert projected(answer) == projected(ask(gateway, {**BODY, "rerank": False}))


def test_reranker_killed_and_back(stack: Stack) -> None:
    """Kill -9 under way: the next search falls back, and reranking returns with the service."""
    reranker = stack.start("knowledge-reranker")
    wait_ready(reranker)
    gateway = stack.gateway(RERANKER_URL=reranker.url)
    assert ask(gateway, BODY)["ranking"] == "reranked"
    reranker.stop(signal.SIGKILL)
    assert ask(gateway, BODY)["rerank"]["reason"] == "transport"
    again = start("knowledge-reranker", {**stack.settings}, stack.folder / "again", port=int(reranker.url.rsplit(":", 1)[1]))
    stack.services["again"] = again
    wait_ready(again)
    assert ask(gateway, BODY)["ranking"] == "reranked"


def test_wrong_key_stops_the_start_and_names_the_setting(stack: Stack) -> None:
    """A provider that refuses the key is found at start, in one sentence."""
    reranker = stack.start("knowledge-reranker", RERANK_API_KEY="right-key-for-the-reranker")
    wait_ready(reranker)
    done = stack.command("knowledge", "serve", RERANKER_URL=reranker.url, RERANKER_API_KEY="wrong", PORT="0")
    assert done.returncode == 2
    assert "RERANKER_API_KEY" in done.stderr
    assert "Traceback" not in done.stderr


def test_embedding_service_gone_and_back(stack: Stack) -> None:
    """The lexical leg answers, the answer says what is missing, and a floor is not applied to it."""
    embedding = stack.start("knowledge-embedding")
    wait_ready(embedding)
    gateway = stack.gateway(EMBEDDING_URL=embedding.url)
    assert ask(gateway, BODY)["degraded"] == []
    embedding.stop()
    answer = ask(gateway, {**BODY, "min_similarity": 0.99})
    assert answer["degraded"] == ["vector"]
    assert answer["results"]
    assert all(one["scores"]["similarity"] is None for one in answer["results"])
    assert any("min_similarity" in warning for warning in answer["warnings"])


def test_reranker_off_or_not_configured_is_never_called(stack: Stack) -> None:
    """Not one call, status `skipped`, and no fallback counted."""
    for settings, reason in (({"RERANKER_ENABLED": "false"}, "disabled"), ({"RERANKER_URL": ""}, "not_configured")):
        lonely = stack.gateway(**settings)
        answer = ask(lonely, BODY)
        assert (answer["rerank"]["status"], answer["rerank"]["reason"]) == ("skipped", reason)
        assert metric(lonely, "reranker_provider_calls_total") == 0


def test_a_broken_budget_stops_the_start(stack: Stack) -> None:
    """One sentence with two settings that fit, status 2."""
    done = stack.command("knowledge", "serve", RERANKER_INITIAL_K="20", PORT="0")
    assert done.returncode == 2
    assert "RERANKER_INITIAL_K=15" in done.stderr
    assert "RERANKER_MAX_DOCUMENT_CHARS=375" in done.stderr


def test_deadlines_that_do_not_nest_stop_the_start(stack: Stack) -> None:
    """Both settings are named."""
    done = stack.command("knowledge", "serve", SEARCH_DEADLINE_S="20", PORT="0")
    assert done.returncode == 2
    assert "RERANKER_TIMEOUT_S" in done.stderr
    assert "SEARCH_DEADLINE_S" in done.stderr


def test_an_index_of_another_model_stops_the_start(stack: Stack) -> None:
    """What was built for one embedding model is not searched with another."""
    other = stack.start("knowledge-embedding", EMBEDDING_MODEL="bge-small-en-v1.5")
    wait_ready(other)
    done = stack.command("knowledge", "serve", EMBEDDING_URL=other.url, PORT="0")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_development_tokens_need_development_mode(stack: Stack) -> None:
    """`knowledge token` refuses in production."""
    done = stack.command("knowledge", "token", "--role", "reader", KNOWLEDGE_ENV="production", AUTH_AUDIENCE="kg")
    assert done.returncode == 2
    assert "KNOWLEDGE_ENV=development" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_permission_change_and_a_delete_are_effective_at_once(gateway: Service) -> None:
    """The search right after the acknowledgement already obeys."""
    writer, reader, other = token("knowledge-writer", tenant="acl"), token("reader", tenant="acl"), token("other", tenant="acl")
    document = {
        "id": "moss",
        "title": "Moos",
        "content": "Moos auf der Erde zeigt zu viel Wasser an.",
        "allowed_roles": ["reader"],
    }
    first = post(f"{gateway.url}/documents", [document], writer).json()["items"][0]
    assert first["embedded"] == 1
    assert len(ask(gateway, {"query": "Moos"}, reader)["results"]) == 1
    moved = post(f"{gateway.url}/documents", [{**document, "allowed_roles": ["other"]}], writer).json()["items"][0]
    assert (moved["written"], moved["embedded"]) == (1, 0)
    assert ask(gateway, {"query": "Moos"}, reader)["results"] == []
    assert len(ask(gateway, {"query": "Moos"}, other)["results"]) == 1
    gone = httpx.delete(f"{gateway.url}/documents/moss", headers={"Authorization": f"Bearer {writer}"}, timeout=30, trust_env=False)
    assert gone.status_code == 200
    assert ask(gateway, {"query": "Moos"}, other)["results"] == []
