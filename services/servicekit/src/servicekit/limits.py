"""The limit on the size of a request body, for bodies with and without a declared length."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from servicekit.problems import BodyTooLarge, Problem


class BodyLimit:
    """ASGI middleware that answers 413 as soon as a body is known to be larger than `max_bytes`, or than its path's own limit.

    A body with `Content-Length` is refused before it is read; a streamed one when the count passes the limit.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, paths: Mapping[str, int] | None = None) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.paths = dict(paths or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.paths.get(scope["path"], self.max_bytes)
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            await self._refuse(limit, scope, receive, send)
            return
        counter = _Counter(receive, limit)
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            if counter.exceeded and not started:
                return  # whatever the framework made of the interrupted read: the 413 below takes its place
            started = True
            await send(message)

        try:
            await self.app(scope, counter, watched_send)
        except BodyTooLarge:
            if started:
                raise
        if counter.exceeded and not started:
            await self._refuse(limit, scope, receive, send)

    async def _refuse(self, limit: int, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"body: larger than the limit of {limit} bytes"
        problem = Problem(413, "body_too_large", detail, headers={"Connection": "close"}, extra={"limit": limit})
        await problem.response()(scope, receive, send)


class _Counter:
    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self.receive = receive
        self.left = max_bytes
        self.exceeded = False

    async def __call__(self) -> Message:
        message = await self.receive()
        self.left -= len(message.get("body", b""))
        if self.left < 0:
            self.exceeded = True
            raise BodyTooLarge
        return message
