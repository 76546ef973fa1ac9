"""`knowledge migrate`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from knowledge.app import DISTRIBUTION, new_backend, open_export
from knowledge.cli.common import EXIT_CONFIGURATION, EXIT_FAILED, configuration_errors, console, fail
from knowledge.errors import BackendError
from knowledge.models import WriteFailure
from knowledge.ports import Export
from knowledge.settings import SearchSettings
from knowledge.telemetry import SERVICE
from servicekit.settings import load_group
from servicekit.telemetry import set_up_telemetry

SHOWN_FAILURES = 10


def migrate(
    path: Annotated[Path | None, typer.Option("--from", help="The embedded index; EMBEDDED_PATH when left out.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write although the target holds documents of the same sources.")] = False,
) -> None:
    """Copy an embedded index to OpenSearch, permissions and vectors included: nothing is embedded again. May be repeated."""
    with configuration_errors():
        search = load_group(SearchSettings)
    if search.search_backend != "opensearch":
        message = "the target is what SEARCH_BACKEND names, and that is the embedded backend itself. Set SEARCH_BACKEND=opensearch, "
        fail(message + "or copy the file if another place is all that you need.", EXIT_CONFIGURATION)
    try:
        export = open_export(path or search.embedded_path)
        failures = asyncio.run(_run(export, search, overwrite=overwrite))
    except BackendError as error:
        fail(str(error))
    out = console()
    out.print(f"{export.chunks - len(failures)} of {export.chunks} chunks copied, 0 embedded", highlight=False)
    for failure in failures[:SHOWN_FAILURES]:
        out.print(f"refused: {failure.id}: {failure.reason}", highlight=False, markup=False)
    if failures:
        raise typer.Exit(EXIT_FAILED)


async def _run(export: Export, search: SearchSettings, *, overwrite: bool) -> list[WriteFailure]:
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    backend = new_backend(search, telemetry)
    failures: list[WriteFailure] = []
    columns = (TextColumn("copying"), BarColumn(), MofNCompleteColumn(), TextColumn("chunks"), TimeElapsedColumn())
    try:
        await backend.open(fingerprint=export.fingerprint, dimension=export.dimension)
        for tenant, source in export.sources:
            if not overwrite and await backend.document_ids(tenant, source):
                message = f"The target already holds documents of the source {source}, which may be newer than the file's. "
                raise BackendError(message + "Pass --overwrite to replace them, or name another alias in OPENSEARCH_INDEX.")
        with Progress(*columns, console=console(stderr=True)) as progress:
            bar = progress.add_task("copying", total=export.chunks)
            for tenant, records in export.batches():
                failures += await backend.write(tenant, records, [])
                progress.advance(bar, len(records))
    finally:
        await backend.aclose()
        telemetry.shutdown()
    return failures
