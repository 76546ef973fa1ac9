"""Work that ends when the caller goes away."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

T = TypeVar("T")

CLIENT_CLOSED_REQUEST = 499


class ClientGoneError(Exception):
    """The caller closed the connection; nobody reads the answer."""


async def run_until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, but cancel it as soon as the caller is gone. The body must have been read before.

    Raises:
        ClientGoneError: the caller went away first; `work` has been cancelled and has ended.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        pending = [one for one in (task, watcher) if not one.done()]
        for one in pending:
            one.cancel()
        if pending:
            # Waited for, not awaited: what cancelled work raises while it cleans up must not hide why it was cancelled.
            await asyncio.wait(pending)
            _ = [one.exception() for one in pending if not one.cancelled()]


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
