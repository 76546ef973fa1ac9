"""Personas for a developer's machine: who one may be there, and the tokens that make the gateway believe it."""

from dataclasses import dataclass

import jwt

from frontend.sessions import Person
from frontend.settings import LoginSettings

LIFESPAN_S = 3600
TENANT = "default"
CORPUS_ROLES = ("reader", "adjuster", "underwriter", "companion")
"""The roles that the passages of the examples name."""


@dataclass(frozen=True, slots=True)
class Persona:
    """Somebody to be. The name is a key of the message catalogue."""

    key: str
    roles: tuple[str, ...]

    @property
    def name_key(self) -> str:
        """Of the name."""
        return f"persona.{self.key}"

    @property
    def about_key(self) -> str:
        """Of the sentence that says what they may see."""
        return f"persona.{self.key}.about"


def personas(settings: LoginSettings) -> dict[str, Persona]:
    """Everybody to choose from; nobody where personas are refused."""
    if not settings.personas:
        return {}
    everyone = (
        Persona("reader", ("reader",)),
        Persona("adjuster", ("adjuster",)),
        Persona("underwriter", ("underwriter",)),
        Persona("engineer", (*CORPUS_ROLES, settings.auth_write_role, settings.auth_operator_role)),
        Persona("nobody", ()),
    )
    return {persona.key: persona for persona in everyone}


def person_for(persona: Persona, name: str, settings: LoginSettings, now: float) -> Person:
    """The persona with a token signed by the shared secret, for an hour. The caller has checked that personas are allowed."""
    subject, expires = f"persona-{persona.key}", int(now) + LIFESPAN_S
    claims = {
        "sub": subject,
        settings.auth_tenant_claim: TENANT,
        settings.auth_roles_claim: list(persona.roles),
        "iat": int(now),
        "exp": expires,
        **({"iss": settings.auth_issuer} if settings.auth_issuer else {}),
        **({"aud": settings.auth_audience} if settings.auth_audience else {}),
    }
    token = jwt.encode(claims, settings.auth_jwt_secret.get_secret_value(), algorithm="HS256")
    return Person(subject=subject, name=name, roles=persona.roles, token=token, expires=expires)
