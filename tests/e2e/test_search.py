"""Questions to the real gateway, the real embedding-service and the real reranker-service."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from examples.demo.services import Service, wait_ready
from tests.e2e.conftest import QUESTION, Stack, ask, post, projected, token

pytestmark = pytest.mark.models


def test_the_head_is_reranked_and_both_ranks_are_told(gateway: Service) -> None:
    """Nitrogen deficiency comes to the top two, five results when nobody asks for more, every one scored."""
    answer = ask(gateway, {"query": QUESTION})
    assert (answer["ranking"], answer["rerank"]["status"], answer["rerank"]["scored"]) == ("reranked", "applied", 15)
    assert len(answer["results"]) == 5
    assert any("Stickstoff" in one["title"] for one in answer["results"][:2])
    assert sorted(one["scores"]["rerank"] for one in answer["results"])[::-1] == [one["scores"]["rerank"] for one in answer["results"]]
    assert [one["hybrid_rank"] for one in answer["results"]] != [1, 2, 3, 4, 5]


def test_the_simple_way_to_ask_gives_the_same(gateway: Service) -> None:
    """GET /search answers as POST /search does."""
    response = httpx.get(
        f"{gateway.url}/search",
        params={"q": QUESTION, "top_k": 3},
        headers={"Authorization": f"Bearer {token('reader')}"},
        timeout=60,
        trust_env=False,
    )
    assert response.status_code == 200
    assert projected(response.json()) == projected(ask(gateway, {"query": QUESTION, "top_k": 3}))


@pytest.fixture
def forgetful(stack: Stack) -> Iterator[Service]:
    """A gateway whose reranker remembers nothing: what was scored once would be there at once."""
    reranker = stack.start("knowledge-reranker", RERANK_CACHE_ENTRIES="0", RERANK_PASSAGE_CACHE_MB="0")
    wait_ready(reranker)
    gateway = stack.gateway(RERANKER_URL=reranker.url)
    yield gateway
    gateway.stop()
    reranker.stop()


def test_a_short_deadline_gives_a_partial_answer_in_time(forgetful: Service) -> None:
    """Scored passages first, the rest in hybrid order, and the caller told."""
    gateway = forgetful
    full = ask(gateway, {"query": QUESTION, "top_k": 15})
    off = ask(gateway, {"query": QUESTION, "top_k": 15, "rerank": False})
    share = 0.5
    for _ in range(10):
        others = full["elapsed_ms"] - full["rerank"]["elapsed_ms"]
        deadline_ms = max(100, int(250 + others + share * full["rerank"]["elapsed_ms"]))
        answer = ask(gateway, {"query": QUESTION, "top_k": 15, "deadline_ms": deadline_ms})
        if answer["rerank"]["status"] == "partial":
            break
        share *= 0.75 if answer["rerank"]["status"] == "applied" else 1.35
    assert (answer["ranking"], answer["rerank"]["reason"]) == ("partially_reranked", "deadline")
    assert answer["elapsed_ms"] < deadline_ms + 2000
    scored = [one for one in answer["results"] if one["scores"]["rerank"] is not None]
    unscored = [one for one in answer["results"] if one["scores"]["rerank"] is None]
    assert 0 < len(scored) == answer["rerank"]["scored"] < 15
    assert answer["results"] == scored + unscored
    assert [one["hybrid_rank"] for one in unscored] == sorted(one["hybrid_rank"] for one in unscored)
    assert {one["id"] for one in answer["results"]} == {one["id"] for one in off["results"]}


def test_identifiers_keep_their_tier_after_reranking(gateway: Service) -> None:
    """A passage with the exact code is never below one with a near miss."""
    answer = ask(gateway, {"query": "Wofür ist das Substrat ZS-204?", "top_k": 15})
    holds = ["zs-204" in one["matched_identifiers"] for one in answer["results"]]
    assert answer["ranking"] == "reranked"
    assert any(holds)
    assert holds == sorted(holds, reverse=True)


def test_scopes_have_their_own_results_and_share_one_rerank(gateway: Service) -> None:
    """Each scope keeps to its filter and the sum of the heads to the budget."""
    scopes = [
        {"name": "pests", "filters": {"category": "schaedlinge"}},
        {"name": "water", "filters": {"category": "giessen"}, "top_k": 3},
    ]
    answer = ask(gateway, {"query": "Kleine Fliegen um den Topf", "scopes": scopes})
    assert answer["results"] == []
    assert [scope["name"] for scope in answer["scopes"]] == ["pests", "water"]
    for scope, category, length in zip(answer["scopes"], ("schaedlinge", "giessen"), (5, 3), strict=True):
        assert len(scope["results"]) == length
        assert {one["metadata"]["category"] for one in scope["results"]} == {category}
    assert sum(scope["rerank"]["candidates"] for scope in answer["scopes"]) == 15


@pytest.mark.parametrize(("roles", "tenant"), [((), "default"), (("reader",), "other"), (("writer",), "default")])
def test_nobody_sees_what_their_identity_does_not_allow(gateway: Service, roles: tuple[str, ...], tenant: str) -> None:
    """No roles, another tenant, another role: no results, and 200."""
    answer = ask(gateway, {"query": QUESTION}, token(*roles, tenant=tenant))
    assert answer["results"] == []
    assert answer["degraded"] == ([] if roles else ["no_permissions"])


STRANGE = [
    "\ud800 Blatt \udfff",
    "Blatt\x00gelb",
    "🌱🍃👩‍🌾 gelb",
    "أوراق صفراء",
    "</s></s> gelbe Blätter <s>",
    "[SEP] gelb [CLS]",
]


@pytest.mark.parametrize("text", STRANGE)
def test_strange_text_in_queries_and_documents_is_served(gateway: Service, text: str) -> None:
    """Lone surrogates, NUL, emoji, right-to-left text and special tokens: 200, in a query and in 100 kB of a document."""
    assert ask(gateway, {"query": text})["ranking"] in ("reranked", "hybrid")
    writer = token("knowledge-writer", tenant="strange")
    document = {"id": "strange", "title": text, "content": (text + " ") * (100_000 // len(text)), "allowed_roles": ["reader"]}
    item = post(f"{gateway.url}/documents", [document], writer).json()["items"][0]
    assert item["status"] == "indexed", item
    found = ask(gateway, {"query": text}, token("reader", tenant="strange"))
    assert {one["document_id"] for one in found["results"]} == {"strange"}


def test_the_command_line_shows_ranks_and_the_reason(stack: Stack, gateway: Service) -> None:
    """`knowledge search` prints a table and one line that says whether it was reranked."""
    done = stack.command("knowledge", "search", QUESTION, GATEWAY_URL=gateway.url)
    assert done.returncode == 0, done.stderr
    assert "Stickstoffmangel" in done.stdout
    assert "reranked: 15 of 15 passages" in done.stdout
    plain = stack.command("knowledge", "search", QUESTION, "--no-rerank", GATEWAY_URL=gateway.url)
    assert "not reranked: not_requested" in plain.stdout


def test_the_doctor_finds_everything_in_order(stack: Stack, gateway: Service) -> None:
    """All lines ok, status 0."""
    done = stack.command("knowledge", "doctor")
    assert done.returncode == 0, done.stdout
    assert all(line.startswith("ok") for line in done.stdout.splitlines())


def test_no_text_in_logs_or_metrics(stack: Stack, gateway: Service) -> None:
    """A marker in a query and in a document shows up in no log and no metric of any service."""
    marker = "Zwetschgenknödelmarker"
    writer = token("knowledge-writer", tenant="marker")
    post(
        f"{gateway.url}/documents",
        [{"id": "m", "title": marker, "content": f"{marker} im Text", "allowed_roles": ["reader"]}],
        writer,
    )
    found = ask(gateway, {"query": f"{marker}?"}, token("reader", tenant="marker"))
    assert len(found["results"]) == 1
    for service in stack.services.values():
        assert marker not in service.log.read_text(encoding="utf-8", errors="replace"), service.name
        if service.process.poll() is None:
            assert marker not in httpx.get(f"{service.url}/metrics", timeout=10, trust_env=False).text, service.name


def test_the_tour_of_the_demo_ends_well(stack: Stack) -> None:
    """`make demo` without a terminal: five searches, each as described, then the end."""
    corpus = str(Path("examples/houseplants/corpus").resolve())
    done = stack.command("python", "-m", "examples.demo", "demo", "--corpus", corpus, PYTHONPATH=str(Path.cwd()))
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("reranked: 15 of 15", "not_requested", "partly reranked (deadline)", "hybrid order: transport", "no_permissions"):
        assert words in done.stdout
