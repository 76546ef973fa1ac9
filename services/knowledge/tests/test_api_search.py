"""`POST /search` and `GET /search` over ASGI: who may ask, what is refused and how, what a served answer says."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jwt
import pytest
from structlog.testing import capture_logs

from knowledge.adapters.jwks import JwksKeys
from knowledge.app import new_reranker
from knowledge.errors import FallbackReason
from knowledge.models import Leg
from knowledge.rerank import LATCH_PROBE_S
from servicekit.settings import ConfigurationError
from services.knowledge.tests.fakes import FakeBackend, FakeClock, FakeEmbedder, FakeReranker, failing, record, reranking
from services.knowledge.tests.serving import CORPUS, SECRET, Served, bearer, served, settings, token
from services.knowledge.tests.signing import JWKS_URL, FakeIdentityProvider, signed

MARKER = "Zwiebelkuchen"


@pytest.fixture
async def gateway() -> AsyncIterator[Served]:
    """A gateway over twenty passages that a reader of acme may see."""
    async with served(FakeBackend(CORPUS)) as running:
        yield running


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem object of a refusal, checked for what every problem must have."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert (found["status"], found["code"]) == (status, code)
    assert len(found["trace_id"]) == 32
    assert found["trace_id"].strip("0")
    assert found["title"]
    assert found["detail"]
    assert MARKER not in response.text
    return found


def named(response: httpx.Response, field: str, limit: str = "") -> None:
    """The refusal is a 422 that names the field and the limit."""
    found = problem(response, 422, "invalid_request")
    assert field in [error["field"] for error in found["errors"]], found
    assert field in found["detail"]
    assert limit in found["detail"], found


async def test_an_answer_has_the_documented_shape(gateway: Served) -> None:
    """Every field of the contract is there, and no more."""
    body = (await gateway.search()).json()
    assert set(body) == {"results", "scopes", "ranking", "rerank", "degraded", "warnings", "elapsed_ms", "trace_id"}
    assert set(body["rerank"]) == {"status", "reason", "provider", "model", "score_kind", "candidates", "scored", "elapsed_ms"}
    first = body["results"][0]
    names = (
        "id",
        "document_id",
        "title",
        "content",
        "language",
        "metadata",
        "rank",
        "hybrid_rank",
        "scores",
        "matched_identifiers",
        "explain",
    )
    assert set(first) == set(names)
    assert set(first["scores"]) == {"rrf", "similarity", "bm25", "rerank"}
    assert body["ranking"] == "reranked"
    assert body["rerank"]["status"] == "applied"
    assert len(body["trace_id"]) == 32


async def test_nothing_of_permissions_or_vectors_is_in_an_answer(gateway: Served) -> None:
    """No `allowed_*`, no tenant, no vector, even for an operator who asks for explanations."""
    headers = bearer(roles=("reader", "knowledge-operator", "knowledge-writer"))
    text = (await gateway.http.post("/search", json={"query": "wasser", "explain": True}, headers=headers)).text
    for word in ("allowed_", "acme", '"vector":[', "embed_hash", "record_hash", "http://", "https://"):
        assert word not in text


async def test_get_answers_like_post(gateway: Served) -> None:
    """`q` and `top_k` in the query string give the same results."""
    simple = await gateway.http.get("/search", params={"q": "wasser", "top_k": 3}, headers=bearer())
    whole = await gateway.search(top_k=3)
    assert simple.status_code == 200
    assert [one["id"] for one in simple.json()["results"]] == [one["id"] for one in whole.json()["results"]]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"q": " "}, "q"),
        ({}, "q"),
        ({"q": "x", "top_k": "51"}, "top_k"),
        ({"q": "x", "top_k": MARKER}, "top_k"),
        ({"q": "x", "rerank": "1"}, "rerank"),
    ],
)
async def test_get_is_checked_like_post(gateway: Served, params: dict[str, str], field: str) -> None:
    """Blank, missing, out of range, of the wrong kind, unknown."""
    named(await gateway.http.get("/search", params=params, headers=bearer()), field)


BAD_BODIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown field": ({"quer": MARKER}, "quer", "unknown"),
    "unknown field in a scope": ({"scopes": [{"name": "a", "nmae": MARKER}]}, "scopes.0.nmae", "unknown"),
    "blank query": ({"query": " \t\n "}, "query", "1"),
    "query of control characters": ({"query": "\x00\x01"}, "query", "1"),
    "no string": ({"query": [MARKER]}, "query", "string"),
    "4097 characters": ({"query": "ä" * 4097}, "query", "4096"),
    "top_k 0": ({"top_k": 0}, "top_k", "1"),
    "top_k 51": ({"top_k": 51}, "top_k", "50"),
    "top_k a float": ({"top_k": 5.5}, "top_k", "integer"),
    "top_k of a scope": ({"scopes": [{"name": "a", "top_k": 51}]}, "scopes.0.top_k", "50"),
    "nine sub-queries": ({"sub_queries": [MARKER] * 9}, "sub_queries", "8"),
    "a long sub-query": ({"sub_queries": ["ä" * 4097]}, "sub_queries.0", "4096"),
    "nine scopes": ({"scopes": [{"name": f"s{n}"} for n in range(9)]}, "scopes", "8"),
    "sub-queries x scopes": ({"sub_queries": list("abc"), "scopes": [{"name": f"s{n}"} for n in range(6)]}, "sub_queries", "16"),
    "duplicate scope names": ({"scopes": [{"name": "a"}, {"name": "a"}]}, "scopes", "unique"),
    "bad scope name": ({"scopes": [{"name": f"{MARKER} "}]}, "scopes.0.name", "[a-z0-9_-]"),
    "filter on tenant": ({"filters": {"tenant": [MARKER]}}, "filters.tenant", "language"),
    "filter on allowed_roles": ({"filters": {"allowed_roles": [MARKER]}}, "filters.allowed_roles", "language"),
    "filter on allowed_subjects": ({"filters": {"allowed_subjects": [MARKER]}}, "filters.allowed_subjects", "language"),
    "filter on something unknown": ({"filters": {"colour": [MARKER]}}, "filters.colour", "language"),
    "filter in a scope": ({"scopes": [{"name": "a", "filters": {"tenant": [MARKER]}}]}, "scopes.0.filters.tenant", "language"),
    "empty filter": ({"filters": {"language": []}}, "filters.language", "1"),
    "rerank_depth over INITIAL_K": ({"rerank_depth": 16}, "rerank_depth", "15"),
    "rerank_depth 0": ({"rerank_depth": 0}, "rerank_depth", "1"),
    "deadline_ms 99": ({"deadline_ms": 99}, "deadline_ms", "100"),
    "deadline_ms over the maximum": ({"deadline_ms": 30_001}, "deadline_ms", "30000"),
    "bad language": ({"language": f"de_{MARKER}"}, "language", "pattern"),
    "min_similarity over 1": ({"min_similarity": 1.1}, "min_similarity", "1"),
    "bad mode": ({"min_similarity_mode": MARKER}, "min_similarity_mode", "vector"),
    "rerank no boolean": ({"rerank": MARKER}, "rerank", "boolean"),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
async def test_bad_input_names_field_and_limit_and_is_not_echoed(gateway: Served, kind: str) -> None:
    """422, with the field and its limit; nothing was embedded or searched, and no value comes back."""
    fields, field, limit = BAD_BODIES[kind]
    named(await gateway.search(fields), field, limit)
    assert gateway.backend.asked == []
    assert gateway.embedder.calls == []  # type: ignore[attr-defined]


async def test_a_missing_query_is_named(gateway: Served) -> None:
    """The one required field."""
    named(await gateway.http.post("/search", json={}, headers=bearer()), "query", "required")


@pytest.mark.parametrize("raw", ["{", "", f'{{"query": "{MARKER}', '{"query": 1e}', "\x00"])
async def test_what_is_not_json_is_refused(gateway: Served, raw: str) -> None:
    """A body that does not parse is a 422 for `body` that repeats nothing of it."""
    response = await gateway.http.post("/search", content=raw, headers={**bearer(), "Content-Type": "application/json"})
    named(response, "body")


@pytest.mark.parametrize("raw", ["[]", '"wasser"', "5", "null", '[{"query": "wasser"}]'])
async def test_json_that_is_no_object_is_refused(gateway: Served, raw: str) -> None:
    """The body must be one object."""
    response = await gateway.http.post("/search", content=raw, headers={**bearer(), "Content-Type": "application/json"})
    problem(response, 422, "invalid_request")


@pytest.mark.parametrize("depth", [150, 400, 700, 900, 5000])
@pytest.mark.parametrize("field", ["query", "filters", "scopes", "sub_queries"])
async def test_deeply_nested_json_is_refused_and_not_an_error(gateway: Served, field: str, depth: int) -> None:
    """However deep: a 4xx problem, never a 500."""
    value = "[" * depth + "]" * depth
    raw = f'{{"query": "x", "{field}": {value}}}' if field != "filters" else f'{{"query": "x", "filters": {{"language": {value}}}}}'
    response = await gateway.http.post("/search", content=raw, headers={**bearer(), "Content-Type": "application/json"})
    assert response.status_code in (400, 422), response.text
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_are_none_are_refused(gateway: Served, value: str) -> None:
    """A floor that is no number would drop or keep everything."""
    raw = f'{{"query": "x", "min_similarity": {value}}}'
    response = await gateway.http.post("/search", content=raw, headers={**bearer(), "Content-Type": "application/json"})
    named(response, "min_similarity")


async def test_exactly_4096_characters_are_searched(gateway: Served) -> None:
    """The limit itself is allowed, counted in characters and after trimming."""
    assert (await gateway.search(query="  " + "ä" * 4096 + "\n")).status_code == 200


@pytest.mark.parametrize("value", [1, 50])
async def test_the_ends_of_top_k_are_allowed(gateway: Served, value: int) -> None:
    """One and fifty."""
    assert len((await gateway.search(top_k=value)).json()["results"]) == min(value, len(CORPUS))


@pytest.mark.parametrize("value", [100, 30_000])
async def test_the_ends_of_the_deadline_are_allowed(gateway: Served, value: int) -> None:
    """100 ms and SEARCH_DEADLINE_S."""
    assert (await gateway.search(deadline_ms=value)).status_code == 200


CLAIMS = {"sub": "ada", "tenant": "acme", "roles": ["reader"], "exp": 4_000_000_000}
BAD_TOKENS = {
    "no token": {},
    "another scheme": {"Authorization": "Basic YTpi"},
    "bad signature": {"Authorization": "Bearer " + jwt.encode(CLAIMS, "x" * 40, algorithm="HS256")},
    "expired": bearer(exp=int(time.time()) - 60),
    "alg none": {"Authorization": "Bearer " + jwt.encode(CLAIMS, None, algorithm="none")},
    "roles no list": bearer(roles="reader"),
    "no tenant": bearer(tenant=None),
    "garbage": {"Authorization": f"Bearer {MARKER}"},
}


@pytest.mark.parametrize("kind", BAD_TOKENS)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_token_that_does_not_hold_is_401_and_nothing_is_searched(gateway: Served, kind: str, method: str) -> None:
    """With `WWW-Authenticate`, without the token and before any work."""
    body = {"json": {"query": "wasser"}} if method == "POST" else {"params": {"q": "wasser"}}
    response = await gateway.http.request(method, "/search", headers=BAD_TOKENS[kind], **body)  # type: ignore[arg-type]
    problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"
    assert gateway.backend.asked == []


async def test_no_roles_is_an_empty_answer_that_says_so(gateway: Served) -> None:
    """200, empty, `no_permissions`."""
    response = await gateway.http.post("/search", json={"query": "wasser"}, headers=bearer(roles=()))
    assert response.status_code == 200
    body = response.json()
    assert (body["results"], body["degraded"]) == ([], ["no_permissions"])
    assert (body["rerank"]["status"], body["rerank"]["reason"]) == ("skipped", "no_candidates")


async def test_other_tenants_and_other_roles_see_nothing(gateway: Served) -> None:
    """The same question by somebody else finds nothing; an empty answer is no error."""
    for headers in (bearer(tenant="globex"), bearer(roles=("editor",))):
        response = await gateway.http.post("/search", json={"query": "wasser"}, headers=headers)
        assert (response.status_code, response.json()["results"]) == (200, [])


async def test_a_jwks_gateway_answers_503_while_its_provider_is_away() -> None:
    """An outage of the identity provider is not the caller's fault."""
    provider = FakeIdentityProvider()
    provider.answer = lambda _: httpx.Response(503)
    keys = JwksKeys(JWKS_URL, FakeClock(), provider.client())
    async with served(FakeBackend(CORPUS), keys=keys, auth_jwt_secret="", auth_jwks_url=JWKS_URL) as gateway:
        headers = {"Authorization": f"Bearer {signed('RS256')}"}
        response = await gateway.http.post("/search", json={"query": "wasser"}, headers=headers)
        problem(response, 503, "keys_unavailable")
        assert response.headers["retry-after"] == "5"


STRANGE = {
    "lone surrogate": "wasser \ud800 \udfff",
    "NUL": "wasser \x00\x00",
    "emoji": "wasser \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "RTL": "wasser \u202e\u0645\u0631\u062d\u0628\u0627\u202c \u200f שלום",
    "special token": "wasser </s><s>[SEP]<|endoftext|>",
    "combining": "wasser " + "\u0301" * 200,
    "BOM and noncharacters": "wasser \ufeff\uffff\U0010ffff",
    "private use": "wasser \ue000",
}


@pytest.mark.parametrize("kind", STRANGE)
async def test_strange_text_in_queries_is_searched(gateway: Served, kind: str) -> None:
    """200, with results, and everything that is answered can be encoded."""
    text = STRANGE[kind]
    raw = json.dumps({"query": text, "sub_queries": [text], "filters": {"category": [text]}})
    response = await gateway.http.post("/search", content=raw, headers={**bearer(), "Content-Type": "application/json"})
    assert response.status_code == 200, response.text
    raw = json.dumps({"query": text})
    response = await gateway.http.post("/search", content=raw, headers={**bearer(), "Content-Type": "application/json"})
    assert response.json()["results"]
    assert gateway.reranker.calls[-1][0].encode()


@pytest.mark.parametrize("field", ["language", "min_similarity_mode", "scopes"])
async def test_a_lone_surrogate_where_a_name_is_expected_is_refused(gateway: Served, field: str) -> None:
    """422, and the refusal itself can be encoded."""
    value = '[{"name": "\\ud800"}]' if field == "scopes" else '"\\ud800"'
    raw = f'{{"query": "x", "{field}": {value}, "\\ud800": 1}}'
    response = await gateway.http.post("/search", content=raw, headers={**bearer(), "Content-Type": "application/json"})
    problem(response, 422, "invalid_request")


async def test_a_body_that_declares_too_much_is_413(gateway: Served) -> None:
    """Refused by its length, with the limit."""
    response = await gateway.http.post("/search", content=b" " * (1024 * 1024 + 1), headers=bearer())
    assert problem(response, 413, "body_too_large")["limit"] == 1024 * 1024


async def test_a_body_that_streams_too_much_is_413(gateway: Served) -> None:
    """Without a declared length the count decides; what is left is not read."""
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += 1
            yield b" " * 65_536

    response = await gateway.http.post("/search", content=endless(), headers=bearer())
    problem(response, 413, "body_too_large")
    assert read < 100


async def test_a_dead_embedding_service_costs_the_vector_leg_only() -> None:
    """200 with the lexical hits, `degraded: ["vector"]`."""
    embedder = FakeEmbedder()
    embedder.down = True
    async with served(FakeBackend(CORPUS), embedder=embedder) as gateway:
        body = (await gateway.search()).json()
        assert body["degraded"] == ["vector"]
        assert body["results"]
        assert all(result["scores"]["similarity"] is None for result in body["results"])
        assert (await gateway.http.get("/ready")).status_code == 200


async def test_both_legs_dead_is_503(gateway: Served) -> None:
    """`search_unavailable`, with a time to try again."""
    gateway.backend.failed = {Leg.LEXICAL, Leg.VECTOR}
    response = await gateway.search()
    problem(response, 503, "search_unavailable")
    assert int(response.headers["retry-after"]) >= 1


async def test_a_dead_backend_is_503_and_not_ready(gateway: Served) -> None:
    """The search says so, and so does `/ready`."""
    gateway.backend.down = True
    problem(await gateway.search(), 503, "search_unavailable")
    assert (await gateway.http.get("/ready")).status_code == 503
    assert (await gateway.http.get("/health")).status_code == 200


async def test_a_deadline_that_is_gone_before_any_leg_answered_is_504() -> None:
    """`deadline_exceeded`."""
    backend = FakeBackend(CORPUS)
    backend.hold = asyncio.Event()
    async with served(backend) as gateway:
        problem(await gateway.search(deadline_ms=100), 504, "deadline_exceeded")


async def test_too_many_searches_are_refused_before_work_is_done() -> None:
    """503 with Retry-After; nothing is embedded or searched for the refused one, and the place is free again afterwards."""
    backend = FakeBackend(CORPUS)
    backend.hold = asyncio.Event()
    async with served(backend, max_concurrent_searches=1) as gateway:
        first = asyncio.create_task(gateway.search())
        await backend.searching.wait()
        response = await gateway.search()
        problem(response, 503, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert len(gateway.embedder.calls) == 1  # type: ignore[attr-defined]
        assert len(backend.asked) == 1
        backend.hold.set()
        assert (await first).status_code == 200
        assert (await gateway.search()).status_code == 200


async def test_a_refused_search_gives_its_place_back(gateway: Served) -> None:
    """Failures do not use places up."""
    gateway.backend.down = True
    for _ in range(70):
        await gateway.search()
    gateway.backend.down = False
    assert (await gateway.search()).status_code == 200


async def test_blank_sub_queries_are_dropped(gateway: Served) -> None:
    """With nothing but blanks the question is searched."""
    await gateway.search(sub_queries=["", "  ", "licht", "licht"])
    await gateway.search(sub_queries=["", "  "])
    texts = [[body.text for body in bodies if body.leg is Leg.LEXICAL] for bodies in gateway.backend.asked]
    assert texts == [["licht"], ["wasser"]]


@pytest.mark.parametrize(
    ("given", "body", "records", "reason"),
    [
        ({"reranker_enabled": False}, {}, CORPUS, "disabled"),
        ({}, {"rerank": False}, CORPUS, "not_requested"),
        ({}, {}, CORPUS[:1], "too_few_candidates"),
        ({}, {}, [], "no_candidates"),
    ],
)
async def test_a_skipped_reranking_makes_no_call_and_names_its_reason(
    given: dict[str, Any], body: dict[str, Any], records: list[Any], reason: str
) -> None:
    """Not one call, status `skipped`, no fallback header."""
    async with served(FakeBackend(records), **given) as gateway:
        response = await gateway.search(body)
        report = response.json()["rerank"]
        assert (report["status"], report["reason"]) == ("skipped", reason)
        assert response.json()["ranking"] == "hybrid"
        assert "x-reranker-fallback" not in response.headers
        assert gateway.reranker.calls == []


async def test_no_url_is_not_configured() -> None:
    """Without a provider there is nothing to call."""
    async with served(FakeBackend(CORPUS), reranker=False) as gateway:
        report = (await gateway.search()).json()["rerank"]
        assert (report["status"], report["reason"], report["provider"]) == ("skipped", "not_configured", None)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, False),
        ({"reranker_url": "http://127.0.0.1:1"}, True),
        ({"reranker_url": "http://127.0.0.1:1", "reranker_enabled": False}, False),
        ({"reranker_url": "http://127.0.0.1:1", "reranker_provider": "none"}, False),
    ],
)
async def test_a_client_is_made_only_where_it_is_wanted_and_configured(given: dict[str, Any], made: bool) -> None:
    """What does not exist cannot be called."""
    found = new_reranker(settings(**given).reranker)
    assert (found is not None) is made
    if found is not None:
        await found.aclose()


async def test_reranker_top_k_is_the_default_length() -> None:
    """Where the caller names no `top_k`."""
    async with served(FakeBackend(CORPUS), reranker_top_k=7) as gateway:
        assert len((await gateway.search()).json()["results"]) == 7
        assert len((await gateway.search(top_k=9)).json()["results"]) == 9


@pytest.mark.parametrize("reason", [reason for reason in FallbackReason if reason not in ("too_late", "circuit_open")])
async def test_a_fallback_is_200_with_the_header_and_the_hybrid_order(reason: FallbackReason) -> None:
    """Body and header carry the same word; the results are those of `rerank: false`; no rerank score is shown."""
    reranker = FakeReranker(failing(reason, 500))
    async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
        response = await gateway.search()
        body = response.json()
        assert response.status_code == 200
        assert response.headers["x-reranker-fallback"] == reason.value
        assert (body["rerank"]["status"], body["rerank"]["reason"], body["ranking"]) == ("fallback", reason.value, "hybrid")
        assert body["results"] == (await gateway.search(rerank=False)).json()["results"]
        assert all(result["scores"]["rerank"] is None for result in body["results"])


async def test_the_fallback_header_is_there_on_a_fallback_only() -> None:
    """Neither an applied nor a partial answer carries it."""
    reranker = FakeReranker()
    async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
        assert "x-reranker-fallback" not in (await gateway.search()).headers
        reranker.script = lambda *_: reranking({0: 0.5}, [(1, "deadline")])
        response = await gateway.search()
        assert (response.json()["rerank"]["status"], response.json()["ranking"]) == ("partial", "partially_reranked")
        assert "x-reranker-fallback" not in response.headers


async def test_too_late_and_circuit_open_over_http() -> None:
    """The two reasons for which nobody is asked."""
    reranker, clock = FakeReranker(failing(FallbackReason.TRANSPORT)), FakeClock()
    async with served(FakeBackend(CORPUS), reranker=reranker, clock=clock) as gateway:
        late = await gateway.search(deadline_ms=200)
        assert late.headers["x-reranker-fallback"] == "too_late"
        assert reranker.calls == []
        for _ in range(5):
            assert (await gateway.search()).headers["x-reranker-fallback"] == "transport"
        assert (await gateway.search()).headers["x-reranker-fallback"] == "circuit_open"
        assert len(reranker.calls) == 5


async def test_a_misconfigured_reranker_shows_in_readiness_without_making_the_gateway_unready() -> None:
    """`/ready` stays 200 with the detail; after 30 s a success takes it back."""
    reranker, clock = FakeReranker(failing(FallbackReason.MISCONFIGURED, 401)), FakeClock()
    async with served(FakeBackend(CORPUS), reranker=reranker, clock=clock) as gateway:
        await gateway.search()
        ready = await gateway.http.get("/ready")
        assert (ready.status_code, ready.json()["reranker_misconfigured"]) == (200, True)
        reranker.script = lambda _, documents: reranking([0.5] * len(documents))
        clock.advance(LATCH_PROBE_S)
        assert (await gateway.search()).json()["rerank"]["status"] == "applied"
        assert (await gateway.http.get("/ready")).json()["reranker_misconfigured"] is False


async def test_permanent_errors_can_be_502() -> None:
    """RERANKER_PERMANENT_ERRORS=error: the search is refused, and only for misconfiguration."""
    reranker = FakeReranker(failing(FallbackReason.MISCONFIGURED, 401))
    async with served(FakeBackend(CORPUS), reranker=reranker, reranker_permanent_errors="error") as gateway:
        problem(await gateway.search(), 502, "reranker_misconfigured")
        assert (await gateway.search(rerank=False)).status_code == 200


async def test_a_latching_answer_at_start_stops_the_start() -> None:
    """The start-up probe names the setting; what is merely away does not stop anything."""
    reranker = FakeReranker()
    reranker.probe_script = failing(FallbackReason.MISCONFIGURED, 401)
    with pytest.raises(ConfigurationError, match="RERANKER_API_KEY"):
        async with served(FakeBackend(CORPUS), reranker=reranker):
            pass
    for reason in (FallbackReason.TRANSPORT, FallbackReason.LOADING, FallbackReason.OVERLOADED, FallbackReason.CLIENT_TIMEOUT):
        reranker = FakeReranker()
        reranker.probe_script = failing(reason)
        async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
            assert (await gateway.search()).status_code == 200


async def test_a_mismatch_of_the_index_stops_the_start() -> None:
    """With the sentence of the backend."""
    backend = FakeBackend()
    backend.mismatch = "made for another model"
    with pytest.raises(ConfigurationError, match="made for another model"):
        async with served(backend):
            pass


async def test_the_end_of_the_app_closes_every_adapter() -> None:
    """Nothing is left open."""
    async with served(FakeBackend(CORPUS)) as gateway:
        pass
    assert gateway.backend.closed
    assert gateway.embedder.closed  # type: ignore[attr-defined]
    assert gateway.reranker.closed


async def leave(gateway: Served, leaving: asyncio.Event, headers: dict[str, str]) -> list[dict[str, Any]]:
    """A caller that sends a search and closes the connection when `leaving` is set; what the app sent, if anything."""
    sent: list[dict[str, Any]] = []
    body = json.dumps({"query": MARKER}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": "/search", "raw_path": b"/search",
             "query_string": b"", "root_path": "", "scheme": "http", "server": ("gateway", 80), "client": ("127.0.0.1", 5),
             "headers": [*raw, (b"content-type", b"application/json"), (b"host", b"gateway")]}  # fmt: skip
    await gateway.app(scope, receive, send)  # type: ignore[arg-type]
    return sent


async def test_a_client_that_goes_away_cancels_the_search_and_is_logged_as_499() -> None:
    """The multi-search in flight is cancelled, its place is free, the access log says 499 and holds no text."""
    backend, leaving = FakeBackend(CORPUS), asyncio.Event()
    backend.hold = asyncio.Event()
    async with served(backend, max_concurrent_searches=1) as gateway:
        with capture_logs() as logs:
            call = asyncio.create_task(leave(gateway, leaving, bearer()))
            await backend.searching.wait()
            leaving.set()
            await call
        assert backend.cancelled
        [line] = [line for line in logs if line["event"] == "request"]
        assert (line["status"], line["route"]) == (499, "/search")
        assert MARKER not in str(logs)
        backend.hold.set()
        assert (await gateway.search()).status_code == 200


async def test_a_client_that_goes_away_during_reranking_cancels_the_provider() -> None:
    """The call to the reranker ends too, and the outcome is counted as `cancelled`."""
    reranker, leaving = FakeReranker(), asyncio.Event()
    reranker.hold = asyncio.Event()
    async with served(FakeBackend([record("a", MARKER), record("b", MARKER)]), reranker=reranker) as gateway:
        call = asyncio.create_task(leave(gateway, leaving, bearer()))
        await reranker.asked.wait()
        leaving.set()
        await call
        assert reranker.cancelled


async def test_explanations_are_for_operators(gateway: Served) -> None:
    """Others get their results with a warning; operators see the terms of the fusion."""
    plain = (await gateway.search(explain=True)).json()
    assert all(result["explain"] == {} for result in plain["results"])
    assert "knowledge-operator" in plain["warnings"][0]
    headers = bearer(roles=("reader", "knowledge-operator"))
    shown = (await gateway.http.post("/search", json={"query": "wasser", "explain": True}, headers=headers)).json()
    assert shown["warnings"] == []
    first = shown["results"][0]
    assert sum(first["explain"]["fusion_terms"].values()) == pytest.approx(first["scores"]["rrf"])
    assert first["explain"]["why"]
    assert "receipt" not in plain
    assert set(shown) - set(plain) == {"receipt"}


async def test_an_operator_sees_no_more_passages(gateway: Served) -> None:
    """The operator's role opens no document."""
    response = await gateway.http.post("/search", json={"query": "wasser"}, headers=bearer(roles=("knowledge-operator",)))
    assert response.json()["results"] == []


async def test_an_inbound_deadline_header_is_ignored() -> None:
    """Only `deadline_ms` in the body shortens a search."""
    async with served(FakeBackend(CORPUS), clock=FakeClock()) as gateway:
        headers = {**bearer(), "X-Deadline-Ms": "1"}
        response = await gateway.http.post("/search", json={"query": "wasser"}, headers=headers)
        assert response.json()["rerank"]["status"] == "applied"
        assert gateway.reranker.calls[0][2] == pytest.approx(27.0)
        assert gateway.embedder.calls[0][2] == 5.0  # type: ignore[attr-defined]


async def test_the_deadline_of_the_body_reaches_the_provider() -> None:
    """`deadline_ms` less 50 ms is what the provider is waited for."""
    async with served(FakeBackend(CORPUS), clock=FakeClock()) as gateway:
        await gateway.search(deadline_ms=8000)
        assert gateway.reranker.calls[0][2] == pytest.approx(7.95)


async def test_scopes_over_http(gateway: Served) -> None:
    """`results` is empty and each scope has its own list, ranking, report and degradation, in request order."""
    response = await gateway.search(scopes=[{"name": "b", "top_k": 2}, {"name": "a", "filters": {"language": ["en"]}}])
    body = response.json()
    assert body["results"] == []
    assert [(scope["name"], len(scope["results"])) for scope in body["scopes"]] == [("b", 2), ("a", 0)]
    assert set(body["scopes"][0]) == {"name", "results", "ranking", "rerank", "degraded"}


async def test_an_error_of_our_own_is_a_problem_without_its_message() -> None:
    """500 `internal`, nothing of the exception, and the log names class and place only."""

    class Broken(FakeBackend):
        async def msearch(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError(MARKER)

    with capture_logs() as logs:
        async with served(Broken()) as gateway:
            response = await gateway.search()
    problem(response, 500, "internal")
    assert MARKER not in str(logs)
    assert any(line["event"] == "internal_error" and line["error"] == "RuntimeError" for line in logs)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"), [("GET", "/nowhere", 404, "not_found"), ("DELETE", "/search", 405, "method_not_allowed")]
)
async def test_unknown_routes_are_problems_too(gateway: Served, method: str, path: str, status: int, code: str) -> None:
    """Every error has the same shape."""
    response = await gateway.http.request(method, path, headers=bearer())
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["content-type"] == "application/problem+json"


async def test_info_says_the_limits_and_no_secret(gateway: Served) -> None:
    """Limits, budget, closed sets; no key, no address."""
    response = await gateway.http.get("/info")
    body = response.json()
    assert (body["limits"]["top_k"], body["limits"]["query_chars"], body["limits"]["deadline_ms"]) == (50, 4096, 30_000)
    assert body["reranker"]["scored_chars_budget"] == 7500
    assert set(body["fallback_reasons"]) == {reason.value for reason in FallbackReason}
    assert SECRET not in response.text
    assert "http://" not in response.text


async def test_the_answer_and_its_problems_share_the_trace_id_of_the_span(gateway: Served) -> None:
    """The id in the body finds the span."""
    body = (await gateway.search()).json()
    refused = (await gateway.search(top_k=0)).json()
    ids = {format(span.context.trace_id, "032x") for span in gateway.spans.get_finished_spans()}
    assert {body["trace_id"], refused["trace_id"]} <= ids


def test_tokens_of_these_tests_are_not_all_the_same() -> None:
    """A guard for the tests above: the helper really changes what it is told to change."""
    assert token() != token(roles=("editor",)) != token(tenant="globex")
