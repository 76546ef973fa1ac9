"""`knowledge search`."""

import json
from typing import Annotated, Any

import httpx
import typer
from rich.table import Table
from rich.text import Text

from knowledge.cli.common import (
    DEVELOPMENT_ROLE,
    DEVELOPMENT_SUBJECT,
    DEVELOPMENT_TENANT,
    ClientSettings,
    configuration_errors,
    console,
    fail,
)
from knowledge.cli.token import development_token
from servicekit.settings import load_group

TIMEOUT_S = 40.0
TOKEN_TTL_S = 600
TITLE_WIDTH = 56


def search(
    query: Annotated[str, typer.Argument(help="The question.")],
    top_k: Annotated[int | None, typer.Option(help="How many results; the gateway's default when left out.")] = None,
    token: Annotated[str | None, typer.Option(help="A bearer token.")] = None,
    role: Annotated[list[str] | None, typer.Option(help=f"Development: mint a token with these roles ({DEVELOPMENT_ROLE}).")] = None,
    tenant: Annotated[str, typer.Option(help="Development: the tenant of the minted token.")] = DEVELOPMENT_TENANT,
    language: Annotated[str | None, typer.Option(help="Language fields to search, such as de.")] = None,
    rerank: Annotated[bool, typer.Option(help="Rerank the head.")] = True,
    deadline_ms: Annotated[int | None, typer.Option(help="Time the search may take.")] = None,
    url: Annotated[str | None, typer.Option(help="The gateway (GATEWAY_URL).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")] = False,
) -> None:
    """Ask the gateway over HTTP; shows each passage's rank with and without reranking, and why if it was not reranked."""
    with configuration_errors():
        base = url or load_group(ClientSettings).gateway_url
    roles = tuple(role or (DEVELOPMENT_ROLE,))
    bearer = token or development_token(roles=roles, tenant=tenant, subject=DEVELOPMENT_SUBJECT, ttl_s=TOKEN_TTL_S)
    given = {"query": query, "top_k": top_k, "language": language, "rerank": rerank, "deadline_ms": deadline_ms}
    answer = ask(base, bearer, {name: value for name, value in given.items() if value is not None})
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
    else:
        show(answer)


def ask(base: str, token: str, body: dict[str, Any]) -> dict[str, Any]:
    """One `POST /search`; ends the command with a sentence if there is no answer."""
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
        fail(f"no answer from the gateway at {base} ({type(error).__name__}). Start it with `make up`, or name it with --url.")
    except ValueError:
        fail(f"the server at {base} is no gateway: its answer is not JSON (HTTP {response.status_code}).")
    if not isinstance(content, dict):
        fail(f"the server at {base} is no gateway: its answer is not an object (HTTP {response.status_code}).")
    if response.status_code != 200:
        fail(f"{content.get('code')} (HTTP {response.status_code}): {content.get('detail')}")
    return content


def show(answer: dict[str, Any]) -> None:
    """The answer as a table and one line on reranking."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("rank", justify="right")
    table.add_column("before", justify="right")
    table.add_column("title", max_width=TITLE_WIDTH, overflow="ellipsis", no_wrap=True)
    for name in ("rerank", "cosine", "bm25", "rrf"):
        table.add_column(name, justify="right")
    for result in answer["results"]:
        scores = result["scores"]
        values = [
            _number(scores["rerank"], 3),
            _number(scores["similarity"], 3),
            _number(scores["bm25"], 2),
            _number(scores["rrf"], 4),
        ]
        # Titles come from documents: they are text, never markup.
        table.add_row(str(result["rank"]), _moved(result), Text(result["title"]), *values)
    out = console()
    out.print(table if answer["results"] else "no results")
    out.print(Text(reranking_line(answer)))
    for warning in answer["warnings"]:
        out.print(Text(f"warning: {warning}"))


def reranking_line(answer: dict[str, Any]) -> str:
    """Whether the answer was reranked and, if not, why."""
    report = answer["rerank"]
    scored = f"{report['scored']} of {report['candidates']} passages scored by {report['model'] or report['provider']}"
    took = f"{report['elapsed_ms']:.0f} ms of {answer['elapsed_ms']:.0f} ms"
    degraded = f"; degraded: {', '.join(answer['degraded'])}" if answer["degraded"] else ""
    match report["status"]:
        case "applied":
            line = f"reranked: {scored}, {took}"
        case "partial":
            line = f"partly reranked ({report['reason']}): {scored}, {took}"
        case "fallback":
            line = f"not reranked, hybrid order: {report['reason']} ({answer['elapsed_ms']:.0f} ms)"
        case _:
            line = f"not reranked: {report['reason']} ({answer['elapsed_ms']:.0f} ms)"
    return line + degraded


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _moved(result: dict[str, Any]) -> str:
    moved = result["hybrid_rank"] - result["rank"]
    arrow = f" (+{moved})" if moved > 0 else f" ({moved})" if moved < 0 else ""
    return f"{result['hybrid_rank']}{arrow}"
