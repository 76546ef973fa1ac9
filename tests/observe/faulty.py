"""A door before the real reranker-service that can be slow, silent, half open, locked or not there at all."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import httpx

Mode = Literal["passes", "late", "busy", "slow", "silent", "partial", "wrong key"]

BUSY = json.dumps({"status": "busy", "retry_after_ms": 500}).encode()
LATE = json.dumps({"status": "timeout"}).encode()
SILENCE_S = 20
SLOW_S = 2.5
NOT_HANDED_ON = {"host", "content-length", "connection", "accept-encoding"}


class FaultyReranker:
    """Hands requests on to `target` unless its `mode` says otherwise; always on the same port."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.mode: Mode = "passes"
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.come()

    @property
    def url(self) -> str:
        """Where it is, or would be."""
        return f"http://127.0.0.1:{self._port}"

    def come(self) -> None:
        """Listen."""
        door = self

        class Handler(_Handler):
            faulty = door

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def go(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Handler(BaseHTTPRequestHandler):
    """One request a connection, so that a closed door is found closed at once."""

    faulty: FaultyReranker

    def do_GET(self) -> None:
        """`/info` is always handed on."""
        self._hand_on(b"", dict(self.headers))

    def do_POST(self) -> None:
        """Scores, or what the mode says."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = dict(self.headers)
        if self.faulty.mode == "silent":
            self.connection.settimeout(SILENCE_S)
            self.connection.recv(1)  # until the caller has had enough
        elif self.faulty.mode == "late":
            self._answer(503, LATE)
        elif self.faulty.mode == "busy":
            self._answer(429, BUSY)
        else:
            if self.faulty.mode == "slow":
                time.sleep(SLOW_S)
            if self.faulty.mode == "wrong key":
                headers["Authorization"] = "Bearer some-other-key"
            self._hand_on(body, headers)

    def _hand_on(self, body: bytes, headers: dict[str, str]) -> None:
        kept = {name: value for name, value in headers.items() if name.lower() not in NOT_HANDED_ON}
        with httpx.Client(trust_env=False, timeout=SILENCE_S) as client:
            answer = client.request(self.command, self.faulty.target + self.path, content=body, headers=kept)
        halved = self.faulty.mode == "partial" and answer.status_code == 200 and body
        self._answer(answer.status_code, _half(answer.json()) if halved else answer.content)

    def _answer(self, status: int, content: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            return  # the caller is gone

    def log_message(self, *_: object) -> None:
        """The services' own logs say enough."""


def _half(answer: dict[str, Any]) -> bytes:
    """The answer as it would be had time run out half way."""
    kept = len(answer["results"]) // 2
    late = [{"index": one["index"], "reason": "deadline"} for one in answer["results"][kept:]]
    return json.dumps({**answer, "status": "partial", "results": answer["results"][:kept], "unscored": late}).encode()
