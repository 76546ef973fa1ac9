"""Work that ends when the caller goes away."""

import asyncio

import pytest
from starlette.requests import Request

from servicekit.disconnect import ClientGoneError, run_until_disconnect
from services.servicekit.tests.asgi import Caller, scope


def request_of(caller: Caller) -> Request:
    """The request of a caller whose body has been read."""
    caller.read = len(caller.chunks)
    return Request(scope(), caller.receive)  # type: ignore[arg-type]


async def test_work_that_ends_first_gives_its_result() -> None:
    """And nothing is left waiting for the caller."""
    before = asyncio.all_tasks()

    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await run_until_disconnect(request_of(Caller()), work()) == 7
    assert asyncio.all_tasks() == before


async def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    """The caller's presence changes no error."""
    before = asyncio.all_tasks()

    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await run_until_disconnect(request_of(Caller()), work())
    assert asyncio.all_tasks() == before


async def test_a_caller_that_goes_away_cancels_the_work() -> None:
    """The work has ended, with its clean-up, before ClientGoneError is raised."""
    caller, started, ended = Caller(), asyncio.Event(), []

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    task = asyncio.create_task(run_until_disconnect(request_of(caller), work()))
    await started.wait()
    caller.leave()
    with pytest.raises(ClientGoneError):
        await task
    assert ended == [True]


async def test_cancelling_from_outside_cancels_the_work_too() -> None:
    """A shutdown ends what is in flight."""
    started, cancelled = asyncio.Event(), []

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    before = asyncio.all_tasks()
    task = asyncio.create_task(run_until_disconnect(request_of(Caller()), work()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [True]
    assert asyncio.all_tasks() == before


async def test_work_that_is_done_when_the_caller_leaves_counts_as_done() -> None:
    """Of two things at the same moment the result wins."""
    caller = Caller()
    caller.leave()

    async def work() -> int:
        return 7

    assert await run_until_disconnect(request_of(caller), work()) == 7


async def test_work_that_fails_while_it_is_cancelled_does_not_hide_the_departure() -> None:
    """An error in the clean-up of cancelled work is nobody's answer any more."""
    caller, started = Caller(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("while cleaning up") from None

    task = asyncio.create_task(run_until_disconnect(request_of(caller), work()))
    await started.wait()
    caller.leave()
    with pytest.raises(ClientGoneError):
        await task
