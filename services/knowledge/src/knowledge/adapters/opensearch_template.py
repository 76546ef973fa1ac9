"""The composable index template: an index of the gateway's name has the gateway's mapping, whoever makes it.

A restore, a `_reindex` of somebody's, or a write past the gateway would otherwise get a mapping that OpenSearch guesses: permissions as
analysed text, vectors as numbers. The gateway itself needs no template to make an index; so it goes on where it may not put one.
"""

from typing import Any

import structlog
from opensearchpy import AsyncOpenSearch
from opensearchpy.exceptions import TransportError

from knowledge.adapters.compounds import NO_COMPOUND_WORDS, CompoundWords
from knowledge.adapters.opensearch_client import error_type, translated
from knowledge.adapters.opensearch_mapping import META, index_body, index_name

PRIORITY = 500
"""Above the templates that products bring along, which are at 200 and below."""

SPREAD = ("number_of_shards", "number_of_replicas", "auto_expand_replicas")

log = structlog.get_logger(__name__)


def index_template(
    alias: str,
    fingerprint: str,
    dimension: int,
    replicas: int | None,
    compounds: CompoundWords = NO_COMPOUND_WORDS,
    shards: int = 1,
) -> dict[str, Any]:
    """The template. It holds no alias: an index that is built beside, or restored, must not join the one that is searched."""
    # Not `<alias>-*`: that would take in the indices of an alias `<alias>-test`, and whatever else begins like it.
    pattern = f"{index_name(alias, fingerprint, dimension, compounds)}*"
    body = index_body(None, fingerprint, dimension, replicas, compounds, shards)
    return {"index_patterns": [pattern], "priority": PRIORITY, "template": body, "_meta": body["mappings"]["_meta"]}


async def put_template(client: AsyncOpenSearch, alias: str, wanted: dict[str, Any]) -> bool:
    """Put the template under the name of the alias, unless it is there as it should be. Several processes may do so at once.

    Returns:
        Whether it is there now. False, and logged: refused (not allowed, or another template of the same priority stands in the way),
        or one of that name is not ours.

    Raises:
        BackendError: the cluster cannot be reached, or fails.
    """
    with translated():
        try:
            found = await client.indices.get_index_template(name=alias, params={"ignore": 404})
            there = [one["index_template"] for one in found.get("index_templates", []) if one["name"] == alias]
            if any(META not in one.get("_meta", {}) for one in there):
                log.warning("template.foreign", template=alias)
                return False
            if not any(_same(one, wanted) for one in there):
                await client.indices.put_index_template(name=alias, body=wanted)
        except TransportError as error:
            if not (isinstance(error.status_code, int) and 400 <= error.status_code < 500):
                raise
            log.warning("template.refused", template=alias, status=error.status_code, error=error_type(error.error))
            return False
    return True


def _same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a template was made for the same mapping, word list and model, as `_meta` and pattern say, and spreads an index alike."""
    same = all(found.get(name) == wanted[name] for name in ("index_patterns", "priority", "_meta"))
    return same and _spread(found) == _spread(wanted)


def _spread(template: dict[str, Any]) -> dict[str, str]:
    """Shards and copies; as text, which is how a cluster gives settings back."""
    index = template.get("template", {}).get("settings", {}).get("index", {})
    return {name: str(index[name]) for name in SPREAD if name in index}
