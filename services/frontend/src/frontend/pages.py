"""The pages: shells that the server writes and scripts fill."""

from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from frontend.language import LANGUAGES, THEMES, catalogue, language_of, theme_of
from frontend.schemas import TOP_K, View
from frontend.sessions import csrf_token
from frontend.site import Site, SiteDep
from frontend.telemetry import DISTRIBUTION

STATIC_FOLDER = str(files("frontend").joinpath("static"))
# What a page can be left with and come back to; the console and the inspector say themselves who may see them.
PAGES = (("/", "chat"), ("/glossary", "glossary"), ("/inspector", "inspector"), ("/console", "console"))

router = APIRouter(include_in_schema=False)


@cache
def templates() -> Environment:
    """Templates that escape everything and fail on a name they were not given."""
    return Environment(loader=PackageLoader("frontend"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def render(request: Request, site: Site, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A page in the person's language and theme."""
    language = language_of(request)
    messages = catalogue(language)
    person = site.person(request)
    whole = {
        "t": messages.__getitem__,
        "messages": messages,
        "language": language,
        "languages": LANGUAGES,
        "theme": theme_of(request),
        "themes": THEMES,
        "person": person,
        "operator": person is not None and site.settings.is_operator(person.roles),
        "csrf": csrf_token(request),
        "path": request.url.path,
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "pages": PAGES,
        "page": "",
        "version": version(DISTRIBUTION),
        **context,
    }
    body = templates().get_template(template).render(whole)
    return HTMLResponse(body, status, headers={"Content-Language": language, "Vary": "Accept-Language, Cookie"})


def _page(request: Request, site: Site, page: str, **context: Any) -> Response:
    if site.person(request) is None:
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(here, safe='/')}", 303)
    return render(request, site, f"{page}.html", page=page, **context)


@router.get("/")
async def chat(request: Request, site: SiteDep) -> Response:
    """Questions and passages; with `view=diagnosis` for evidence, in all languages."""
    view = View.DIAGNOSIS if request.query_params.get("view") == View.DIAGNOSIS else View.CHAT
    return _page(request, site, "chat", view=view.value, top_k=TOP_K[view], answers=site.answers is not None)


@router.get("/glossary")
async def glossary(request: Request, site: SiteDep) -> Response:
    """One term, one definition on top."""
    return _page(request, site, "glossary", view=View.GLOSSARY.value, top_k=TOP_K[View.GLOSSARY])


@router.get("/inspector")
async def inspector(request: Request, site: SiteDep) -> Response:
    """How an answer came about; for operators."""
    template = site.settings.console.trace_link("{trace_id}")
    return _page(request, site, "inspector", view=View.INSPECTOR.value, top_k=TOP_K[View.INSPECTOR], trace_link=template)


@router.get("/console")
async def console(request: Request, site: SiteDep) -> Response:
    """When reranking fell back, and why; for operators."""
    return _page(request, site, "console")
