"""`knowledge canary`."""

from typing import Annotated, Any

import structlog
import typer

from knowledge.cli.asking import DeadlineMs, NoAnswer, Roles, Tenant, Token, Url, answer_of, gateway_and_token
from knowledge.cli.common import DEVELOPMENT_TENANT, EXIT_CONFIGURATION, configuration_errors, fail
from knowledge.settings import ProcessSettings
from knowledge.telemetry import SERVICE
from servicekit.logs import configure_logging
from servicekit.settings import load_group

CHECKED = "canary.checked"


def canary(
    query: Annotated[str, typer.Option(help="A question whose answer is known.")],
    expect: Annotated[str, typer.Option(help="The id of the passage or of the document that must be on top.")],
    deadline_ms: DeadlineMs = None,
    allow_fallback: Annotated[bool, typer.Option("--allow-fallback", help="Accept the hybrid order too.")] = False,
    token: Token = None,
    role: Roles = None,
    tenant: Tenant = DEVELOPMENT_TENANT,
    url: Url = None,
) -> None:
    """Ask one known question: exit status 0 if the expected passage is on top and was reranked, 1 if not, 2 for a wrong configuration."""
    if not query.strip() or not expect.strip():
        fail("--query and --expect must not be blank. Give a question, and the id of its passage or document.", EXIT_CONFIGURATION)
    base, bearer = gateway_and_token(url, token, role, tenant)
    with configuration_errors():
        configure_logging(SERVICE, load_group(ProcessSettings).log_level)
    body: dict[str, Any] = {"query": query, **({"deadline_ms": deadline_ms} if deadline_ms is not None else {})}
    try:
        answer = answer_of(base, bearer, body)
    except NoAnswer as error:
        _tell(error.reason)
        fail(str(error))
    reason, sentence = judge(answer, expect, allow_fallback=allow_fallback)
    _tell(reason, answer)
    if reason:
        fail(sentence)
    typer.echo(sentence)


def judge(answer: dict[str, Any], expect: str, *, allow_fallback: bool) -> tuple[str | None, str]:
    """The reason for which the answer is not as it must be, or None; and a sentence for people."""
    results, report = answer["results"], answer["rerank"]
    ranks = [one["rank"] for one in results if expect in (one["id"], one["document_id"])]
    if not ranks:
        return "not_found", f"the expected passage is not among the {len(results)} results."
    if ranks[0] != 1:
        return "not_on_top", f"the expected passage is not on top but at rank {ranks[0]}."
    outcome = report["status"] + (f" ({report['reason']})" if report["reason"] else "")
    if results[0]["scores"]["rerank"] is None and not allow_fallback:
        return "not_reranked", f"the expected passage is on top, but it was not reranked: {outcome}."
    return None, f"the expected passage is on top; reranking: {outcome}, {answer['elapsed_ms']:.0f} ms."


def _tell(reason: str | None, answer: dict[str, Any] | None = None) -> None:
    """One line for those who watch; neither the question nor a passage is in it."""
    facts: dict[str, Any] = {}
    if answer is not None:
        report = answer["rerank"]
        facts = {"rerank": report["status"], "rerank_reason": report["reason"], "elapsed_ms": answer["elapsed_ms"]}
        facts["checked_trace_id"] = answer["trace_id"]
    log = structlog.get_logger(SERVICE)
    (log.error if reason else log.info)(CHECKED, outcome="failed" if reason else "passed", reason=reason, **facts)
