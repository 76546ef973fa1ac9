"""One search through the gateway against its parts made by hand, side by side, on both backends."""

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from knowledge.budget import cut
from knowledge.models import join_text
from tests.load.figures import MeasurementFailed, SideBySide
from tests.load.parts import EmbeddedLegs, Legs, Models, OpenSearchLegs, new_client, post
from tests.load.stack import Stack

QUESTIONS = Path("examples/houseplants/questions.jsonl")
TOP_K = 10
HEAD, EXCERPT_CHARS, TEXT_FIELDS = 15, 500, ("title", "content")
"""The gateway's defaults: RERANKER_INITIAL_K, RERANKER_MAX_DOCUMENT_CHARS, TEXT_FIELDS."""

REPEATS = {True: 1, False: 3}
"""Searches of a question in each round, with and without reranking; those without take a fraction of the time."""

Key = tuple[str, bool]
"""Backend, and whether it reranks."""


def questions() -> list[str]:
    """The questions of the example."""
    return [json.loads(line)["question"] for line in QUESTIONS.read_text(encoding="utf-8").splitlines() if line.strip()]


def steps(rounds: int) -> int:
    """How often `measure` calls `advance`: a question prepared, warmed up, or measured a round."""
    return (2 + rounds) * len(questions())


@dataclass(frozen=True, slots=True)
class Side:
    """One backend: its gateway, its parts, and what the gateway reranks for each question."""

    name: str
    url: str
    headers: dict[str, str]
    client: httpx.AsyncClient
    models: Models
    legs: Legs
    excerpts: dict[str, list[str]]

    async def through_gateway(self, question: str, *, rerank: bool, top_k: int = TOP_K) -> Any:
        """The whole search over HTTP."""
        answer = await post(self.client, f"{self.url}/search", {"query": question, "top_k": top_k, "rerank": rerank}, self.headers)
        if answer["degraded"] or answer["rerank"]["status"] != ("applied" if rerank else "skipped"):
            raise MeasurementFailed(f"the gateway did not do its whole work: degraded {answer['degraded']}, rerank {answer['rerank']}")
        return answer

    async def by_hand(self, question: str, *, rerank: bool) -> None:
        """The same work without the gateway: embed, search both legs, rerank the same excerpts."""
        vector = await self.models.embed(question)
        await self.legs.search(question, vector)
        if rerank:
            await self.models.rerank(question, self.excerpts[question])

    async def prepare(self, question: str) -> None:
        """Find out what the gateway reranks, and prove it: the parts must give the very scores that the gateway gives."""
        results = (await self.through_gateway(question, rerank=True, top_k=HEAD))["results"]
        head = sorted(results, key=lambda one: int(one["hybrid_rank"]))
        if len(head) != HEAD:
            raise MeasurementFailed(f"a question has {len(head)} candidates, and {HEAD} are to be reranked")
        excerpts = [cut(join_text(TEXT_FIELDS, one["title"], one["content"], one["metadata"]), EXCERPT_CHARS) for one in head]
        scores = await self.models.rerank(question, excerpts)
        same = (math.isclose(scores[index], one["scores"]["rerank"], abs_tol=1e-6) for index, one in enumerate(head))
        if not all(same):
            raise MeasurementFailed("the excerpts made by hand are not those that the gateway reranks, so the comparison is unfair")
        self.excerpts[question] = excerpts


async def measure(stack: Stack, rounds: int, advance: Callable[[], None]) -> tuple[dict[Key, SideBySide], float]:
    """Seconds of each search, and how many characters an excerpt has on average."""
    asked, times = questions(), dict[Key, SideBySide]()
    async with new_client() as client:
        sides = _sides(stack, client)
        try:
            for question in asked:
                for side in sides:
                    await side.prepare(question)
                advance()
            # What reranks is warm by now, what does not is quicker and needs more of it.
            await _round(sides, asked, {}, {False: REPEATS[False]}, advance)
            for _ in range(rounds):
                await _round(sides, asked, times, REPEATS, advance)
        finally:
            for side in sides:
                await side.legs.aclose()
    lengths = [len(excerpt) for side in sides for some in side.excerpts.values() for excerpt in some]
    return times, sum(lengths) / len(lengths)


def _sides(stack: Stack, client: httpx.AsyncClient) -> list[Side]:
    models = Models(client, stack.embedding.url, stack.reranker.url)
    legs: dict[str, Legs] = {
        "embedded": EmbeddedLegs(stack.embedded_path),
        "opensearch": OpenSearchLegs(client, stack.opensearch_url, stack.alias),
    }
    return [Side(name, gateway.url, stack.bearer, client, models, legs[name], {}) for name, gateway in stack.gateways.items()]


async def _round(
    sides: Sequence[Side],
    asked: Sequence[str],
    times: dict[Key, SideBySide],
    repeats: Mapping[bool, int],
    advance: Callable[[], None],
) -> None:
    """Every question in every way; which way comes first, and which of its two sides, is left to chance."""
    for question in asked:
        ways = [(side, rerank) for side in sides for rerank, count in repeats.items() for _ in range(count)]
        random.shuffle(ways)
        for side, rerank in ways:
            pair = times.setdefault((side.name, rerank), SideBySide())
            await _pair(side, question, pair, rerank=rerank)
        advance()


async def _pair(side: Side, question: str, pair: SideBySide, *, rerank: bool) -> None:
    both = [(side.through_gateway, pair.gateway), (side.by_hand, pair.parts)]
    random.shuffle(both)
    for search, seconds in both:
        started = perf_counter()
        await search(question, rerank=rerank)
        seconds.append(perf_counter() - started)
