"""Sessions in an encrypted cookie: any replica can read it, the browser cannot, and nothing is kept on the server."""

import base64
import hashlib
import hmac
import json
import secrets
import zlib
from collections.abc import MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frontend.settings import Clock
from servicekit.problems import Problem

PERSON, CSRF = "person", "csrf"
CSRF_HEADER, CSRF_FIELD = "X-CSRF-Token", "csrf_token"
MAX_COOKIE_CHARS = 3800
"""A browser keeps 4,096 characters of a cookie, name and attributes included."""
MAX_COOKIES = 4
MAX_PLAIN_BYTES = 64 * 1024


class Person(BaseModel):
    """Who is logged in. The token goes to the gateway alone; `roles` decide what is shown, and who may see the console."""

    model_config = ConfigDict(frozen=True)

    subject: str
    name: str
    roles: tuple[str, ...]
    token: str
    expires: float
    """Seconds since the epoch."""


class SessionTooLarge(Exception):
    """An access token that does not fit into cookies."""


class SessionCipher:
    """Encrypts and authenticates what a session holds.

    Args:
        secret: 32 bytes or more, the same in every replica.
        lifespan_s: what is older is no session any more, whatever it says itself.
        clock: seconds since the epoch.
    """

    def __init__(self, secret: str, lifespan_s: float, clock: Clock) -> None:
        key = hashlib.sha256(b"knowledge-frontend session\0" + secret.encode()).digest()
        self._fernet = Fernet(base64.urlsafe_b64encode(key))
        self._lifespan_s = int(lifespan_s)
        self._clock = clock

    def seal(self, session: MutableMapping[str, Any]) -> str:
        """The session as text that fits a cookie's alphabet."""
        plain = zlib.compress(json.dumps(session, separators=(",", ":")).encode(), 9)
        return self._fernet.encrypt_at_time(plain, int(self._clock())).decode("ascii")

    def open(self, sealed: str) -> dict[str, Any]:
        """What was sealed; empty for anything that this secret did not seal, or not lately."""
        try:
            packed = self._fernet.decrypt_at_time(sealed.encode(), self._lifespan_s, int(self._clock()))
            plain = zlib.decompressobj().decompress(packed, MAX_PLAIN_BYTES)
            session = json.loads(plain)
        except (InvalidToken, zlib.error, ValueError):
            return {}
        return session if isinstance(session, dict) else {}


class Sessions:
    """ASGI middleware that puts the session into the scope and a changed one into cookies.

    Args:
        app: what it stands around.
        cipher: reads and writes sessions.
        secure: whether the cookie is for TLS and this host alone.
    """

    def __init__(self, app: ASGIApp, cipher: SessionCipher, *, secure: bool) -> None:
        self.app = app
        self._cipher = cipher
        self._name = "__Host-knowledge-session" if secure else "knowledge-session"
        self._attributes = "; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        parts = self._received(scope)
        session = self._cipher.open("".join(parts)) if parts else {}
        before = json.dumps(session, sort_keys=True)
        scope["session"] = session

        async def send_with_cookies(message: Message) -> None:
            if message["type"] == "http.response.start" and json.dumps(session, sort_keys=True) != before:
                headers = MutableHeaders(scope=message)
                for cookie in self._cookies(session, len(parts)):
                    headers.append("Set-Cookie", cookie)
            await send(message)

        await self.app(scope, receive, send_with_cookies)

    def _received(self, scope: Scope) -> list[str]:
        raw = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
        try:
            jar = SimpleCookie(raw)
        except CookieError:
            return []
        return [jar[self._part(index)].value for index in range(MAX_COOKIES) if self._part(index) in jar]

    def _part(self, index: int) -> str:
        return self._name if index == 0 else f"{self._name}-{index}"

    def _cookies(self, session: MutableMapping[str, Any], known: int) -> list[str]:
        sealed = self._cipher.seal(session) if session else ""
        parts = [sealed[start : start + MAX_COOKIE_CHARS] for start in range(0, len(sealed), MAX_COOKIE_CHARS)]
        if len(parts) > MAX_COOKIES:
            raise SessionTooLarge
        written = [f"{self._part(index)}={part}{self._attributes}" for index, part in enumerate(parts)]
        gone = range(len(parts), max(known, len(parts)))
        return written + [f"{self._part(index)}={self._attributes}; Max-Age=0" for index in gone]


def csrf_token(request: Request) -> str:
    """The session's own token against forged requests, made when it is first asked for."""
    token: str = request.session.setdefault(CSRF, secrets.token_urlsafe(32))
    return token


def check_csrf(request: Request, given: str | None) -> None:
    """Refuse a request whose token is not its session's.

    Raises:
        Problem: 403 `csrf`.
    """
    expected = request.session.get(CSRF)
    if not expected or not hmac.compare_digest(str(expected).encode(), (given or "").encode()):
        raise Problem(403, "csrf", "The page is out of date: load it again and repeat what you did.")


def log_in(request: Request, person: Person) -> None:
    """Begin a new session; nothing of the one before stays, its CSRF token included."""
    request.session.clear()
    request.session[PERSON] = person.model_dump(mode="json")
    csrf_token(request)


def person_of(request: Request, now: float) -> Person | None:
    """Who is logged in, as long as their token holds."""
    stored = request.session.get(PERSON)
    if stored is None:
        return None
    try:
        person = Person.model_validate(stored)
    except ValidationError:
        return None
    return person if person.expires > now else None
