"""Takes whatever the services export by OTLP over HTTP, and keeps the bytes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(slots=True)
class Sink:
    """What came, by path."""

    url: str
    bodies: list[tuple[str, bytes]] = field(default_factory=list)

    def of(self, path: str) -> list[bytes]:
        """The bodies that came to `path`."""
        return [body for where, body in self.bodies if where == path]


@contextmanager
def running() -> Iterator[Sink]:
    """Listen while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sink.bodies.append((self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """What comes is kept, and that is enough."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        sink = Sink(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()
