"""Sessions in cookies: kept between replicas, closed to everybody else."""

import base64
import hashlib
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from frontend.sessions import MAX_COOKIE_CHARS, Person, SessionCipher, Sessions, check_csrf, csrf_token, log_in, person_of
from servicekit.problems import Problem
from services.frontend.tests.fakes import NOW, SESSION_SECRET, FakeClock

HOUR = 3600


def cipher(clock: FakeClock, secret: str = SESSION_SECRET) -> SessionCipher:
    """With an hour to live."""
    return SessionCipher(secret, HOUR, clock)


def test_another_replica_reads_what_one_wrote() -> None:
    """The secret is all they share."""
    clock = FakeClock()
    assert cipher(clock).open(cipher(clock).seal({"a": "ü"})) == {"a": "ü"}


def test_a_foreign_a_changed_and_an_old_cookie_are_no_session() -> None:
    """Nothing is told of why."""
    clock = FakeClock()
    sealed = cipher(clock).seal({"a": 1})
    assert cipher(clock, "a-different-secret-of-thirty-two-bytes").open(sealed) == {}
    assert cipher(clock).open(sealed[:-10] + "AAAAAAAAA=") == {}
    assert cipher(clock).open("ü") == {}
    clock.now += HOUR + 1
    assert cipher(clock).open(sealed) == {}


def test_the_cookie_shows_nothing() -> None:
    """Neither the token nor its base64."""
    sealed = cipher(FakeClock()).seal({"token": "header.claims.signature"})
    assert "header" not in sealed
    assert "claims" not in sealed


async def put(request: Request) -> JSONResponse:
    """Write the body into the session; an empty one ends it."""
    request.session.clear()
    request.session.update(await request.json())
    return JSONResponse({})


async def get(request: Request) -> JSONResponse:
    """What the session holds."""
    return JSONResponse(dict(request.session))


def client(clock: FakeClock, *, secure: bool = False) -> httpx.AsyncClient:
    """A browser before a small app with sessions."""
    app = Sessions(Starlette(routes=[Route("/", put, methods=["POST"]), Route("/", get)]), cipher(clock), secure=secure)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://site.test" if secure else "http://site.test")


async def test_a_large_session_takes_several_cookies_and_gives_them_back() -> None:
    """A browser keeps four kilobytes in one."""
    noise = b"".join(hashlib.sha512(bytes([number])).digest() for number in range(90))
    large: dict[str, Any] = {"token": base64.b64encode(noise).decode()}
    async with client(FakeClock()) as http:
        first = await http.post("/", json=large)
        written = first.headers.get_list("set-cookie")
        assert len(written) > 1
        assert all(len(cookie) < MAX_COOKIE_CHARS + 200 for cookie in written)
        assert (await http.get("/")).json() == large
        assert "set-cookie" not in (await http.get("/")).headers
        await http.post("/", json={"small": 1})
        assert (await http.get("/")).json() == {"small": 1}
        await http.post("/", json={})
        assert not http.cookies


@pytest.mark.parametrize("secure", [True, False])
async def test_cookie_attributes(secure: bool) -> None:
    """Out of reach of scripts and other sites; outside development for TLS and this host alone."""
    async with client(FakeClock(), secure=secure) as http:
        (cookie,) = (await http.post("/", json={"a": 1})).headers.get_list("set-cookie")
    assert all(part in cookie for part in ("; Path=/", "; HttpOnly", "; SameSite=Lax"))
    assert ("; Secure" in cookie) == secure
    assert cookie.startswith("__Host-" if secure else "knowledge-session=")


def request_with(session: dict[str, Any]) -> Request:
    """A request of that session."""
    return Request({"type": "http", "headers": [], "session": session})


def test_logging_in_begins_a_new_session() -> None:
    """Nothing that somebody may have planted before stays, the CSRF token least of all."""
    request = request_with({"planted": 1})
    before = csrf_token(request)
    log_in(request, Person(subject="ada", name="Ada", roles=(), token="t", expires=NOW + 10))
    assert "planted" not in request.session
    assert csrf_token(request) != before
    person = person_of(request, NOW)
    assert person is not None
    assert person.subject == "ada"
    assert person_of(request, NOW + 10) is None


@pytest.mark.parametrize("stored", [None, {}, {"subject": 1}, "ada"])
def test_a_session_without_a_whole_person_is_nobody(stored: Any) -> None:
    """Such as one of an older version."""
    assert person_of(request_with({"person": stored}), NOW) is None


@pytest.mark.parametrize("given", [None, "", "wrong", "ü"])
def test_a_wrong_csrf_token_is_refused(given: str | None) -> None:
    """And so is any where the session has none."""
    for session in ({}, {"csrf": "right"}):
        with pytest.raises(Problem, match="out of date") as caught:
            check_csrf(request_with(dict(session)), given)
        assert caught.value.status == 403
    check_csrf(request_with({"csrf": "right"}), "right")
