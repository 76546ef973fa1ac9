"""Logs: one JSON object a line, with the trace; an access log by route, without addresses, queries and bodies."""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from opentelemetry.sdk.trace import TracerProvider
from structlog.testing import capture_logs

from servicekit.logs import CHATTY, AccessLog, configure_logging
from services.servicekit.tests.asgi import Caller, scope

MARKER = "Zwiebelkuchen"


Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(logging_restored: None, capsys: pytest.CaptureFixture[str]) -> Lines:
    """The lines on stderr so far, parsed; nothing is on stdout. The test itself configures, for pytest changes streams before it."""

    def read() -> list[dict[str, Any]]:
        captured = capsys.readouterr()
        assert captured.out == ""
        return [json.loads(line) for line in captured.err.splitlines()]

    return read


def test_each_line_is_one_object(lines: Lines) -> None:
    """Service, level, time and event, also for what holds line ends and quotes."""
    configure_logging("the-service", "INFO")
    structlog.get_logger("x").warning('an "event"\nwith lines', number=5)
    [found] = lines()
    assert (found["service"], found["level"], found["event"], found["number"]) == ("the-service", "warning", 'an "event"\nwith lines', 5)
    assert found["timestamp"].endswith("Z")


def test_the_standard_librarys_loggers_write_the_same_lines(lines: Lines) -> None:
    """Libraries log through `logging`."""
    configure_logging("the-service", "INFO")
    logging.getLogger("library").error("failed %s", "here")
    [found] = lines()
    assert (found["service"], found["level"], found["event"]) == ("the-service", "error", "failed here")


def test_the_level_holds_for_both(lines: Lines) -> None:
    """Below INFO nothing is written."""
    configure_logging("the-service", "INFO")
    structlog.get_logger("x").debug("quiet")
    logging.getLogger("library").debug("quiet")
    assert lines() == []


@pytest.mark.parametrize("name", CHATTY)
def test_loggers_that_print_bodies_stay_quiet_at_debug(name: str, logging_restored: None, capsys: pytest.CaptureFixture[str]) -> None:
    """LOG_LEVEL=DEBUG must not put queries into the log."""
    configure_logging("s", "DEBUG")
    logging.getLogger(name).debug(MARKER)
    logging.getLogger(name).info(MARKER)
    logging.getLogger(name).warning("loud")
    err = capsys.readouterr().err
    assert MARKER not in err
    assert "loud" in err


def test_configuring_twice_writes_each_line_once(lines: Lines) -> None:
    """A second configuration replaces the first."""
    configure_logging("the-service", "INFO")
    configure_logging("the-service", "INFO")
    structlog.get_logger("x").info("once")
    assert len(lines()) == 1


def test_lines_inside_a_span_carry_its_ids(lines: Lines) -> None:
    """Trace and span, in hexadecimal; outside a span neither is there."""
    configure_logging("the-service", "INFO")
    with TracerProvider().get_tracer("t").start_as_current_span("s") as span:
        structlog.get_logger("x").info("inside")
    structlog.get_logger("x").info("outside")
    inside, outside = lines()
    assert inside["trace_id"] == format(span.get_span_context().trace_id, "032x")
    assert inside["span_id"] == format(span.get_span_context().span_id, "016x")
    assert "trace_id" not in outside


def app() -> AccessLog:
    """An app with a route, a quiet one and one that fails."""
    inner = FastAPI()

    @inner.get("/documents/{name}")
    async def document(name: str) -> str:
        return name

    @inner.get("/health")
    async def health() -> str:
        return "ok"

    @inner.get("/bug")
    async def bug() -> None:
        raise RuntimeError(MARKER)

    return AccessLog(inner)


async def accessed(path: str, query: str = "") -> list[dict[str, Any]]:
    """The access log's lines of one request."""
    caller = Caller()
    with capture_logs() as logs, suppress(RuntimeError):
        await app()(scope(path, method="GET", query=query), caller.receive, caller.send)  # type: ignore[arg-type]
    return [dict(line) for line in logs if line["event"] == "request"]


async def test_a_request_is_one_line_with_its_route() -> None:
    """Method, the route's template, status, duration; neither the path nor the query string."""
    [line] = await accessed(f"/documents/{MARKER}", f"q={MARKER}")
    assert (line["method"], line["route"], line["status"]) == ("GET", "/documents/{name}", 200)
    assert line["elapsed_ms"] >= 0
    assert MARKER not in str(line)


async def test_an_unknown_path_is_not_written_down() -> None:
    """It could be anything."""
    [line] = await accessed(f"/{MARKER}")
    assert (line["route"], line["status"]) == ("unmatched", 404)
    assert MARKER not in str(line)


async def test_probes_are_not_logged() -> None:
    """They come every few seconds."""
    assert await accessed("/health") == []


async def test_an_error_is_logged_with_its_status() -> None:
    """500, and one line."""
    [line] = await accessed("/bug")
    assert line["status"] == 500
    assert MARKER not in str(line)


async def test_no_answer_at_all_is_499() -> None:
    """Whoever went away before an answer began."""

    async def silent(*_: Any) -> None:
        pass

    caller = Caller()
    with capture_logs() as logs:
        await AccessLog(silent)(scope("/x"), caller.receive, caller.send)  # type: ignore[arg-type]
    assert [line["status"] for line in logs] == [499]


async def test_other_kinds_of_connection_are_not_logged() -> None:
    """The lifespan is no request."""

    async def silent(*_: Any) -> None:
        pass

    caller = Caller()
    with capture_logs() as logs:
        await AccessLog(silent)({"type": "lifespan"}, caller.receive, caller.send)  # type: ignore[arg-type]
    assert logs == []
