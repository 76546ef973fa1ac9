"""What routes are given: the frontend's parts, and who asks."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header, Request

from frontend.answers import AnswerWriter
from frontend.console import FallbackConsole
from frontend.gateway import GatewayClient, session_over
from frontend.oidc import OidcLogin
from frontend.sessions import CSRF_HEADER, Person, check_csrf, person_of
from frontend.settings import Clock, Settings
from servicekit.problems import Problem


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that routes need, put together by `app`."""

    settings: Settings
    gateway: GatewayClient
    console: FallbackConsole
    answers: AnswerWriter | None
    oidc: OidcLogin | None
    clock: Clock

    def person(self, request: Request) -> Person | None:
        """Who is logged in."""
        return person_of(request, self.clock())


async def site_of(request: Request) -> Site:
    """The site that this app serves. Asynchronous, because what is not is called in another thread."""
    return cast("Site", request.app.state.site)


SiteDep = Annotated[Site, Depends(site_of)]


async def logged_in(request: Request, site: SiteDep) -> Person:
    """The person of the session; 401 without one."""
    person = site.person(request)
    if person is None:
        raise session_over()
    return person


Caller = Annotated[Person, Depends(logged_in)]
"""An API route without this is visibly public."""


async def not_forged(request: Request, _: Caller, token: Annotated[str | None, Header(alias=CSRF_HEADER)] = None) -> None:
    """403 without the session's token in the header; asked after the login, so that who has none hears that."""
    check_csrf(request, token)


async def operator(site: SiteDep, person: Caller) -> Person:
    """A person who may see how answers came about; 403 for others."""
    if not site.settings.is_operator(person.roles):
        raise Problem(403, "forbidden", f"This needs the role {site.settings.login.auth_operator_role}.")
    return person


Operator = Annotated[Person, Depends(operator)]
