"""`knowledge token`."""

import time
from typing import Annotated

import typer

from knowledge.auth import mint_development_token
from knowledge.cli.common import DEVELOPMENT_SUBJECT, DEVELOPMENT_TENANT, EXIT_CONFIGURATION, configuration_errors, fail
from knowledge.settings import IdentitySettings
from servicekit.settings import load_group

MAX_TTL_S = 7 * 24 * 3600


def development_token(*, roles: tuple[str, ...], tenant: str, subject: str, ttl_s: int) -> str:
    """A token for this machine; refuses outside development mode and without a shared secret."""
    with configuration_errors():
        settings = load_group(IdentitySettings)
    if not settings.development:
        message = "tokens are minted in development mode only. Set KNOWLEDGE_ENV=development on a developer's machine, "
        fail(message + "or take a token from your identity provider.", EXIT_CONFIGURATION)
    if not settings.auth_jwt_secret.get_secret_value():
        message = "tokens are minted with AUTH_JWT_SECRET, and AUTH_JWKS_URL is set instead. Take a token from that provider, "
        fail(message + "or set AUTH_JWT_SECRET and unset AUTH_JWKS_URL.", EXIT_CONFIGURATION)
    return mint_development_token(settings, tenant=tenant, subject=subject, roles=roles, now=time.time(), ttl_s=ttl_s)


def token(
    role: Annotated[list[str] | None, typer.Option(help="A role; repeat for several, leave out for none.")] = None,
    tenant: Annotated[str, typer.Option(help="The tenant.")] = DEVELOPMENT_TENANT,
    subject: Annotated[str, typer.Option(help="The subject.")] = DEVELOPMENT_SUBJECT,
    ttl_s: Annotated[int, typer.Option("--ttl", min=1, max=MAX_TTL_S, help="Seconds until it expires.")] = 3600,
) -> None:
    """Mint a development token (HS256). Refuses outside development mode."""
    typer.echo(development_token(roles=tuple(role or ()), tenant=tenant, subject=subject, ttl_s=ttl_s))
