"""Coming in, going out, and the two preferences that a person keeps in cookies."""

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from frontend.language import COOKIE_DAYS, LANGUAGE_COOKIE, LANGUAGES, THEME_COOKIE, THEMES, language_of, translate
from frontend.pages import render
from frontend.personas import person_for, personas
from frontend.sessions import CSRF_FIELD, CSRF_HEADER, check_csrf, log_in
from frontend.site import SiteDep
from servicekit.problems import Problem

NEXT = "next"
MAX_PATH_CHARS = 200

router = APIRouter()


def safe_path(path: str | None) -> str:
    """`path` if it leads to a page of this site, else the first page."""
    good = path and path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and len(path) <= MAX_PATH_CHARS
    return path if path and good else "/"


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; 403 without the session's CSRF token among them, or in the header."""
    try:
        raw = (await request.body()).decode()
        fields = {name: values[0] for name, values in parse_qs(raw, max_num_fields=20).items()}
    except ValueError as error:
        raise Problem(400, "bad_form", "The form cannot be read.") from error
    check_csrf(request, request.headers.get(CSRF_HEADER) or fields.get(CSRF_FIELD))
    return fields


@router.get("/login")
async def login_page(request: Request, site: SiteDep, signed_out: bool = False) -> Response:
    """The ways in."""
    target = safe_path(request.query_params.get(NEXT))
    if site.person(request) is not None:
        return RedirectResponse(target, 303)
    there = list(personas(site.settings.login).values())
    return render(request, site, "login.html", personas=there, oidc=site.oidc is not None, next=target, signed_out=signed_out)


@router.post("/login/persona")
async def login_as_persona(request: Request, site: SiteDep) -> Response:
    """Be somebody, on a developer's machine."""
    fields = await form_of(request)
    there = personas(site.settings.login)
    if not there:
        raise Problem(403, "personas_refused", "Personas are for development only.")
    persona = there.get(fields.get("persona", ""))
    if persona is None:
        raise Problem(422, "unknown_persona", "There is no such persona.")
    name = translate(language_of(request), persona.name_key)
    log_in(request, person_for(persona, name, site.settings.login, site.clock()))
    return RedirectResponse(safe_path(fields.get(NEXT)), 303)


@router.get("/login/oidc")
async def login_by_provider(request: Request, site: SiteDep) -> Response:
    """To the provider."""
    if site.oidc is None:
        raise Problem(404, "oidc_off", "There is no identity provider here.")
    request.session[NEXT] = safe_path(request.query_params.get(NEXT))
    return await site.oidc.redirect(request)


@router.get("/login/callback")
async def back_from_provider(request: Request, site: SiteDep) -> Response:
    """And back."""
    if site.oidc is None:
        raise Problem(404, "oidc_off", "There is no identity provider here.")
    target = safe_path(request.session.get(NEXT))
    log_in(request, await site.oidc.finish(request))
    return RedirectResponse(target, 303)


@router.post("/logout")
async def logout(request: Request, site: SiteDep) -> Response:
    """End the session here, and at the provider where it has a page for that."""
    await form_of(request)
    request.session.clear()
    away = await site.oidc.logout_url() if site.oidc is not None else None
    return RedirectResponse(away or "/login?signed_out=1", 303)


@router.post("/preferences")
async def preferences(request: Request, site: SiteDep) -> Response:
    """Keep a language or a theme."""
    fields = await form_of(request)
    response = RedirectResponse(safe_path(fields.get(NEXT)), 303)
    chosen = ((LANGUAGE_COOKIE, fields.get("language"), LANGUAGES), (THEME_COOKIE, fields.get("theme"), THEMES))
    for cookie, value, known in chosen:
        if value in known:
            secure = not site.settings.site.development
            response.set_cookie(cookie, str(value), max_age=COOKIE_DAYS * 86400, httponly=True, secure=secure, samesite="lax")
    return response
