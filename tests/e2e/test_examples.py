"""The examples insurance and facts, brought in by `knowledge seed`, with real weights and both rerankers that are at hand.

Only what is true is asserted here; docs/examples.md says what is not.
"""

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from examples.demo.services import Service, wait_ready
from tests.e2e.conftest import Stack, ask, post, token

pytestmark = pytest.mark.models

CROSS_ENCODER = "ms-marco-minilm-l12-v2"
PREMIUM = "Why did the premium on POL-55012 go up?"
REASON = "Why the premium on POL-55012 went up in 2024"
SKIING = {"en": "going skiing tomorrow", "de": "morgen Skifahren gehen", "es": "mañana voy a esquiar"}
LEG = {"en": "Broken leg", "de": "Beinbruch", "es": "Pierna rota"}
PERSON_FACTS, ENTITY_FACTS = 5, 6


@dataclass(frozen=True, slots=True)
class Examples:
    """A gateway over the two examples for each reranker, and what the commands said."""

    gateways: dict[str, Service]
    said: dict[str, "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def examples(stack: Stack) -> Iterator[Examples]:
    """Both examples in a fresh index, the cross-encoder beside the late interaction of the stack."""
    fetched = subprocess.run(["knowledge-models", "fetch", CROSS_ENCODER], check=False)
    assert fetched.returncode == 0, "the cross-encoder cannot be had; see the sentence above"
    fresh = {"EMBEDDED_PATH": str(stack.folder / "examples" / "knowledge.db")}
    said = {name: stack.command("knowledge", "seed", name, **fresh) for name in ("insurance", "facts")}
    for done in said.values():
        assert done.returncode == 0, done.stdout + done.stderr
    cross = stack.start("knowledge-reranker", RERANK_MODEL=CROSS_ENCODER)
    wait_ready(cross)
    gateways = {"late": stack.gateway(**fresh), "cross": stack.gateway(**fresh, RERANKER_URL=cross.url)}
    yield Examples(gateways, said)
    for service in (*gateways.values(), cross):
        service.stop()


@pytest.fixture(params=["late", "cross"])
def gateway(request: pytest.FixtureRequest, examples: Examples) -> Service:
    """With either reranker."""
    return examples.gateways[request.param]


def titles(answer: dict[str, Any]) -> list[str]:
    """In order."""
    return [one["title"] for one in answer["results"]]


def test_the_reason_is_first_and_no_near_miss_above_its_passages(gateway: Service) -> None:
    """Every passage with POL-55012 stands above every one without, POL-55021 among these."""
    answer = ask(gateway, {"query": PREMIUM, "top_k": 15}, token("adjuster"))
    holds = ["pol-55012" in one["matched_identifiers"] for one in answer["results"]]
    misses = [index for index, title in enumerate(titles(answer)) if "POL-55021" in title]
    assert (answer["ranking"], titles(answer)[0]) == ("reranked", REASON)
    assert holds == [True] * 7 + [False] * 8
    assert misses
    assert min(misses) >= 7


@pytest.mark.parametrize("number", ["POL-55021", "POL-55102", "POL-5501", "POL-56012", "POL-55013"])
def test_each_near_miss_finds_its_own_reason(gateway: Service, number: str) -> None:
    """Swapped digits, another length, a neighbour's house."""
    found = titles(ask(gateway, {"query": f"Why did the premium on {number} change?"}, token("adjuster")))
    assert found[0].startswith(f"Why the premium on {number} ")


def test_a_claim_is_told_from_its_near_misses(gateway: Service) -> None:
    """CLM-2024-0118 from CLM-2024-0181, CLM-2024-1018 and CLM-2023-0118."""
    answer = ask(gateway, {"query": "What was paid for CLM-2024-0118?", "top_k": 15}, token("adjuster"))
    holds = ["clm-2024-0118" in one["matched_identifiers"] for one in answer["results"]]
    assert holds == [True] * 3 + [False] * 12


@pytest.mark.parametrize(
    ("roles", "hidden"),
    [(("adjuster",), {"underwriting"}), (("underwriter",), {"claims", "call"}), (("reader",), None), (("adjuster", "underwriter"), set())],
)
def test_each_role_sees_what_it_may_see(examples: Examples, roles: tuple[str, ...], hidden: set[str] | None) -> None:
    """Asked with the words of what is hidden, and for all there is."""
    gateway, kinds = examples.gateways["late"], {"underwriting", "claims", "call", "premiums"}
    seen: set[str] = set()
    questions = ("POL-55012: risk note", "CLM-2024-0118: settlement", "POL-55012: call of 9 July 2024", PREMIUM, "risk note, internal")
    for question in questions:
        answer = ask(gateway, {"query": question, "top_k": 50, "rerank": False}, token(*roles))
        seen |= {one["metadata"]["category"] for one in answer["results"]}
        seen |= {one["metadata"]["kind"] for one in answer["results"]}
    assert seen & kinds == (set() if hidden is None else kinds - hidden)
    assert bool(seen) == (hidden is not None)


@pytest.mark.parametrize("name", ["insurance", "facts"])
def test_the_printed_searches_do_as_they_say(stack: Stack, examples: Examples, name: str) -> None:
    """Copied into a shell, they find what the example is about."""
    lines = [line for line in examples.said[name].stdout.splitlines() if line.startswith("knowledge search ")]
    assert len(lines) == 2
    for line, expected in zip(lines, [REASON, REASON] if name == "insurance" else [LEG["en"], LEG["de"]], strict=True):
        done = stack.command(*shlex.split(line), GATEWAY_URL=examples.gateways["late"].url)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
        assert "reranked: " in done.stdout


@pytest.mark.parametrize("language", SKIING)
def test_the_broken_leg_is_last_by_similarity_and_among_three_once_reranked(gateway: Service, language: str) -> None:
    """The safety case, with either reranker at hand and no word list anywhere."""
    body = {"query": SKIING[language], "filters": {"category": "person", "language": language}}
    results = ask(gateway, body, token("companion"))["results"]
    [leg] = [one for one in results if one["title"] == LEG[language]]
    assert len(results) == PERSON_FACTS
    assert leg["scores"]["similarity"] == min(one["scores"]["similarity"] for one in results)
    assert leg["hybrid_rank"] == 5
    assert leg["rank"] <= 3


@pytest.mark.parametrize("language", SKIING)
def test_person_and_entity_share_one_rerank(gateway: Service, language: str) -> None:
    """Two scopes, one call to the reranker, each list within its filter, and the leg where it was without scopes."""
    scopes = [{"name": name, "filters": {"category": name}, "top_k": 6} for name in ("person", "entity")]
    before = calls(gateway)
    answer = ask(gateway, {"query": SKIING[language], "filters": {"language": language}, "scopes": scopes}, token("companion"))
    person, entity = answer["scopes"]
    assert calls(gateway) - before == 1
    assert (person["rerank"]["candidates"], entity["rerank"]["candidates"]) == (PERSON_FACTS, ENTITY_FACTS)
    for scope in (person, entity):
        assert scope["ranking"] == "reranked"
        assert {one["metadata"]["scope"] for one in scope["results"]} == {scope["name"]}
        assert {one["language"] for one in scope["results"]} == {language}
    assert LEG[language] in titles(person)[:3]


def test_a_scope_filters_on_what_the_setting_names(stack: Stack, examples: Examples) -> None:
    """`category` by default; the metadata field `scope` only where FILTERABLE_FIELDS names it."""
    body = {"query": SKIING["en"], "filters": {"language": "en"}, "scopes": [{"name": "person", "filters": {"scope": "person"}}]}
    refused = post(f"{examples.gateways['late'].url}/search", body, token("companion"))
    assert refused.status_code == 422
    path = str(stack.folder / "examples" / "knowledge.db")
    named = stack.gateway(EMBEDDED_PATH=path, FILTERABLE_FIELDS="language,category,tags,scope")
    [scope] = ask(named, body, token("companion"))["scopes"]
    named.stop()
    assert (len(scope["results"]), LEG["en"] in titles(scope)[:3]) == (PERSON_FACTS, True)


def calls(gateway: Service) -> int:
    """How often the gateway has called its reranker."""
    text = httpx.get(f"{gateway.url}/metrics", timeout=10, trust_env=False).text
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines() if line.startswith("reranker_provider_calls_total"))
