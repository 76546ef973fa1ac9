"""`knowledge reindex`, `knowledge rollback` and `knowledge retire`."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from knowledge.app import DISTRIBUTION, new_embedder, new_reindexing
from knowledge.cli.common import EXIT_CONFIGURATION, configuration_errors, console, fail
from knowledge.errors import BackendError, EmbeddingError
from knowledge.ingest.reindex import Comparison, Synchronisation, compare
from knowledge.ingest.vectors import Embedding
from knowledge.ports import Embedder, IndexPair, Reindexing
from knowledge.settings import Settings, load_settings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry

INFO_TIMEOUT_S = 10.0

Force = Annotated[bool, typer.Option("--force", help="Swap although the sample queries found less in the other index.")]


def reindex(force: Force = False) -> None:
    """Build a new index beside the searched one, compare, swap. Searches and writes go on. Broken off, it goes on where it was.

    For a new release whose mapping differs, a new word list, or another embedding model (EMBEDDING_URL). Nothing is embedded again
    while the model stays. The old index is kept, and gets every write, until `knowledge retire`.
    """
    _run(force=force, back=False)


def rollback(force: Force = False) -> None:
    """Go back to the index before the last reindex; nothing that was written, deleted or revoked since is lost.

    After a change of the embedding model EMBEDDING_URL must name the service of the model to go back to.
    """
    _run(force=force, back=True)


def retire() -> None:
    """Delete the index beside the searched one: the kept one after a reindex, or one that was half built."""

    async def work(settings: Settings) -> str | None:
        reindexing = new_reindexing(settings.search)
        try:
            return await reindexing.retire()
        finally:
            await reindexing.aclose()

    try:
        name = asyncio.run(work(_settings()))
    except BackendError as error:
        fail(str(error))
    console().print(f"{name} is deleted" if name else "there is no index beside the searched one", highlight=False)


def _settings() -> Settings:
    with configuration_errors():
        settings, _ = load_settings()
    if settings.search.search_backend != "opensearch":
        message = "the embedded index is one file and has nothing beside it. Name another file in EMBEDDED_PATH and ingest again, "
        fail(message + "or set SEARCH_BACKEND=opensearch.", EXIT_CONFIGURATION)
    return settings


def _run(*, force: bool, back: bool) -> None:
    settings = _settings()
    try:
        asyncio.run(_work(settings, force=force, back=back))
    except EmbeddingError as error:
        fail(f"the embedding-service failed ({error}); nothing was swapped. Start it, or correct EMBEDDING_URL, and run this again.")
    except BackendError as error:
        fail(str(error))


async def _work(settings: Settings, *, force: bool, back: bool) -> None:
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    reindexing, embedder = new_reindexing(settings.search), new_embedder(settings.search, telemetry)
    try:
        pair = await _pair(reindexing, embedder, back=back)
        out = console()
        out.print(f"{pair.source.name} is searched; {pair.target.name} is brought to hold the same", highlight=False)
        await _synchronise(pair, embedder, settings.time.embedding_timeout_s)
        comparison = await compare(pair)
        _print(out, comparison)
        if comparison.worse and not force:
            legs = " and ".join(leg.value for leg in comparison.worse)
            raise BackendError(f"The {legs} leg finds less in {pair.target.name}; nothing was swapped. --force swaps all the same.")
        await pair.swap()
        out.print(f"{pair.target.name} is searched now; {pair.source.name} is kept and gets every write", highlight=False)
        out.print("back again: knowledge rollback; delete the kept one: knowledge retire", highlight=False)
    finally:
        await reindexing.aclose()
        await embedder.aclose()
        telemetry.shutdown()


async def _pair(reindexing: Reindexing, embedder: Embedder, *, back: bool) -> IndexPair:
    info = await embedder.info(INFO_TIMEOUT_S)
    if not back:
        return await reindexing.begin(str(info["fingerprint"]), int(info["dimension"]))
    pair = await reindexing.previous()
    if pair.target.fingerprint != info["fingerprint"]:
        message = f"{pair.target.name} was made for another embedding model than the embedding-service has. "
        raise BackendError(message + "Start the service of that model, or name one in EMBEDDING_URL, and run this again.")
    return pair


async def _synchronise(pair: IndexPair, embedder: Embedder, timeout_s: float) -> None:
    total, _ = await pair.counts()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("chunks"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True)) as bars:
        bar = bars.add_task("bringing over", total=total)
        embedding = Embedding(embedder, fingerprint=pair.target.fingerprint, timeout_s=timeout_s)
        work = Synchronisation(pair, embedding, lambda done: bars.update(bar, completed=done.brought, total=max(total, done.brought)))
        await work.run()
    done = work.progress
    console().print(
        f"{done.brought} chunks brought over, {done.removed} removed, {done.embedded} embedded, in {done.rounds} rounds", highlight=False
    )


def _print(out: Console, comparison: Comparison) -> None:
    out.print(f"chunks: {comparison.source_chunks} and {comparison.target_chunks}", highlight=False)
    for leg, (source, target) in comparison.found.items():
        out.print(f"{leg.value}: {source} and {target} of {comparison.sampled} sampled passages find themselves", highlight=False)
