"""`knowledge explain`."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from knowledge.cli.asking import DeadlineMs, Roles, Tenant, Token, Url, ask, gateway_and_token
from knowledge.cli.common import DEVELOPMENT_TENANT, console, fail
from knowledge.cli.search import TITLE_WIDTH, number, reranking_line

SHOWN = 3
"""Passages of each leg that are shown."""
BAR = 48
ID_WIDTH = 12


def explain(
    query: Annotated[str, typer.Argument(help="The question.")],
    top_k: Annotated[int | None, typer.Option(help="How many results; the gateway's default when left out.")] = None,
    token: Token = None,
    role: Roles = None,
    tenant: Tenant = DEVELOPMENT_TENANT,
    language: Annotated[str | None, typer.Option(help="Language fields to search, such as de.")] = None,
    rerank: Annotated[bool, typer.Option(help="Rerank the head.")] = True,
    deadline_ms: DeadlineMs = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the receipt as JSON.")] = False,
) -> None:
    """Show how an answer came about: legs, fusion, head, budget, time, reasons. Needs the operator's role (in development it is minted)."""
    base, bearer = gateway_and_token(url, token, role, tenant, operator=True)
    body = {"query": query, "top_k": top_k, "language": language, "rerank": rerank, "deadline_ms": deadline_ms, "explain": True}
    answer = ask(base, bearer, body)
    if "receipt" not in answer:
        fail("; ".join(answer.get("warnings") or ["this gateway gives no receipts"]) + ". Bring a token that has it, with --token.")
    if as_json:
        typer.echo(json.dumps(answer["receipt"], ensure_ascii=False, indent=2))
    else:
        show(answer)


def show(answer: dict[str, Any]) -> None:
    """The receipt for people, in the order in which things happened."""
    out, receipt = console(), answer["receipt"]
    # Ids and titles come from documents: they are text, never markup.
    titles = {one["id"]: one["title"] for one in answer["results"]}
    out.print(Text(_identifiers(receipt["identifiers"])))
    _section(out, "Legs", _legs(receipt["legs"], titles))
    weights = ", ".join(f"{leg} {weight:g}" for leg, weight in receipt["fusion"]["weights"].items())
    out.print(Text(f"fused: weight x factor / (sub-queries x ({receipt['fusion']['rrf_k']} + rank)); weights: {weights}"))
    _section(out, "Head", _head(receipt["head"], titles))
    out.print(Text(_budget(receipt["budget"])))
    _section(out, "Time", _waterfall(receipt))
    out.print(Text("\nWhy here", style="bold"))
    for one in answer["results"]:
        out.print(Text(f"{one['rank']}. {one['title']}"))
        for reason in one["explain"]["why"]:
            out.print(Text(f"   - {reason}"))
    out.print(Text(f"\n{reranking_line(answer)}"))
    for warning in answer["warnings"]:
        out.print(Text(f"warning: {warning}"))


def _section(out: Console, title: str, table: Table) -> None:
    out.print(Text(f"\n{title}", style="bold"))
    out.print(table)


def _table(*columns: str, left: Sequence[str] = ()) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right")
    return table


def _identifiers(found: Mapping[str, Sequence[str]]) -> str:
    named = [f"{kind} {', '.join(found[kind])}" for kind in ("strong", "soft") if found[kind]]
    return f"identifiers: {'; '.join(named) or 'none'}"


def _legs(legs: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> Table:
    table = _table("leg", "sub-query", "found", "below floor", "weight", "factor", "best", left=("leg", "best"))
    for leg in legs:
        states = [name for name in ("failed", "timed_out", "shards_failed") if leg[name]]
        best = [f"{one['rank']}. {_name(one['id'], titles)} ({one['score']:.3g})" for one in leg["top"][:SHOWN]]
        counts = (str(leg["sub_query"]), str(leg["hits"]), str(leg["below_floor"]), f"{leg['weight']:g}", f"{leg['factor']:g}")
        table.add_row(leg["leg"], *counts, Text("\n".join([*states, *best])))
    return table


def _head(head: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> Table:
    table = _table("before", "after", "moved", "rerank", "chars", "passage", left=("passage",))
    for one in head:
        moved = f"{one['moved']:+d}" if one["moved"] else ""
        ranks = (str(one["hybrid_rank"]), str(one["rank_after"]), moved)
        table.add_row(*ranks, number(one["rerank"], 3), str(one["chars_sent"]), Text(_name(one["id"], titles)))
    return table


def _budget(budget: Mapping[str, int]) -> str:
    documents = f"{budget['sent_documents']} of at most {budget['initial_k']} passages"
    characters = f"{budget['sent_chars']} of {budget['budget_chars']} characters"
    return f"sent: {documents}, {characters} (at most {budget['max_document_chars']} each); question: {budget['query_chars']}"


def _waterfall(receipt: Mapping[str, Any]) -> Table:
    """Each stage where it began and as long as it took, on the scale of the whole; the time left beside it."""
    ends = [stage["start_ms"] + stage["elapsed_ms"] for stage in receipt["stages"]]
    whole = max([*ends, 1.0])
    table = _table(
        "stage", f"0 to {whole:.0f} ms", "ms", "left of " + f"{receipt['deadline_ms']:.0f}", left=("stage", f"0 to {whole:.0f} ms")
    )
    for stage in receipt["stages"]:
        begin = min(BAR - 1, int(BAR * stage["start_ms"] / whole))
        length = max(1, round(BAR * stage["elapsed_ms"] / whole))
        bar = (" " * begin + "█" * length)[:BAR].ljust(BAR)
        table.add_row(stage["name"], bar, f"{stage['elapsed_ms']:.1f}", f"{stage['left_ms']:.0f}")
    return table


def _name(chunk: str, titles: Mapping[str, str]) -> str:
    """The title where the passage is among the results, else the beginning of its id."""
    name, width = (titles[chunk], TITLE_WIDTH) if titles.get(chunk) else (chunk, ID_WIDTH)
    return name if len(name) <= width else f"{name[: width - 1]}…"
