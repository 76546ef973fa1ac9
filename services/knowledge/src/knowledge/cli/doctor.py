"""`knowledge doctor`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import typer
from rich.text import Text

from knowledge.app import DISTRIBUTION, new_backend, new_embedder, new_reranker
from knowledge.cli.common import EXIT_FAILED, configuration_errors, console
from knowledge.errors import BackendError, EmbeddingError, RerankError
from knowledge.models import Finding, Leg, LegQuery, Verdict, Visibility
from knowledge.ports import Backend
from knowledge.rerank import PROBE_DOCUMENTS, PROBE_QUERY, check
from knowledge.settings import Settings, load_settings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import Telemetry, set_up_telemetry

TIMEOUT_S = 10.0


def doctor() -> None:
    """Check settings, index, embedding-service and reranker; each line ok, warning or broken. Exit status 1 if any is broken."""
    with configuration_errors():
        settings, warnings = load_settings()
    findings = [Finding(Verdict.OK, "settings", "budget fits, deadlines nest, exactly one source of signing keys")]
    findings += [Finding(Verdict.WARNING, "settings", warning) for warning in warnings]
    findings += asyncio.run(_examine(settings))
    styles = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.BROKEN: "bold red"}
    out = console()
    for finding in findings:
        out.print(Text(f"{finding.verdict.value:8}", style=styles[finding.verdict]) + Text(f"{finding.subject}: {finding.detail}"))
    if any(finding.verdict is Verdict.BROKEN for finding in findings):
        raise typer.Exit(EXIT_FAILED)


async def _examine(settings: Settings) -> list[Finding]:
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    findings = [finding async for finding in _embedding_and_index(settings, telemetry)]
    findings += [finding async for finding in _reranker(settings)]
    telemetry.shutdown()
    return findings


async def _embedding_and_index(settings: Settings, telemetry: Telemetry) -> AsyncIterator[Finding]:
    embedder = new_embedder(settings.search, telemetry)
    fingerprint, dimension = None, None
    try:
        info = await embedder.info(TIMEOUT_S)
        fingerprint, dimension = info["fingerprint"], int(info["dimension"])
        await embedder.embed(["ping"], "query", settings.time.embedding_timeout_s)
        yield Finding(Verdict.OK, "embedding-service", f"{info.get('model')}, {dimension} dimensions")
        yield _nesting("EMBEDDING_DEADLINE_S", info.get("deadline_s"), "EMBEDDING_TIMEOUT_S", settings.time.embedding_timeout_s)
    except EmbeddingError as error:
        advice = f"no vectors ({error}); start it, or correct EMBEDDING_URL. Searches answer from the lexical leg until then"
        yield Finding(Verdict.BROKEN, "embedding-service", advice)
    finally:
        await embedder.aclose()
    backend = new_backend(settings.search, telemetry)

    async def open_index() -> str:
        await backend.open(fingerprint=fingerprint, dimension=dimension)
        if not await backend.ready():
            raise BackendError("opened, but not ready")
        return "open, and made for this embedding model" if fingerprint else "open"

    opened = await _try(f"index ({settings.search.search_backend})", open_index)
    yield opened
    if opened.verdict is Verdict.OK and fingerprint is not None:
        for finding in await _index(backend, dimension or 1):
            yield finding
    await backend.aclose()


async def _index(backend: Backend, dimension: int) -> list[Finding]:
    """What the backend says of itself, and one real search of all legs, as somebody who may see nothing."""
    try:
        findings = await backend.examine()
        nobody = Visibility("doctor", "doctor", frozenset({"doctor"}))
        vector = (1.0, *([0.0] * (dimension - 1)))
        queries = [LegQuery(leg, nobody, 1, text=PROBE_QUERY, vector=vector, identifiers=("doctor-1",)) for leg in Leg]
        results = await backend.msearch(queries, TIMEOUT_S)
    except BackendError as error:
        return [Finding(Verdict.BROKEN, "search", str(error))]
    failed = [leg.value for leg, result in zip(Leg, results, strict=True) if result.failed]
    if failed:
        return [*findings, Finding(Verdict.BROKEN, "search", f"failed: {', '.join(failed)}; the backend's log says why")]
    return [*findings, Finding(Verdict.OK, "search", f"answered: {', '.join(leg.value for leg in Leg)}")]


async def _reranker(settings: Settings) -> AsyncIterator[Finding]:
    reranker = new_reranker(settings.reranker)
    if reranker is None:
        detail = "off or not configured: every search is answered in hybrid order; set RERANKER_URL to change that"
        yield Finding(Verdict.WARNING, "reranker", detail)
        return
    try:
        answer = await reranker.rerank(PROBE_QUERY, PROBE_DOCUMENTS, TIMEOUT_S)
        check(answer, len(PROBE_DOCUMENTS))
        yield Finding(Verdict.OK, "reranker", f"{answer.model} scored two passages ({answer.score_kind.value})")
        info = await reranker.info(TIMEOUT_S) or {}
        yield _nesting("RERANK_DEADLINE_S", info.get("deadline_s"), "RERANKER_TIMEOUT_S", settings.reranker.reranker_timeout_s)
        yield _budget(info.get("scored_chars_budget"), settings.reranker.rerank_scored_chars_budget)
    except RerankError as error:
        detail = f"{error.reason.value}; start it, or correct RERANKER_URL, RERANKER_API_KEY or RERANKER_MODEL"
        yield Finding(Verdict.BROKEN, "reranker", detail)
    finally:
        await reranker.aclose()


async def _try(subject: str, work: Callable[[], Awaitable[str]]) -> Finding:
    try:
        return Finding(Verdict.OK, subject, await work())
    except BackendError as error:
        return Finding(Verdict.BROKEN, subject, str(error))


def _nesting(inner: str, inner_s: object, outer: str, outer_s: float) -> Finding:
    if isinstance(inner_s, int | float) and inner_s < outer_s:
        return Finding(Verdict.OK, "deadlines", f"{inner} ({inner_s:g}) is below {outer} ({outer_s:g})")
    detail = f"{inner} ({inner_s}) must be below {outer} ({outer_s:g}); lower the one or raise the other"
    return Finding(Verdict.BROKEN, "deadlines", detail)


def _budget(service: object, gateway: int) -> Finding:
    if isinstance(service, int) and (service == 0 or service >= gateway):
        return Finding(
            Verdict.OK,
            "budget",
            f"the reranker-service accepts {service or 'any number of'} characters, the gateway sends {gateway}",
        )
    detail = f"RERANK_SCORED_CHARS_BUDGET is {service} in the reranker-service and {gateway} here; raise the one or lower the other"
    return Finding(Verdict.BROKEN, "budget", detail)
