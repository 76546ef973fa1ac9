"""The gateway as the pages' API sees it: the person's own token goes along, and nothing else of the session."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import structlog
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event
from opentelemetry import propagate

from frontend.outbound import AnswerTooLarge, new_client, read_capped
from frontend.sessions import Person
from frontend.telemetry import SERVICE
from servicekit.problems import PROBLEM_JSON, Problem

MAX_ANSWER_BYTES = 8 * 1024 * 1024
EVENT_STREAM = "text/event-stream"
PASSED_ON = ("X-Reranker-Fallback", "Retry-After")
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
NO_ANSWER = "The gateway did not answer."

log = structlog.get_logger(SERVICE)


class GatewayClient:
    """Searches on behalf of a person.

    Args:
        url: the gateway's address.
        timeout_s: longest wait for the next part of an answer.
        transport: a test's own.
    """

    def __init__(self, url: str, timeout_s: float, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url.rstrip("/")
        self._client = new_client(timeout_s, transport)

    async def search(self, person: Person, body: Mapping[str, Any]) -> httpx.Response:
        """The gateway's answer to `POST /search`, read whole, whatever its status.

        Raises:
            Problem: 502 or 504, when there is none.
        """
        response = await self._send(person, "/search", body)
        try:
            content = await read_capped(response, MAX_ANSWER_BYTES)
        except (httpx.HTTPError, AnswerTooLarge) as error:
            raise unanswered(error) from error
        finally:
            await response.aclose()
        headers = {name: response.headers[name] for name in (*PASSED_ON, "Content-Type") if name in response.headers}
        return httpx.Response(response.status_code, headers=headers, content=content)

    async def stream(self, person: Person, body: Mapping[str, Any]) -> Response:
        """The events of `POST /search/stream` as they come, or the problem that came instead.

        Raises:
            Problem: as `search`.
        """
        response = await self._send(person, "/search/stream", body)
        kind = response.headers.get("Content-Type", "")
        if response.status_code == 200 and kind.startswith(EVENT_STREAM):
            return StreamingResponse(_events(response), media_type=EVENT_STREAM, headers=STREAM_HEADERS)
        try:
            content = await read_capped(response, MAX_ANSWER_BYTES)
        except (httpx.HTTPError, AnswerTooLarge) as error:
            raise unanswered(error) from error
        finally:
            await response.aclose()
        return passed_on(httpx.Response(response.status_code, headers=response.headers, content=content))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _send(self, person: Person, path: str, body: Mapping[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {person.token}"}
        propagate.inject(headers)
        request = self._client.build_request("POST", self._url + path, json=dict(body), headers=headers)
        try:
            return await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise unanswered(error) from error


def passed_on(response: httpx.Response) -> Response:
    """The gateway's answer for the browser.

    Raises:
        Problem: 401 when the gateway does not take the session's token any more; 502 when the answer is not the gateway's kind.
    """
    kind = response.headers.get("Content-Type", "")
    if response.status_code == 401:
        raise session_over()
    if not kind.startswith(("application/json", PROBLEM_JSON)) or 300 <= response.status_code < 400:
        log.warning("gateway.unexpected_answer", status=response.status_code)
        raise Problem(502, "gateway_unavailable", NO_ANSWER)
    headers = {name: response.headers[name] for name in PASSED_ON if name in response.headers}
    return Response(response.content, response.status_code, headers, media_type=kind)


def session_over() -> Problem:
    """The 401 on which a page asks to log in again."""
    return Problem(401, "session_over", "Your session is over. Log in again.")


def unanswered(error: Exception) -> Problem:
    """The problem for a gateway that gave no answer, or half of one."""
    log.warning("gateway.unanswered", error=type(error).__name__)
    if isinstance(error, httpx.TimeoutException):
        return Problem(504, "gateway_timeout", "The gateway did not answer in time.")
    return Problem(502, "gateway_unavailable", NO_ANSWER)


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """The stream's bytes; one that breaks off ends with the events `error` and `done`, as if the gateway had said so."""
    size = 0
    try:
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise AnswerTooLarge  # noqa: TRY301 - handled with the other ways to break off
            yield chunk
    except (httpx.HTTPError, AnswerTooLarge) as error:
        # The blank line ends an event that was cut off.
        # The blank line ends an event that was cut off.
        problem = bytes(unanswered(error).response().body).decode()
        yield b"\n\n" + format_sse_event(event="error", data_str=problem) + format_sse_event(event="done", data_str="{}")
    finally:
        await response.aclose()
