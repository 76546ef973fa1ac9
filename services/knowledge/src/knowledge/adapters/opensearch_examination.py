"""What `knowledge doctor` looks at in a cluster."""

from typing import Any

from opensearchpy import AsyncOpenSearch

from knowledge.adapters.opensearch_client import CALL_TIMEOUT_S, translated
from knowledge.adapters.opensearch_mapping import COMPOUND_WORDS, META
from knowledge.models import Finding, Verdict

OLDEST = (2, 19)
KNN_PLUGIN = "opensearch-knn"
SAMPLES = {"de": ("Blätter", "Blaetter"), "en": ("watering", "waters"), "std": ("pH 6.2", "PH 6.2")}
"""Two writings a field that must end as the same terms."""


async def examine(client: AsyncOpenSearch, alias: str) -> list[Finding]:
    """Version, plugins, health, room for writes, size, compound words, and the analyzers on sample words.

    Raises:
        BackendError: the cluster does not answer.
    """
    with translated():
        findings = [await _version(client), await _plugins(client), await _health(client, alias), await _writable(client, alias)]
        findings.append(await _size(client, alias))
        findings += await _made(client, alias)
        findings += [await _analyzer(client, alias, name, *texts) for name, texts in SAMPLES.items()]
    return findings


async def _version(client: AsyncOpenSearch) -> Finding:
    found = str((await client.info(request_timeout=CALL_TIMEOUT_S))["version"]["number"])
    parts = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if parts >= OLDEST:
        return Finding(Verdict.OK, "version", f"OpenSearch {found}")
    oldest = ".".join(map(str, OLDEST))
    return Finding(Verdict.BROKEN, "version", f"OpenSearch {found} is older than {oldest}; upgrade the cluster")


async def _plugins(client: AsyncOpenSearch) -> Finding:
    rows: list[dict[str, Any]] = await client.cat.plugins(params={"format": "json"}, request_timeout=CALL_TIMEOUT_S)
    nodes = {row["name"] for row in rows if row["component"] == KNN_PLUGIN}
    if not nodes:
        return Finding(Verdict.BROKEN, "plugins", f"{KNN_PLUGIN} is on no node; install it, or take the full distribution")
    return Finding(Verdict.OK, "plugins", f"{KNN_PLUGIN} on {len(nodes)} node{'s' if len(nodes) > 1 else ''}")


async def _health(client: AsyncOpenSearch, alias: str) -> Finding:
    found = await client.cluster.health(index=alias, request_timeout=CALL_TIMEOUT_S)
    status, copies = found["status"], found["active_shards"]
    if status == "red":
        return Finding(Verdict.BROKEN, "health", "red: a shard has no copy; look at the cluster's allocation")
    detail = f"{status}, {copies} of {copies + found['unassigned_shards']} shard copies assigned"
    return Finding(Verdict.OK if status == "green" else Verdict.WARNING, "health", detail)


async def _writable(client: AsyncOpenSearch, alias: str) -> Finding:
    settings = await client.indices.get_settings(index=alias, flat_settings=True, request_timeout=CALL_TIMEOUT_S)
    blocks = sorted(
        name.removeprefix("index.blocks.")
        for index in settings.values()
        for name, value in index["settings"].items()
        if name.startswith("index.blocks.") and str(value) == "true"
    )
    if blocks:
        advice = f"writes are blocked ({', '.join(blocks)}): free disk space, then take the block off"
        return Finding(Verdict.BROKEN, "writes", advice)
    return Finding(Verdict.OK, "writes", "not blocked")


async def _size(client: AsyncOpenSearch, alias: str) -> Finding:
    found = await client.count(index=alias, request_timeout=CALL_TIMEOUT_S)
    chunks = int(found["count"])
    return Finding(
        Verdict.OK if chunks else Verdict.WARNING, "contents", f"{chunks} chunks" if chunks else "no chunks yet; ingest some documents"
    )


async def _made(client: AsyncOpenSearch, alias: str) -> list[Finding]:
    """What the index was made with beside the embedding model."""
    mappings = await client.indices.get_mapping(index=alias, request_timeout=CALL_TIMEOUT_S)
    metas = [index["mappings"].get("_meta", {}).get(META, {}) for index in mappings.values()]
    said = "German passages are split by the list"
    return [
        Finding(Verdict.OK, "compound words", f"{said} {meta[COMPOUND_WORDS]} of {meta[f'{COMPOUND_WORDS}_count']} words")
        for meta in metas
        if COMPOUND_WORDS in meta
    ]


async def _analyzer(client: AsyncOpenSearch, alias: str, name: str, one: str, other: str) -> Finding:
    terms = []
    for text in (one, other):
        body = {"field": f"text.{name}", "text": text}
        answer = await client.indices.analyze(index=alias, body=body, request_timeout=CALL_TIMEOUT_S)
        terms.append([token["token"] for token in answer["tokens"]])
    if terms[0] and terms[0] == terms[1]:
        return Finding(Verdict.OK, f"text.{name}", f"{one} and {other} are one: {' '.join(terms[0])}")
    return Finding(Verdict.BROKEN, f"text.{name}", f"{one} and {other} should be one term; the index has other analyzers: make it anew")
