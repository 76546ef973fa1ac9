"""What part of reranking's gain is there when time runs out half way: nDCG@10 with the first scores of each head alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from knowledge.app import DISTRIBUTION, Adapters, new_backend, new_embedder, new_gateway, new_reranker
from knowledge.deadline import Deadline
from knowledge.explain import DEAF
from knowledge.models import Query, Scope
from knowledge.pipeline import Pipeline, merge_head
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from tests.load.figures import MeasurementFailed
from tests.quality.data import DataSet, Question
from tests.quality.gateways import fill, new_settings
from tests.quality.measures import value
from tests.quality.rankings import DEADLINE_S, IDENTITY

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
TOP_K = 10


@dataclass(slots=True)
class Curve:
    """nDCG@10 of each question by the share of the head that was scored."""

    by_share: dict[float, list[float]] = field(default_factory=lambda: {share: [] for share in SHARES})

    def mean(self, share: float) -> float:
        """Over all questions."""
        return sum(self.by_share[share]) / len(self.by_share[share])


def measure(data: DataSet, embedding_url: str, reranker_url: str, questions: int, advance: Callable[[], None]) -> Curve:
    """Over the embedded backend."""
    with TemporaryDirectory(prefix="kgtest-") as folder:
        urls = {"EMBEDDING_URL": embedding_url, "RERANKER_URL": reranker_url}
        return asyncio.run(_measure(data, urls, Path(folder), questions, advance))


async def _measure(data: DataSet, urls: dict[str, str], folder: Path, questions: int, advance: Callable[[], None]) -> Curve:
    settings = new_settings("embedded", urls, "", folder)
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    reranker = new_reranker(settings.reranker)
    adapters = Adapters(new_backend(settings.search, telemetry), new_embedder(settings.search, telemetry), reranker, None)
    gateway = new_gateway(settings, adapters, telemetry, asyncio.get_running_loop().time)
    curve = Curve()
    try:
        await fill(data, gateway.ingestor, lambda: None)
        for question in data.questions[:questions]:
            await _one(question, gateway.pipeline, curve)
            advance()
    finally:
        await adapters.aclose()
        telemetry.shutdown()
    return curve


async def _one(question: Question, pipeline: Pipeline, curve: Curve) -> None:
    query = Query(question.text, (), TOP_K, (Scope("", (), TOP_K, None),))
    deadline = Deadline.after(DEADLINE_S)
    hybrid = await pipeline.hybrid(query, IDENTITY, deadline, DEAF)
    (head,) = pipeline.heads(hybrid)
    scores = await pipeline.score(hybrid, [head], deadline)
    if len(scores.by_chunk) != len(head):
        raise MeasurementFailed(f"question {question.id}: {scores.report.status}, not all scored")
    candidates = hybrid.scopes[0].candidates
    for share in SHARES:
        first = {one.passage.id: scores.by_chunk[one.passage.id] for one in head[: int(share * len(head))]}
        order = merge_head(candidates, len(head), first)
        curve.by_share[share].append(value("nDCG@10", question, [one.passage for one in order[:TOP_K]]))
