"""What the services share on the wire."""

import json
import signal
import threading
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from starlette.types import Receive, Scope, Send

from modelkit import serving
from modelkit.errors import DamagedFileError, UnavailableError
from modelkit.serving import (
    EXIT_MODEL,
    Arrival,
    Background,
    Deadline,
    Gate,
    NotServed,
    busy,
    deadline_of,
    loading,
    run_model_service,
    timed_out,
)
from servicekit.problems import Problem


def _request(header: str | None = None, arrived: float = 100.0) -> Request:
    headers = [] if header is None else [(b"x-deadline-ms", header.encode())]
    return Request({"type": "http", "headers": headers, "state": {"arrived": arrived}})


@pytest.mark.parametrize(
    ("header", "asked_ms", "at"),
    [(None, None, 104.0), ("2500", None, 102.5), ("2500", 1500, 101.5), ("9000", 8000, 104.0), ("0", None, 100.0)],
)
def test_the_earliest_deadline_counts_from_the_arrival(header: str | None, asked_ms: int | None, at: float) -> None:
    """Header, body, and the service's own."""
    assert deadline_of(_request(header), lambda: 101.0, 4.0, asked_ms).at == pytest.approx(at)


@pytest.mark.parametrize("header", ["soon", "-1", "1.5", "", "9" * 12, "\u00b2"])
def test_a_header_that_is_no_number_is_refused(header: str) -> None:
    """By its name, without its value."""
    with pytest.raises(Problem) as caught:
        deadline_of(_request(header), lambda: 101.0, 4.0)
    assert caught.value.status == 422
    assert "X-Deadline-Ms" in caught.value.detail


def test_a_deadline_knows_what_still_fits() -> None:
    """And never has less than no time left."""
    deadline = Deadline(10.0, lambda: 9.0)
    assert (deadline.left_s, deadline.passed, deadline.allows(1.0), deadline.allows(1.1)) == (1.0, False, True, False)
    assert Deadline(10.0, lambda: 11.0).left_s == 0.0
    assert Deadline(10.0, lambda: 10.0).passed


@pytest.mark.parametrize(
    ("answer", "status", "body", "retry_after"),
    [
        (timed_out(), 503, {"status": "timeout"}, None),
        (loading(), 503, {"status": "loading", "retry_after_ms": 1000}, "1"),
        (busy(2300), 429, {"status": "busy", "retry_after_ms": 2300}, "3"),
        (busy(100), 429, {"status": "busy", "retry_after_ms": 100}, "1"),
    ],
)
def test_answers_that_are_no_results_are_plain(answer: NotServed, status: int, body: dict[str, object], retry_after: str | None) -> None:
    """Status, body and the header in whole seconds."""
    response = answer.response()
    assert response.status_code == status
    assert json.loads(bytes(response.body)) == body
    assert response.headers.get("retry-after") == retry_after


def test_a_gate_is_left_however_the_request_ends() -> None:
    """A place is free again after a failure."""
    gate = Gate(1)

    def fail_inside() -> None:
        with gate.entered(lambda: 100):
            with pytest.raises(NotServed) as caught, gate.entered(lambda: 700):
                pass
            assert caught.value.retry_after_ms == 700
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_inside()
    with gate.entered(lambda: 100):
        assert gate.inside == 1


def test_a_gate_is_as_wide_as_what_is_inside_may_hold() -> None:
    """A single large one comes in alone, and nothing beside it."""
    gate = Gate(9, max_size=10)
    with gate.entered(lambda: 100, 50), pytest.raises(NotServed), gate.entered(lambda: 100, 1):
        pass
    with gate.entered(lambda: 100, 5), gate.entered(lambda: 100, 5):
        assert (gate.inside, gate.size) == (2, 10)
        with pytest.raises(NotServed), gate.entered(lambda: 100, 1):
            pass
    assert (gate.inside, gate.size) == (0, 0)


def test_what_loads_is_not_there_before() -> None:
    """And is afterwards."""
    release = threading.Event()
    background = Background(lambda: release.wait(20), lambda _: None)
    background.start()
    with pytest.raises(NotServed, match="loading"):
        background.get()
    release.set()
    background.join()
    assert background.ready
    assert background.get() is True


BROKEN = DamagedFileError(Path("model_int8.onnx"), expected="a", found="b")


@pytest.mark.parametrize("error", [UnavailableError("no source."), BROKEN, OSError("disk")])
def test_a_failure_is_told_as_a_sentence(error: Exception) -> None:
    """Ours as it is; a bug with its class."""

    def load() -> int:
        raise error

    sentences: list[str] = []
    background = Background(load, sentences.append)
    background.start()
    background.join()
    assert not background.ready
    assert str(error) in sentences[0]


async def test_the_arrival_is_noted_for_requests_only() -> None:
    """Other kinds of connection pass untouched."""
    seen: list[Scope] = []

    async def app(scope: Scope, _: Receive, __: Send) -> None:
        seen.append(scope)

    async def nothing(*_: object) -> dict[str, object]:
        return {}

    arrival = Arrival(app, lambda: 7.0)
    for kind in ("http", "lifespan"):
        await arrival({"type": kind, "state": {"kept": 1}}, nothing, nothing)
    assert seen[0]["state"] == {"kept": 1, "arrived": 7.0}
    assert "arrived" not in seen[1]["state"]


@pytest.mark.parametrize(("broken", "status"), [(True, EXIT_MODEL), (False, 0)])
def test_the_exit_status_tells_whether_the_model_failed(
    broken: bool, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server drains, then raises the signal again: a failed model is 3, a plain stop is 0."""

    def serve(_: str, __: int, ___: object, create_app: "serving.Callable[[], FastAPI]", **____: object) -> None:
        create_app()
        signal.raise_signal(signal.SIGTERM)

    def create(fail: "serving.Callable[[str], None]") -> FastAPI:
        if broken:
            fail("the model is damaged.")
        return FastAPI()

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(serving, "serve", serve)
    try:
        with pytest.raises(SystemExit) as caught:
            run_model_service("knowledge-x", 1, lambda: "INFO", create, grace_s=lambda: 1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == status
    assert ("knowledge-x: the model is damaged." in capsys.readouterr().err) is broken


def test_a_stop_while_the_model_loads_ends_without_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader may be inside the native library, which aborts if the interpreter ends under it."""
    release = threading.Event()
    background = Background(release.wait, lambda _: None)

    def leave(status: int) -> None:
        raise RuntimeError(f"left with {status}")

    def serve(*_: object, **__: object) -> None:
        background.start()
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(serving, "serve", serve)
    monkeypatch.setattr(serving.os, "_exit", leave)
    try:
        with pytest.raises(RuntimeError, match="left with 0"):
            run_model_service("knowledge-x", 1, lambda: "INFO", lambda _: FastAPI(), grace_s=lambda: 1)
    finally:
        signal.signal(signal.SIGTERM, before)
        release.set()
        background.join()
