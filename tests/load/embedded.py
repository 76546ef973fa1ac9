"""The embedded backend alone: a lexical and a vector leg in one call, no model, no HTTP."""

from collections.abc import Callable
from time import perf_counter

from tests.load.overhead import questions
from tests.load.parts import EmbeddedLegs, Models, new_client
from tests.load.stack import Stack

SEARCHES = 10
"""Searches of each question a round."""


def steps(rounds: int) -> int:
    """How often `measure` calls `advance`."""
    return rounds * SEARCHES


async def measure(stack: Stack, rounds: int, advance: Callable[[], None]) -> list[float]:
    """Seconds of each search."""
    async with new_client() as client:
        models = Models(client, stack.embedding.url, stack.reranker.url)
        asked = [(question, await models.embed(question)) for question in questions()]
    legs, seconds = EmbeddedLegs(stack.embedded_path), list[float]()
    try:
        for question, vector in asked:
            await legs.search(question, vector)
        for _ in range(rounds * SEARCHES):
            for question, vector in asked:
                started = perf_counter()
                await legs.search(question, vector)
                seconds.append(perf_counter() - started)
            advance()
    finally:
        await legs.aclose()
    return seconds
