"""The fallback console: what Prometheus and the trace store are asked, and what is made of their answers."""

import json
from typing import Any

import httpx
import pytest

from frontend.console import fallbacks_over_time
from services.frontend.tests.fakes import NOW, PROMETHEUS, TRACES, FakeOutside
from services.frontend.tests.serving import browsing

SETTINGS = {"prometheus_url": f"http://{PROMETHEUS}/prom/", "traces_url": f"http://{TRACES}"}
TRACE = "0123456789abcdef0123456789abcdef"


def span(**tags: Any) -> dict[str, Any]:
    """A span as Jaeger's API writes it."""
    listed = [{"key": name.replace("__", "."), "type": "string", "value": value} for name, value in tags.items()]
    return {"startTime": NOW * 1_000_000, "duration": 12_345, "tags": listed}


def counted(**series: list[list[Any]]) -> httpx.Response:
    """An answer of Prometheus."""
    result = [{"metric": {"reranker_fallback_reason": reason}, "values": values} for reason, values in series.items()]
    return httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": result}})


async def looked(prometheus: Any = None, traces: Any = None, minutes: int = 60, **given: Any) -> tuple[dict[str, Any], FakeOutside]:
    """What the console shows an operator."""
    outside = FakeOutside()
    outside.answers[PROMETHEUS] = prometheus or counted()
    outside.answers[TRACES] = traces or httpx.Response(200, json={"data": []})
    async with browsing(outside, **{**SETTINGS, **given}) as browser:
        await browser.log_in("engineer")
        response = await browser.http.get("/api/console", params={"minutes": minutes})
    assert response.status_code == 200
    return response.json(), outside


@pytest.mark.parametrize(("minutes", "step"), [(60, 60), (15, 15), (1440, 1440)])
async def test_prometheus_is_asked_a_fixed_question(minutes: int, step: int) -> None:
    """Sixty bars that end on whole steps, so that a bar stays the same when looked at again."""
    found, outside = await looked(minutes=minutes)
    asked = outside.last(PROMETHEUS).url
    assert asked.path == "/prom/api/v1/query_range"
    assert asked.params["query"] == fallbacks_over_time(step)
    start, end = int(asked.params["start"]), int(asked.params["end"])
    assert (asked.params["step"], (end - start) // step, end % step) == (str(step), 59, 0)
    assert NOW < end <= NOW + step
    assert found["over_time"]["times"] == list(range(start, end + 1, step))


async def test_counts_by_reason() -> None:
    """Each bar at its time, quiet reasons left out, odd names not shown."""
    end = NOW // 60 * 60 + 60
    given = counted(deadline=[[end - 60, "2"], [end, "1"]], too_late=[[end, "0"]], **{"<b>": [[end, "4"]]})
    found, _ = await looked(given)
    series = found["over_time"]["series"]
    assert set(series) == {"deadline", "unknown"}
    assert series["deadline"][-2:] == [2, 1]
    assert sum(series["deadline"]) == 3


async def test_the_trace_store_is_asked_for_fallbacks() -> None:
    """By tag and time, in Jaeger's microseconds; of searches and streams alike."""
    _, outside = await looked(minutes=30)
    asked = outside.last(TRACES).url
    assert asked.path == "/api/traces"
    assert (asked.params["service"], json.loads(asked.params["tags"])) == ("knowledge-gateway", {"reranker_fallback": "true"})
    assert int(asked.params["end"]) - int(asked.params["start"]) == 30 * 60 * 1_000_000
    assert int(asked.params["end"]) == NOW * 1_000_000


async def test_a_fallback_trace_becomes_a_row() -> None:
    """Reason, candidates and time left out of its spans; what is absent is null."""
    served = span(reranker_fallback=True, reranker__fallback__reason="client_timeout", knowledge__candidate__count=20)
    called = span(reranker__candidate__count=15, reranker__time_left_s=1.5)
    bare = {"traceID": TRACE.replace("0", "f"), "spans": [span(reranker_fallback="true")]}
    other = {"traceID": TRACE, "spans": [span(reranker_fallback=False)]}
    evil = {"traceID": "../../evil", "spans": [served]}
    found, _ = await looked(traces=httpx.Response(200, json={"data": [{"traceID": TRACE, "spans": [called, served]}, bare, other, evil]}))
    first, second = found["traces"]["rows"]
    link = f"http://{TRACES}/trace/{TRACE}"
    expected = {
        "reason": "client_timeout",
        "candidates": 15,
        "time_left_s": 1.5,
        "duration_ms": 12.3,
        "trace_id": TRACE,
        "link": link,
        "at": NOW,
    }
    assert first == expected
    assert (second["reason"], second["candidates"], second["time_left_s"]) == ("unknown", None, None)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (httpx.ConnectError("refused"), "unreachable"),
        (httpx.ReadTimeout("late"), "unreachable"),
        (httpx.Response(500), "refused"),
        (httpx.Response(302, headers={"Location": "http://evil.example"}), "refused"),
        (httpx.Response(200, text="no JSON"), "unreadable"),
        (httpx.Response(200, json={"data": 7}), "unreadable"),
        (httpx.Response(200, content=b"[" * 100_000), "unreadable"),
        (httpx.Response(200, content=b" " * (17 << 20)), "unreadable"),
    ],
)
async def test_a_source_that_fails_leaves_the_other(given: Any, problem: str) -> None:
    """Each half says what is the matter with it; no redirect is followed, no answer read without end."""
    found, outside = await looked(prometheus=given)
    assert (found["over_time"]["problem"], found["traces"]["problem"]) == (problem, None)
    found, _ = await looked(traces=given)
    assert (found["over_time"]["problem"], found["traces"]["problem"]) == (None, problem)
    assert "evil.example" not in outside.seen


async def test_a_store_that_has_nothing_says_null() -> None:
    """As Jaeger does."""
    found, _ = await looked(traces=httpx.Response(200, json={"data": None}))
    assert found["traces"] == {"problem": None, "rows": []}


async def test_sources_that_are_not_set_are_not_asked() -> None:
    """And the page can say how to set them."""
    found, outside = await looked(prometheus_url="", traces_url="")
    assert (found["over_time"]["problem"], found["traces"]["problem"]) == ("off", "off")
    assert outside.seen == {}


@pytest.mark.parametrize("minutes", ["0", "100000", "5m", "60)}or up{"])
async def test_minutes_are_a_small_number(minutes: str) -> None:
    """422, and nothing of it reaches Prometheus."""
    async with browsing(**SETTINGS) as browser:
        await browser.log_in("engineer")
        assert (await browser.http.get("/api/console", params={"minutes": minutes})).status_code == 422
        assert browser.outside.seen == {}
