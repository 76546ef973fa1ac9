"""How commands ask the gateway: where, as whom, and what becomes of no answer."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import httpx
import typer

from knowledge.cli.common import (
    DEVELOPMENT_ROLE,
    DEVELOPMENT_SUBJECT,
    ClientSettings,
    configuration_errors,
    fail,
)
from knowledge.cli.token import development_token
from knowledge.settings import IdentitySettings
from servicekit.settings import load_group

TIMEOUT_S = 40.0
TOKEN_TTL_S = 600

Token = Annotated[str | None, typer.Option(help="A bearer token (GATEWAY_TOKEN).")]
Roles = Annotated[list[str] | None, typer.Option(help=f"Development: mint a token with these roles ({DEVELOPMENT_ROLE}).")]
Tenant = Annotated[str, typer.Option(help="Development: the tenant of the minted token.")]
Url = Annotated[str | None, typer.Option(help="The gateway (GATEWAY_URL).")]
DeadlineMs = Annotated[int | None, typer.Option(help="Time the search may take.")]


class NoAnswer(Exception):
    """The gateway gave none; the message is a sentence for people."""

    def __init__(self, reason: Literal["no_answer", "no_gateway", "refused"], sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def gateway_and_token(
    url: str | None, token: str | None, roles: Sequence[str] | None, tenant: str, *, operator: bool = False
) -> tuple[str, str]:
    """Where to ask and with which token: the given one, else GATEWAY_TOKEN, else one that is minted for the roles.

    Named roles are minted whatever GATEWAY_TOKEN is. With `operator` the operator's role is minted too.
    """
    with configuration_errors():
        settings = load_group(ClientSettings)
        base, bearer = url or settings.gateway_url, token or ("" if roles else settings.gateway_token.get_secret_value())
        if bearer:
            return base, bearer
        extra = (load_group(IdentitySettings).auth_operator_role,) if operator else ()
    wanted = tuple(dict.fromkeys((*(roles or (DEVELOPMENT_ROLE,)), *extra)))
    return base, development_token(roles=wanted, tenant=tenant, subject=DEVELOPMENT_SUBJECT, ttl_s=TOKEN_TTL_S)


def answer_of(base: str, token: str, body: dict[str, Any]) -> dict[str, Any]:
    """One `POST /search`.

    Raises:
        NoAnswer: there is none, or it is a refusal.
    """
    try:
        response = httpx.post(
            f"{base.rstrip('/')}/search",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT_S,
            trust_env=False,
        )
        content: Any = response.json()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        message = f"no answer from the gateway at {base} ({type(error).__name__}). Start it with `make up`, or name it with --url."
        raise NoAnswer("no_answer", message) from error
    except ValueError as error:
        message = f"the server at {base} is no gateway: its answer is not JSON (HTTP {response.status_code})."
        raise NoAnswer("no_gateway", message) from error
    if not isinstance(content, dict):
        raise NoAnswer("no_gateway", f"the server at {base} is no gateway: its answer is not an object (HTTP {response.status_code}).")
    if response.status_code != 200:
        raise NoAnswer("refused", f"{content.get('code')} (HTTP {response.status_code}): {content.get('detail')}")
    return content


def ask(base: str, token: str, body: dict[str, Any]) -> dict[str, Any]:
    """The same for a command that ends with the sentence if there is no answer; options that were left out are not sent."""
    try:
        return answer_of(base, token, {name: value for name, value in body.items() if value is not None})
    except NoAnswer as error:
        fail(str(error))
