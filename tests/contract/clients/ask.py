"""Real clients of other rerankers ask this service: `python ask.py URL KEY MODEL`; prints what each understood, as one JSON object.

A program of its own, because these libraries read the environment and open connections as they please.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

# Or it would ask a host of its own for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

QUERY = "How many people live in Berlin?"
DOCUMENTS = ["The museum is open on Sundays.", "Berlin has 3.5 million inhabitants.", "Berlin is the capital of Germany."]


def by_cohere(url: str, key: str, model: str) -> dict[str, Any]:
    """Both versions of Cohere's SDK, and the errors that it knows."""
    import cohere

    second = cohere.ClientV2(key, base_url=url).rerank(model=model, query=QUERY, documents=DOCUMENTS, top_n=2)
    first = cohere.Client(key, base_url=url).rerank(model=model, query=QUERY, documents=DOCUMENTS, return_documents=True)
    return {
        "cohere v2": [[one.index, one.relevance_score] for one in second.results],
        "cohere v1": [[one.index, one.relevance_score] for one in first.results],
        "cohere v1 echo": [one.document.text if one.document else None for one in first.results],
        "cohere, unknown model": _error(lambda: cohere.ClientV2(key, base_url=url).rerank(model="x", query=QUERY, documents=DOCUMENTS)),
        "cohere, wrong key": _error(lambda: cohere.ClientV2("bad", base_url=url).rerank(model=model, query=QUERY, documents=DOCUMENTS)),
    }


def by_litellm(url: str, key: str, model: str) -> dict[str, Any]:
    """One call for each server that LiteLLM can speak to in one of the shapes; TEI's is called huggingface there."""
    import litellm

    found = {}
    for provider in ("cohere", "jina_ai", "hosted_vllm", "infinity", "huggingface"):
        # Infinity echoes plain strings where all others echo objects: its clients must not ask for an echo here.
        echo = {"return_documents": False} if provider == "infinity" else {}
        answer = litellm.rerank(model=f"{provider}/{model}", query=QUERY, documents=DOCUMENTS, api_base=url, api_key=key, **echo)
        found[f"litellm {provider}"] = [[one["index"], one["relevance_score"]] for one in answer.results]
    return found


def by_openai(url: str, key: str, model: str) -> dict[str, Any]:
    """A caller who has OpenAI's client and a base address that ends in /v1."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key)
    answer: Any = client.post("/rerank", cast_to=object, body={"model": model, "query": QUERY, "documents": DOCUMENTS})
    return {"openai": [[one["index"], one["relevance_score"]] for one in answer["results"]]}


def _error(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        return type(error).__name__
    return "none"


if __name__ == "__main__":
    print(json.dumps(by_cohere(*sys.argv[1:]) | by_litellm(*sys.argv[1:]) | by_openai(*sys.argv[1:])))
