"""`knowledge search`."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from knowledge.cli.asking import DeadlineMs, Roles, Tenant, Token, Url, ask, gateway_and_token
from knowledge.cli.common import DEVELOPMENT_TENANT, console

TITLE_WIDTH = 56


def search(
    query: Annotated[str, typer.Argument(help="The question.")],
    top_k: Annotated[int | None, typer.Option(help="How many results; the gateway's default when left out.")] = None,
    token: Token = None,
    role: Roles = None,
    tenant: Tenant = DEVELOPMENT_TENANT,
    language: Annotated[str | None, typer.Option(help="Language fields to search, such as de.")] = None,
    rerank: Annotated[bool, typer.Option(help="Rerank the head.")] = True,
    deadline_ms: DeadlineMs = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")] = False,
) -> None:
    """Ask the gateway over HTTP; shows each passage's rank with and without reranking, and why if it was not reranked."""
    base, bearer = gateway_and_token(url, token, role, tenant)
    body = {"query": query, "top_k": top_k, "language": language, "rerank": rerank, "deadline_ms": deadline_ms}
    answer = ask(base, bearer, body)
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
    else:
        show(answer)


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
            number(scores["rerank"], 3),
            number(scores["similarity"], 3),
            number(scores["bm25"], 2),
            number(scores["rrf"], 4),
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


def number(value: float | None, digits: int) -> str:
    """A number in a table; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def _moved(result: dict[str, Any]) -> str:
    moved = result["hybrid_rank"] - result["rank"]
    arrow = f" (+{moved})" if moved > 0 else f" ({moved})" if moved < 0 else ""
    return f"{result['hybrid_rank']}{arrow}"
