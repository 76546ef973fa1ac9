"""The gateway that is measured: its settings on either backend, and how its index is filled and taken away."""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from knowledge.adapters.embedded_export import EmbeddedExport
from knowledge.ingest.ingestor import Ingestor
from knowledge.ports import Backend
from knowledge.settings import IdentitySettings, ProcessSettings, RerankerSettings, SearchSettings, Settings, TimeSettings
from tests.quality.data import DataMissing, DataSet

MODEL = "multilingual-e5-small"
TENANT = "quality"


def new_settings(backend: str, urls: Mapping[str, str], node: str, folder: Path) -> Settings:
    """Settings with an index of its own, a file in `folder` or an alias on `node`; all else has its default."""
    name = f"kgtest-{secrets.token_hex(4)}"
    search = SearchSettings(
        search_backend="opensearch" if backend == "opensearch" else "embedded",
        embedded_path=folder / f"{name}.db",
        opensearch_url=node,
        opensearch_index=name,
        embedding_url=urls["EMBEDDING_URL"],
    )
    identity = IdentitySettings(auth_jwt_secret=secrets.token_hex(32), knowledge_env="development")
    reranker = RerankerSettings(reranker_url=urls.get("RERANKER_URL", ""))
    return Settings(search, reranker, TimeSettings(search_deadline_s=300), identity, ProcessSettings())


async def fill(data: DataSet, ingestor: Ingestor, on_document: Callable[[], None]) -> None:
    """Bring a data set in; what is in already is not embedded again.

    Raises:
        DataMissing: a document was refused.
    """
    outcomes = await ingestor.ingest(data.documents, tenant=TENANT, source="quality", on_document=lambda _: on_document())
    if failed := [one for one in outcomes if one.rejects]:
        raise DataMissing(f"{data.name}: {failed[0].rejects[0].reason}")


async def copy(path: Path, backend: Backend, on_chunks: Callable[[int], None]) -> None:
    """Copy an embedded index with its vectors, as `knowledge migrate` does.

    Raises:
        DataMissing: a passage was refused.
    """
    export = EmbeddedExport(path)
    await backend.open(fingerprint=export.fingerprint, dimension=export.dimension)
    for tenant, records in export.batches():
        if failures := await backend.write(tenant, records, []):
            raise DataMissing(f"{path.name}: {failures[0].reason}")
        on_chunks(len(records))


def drop(search: SearchSettings) -> None:
    """Remove what was put in: an embedded file goes with its folder, an OpenSearch index is deleted."""
    if search.search_backend == "opensearch":
        from tests.parts.opensearch.indices import delete_behind

        delete_behind(search.opensearch_url, search.opensearch_index)
