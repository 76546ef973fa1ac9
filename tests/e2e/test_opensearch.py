"""The same gateway over a real OpenSearch node, as it starts in a cluster: in any order, with nothing there yet."""

import secrets
from collections.abc import Iterator

import httpx
import pytest

from examples.demo.services import Service
from tests.e2e.conftest import CORPUS, QUESTION, Stack, ask, post, token
from tests.parts.opensearch.indices import delete_behind

pytestmark = [pytest.mark.models, pytest.mark.opensearch]


@pytest.fixture(scope="module")
def over_opensearch(stack: Stack, opensearch_url: str) -> Iterator[tuple[Service, dict[str, str]]]:
    """A gateway that started before its index existed, and the settings that commands need to write to it."""
    alias = f"kgtest-{secrets.token_hex(4)}"
    settings = {"SEARCH_BACKEND": "opensearch", "OPENSEARCH_URL": opensearch_url, "OPENSEARCH_INDEX": alias}
    gateway = stack.gateway(**settings)
    yield gateway, settings
    delete_behind(opensearch_url, alias)


def test_an_empty_index_answers_nothing_and_a_filled_one_the_same_as_the_file(
    stack: Stack, gateway: Service, over_opensearch: tuple[Service, dict[str, str]]
) -> None:
    """Before ingestion no results; after it, without a restart, the nitrogen passage on top as with the embedded backend."""
    here, settings = over_opensearch
    assert ask(here, {"query": QUESTION})["results"] == []
    done = stack.command("knowledge", "ingest", str(CORPUS), "--allowed-roles", "reader", "--source", "houseplants", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    answer, embedded = ask(here, {"query": QUESTION}), ask(gateway, {"query": QUESTION})
    assert answer["ranking"] == "reranked"
    assert any("Stickstoff" in one["title"] for one in answer["results"][:2])
    common = {one["id"] for one in answer["results"]} & {one["id"] for one in embedded["results"]}
    assert len(common) >= 4
    again = stack.command("knowledge", "ingest", str(CORPUS), "--allowed-roles", "reader", "--source", "houseplants", **settings)
    assert "0 chunks written, 0 embedded, 0 deleted" in again.stdout


def test_the_doctor_looks_at_the_cluster(stack: Stack, over_opensearch: tuple[Service, dict[str, str]]) -> None:
    """Version, plugin, health, room, analyzers and one search of all legs: all in order, and each on its line."""
    done = stack.command("knowledge", "doctor", **over_opensearch[1])
    assert done.returncode == 0, done.stdout
    for words in (
        "version: OpenSearch 3.",
        "opensearch-knn",
        "writes: not blocked",
        "text.de: Blätter and Blaetter are one",
        "search: answered",
    ):
        assert words in done.stdout, words


def test_the_doctor_names_a_block_on_writes(stack: Stack, over_opensearch: tuple[Service, dict[str, str]], opensearch_url: str) -> None:
    """As a full disk leaves it: broken, named, status 1; and writing says so too."""
    here, settings = over_opensearch
    blocks = f"{opensearch_url}/{settings['OPENSEARCH_INDEX']}/_settings"
    httpx.put(blocks, json={"index.blocks.read_only_allow_delete": True}, timeout=30, trust_env=False).raise_for_status()
    try:
        done = stack.command("knowledge", "doctor", **settings)
        assert done.returncode == 1
        assert "writes are blocked (read_only_allow_delete)" in done.stdout
        document = {"id": "blocked", "title": "x", "content": "Zu spät.", "allowed_roles": ["reader"]}
        item = post(f"{here.url}/documents", [document], token("knowledge-writer")).json()["items"][0]
        assert item["status"] == "failed"
        assert "cluster_block_exception" in item["errors"][0]
    finally:
        httpx.put(blocks, json={"index.blocks.read_only_allow_delete": None}, timeout=30, trust_env=False).raise_for_status()


def test_permissions_and_deletes_are_effective_at_once(over_opensearch: tuple[Service, dict[str, str]]) -> None:
    """What is acknowledged is searchable, what is revoked is not."""
    here, _ = over_opensearch
    writer, reader = token("knowledge-writer", tenant="acl"), token("reader", tenant="acl")
    document = {"id": "moss", "title": "Moos", "content": "Moos auf der Erde.", "allowed_roles": ["reader"]}
    assert post(f"{here.url}/documents", [document], writer).json()["items"][0]["status"] == "indexed"
    assert len(ask(here, {"query": "Moos"}, reader)["results"]) == 1
    moved = post(f"{here.url}/documents", [{**document, "allowed_roles": ["other"]}], writer).json()["items"][0]
    assert (moved["written"], moved["embedded"]) == (1, 0)
    assert ask(here, {"query": "Moos"}, reader)["results"] == []


def test_an_unreachable_node_is_a_problem_not_a_crash(stack: Stack) -> None:
    """The gateway starts, is alive, is not ready, and says 503 with its code."""
    lonely = stack.start(
        "knowledge-gateway", SEARCH_BACKEND="opensearch", OPENSEARCH_URL="http://127.0.0.1:9", OPENSEARCH_INDEX="kgtest-none"
    )
    assert httpx.get(f"{lonely.url}/health", timeout=30, trust_env=False).status_code == 200
    assert httpx.get(f"{lonely.url}/ready", timeout=30, trust_env=False).status_code == 503
    response = post(f"{lonely.url}/search", {"query": QUESTION})
    assert (response.status_code, response.json()["code"]) == (503, "search_unavailable")
    assert response.headers["content-type"] == "application/problem+json"


def test_an_embedded_index_moves_over_without_embedding_again(stack: Stack, gateway: Service, opensearch_url: str) -> None:
    """`knowledge migrate` needs no embedding-service; afterwards the node answers as the file did, and a second run asks first."""
    alias = f"kgtest-{secrets.token_hex(4)}"
    settings = {"SEARCH_BACKEND": "opensearch", "OPENSEARCH_URL": opensearch_url, "OPENSEARCH_INDEX": alias}
    try:
        done = stack.command("knowledge", "migrate", **settings, EMBEDDING_URL="http://127.0.0.1:9")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "0 embedded" in done.stdout
        moved = stack.gateway(**settings)
        body = {"query": QUESTION, "top_k": 20, "rerank": False}
        here, there = ask(moved, body), ask(gateway, body)
        similarities = {one["id"]: one["scores"]["similarity"] for one in there["results"]}
        common = [one for one in here["results"] if similarities.get(one["id"]) is not None and one["scores"]["similarity"] is not None]
        assert len(common) >= 15
        assert all(one["scores"]["similarity"] == pytest.approx(similarities[one["id"]], abs=1e-4) for one in common)
        assert ask(moved, body, token("nobody"))["results"] == []
        again = stack.command("knowledge", "migrate", **settings)
        assert again.returncode == 1
        assert "--overwrite" in again.stderr
        ingested = stack.command("knowledge", "ingest", str(CORPUS), "--allowed-roles", "reader", "--source", "houseplants", **settings)
        assert "0 chunks written, 0 embedded, 0 deleted" in ingested.stdout
    finally:
        delete_behind(opensearch_url, alias)


def test_a_reindex_swaps_under_a_running_gateway_and_a_rollback_goes_back(
    stack: Stack, over_opensearch: tuple[Service, dict[str, str]], opensearch_url: str
) -> None:
    """The commands say what they do; the gateway answers alike before, between and after, and follows without a restart."""
    here, settings = over_opensearch
    alias = f"{opensearch_url}/_alias/{settings['OPENSEARCH_INDEX']}"
    body = {"query": QUESTION, "rerank": False}
    before, (first,) = ask(here, body)["results"], httpx.get(alias, timeout=30, trust_env=False).json()
    assert before
    done = stack.command("knowledge", "reindex", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 embedded" in done.stdout
    assert f"{first} is kept" in done.stdout
    (second,) = httpx.get(alias, timeout=30, trust_env=False).json()
    assert second != first
    document = {"id": "between", "title": "Zwischendurch", "content": "Zwischendurch geschrieben.", "allowed_roles": ["reader"]}
    assert post(f"{here.url}/documents", [document], token("knowledge-writer")).json()["items"][0]["status"] == "indexed"
    assert httpx.get(f"{here.url}/ready", timeout=30, trust_env=False).status_code == 200
    assert ask(here, body)["results"] == before
    back = stack.command("knowledge", "rollback", **settings)
    assert back.returncode == 0, back.stdout + back.stderr
    assert list(httpx.get(alias, timeout=30, trust_env=False).json()) == [first]
    assert httpx.get(f"{here.url}/ready", timeout=30, trust_env=False).status_code == 200
    assert ask(here, {"query": "Zwischendurch", "rerank": False})["results"][0]["document_id"] == "between"
    retired = stack.command("knowledge", "retire", **settings)
    assert f"{second} is deleted" in retired.stdout
    assert ask(here, body)["results"]
    nothing = stack.command("knowledge", "rollback", **settings)
    assert nothing.returncode == 1
    assert "nothing to go back to" in nothing.stderr


def test_the_file_has_no_index_beside_it(stack: Stack) -> None:
    """The embedded backend is one file; the command says what to do instead."""
    done = stack.command("knowledge", "reindex")
    assert done.returncode == 2
    assert "EMBEDDED_PATH" in done.stderr


def test_there_is_nothing_to_migrate_to_the_file_itself(stack: Stack) -> None:
    """Without another backend the command says what to set."""
    done = stack.command("knowledge", "migrate")
    assert done.returncode == 2
    assert "SEARCH_BACKEND=opensearch" in done.stderr
