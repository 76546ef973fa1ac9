"""`knowledge ingest`."""

import asyncio
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from knowledge.app import DISTRIBUTION, new_backend, new_embedder
from knowledge.cli.common import DEVELOPMENT_TENANT, EXIT_CONFIGURATION, EXIT_FAILED, configuration_errors, console, fail
from knowledge.errors import BackendError, EmbeddingError
from knowledge.ingest.documents import LANGUAGE
from knowledge.ingest.folder import Defaults, Report, ingest_folder, write_rejects
from knowledge.ingest.ingestor import Ingestor
from knowledge.ingest.sources import SUFFIXES, find_files
from knowledge.settings import SearchSettings, TimeSettings
from knowledge.telemetry import SERVICE
from servicekit.settings import load_group
from servicekit.telemetry import set_up_telemetry

SHOWN_REJECTS = 10


def ingest(
    directory: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder with the documents.")],
    source: Annotated[str, typer.Option(help="The name of this source; --prune works within it.")] = "files",
    tenant: Annotated[str | None, typer.Option(help="The tenant; 'default' in development, required in production.")] = None,
    allowed_roles: Annotated[str, typer.Option(help="Roles, with commas, for documents that name no permissions.")] = "",
    allowed_subjects: Annotated[str, typer.Option(help="Subjects, with commas, for the same documents.")] = "",
    language: Annotated[str, typer.Option(help="The language, such as de, of documents that name none.")] = "und",
    prune: Annotated[bool, typer.Option("--prune", help="Delete this source's documents that are not in the folder.")] = False,
    rejects: Annotated[Path, typer.Option(help="Where to write what could not be taken.")] = Path("rejects.jsonl"),
) -> None:
    """Bring a folder in: YAML chunk files, JSONL, Markdown, HTML, PDF, text. Nothing is embedded twice; one bad file stops no other."""
    with configuration_errors():
        search, time = load_group(SearchSettings), load_group(TimeSettings)
    if tenant is None and search.knowledge_env != "development":
        fail(
            "--tenant is required in production. Name it, or set KNOWLEDGE_ENV=development on a developer's machine.",
            EXIT_CONFIGURATION,
        )
    if not re.fullmatch(LANGUAGE, language):
        fail("--language must be a language tag such as de or de-AT. Correct it, or leave it out.", EXIT_CONFIGURATION)
    defaults = Defaults(_names(allowed_roles), _names(allowed_subjects), language)
    report = bring_in(directory, search, time, tenant=tenant or DEVELOPMENT_TENANT, source=source, defaults=defaults, prune=prune)
    write_rejects(report.rejects, rejects)
    show(report)
    if report.rejects:
        console().print(f"{len(report.rejects)} rejects are listed in {rejects}", highlight=False, markup=False)
        raise typer.Exit(EXIT_FAILED)


def bring_in(
    directory: Path, search: SearchSettings, time: TimeSettings, *, tenant: str, source: str, defaults: Defaults, prune: bool
) -> Report:
    """Bring a folder in, with progress; ends the command with a sentence if nothing can be done at all."""
    if not find_files(directory):
        fail(f"no document found in {directory}; files must end in {', '.join(SUFFIXES)}.")
    try:
        return asyncio.run(_run(directory, search, time, tenant, source, defaults, prune=prune))
    except EmbeddingError as error:
        fail(f"the embedding-service at {search.embedding_url} gave no answer ({error}). Start it, or correct EMBEDDING_URL.")
    except BackendError as error:
        fail(f"the index cannot be written: {error}")


async def _run(
    directory: Path,
    search: SearchSettings,
    time: TimeSettings,
    tenant: str,
    source: str,
    defaults: Defaults,
    *,
    prune: bool,
) -> Report:
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    backend, embedder = new_backend(search, telemetry), new_embedder(search, telemetry)
    ingestor = Ingestor(backend, embedder, text_fields=search.text_fields, info_timeout_s=time.embedding_timeout_s)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("files"), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console(stderr=True)) as progress:
            bar = progress.add_task("ingesting", total=len(find_files(directory)))
            done = 0

            def on_document(_: object) -> None:
                nonlocal done
                done += 1
                progress.update(bar, description=f"ingesting, {done} documents,")

            return await ingest_folder(
                directory,
                ingestor=ingestor,
                store=backend,
                tenant=tenant,
                source=source,
                defaults=defaults,
                prune=prune,
                on_document=on_document,
                on_file=lambda _: progress.advance(bar),
            )
    finally:
        await embedder.aclose()
        await backend.aclose()
        telemetry.shutdown()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def show(report: Report) -> None:
    """What was done, and the first of what could not be taken."""
    out = console()
    counts = f"{report.written} chunks written, {report.embedded} embedded, {report.deleted_chunks} deleted"
    out.print(f"{report.documents} documents, {report.chunks} chunks: {counts}", highlight=False)
    if report.pruned:
        out.print(f"pruned {len(report.pruned)} documents that are gone from the folder", highlight=False)
    if report.prune_refused:
        out.print("nothing pruned: a reject could explain what is absent", highlight=False)
    if report.invisible:
        message = f"{report.invisible} documents name no roles and no subjects, so nobody sees them; --allowed-roles gives them some"
        out.print(message, highlight=False)
    for reject in report.rejects[:SHOWN_REJECTS]:
        out.print(f"rejected: {reject.place}: {reject.reason}", highlight=False, markup=False)
