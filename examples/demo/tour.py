"""The guided tour: five searches that show what the gateway does when all is well and when it is not."""

import json
from typing import Any

import httpx

from examples.demo.stack import Stack, token
from knowledge.cli.search import show

QUESTION = "Meine unteren Blätter werden gelb, die oberen sind noch grün. Was fehlt?"
TRIES = 8
MARGINS_MS = 250


class TourFailed(RuntimeError):
    """A search did not show what it is there to show."""


class Tour:
    """Asks the gateway as a frontend would."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._token = token(stack)

    def ask(self, body: dict[str, Any], bearer: str | None = None) -> dict[str, Any]:
        """One `POST /search`."""
        headers = {"Authorization": f"Bearer {bearer or self._token}"}
        response = httpx.post(f"{self._stack.gateway_url}/search", json=body, headers=headers, timeout=60, trust_env=False)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def run(self) -> None:
        """All five searches, each checked.

        Raises:
            TourFailed: names the search and what it gave instead.
        """
        full = self._search(1, "with reranking", {"query": QUESTION})
        _expect(full, "applied", None)
        plain = self._search(2, "the same without reranking (before = rank)", {"query": QUESTION, "rerank": False})
        _expect(plain, "skipped", "not_requested")
        self._partial(full)
        self._stack.services["knowledge-reranker"].stop()
        fallback = self._search(4, "the reranker-service stopped: hybrid order, and the reason", {"query": QUESTION})
        _expect(fallback, "fallback", "transport")
        if _ids(fallback) != _ids(plain):
            raise TourFailed("search 4: a fallback must have exactly the hybrid order")
        self._stack.restart("knowledge-reranker")
        nobody = self._search(5, "a token without roles: nothing", {"query": QUESTION}, token(self._stack, ()))
        if nobody["results"] or nobody["degraded"] != ["no_permissions"]:
            raise TourFailed("search 5: without roles nothing may be seen")

    def _partial(self, full: dict[str, Any]) -> None:
        """A deadline that ends half way: how long that is depends on the machine, so it is measured and corrected."""
        pairs_ms, others_ms = full["rerank"]["elapsed_ms"], full["elapsed_ms"] - full["rerank"]["elapsed_ms"]
        share = 0.5
        for _ in range(TRIES):
            deadline_ms = max(100, int(MARGINS_MS + others_ms + share * pairs_ms))
            answer = self.ask({"query": QUESTION, "deadline_ms": deadline_ms})
            if answer["rerank"]["status"] == "partial":
                self._title(3, f"a deadline of {deadline_ms} ms, too short for all pairs: scored ones first, the rest as it was")
                show(answer)
                return
            share *= 0.75 if answer["rerank"]["status"] == "applied" else 1.35
        raise TourFailed("search 3: no deadline gave a partial answer")

    def _search(self, number: int, title: str, body: dict[str, Any], bearer: str | None = None) -> dict[str, Any]:
        answer = self.ask(body, bearer)
        self._title(number, title)
        show(answer)
        return answer

    def _title(self, number: int, title: str) -> None:
        print(f"\n{number}. {title}\n   {QUESTION}\n", flush=True)

    def farewell(self) -> None:
        """URLs, a token and a line to copy."""
        for name, service in self._stack.services.items():
            print(f"{name:20} {service.url}")
        print(f"{'API description':20} {self._stack.gateway_url}/openapi.json")
        for page, path in (("chat", "/"), ("glossary", "/glossary"), ("inspector", "/inspector"), ("fallback console", "/console")):
            print(f"{page:20} {self._stack.pages_url}{path}")
        print("(the pages ask for a persona: the reader sees the plants, the platform engineer the inspector too)")
        print(f"\ntoken (one day, role reader): {self._token}\n")
        body = json.dumps({"query": QUESTION}, ensure_ascii=False)
        print(f"curl -s {self._stack.gateway_url}/search -H 'Authorization: Bearer {self._token}' \\")
        print(f"  -H 'Content-Type: application/json' -d '{body}'")
        print(f'\nor: .venv/bin/knowledge search "{QUESTION}"', flush=True)


def _ids(answer: dict[str, Any]) -> list[str]:
    return [result["id"] for result in answer["results"]]


def _expect(answer: dict[str, Any], status: str, reason: str | None) -> None:
    report = answer["rerank"]
    if (report["status"], report["reason"]) != (status, reason):
        raise TourFailed(f"expected {status} ({reason}), got {report['status']} ({report['reason']})")
