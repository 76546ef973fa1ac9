"""What the two model services share on the wire: loading in the background, deadlines, and answers that are not results."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from modelkit.errors import ModelError
from modelkit.runtime import return_freed_memory
from servicekit.disconnect import CLIENT_CLOSED_REQUEST, ClientGoneError
from servicekit.problems import Problem
from servicekit.server import serve

T = TypeVar("T")
Clock = Callable[[], float]
"""Seconds on a clock that only goes forward."""

DEADLINE_HEADER = "X-Deadline-Ms"
MAX_DEADLINE_DIGITS = 9
EXIT_MODEL = 3
LOADER = "model-loader"
LOADING_RETRY_MS = 1000

log = structlog.get_logger(__name__)


class NotServed(Exception):
    """The request is sound, but there is no result now: `loading`, `busy` or `timeout`."""

    def __init__(self, http_status: int, status: str, retry_after_ms: int | None = None) -> None:
        super().__init__(status)
        self.http_status = http_status
        self.status = status
        self.retry_after_ms = retry_after_ms

    def response(self) -> JSONResponse:
        """The plain JSON answer; `Retry-After` is in whole seconds, never 0."""
        if self.retry_after_ms is None:
            return JSONResponse({"status": self.status}, self.http_status)
        headers = {"Retry-After": str(max(1, math.ceil(self.retry_after_ms / 1000)))}
        return JSONResponse({"status": self.status, "retry_after_ms": self.retry_after_ms}, self.http_status, headers)


def timed_out() -> NotServed:
    """The deadline passed."""
    return NotServed(503, "timeout")


def loading() -> NotServed:
    """The model is not there yet."""
    return NotServed(503, "loading", LOADING_RETRY_MS)


def busy(retry_after_ms: int) -> NotServed:
    """Too many requests are in flight."""
    return NotServed(429, "busy", retry_after_ms)


def install_not_served(app: FastAPI) -> None:
    """Make `NotServed`, and a caller that went away, answers of the app."""

    async def on_gone(_: Request, __: Exception) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)  # nobody reads it; the access log does

    async def on_not_served(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, NotServed)  # noqa: S101 - narrows the type that Starlette's signature hides
        return error.response()

    app.add_exception_handler(NotServed, on_not_served)
    app.add_exception_handler(ClientGoneError, on_gone)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a clock."""

    at: float
    clock: Clock

    @property
    def left_s(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at - self.clock())

    @property
    def passed(self) -> bool:
        """Whether it is too late."""
        return self.clock() >= self.at

    def allows(self, seconds: float) -> bool:
        """Whether something that takes so long would end in time."""
        return self.clock() + seconds <= self.at


class Arrival:
    """ASGI middleware that notes when a request came in, before its body is read: the caller's deadline runs from there."""

    def __init__(self, app: ASGIApp, clock: Clock = time.monotonic) -> None:
        self.app = app
        self.clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            scope["state"] = {**scope.get("state", {}), "arrived": self.clock()}
        await self.app(scope, receive, send)


def deadline_of(request: Request, clock: Clock, limit_s: float, asked_ms: int | None = None) -> Deadline:
    """The earliest of the header's, the body's and the service's own deadline, counted from the arrival.

    Raises:
        Problem: the header is not a whole number of milliseconds.
    """
    arrived: float = request.state.arrived
    limits = [limit_s] if asked_ms is None else [limit_s, asked_ms / 1000]
    header = request.headers.get(DEADLINE_HEADER)
    if header is not None:
        if not (header.isascii() and header.isdigit() and len(header) <= MAX_DEADLINE_DIGITS):
            raise Problem(422, "invalid_request", f"{DEADLINE_HEADER}: must be a whole number of milliseconds")
        limits.append(int(header) / 1000)
    return Deadline(arrived + min(limits), clock)


class Gate:
    """Lets only so many requests in at once; the rest are told to come back.

    Args:
        limit: requests.
        max_size: what all of them together may hold, in whatever `entered` counts; a single larger one may come in alone.
    """

    def __init__(self, limit: int, max_size: float = math.inf) -> None:
        self.limit = limit
        self.max_size = max_size
        self.inside = 0
        self.size = 0

    @contextmanager
    def entered(self, retry_after_ms: Callable[[], int], size: int = 0) -> Iterator[None]:
        """Hold a place.

        Raises:
            NotServed: all places are taken.
        """
        if self.inside >= self.limit or (self.inside and self.size + size > self.max_size):
            raise busy(retry_after_ms())
        self.inside += 1
        self.size += size
        try:
            yield
        finally:
            self.inside -= 1
            self.size -= size


class Background(Generic[T]):
    """Something that takes long to load; a thread loads it while the service already answers /health.

    Args:
        load: fetches, verifies, opens and warms up; raises `ModelError` where it cannot.
        on_failure: gets the sentence that says why; the service is of no use any more.
    """

    def __init__(self, load: Callable[[], T], on_failure: Callable[[str], None]) -> None:
        self._load = load
        self._on_failure = on_failure
        self._loaded: T | None = None
        self._thread = threading.Thread(target=self._run, name=LOADER, daemon=True)

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of loading, whatever it is."""
        self._thread.join()

    @property
    def ready(self) -> bool:
        """Whether it is there."""
        return self._loaded is not None

    def get(self) -> T:
        """What was loaded.

        Raises:
            NotServed: it is not there yet.
        """
        if self._loaded is None:
            raise loading()
        return self._loaded

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self._loaded = self._load()
        except ModelError as error:
            self._on_failure(str(error))
        except Exception as error:  # noqa: BLE001 - a service that never gets ready must end, whatever the reason
            self._on_failure(f"the model could not be loaded ({type(error).__name__}: {error}).")
        else:
            log.info("model_ready", elapsed_s=round(time.monotonic() - started, 1))


def run_model_service(
    service: str,
    default_port: int,
    log_level: Callable[[], str],
    create_app: Callable[[Callable[[str], None]], FastAPI],
    *,
    grace_s: Callable[[], int],
) -> None:
    """Serve until a signal; end with a sentence and status 3 if the model fails.

    Args:
        service: the component's name.
        default_port: where PORT is not set.
        log_level: reads the setting.
        create_app: makes the app; its argument ends the process with a sentence.
        grace_s: how long requests in flight may take to finish.
    """
    failures: list[str] = []

    def fail(sentence: str) -> None:
        failures.append(sentence)
        print(f"{service}: {sentence}", file=sys.stderr)  # noqa: T201 - for the person who starts it
        signal.raise_signal(signal.SIGTERM)

    def on_terminate(*_: object) -> None:
        status = EXIT_MODEL if failures else 0
        if any(thread.name == LOADER for thread in threading.enumerate()):
            # It may be inside the native library, which aborts the process if the interpreter ends under it.
            sys.stdout.flush()
            os._exit(status)
        raise SystemExit(status)

    return_freed_memory()
    # The server drains on the signal, puts this handler back and raises the signal again: it decides the exit status.
    signal.signal(signal.SIGTERM, on_terminate)
    serve(service, default_port, log_level, lambda: create_app(fail), grace_s=grace_s)
