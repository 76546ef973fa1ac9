"""Puts the frontend together."""

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from urllib.parse import urlsplit

import httpx
import httpx2
import structlog
from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from frontend import api, login, pages
from frontend.answers import AnswerWriter
from frontend.console import FallbackConsole
from frontend.failures import install_failure_pages
from frontend.gateway import GatewayClient
from frontend.oidc import OidcLogin
from frontend.security import SecurityHeaders, content_security_policy
from frontend.sessions import SessionCipher, Sessions
from frontend.settings import Clock, Settings, load_settings
from frontend.site import Site
from frontend.telemetry import DISTRIBUTION, SERVICE
from servicekit.health import Readiness, probe_routes
from servicekit.limits import BodyLimit
from servicekit.logs import AccessLog
from servicekit.server import serve
from servicekit.telemetry import instrument, set_up_telemetry

DEFAULT_PORT = 8090
MAX_BODY_BYTES = 64 * 1024
DRAIN_S = 5
"""Above the wait for the gateway, for requests in flight at the end."""

log = structlog.get_logger(SERVICE)


def new_site(
    settings: Settings, clock: Clock, transport: httpx.AsyncBaseTransport | None, provider: httpx2.AsyncBaseTransport | None
) -> Site:
    """The frontend's parts as the settings ask for them."""
    login_settings = settings.login
    return Site(
        settings=settings,
        gateway=GatewayClient(settings.site.gateway_url, settings.site.gateway_timeout_s, transport),
        console=FallbackConsole(settings.console, clock, transport),
        answers=AnswerWriter(settings.answer, transport) if settings.answer.answer_url else None,
        oidc=OidcLogin(login_settings, settings.site.frontend_url, provider) if login_settings.oidc else None,
        clock=clock,
    )


def create_app(
    settings: Settings,
    *,
    clock: Clock = time.time,
    transport: httpx.AsyncBaseTransport | None = None,
    provider: httpx2.AsyncBaseTransport | None = None,
) -> FastAPI:
    """The app.

    Args:
        settings: parsed settings.
        clock: seconds since the epoch.
        transport: where outbound calls go; a test's own.
        provider: where calls to the identity provider go; a test's own.
    """
    site = new_site(settings, clock, transport, provider)
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for part in (site.gateway, site.console, site.answers):
            if part is not None:
                await part.aclose()
        telemetry.shutdown()

    async def readiness() -> Readiness:
        # Pages are served whatever the gateway does; they say when it does not answer.
        return Readiness(ready=True, details={"personas": settings.login.personas, "oidc": settings.login.oidc})

    app = FastAPI(title=SERVICE, version=version(DISTRIBUTION), lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.site = site
    app.mount("/static", StaticFiles(directory=pages.STATIC_FOLDER), name="static")
    for router in (pages.router, login.router, api.router, probe_routes(readiness, telemetry.registry)):
        app.include_router(router)
    install_failure_pages(app)
    _add_middleware(app, settings, clock)
    instrument(app, telemetry)
    return app


def _add_middleware(app: FastAPI, settings: Settings, clock: Clock) -> None:
    """From the inside out."""
    tls = not settings.site.development
    issuer = urlsplit(settings.login.oidc_issuer)
    policy = content_security_policy(f"{issuer.scheme}://{issuer.netloc}" if settings.login.oidc else "")
    cipher = SessionCipher(settings.site.session_secret(), settings.site.frontend_session_hours * 3600, clock)
    app.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
    app.add_middleware(Sessions, cipher=cipher, secure=tls)
    app.add_middleware(SecurityHeaders, policy=policy, tls=tls)
    app.add_middleware(AccessLog)


def main() -> None:
    """The command `knowledge-frontend`."""
    loaded: list[Settings] = []
    warnings: list[str] = []

    def log_level() -> str:
        settings, unknown = load_settings()
        loaded.append(settings)
        warnings.extend(unknown)
        return settings.process.log_level

    def app() -> FastAPI:
        for warning in warnings:
            log.warning("settings.unknown", detail=warning)
        return create_app(loaded[0])

    def grace_s() -> int:
        return math.ceil(loaded[0].site.gateway_timeout_s) + DRAIN_S

    serve(SERVICE, DEFAULT_PORT, log_level, app, grace_s=grace_s)
