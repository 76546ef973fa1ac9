"""What every route stands on: the checks, the deadline, the limit on requests, the key and the metrics around one scoring."""

import asyncio
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Header, Request

from modelkit import Background, Gate, NotServed
from modelkit.serving import Clock, deadline_of, timed_out
from reranker.outcome import Outcome, Scored
from reranker.scheduler import MIN_RETRY_MS, Scheduler
from reranker.schemas import Info, RerankRequest
from reranker.settings import RerankSettings
from reranker.settling import Settling
from reranker.telemetry import Instruments
from servicekit.disconnect import ClientGoneError, run_until_disconnect
from servicekit.problems import Problem

MAX_IN_FLIGHT = 64
MAX_CHARS_IN_FLIGHT = 8 << 20
"""Of all documents in flight together; with their tokens about 100 MB."""

RESPONSES: dict[int | str, dict[str, Any]] = {
    429: {"description": '`{"status": "busy", "retry_after_ms": n}`'},
    503: {"description": '`{"status": "timeout"}` or `{"status": "loading", "retry_after_ms": n}`'},
}


@dataclass
class Service:
    """Everything a route needs."""

    settings: RerankSettings
    scheduler: Background[Scheduler]
    info: Info
    instruments: Instruments
    clock: Clock
    gate: Gate

    async def rank(self, request: Request, body: RerankRequest, settling: Settling | None = None) -> Outcome:
        """Score, with the checks, the deadline, the limit on requests and the metrics around it."""
        started, error = self.clock(), None
        try:
            self._check(body)
            deadline = deadline_of(request, self.clock, self.settings.rerank_deadline_s, body.deadline_ms)
            scheduler = self.scheduler.get()
            with self.gate.entered(lambda: retry_after_ms(scheduler), sum(map(len, body.documents))):
                self.instruments.batch(len(body.documents))
                work = scheduler.rank(body.query, body.documents, deadline, allow_partial=body.allow_partial, settling=settling)
                outcome = await run_until_disconnect(request, work)
                if outcome.missed("deadline") and not (body.allow_partial and outcome.scored):
                    raise timed_out()
                return outcome
        except NotServed as reason:
            error = reason.status
            raise
        except (ClientGoneError, asyncio.CancelledError):
            error = "cancelled"
            raise
        except Problem as problem:
            error = problem.code
            raise
        finally:
            self.instruments.request(self.clock() - started, error)

    def _check(self, body: RerankRequest) -> None:
        if body.model not in (None, "", self.info.model):
            raise Problem(404, "unknown_model", f"model: this service has {self.info.model}")
        budget = self.settings.rerank_scored_chars_budget
        scored_chars = sum(map(len, body.documents))
        if budget and scored_chars > budget:
            raise Problem(
                422,
                "scored_chars_exceeded",
                f"documents: {scored_chars} characters in all, over the budget of {budget} (RERANK_SCORED_CHARS_BUDGET)",
                extra={"scored_chars": scored_chars, "budget": budget},
            )


def retry_after_ms(scheduler: Scheduler) -> int:
    """When half of what waits now will be done, and so about half of the places be free."""
    return max(MIN_RETRY_MS, math.ceil(scheduler.backlog_s() * 500))


def service_of(request: Request) -> Service:
    """The service that this app is."""
    return cast("Service", request.app.state.service)


async def authorised(request: Request, authorization: Annotated[str | None, Header()] = None) -> None:
    """401 without the key, where one is set."""
    key = service_of(request).settings.rerank_api_key
    if key is None:
        return
    given = (authorization or "").encode("utf-8", "replace")
    if not hmac.compare_digest(given, f"Bearer {key.get_secret_value()}".encode()):
        headers = {"WWW-Authenticate": "Bearer"}
        raise Problem(401, "unauthorized", "Authorization: the service's API key is required as a bearer token", headers=headers)


def best_first(outcome: Outcome) -> Sequence[Scored]:
    """By (raw score descending, index ascending): shown scores may be equal where the raw ones differ."""
    return sorted(outcome.scored, key=lambda each: (-each.raw, each.index))
