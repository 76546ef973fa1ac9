"""Headers that every answer carries: what a page may load, who may frame it, what a cache may keep."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HSTS = "max-age=31536000"
STATIC = "/static/"


def content_security_policy(form_targets: str = "") -> str:
    """Everything from this host alone, no inline script or style, no HTML made out of text.

    Args:
        form_targets: another origin that a form's answer may lead to: the provider's page for logging out.
    """
    rules = (
        "default-src 'self'",
        "base-uri 'none'",
        "object-src 'none'",
        "frame-ancestors 'none'",
        f"form-action 'self' {form_targets}".strip(),
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(rules)


class SecurityHeaders:
    """ASGI middleware that adds the headers to each answer.

    Args:
        app: what it stands around.
        policy: the Content-Security-Policy.
        tls: whether browsers shall insist on TLS from now on.
    """

    def __init__(self, app: ASGIApp, policy: str, *, tls: bool) -> None:
        self.app = app
        self._headers = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            **({"Strict-Transport-Security": HSTS} if tls else {}),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                # Pages and answers are a person's own; static files are asked for again, and mostly answered 304.
                headers.setdefault("Cache-Control", "no-cache" if scope["path"].startswith(STATIC) else "no-store")
            await send(message)

        await self.app(scope, receive, send_with_headers)
