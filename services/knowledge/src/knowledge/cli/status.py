"""`knowledge status`."""

import asyncio
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.table import Table
from rich.text import Text

from knowledge.app import DISTRIBUTION, new_backend, new_embedder
from knowledge.cli.common import EXIT_FAILED, configuration_errors, console, fail
from knowledge.errors import BackendError, EmbeddingError
from knowledge.models import Statistics
from knowledge.settings import SearchSettings
from knowledge.telemetry import SERVICE
from servicekit.settings import load_group
from servicekit.telemetry import set_up_telemetry

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Model:
    """The index's embedding model against the embedding-service's; what is not known is None."""

    index: str | None
    index_dimension: int | None
    service: str | None
    service_dimension: int | None
    name: str | None

    @property
    def fits(self) -> bool | None:
        """Whether the vectors of the one can be compared with those of the other."""
        if self.index is None or self.service is None:
            return None
        return (self.index, self.index_dimension) == (self.service, self.service_dimension)


def status(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    rejects: Annotated[Path, typer.Option(help="The rejects file of the last run.")] = Path("rejects.jsonl"),
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what is in the index, by tenant and source, and whether it fits the embedding-service. Exit status 1 if it does not."""
    with configuration_errors():
        search = load_group(SearchSettings)
    try:
        found, model = asyncio.run(_ask(search, tenant))
    except BackendError as error:
        fail(f"the index cannot be read: {error}")
    last = _rejects(rejects)
    if as_json:
        body: dict[str, Any] = {"backend": search.search_backend, "where": where(search), "model": {**asdict(model), "fits": model.fits}}
        body |= {"sources": [asdict(one) for one in found.sources], "rejects": last}
        typer.echo(json.dumps(body, ensure_ascii=False, indent=2))
    else:
        _show(search, found, model, last)
    if model.fits is False:
        raise typer.Exit(EXIT_FAILED)


def where(search: SearchSettings) -> str:
    """The file, or cluster and alias; never a password."""
    if search.search_backend == "embedded":
        return str(search.embedded_path)
    url = urlsplit(search.opensearch_url)
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}, alias {search.opensearch_index}"


async def _ask(search: SearchSettings, tenant: str | None) -> tuple[Statistics, Model]:
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    backend, embedder = new_backend(search, telemetry), new_embedder(search, telemetry)
    try:
        found = await backend.statistics(tenant)
        try:
            info = await embedder.info(TIMEOUT_S)
        except EmbeddingError:
            info = {}  # told as not known: what is in the index does not depend on it
        return found, Model(found.fingerprint, found.dimension, info.get("fingerprint"), info.get("dimension"), info.get("model"))
    finally:
        await embedder.aclose()
        await backend.aclose()
        telemetry.shutdown()


def _rejects(path: Path) -> dict[str, Any] | None:
    """How many, and from when; None without the file."""
    try:
        with path.open("rb") as lines:
            count = sum(1 for line in lines if line.strip())
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None
    return {"file": str(path), "count": count, "written": written.isoformat(timespec="seconds")}


def _show(search: SearchSettings, found: Statistics, model: Model, last: dict[str, Any] | None) -> None:
    out = console()
    out.print(Text(f"backend: {search.search_backend}, {where(search)}"), soft_wrap=True)
    out.print(Text(f"model: {_model_line(model, search.embedding_url)}"), soft_wrap=True)
    table = Table(show_edge=False, pad_edge=False)
    for name in ("tenant", "source"):
        table.add_column(name)
    for name in ("documents", "chunks"):
        table.add_column(name, justify="right")
    for one in found.sources:
        # Names come from tokens and commands: they are text, never markup.
        table.add_row(Text(one.tenant), Text(one.source), str(one.documents), str(one.chunks))
    out.print(table if found.sources else "nothing is indexed")
    if last is not None:
        out.print(Text(f"rejects: {last['count']} in {last['file']}, written {last['written']}"), soft_wrap=True)


def _model_line(model: Model, url: str) -> str:
    service = f"{model.name or 'the model'} of the embedding-service ({model.service}, {model.service_dimension} dimensions)"
    if model.service is None:
        service = f"the embedding-service at {url} does not answer"
    if model.index is None:
        return f"not known to the index yet; {service}"
    index = f"{model.index}, {model.index_dimension} dimensions"
    if model.fits is None:
        return f"{index}; whether it fits is not known: {service}"
    return f"{index}, fits {model.name or 'the embedding-service'}" if model.fits else f"{index}, DOES NOT FIT {service}"
