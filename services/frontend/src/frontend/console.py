"""The fallback console's data: counts over time from Prometheus, single fallbacks from a store with Jaeger's query API.

Both are asked with fixed templates. Nothing that a person typed goes into a query or an address; the number of minutes is an integer.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import structlog

from frontend.outbound import AnswerTooLarge, get_json, new_client
from frontend.settings import Clock, ConsoleSettings
from frontend.telemetry import SERVICE

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
BARS = 60
MAX_TRACES = 100
REASON_LABEL = "reranker_fallback_reason"
FALLBACKS = "reranker_fallbacks_total"
# What was counted before, seen up to six hours back, so that a pause in scraping is not taken for a new counter.
BEFORE = "last_over_time({metric}[6h] offset {step}s)"
# Whole numbers, unlike increase(): the difference, or all of a counter that began anew or was not there before.
FALLBACKS_OVER_TIME = "sum by ({label}) (({metric} - {before} >= 0) or ({metric} < {before}) or ({metric} unless {before}))"
GATEWAY = "knowledge-gateway"
FALLBACK_TAGS = json.dumps({"reranker_fallback": "true"})
HEX_ID = re.compile(r"[0-9a-f]{16,32}")
WORD = re.compile(r"[a-z_]{1,40}")
FAILURES = (httpx.HTTPError, TimeoutError, AnswerTooLarge, ValueError, KeyError, TypeError, AttributeError)

log = structlog.get_logger(SERVICE)


class FallbackConsole:
    """Looks at fallbacks.

    Args:
        settings: where metrics and traces are.
        clock: seconds since the epoch.
        transport: a test's own.
    """

    def __init__(self, settings: ConsoleSettings, clock: Clock, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._client = new_client(TIMEOUT_S, transport)

    async def look(self, minutes: int) -> dict[str, Any]:
        """Both halves; a half that cannot be had has a `problem`: `off`, `unreachable`, `refused` or `unreadable`."""
        over_time, single = await asyncio.gather(self._over_time(minutes), self._single(minutes))
        return {"minutes": minutes, "over_time": over_time, "traces": single}

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _over_time(self, minutes: int) -> dict[str, Any]:
        nothing: dict[str, Any] = {"problem": None, "step_s": minutes * 60 // BARS, "times": [], "series": {}}
        if not self._settings.prometheus_url:
            return {**nothing, "problem": "off"}
        step = minutes * 60 // BARS
        # Whole steps, so that a bar stays the same when looked at again.
        end = int(self._clock()) // step * step + step
        params = {"query": fallbacks_over_time(step), "start": str(end - step * (BARS - 1)), "end": str(end), "step": str(step)}
        try:
            url = f"{self._settings.prometheus_url}/api/v1/query_range"
            found = await self._get(url, params)
            times = [end - step * (BARS - 1 - index) for index in range(BARS)]
            return {**nothing, "times": times, "series": _series(found["data"]["result"], times)}
        except FAILURES as error:
            return {**nothing, "problem": _problem("prometheus", error)}

    async def _single(self, minutes: int) -> dict[str, Any]:
        nothing: dict[str, Any] = {"problem": None, "rows": []}
        if not self._settings.traces_url:
            return {**nothing, "problem": "off"}
        end = int(self._clock() * 1_000_000)
        params = {
            "service": GATEWAY,
            "tags": FALLBACK_TAGS,
            "start": str(end - minutes * 60 * 1_000_000),
            "end": str(end),
            "lookback": f"{minutes}m",
            "limit": str(MAX_TRACES),
        }
        try:
            found = await self._get(f"{self._settings.traces_url}/api/traces", params)
            rows = [row for trace in found["data"] or [] if (row := self._row(trace)) is not None]
            return {**nothing, "rows": sorted(rows, key=lambda row: -row["at"])}
        except FAILURES as error:
            return {**nothing, "problem": _problem("trace_store", error)}

    async def _get(self, url: str, params: Mapping[str, str]) -> Any:
        # The whole is bounded too: a read's own limit starts anew with each part of an answer.
        async with asyncio.timeout(TIMEOUT_S):
            return await get_json(self._client, url, params, max_bytes=MAX_ANSWER_BYTES)

    def _row(self, trace: Mapping[str, Any]) -> dict[str, Any] | None:
        """One fallback; None for a trace that has none, or is none."""
        spans = [(span, tags(span)) for span in trace["spans"]]
        trace_id = str(trace["traceID"]).lower()
        served = next(((span, found) for span, found in spans if str(found.get("reranker_fallback")).lower() == "true"), None)
        if served is None or not HEX_ID.fullmatch(trace_id):
            return None
        span, found = served
        reason = str(found.get("reranker.fallback.reason", ""))
        return {
            "at": span["startTime"] / 1_000_000,
            "reason": reason if WORD.fullmatch(reason) else "unknown",
            "candidates": _number(spans, "reranker.candidate.count", "knowledge.candidate.count"),
            "time_left_s": _number(spans, "reranker.time_left_s"),
            "duration_ms": round(span["duration"] / 1000, 1),
            "trace_id": trace_id,
            "link": self._settings.trace_link(trace_id),
        }


def fallbacks_over_time(step_s: int) -> str:
    """The PromQL for fallbacks by reason in steps of `step_s` seconds."""
    before = BEFORE.format(metric=FALLBACKS, step=int(step_s))
    return FALLBACKS_OVER_TIME.format(label=REASON_LABEL, metric=FALLBACKS, before=before)


def tags(span: Mapping[str, Any]) -> dict[str, Any]:
    """A span's tags by name."""
    return {str(tag["key"]): tag["value"] for tag in span.get("tags", [])}


def _series(result: Sequence[Mapping[str, Any]], times: Sequence[int]) -> dict[str, list[float]]:
    series = {}
    for one in result:
        reason = str(one["metric"].get(REASON_LABEL, "unknown"))
        counted = {int(float(at)): float(value) for at, value in one["values"]}
        series[reason if WORD.fullmatch(reason) else "unknown"] = [counted.get(at, 0.0) for at in times]
    return {reason: values for reason, values in sorted(series.items()) if any(values)}


def _number(spans: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], *names: str) -> float | None:
    for name in names:
        for _, found in spans:
            if isinstance(found.get(name), int | float):
                return float(found[name])
    return None


def _problem(what: str, error: Exception) -> str:
    log.warning("console.source_failed", source=what, error=type(error).__name__)
    if isinstance(error, httpx.HTTPStatusError):
        return "refused"
    if isinstance(error, httpx.TransportError | TimeoutError):
        return "unreachable"
    return "unreadable"
