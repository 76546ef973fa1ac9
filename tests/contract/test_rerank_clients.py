"""The reranker-service with real weights, asked by the clients that people have: Cohere's SDK, LiteLLM for five servers, OpenAI's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.services import clean_environment, start, wait_ready

pytestmark = pytest.mark.models

ASK = Path(__file__).parent / "clients" / "ask.py"
MODEL = "ms-marco-minilm-l12-v2"
BEST = 1
LISTS = (
    *("cohere v2", "cohere v1", "openai", "litellm cohere", "litellm jina_ai", "litellm hosted_vllm", "litellm infinity"),
    "litellm huggingface",
)


@pytest.fixture(scope="module")
def understood(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What each client made of the service's answers."""
    folder = tmp_path_factory.mktemp("clients")
    service = start("knowledge-reranker", {"RERANK_MODEL": MODEL, "RERANK_API_KEY": "the-key"}, folder)
    try:
        wait_ready(service)
        command = [sys.executable, str(ASK), service.url, "the-key", MODEL]
        asked = subprocess.run(command, env=clean_environment({}), cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert asked.returncode == 0, asked.stderr[-4000:]
        yield json.loads(asked.stdout.splitlines()[-1])
    finally:
        service.stop()


@pytest.mark.parametrize("client", LISTS)
def test_the_client_reads_index_and_score(understood: dict[str, Any], client: str) -> None:
    """The right passage on top, scores falling, and the same scores for everybody."""
    found = understood[client]
    assert found[0][0] == BEST
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert dict(map(tuple, found)).items() <= dict(map(tuple, understood["cohere v1"])).items()


def test_top_n_and_the_echo_are_understood(understood: dict[str, Any]) -> None:
    """Two of three, and each text with its index."""
    assert len(understood["cohere v2"]) == 2
    assert understood["cohere v1 echo"][0] == "Berlin has 3.5 million inhabitants."


def test_errors_are_those_that_the_client_knows(understood: dict[str, Any]) -> None:
    """A model that is not there, a key that is none."""
    assert understood["cohere, unknown model"] == "NotFoundError"
    assert understood["cohere, wrong key"] == "UnauthorizedError"
