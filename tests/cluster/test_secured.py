"""A cluster with the security plugin: TLS, the roles of docs/opensearch-roles.yml and nothing beyond them, client certificates."""

import asyncio
import copy
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.trace import format_trace_id

from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.adapters.opensearch_client import connect
from knowledge.adapters.opensearch_reindexing import OpenSearchReindexing
from knowledge.app import DISTRIBUTION, new_backend, new_reindexing
from knowledge.errors import BackendError
from knowledge.settings import SearchSettings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from tests.cluster import scenarios
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, TIMEOUT_S, lexical, record
from tests.parts.opensearch.certificates import Authority
from tests.parts.opensearch.secured import SecuredNode, secured_node

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ALIAS = "knowledge"
PASSWORD = f"Kg-{secrets.token_urlsafe(24)}"
ROLES: dict[str, Any] = {
    name: role for name, role in yaml.safe_load(Path("docs/opensearch-roles.yml").read_text(encoding="utf-8")).items() if name != "_meta"
}
WORK: dict[str, tuple[scenarios.Scenario, bool]] = {
    "knowledge_gateway": (scenarios.serve_and_write, False),
    "knowledge_search": (scenarios.serve, True),
    "knowledge_reindex": (scenarios.reindex, True),
    "knowledge_doctor": (scenarios.examine, True),
}
"""What a role is for, and whether the index is there before."""

TIDY = "indices:data/read/scroll/clear"
"""Nothing fails without it; the cluster keeps what a finished removal read from for minutes."""


@pytest.fixture(scope="module")
def node() -> Iterator[SecuredNode]:
    """One node for the module, with the roles of the page and a user of the same name for each."""
    with secured_node() as made:
        for name, role in ROLES.items():
            made.put("roles", name, role)
            made.put("internalusers", name, {"password": PASSWORD})
            made.put("rolesmapping", name, {"users": [name]})
        yield made


@pytest.fixture(autouse=True)
def emptied(node: SecuredNode) -> None:
    """No index and no template of an earlier test."""
    _delete_indices(node)
    for template in node.call("GET", "_index_template")["index_templates"]:
        node.call("DELETE", f"_index_template/{template['name']}")


def _delete_indices(node: SecuredNode) -> None:
    for found in node.call("GET", f"_cat/indices/{ALIAS}*?format=json"):
        node.call("DELETE", found["index"])


def settings(node: SecuredNode, user: str = "", **changes: Any) -> SearchSettings:
    """Of a gateway that calls the cluster as this user."""
    known = {"opensearch_username": user, "opensearch_password": PASSWORD} if user else {}
    values = {"opensearch_url": node.url, "opensearch_ca_file": node.authority.certificate, "max_concurrent_searches": 4}
    return SearchSettings(search_backend="opensearch", opensearch_index=ALIAS, **{**values, **known, **changes})


def as_admin(node: SecuredNode) -> SearchSettings:
    """Of somebody whom no role holds back."""
    return settings(node, opensearch_client_cert_file=node.admin.certificate, opensearch_client_key_file=node.admin.key)


@asynccontextmanager
async def opened(search: SearchSettings) -> AsyncIterator[tuple[OpenSearchBackend, OpenSearchReindexing]]:
    """Both adapters as the gateway and the commands make them."""
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    store, reindexing = new_backend(search, telemetry), new_reindexing(search)
    assert isinstance(store, OpenSearchBackend)
    assert isinstance(reindexing, OpenSearchReindexing)
    try:
        yield store, reindexing
    finally:
        await store.aclose()
        await reindexing.aclose()
        telemetry.shutdown()


async def work(node: SecuredNode, search: SearchSettings, scenario: scenarios.Scenario, *, prepared: bool) -> None:
    """Go through a scenario, in an index of somebody else's if it is there before."""
    if prepared:
        async with opened(as_admin(node)) as (store, _):
            await scenarios.prepare(store)
    async with opened(search) as (store, reindexing):
        await scenario(store, reindexing)


@pytest.mark.parametrize("role", WORK)
async def test_each_role_is_enough(node: SecuredNode, role: str) -> None:
    """Over TLS, with a name and a password."""
    scenario, prepared = WORK[role]
    await work(node, settings(node, role), scenario, prepared=prepared)


@pytest.mark.parametrize("role", WORK)
async def test_each_permission_is_needed(node: SecuredNode, role: str) -> None:
    """Without any single one the work is refused: the page grants nothing that is not used."""
    scenario, prepared = WORK[role]
    superfluous = []
    node.put("internalusers", "less", {"password": PASSWORD})
    node.put("roles", "less", ROLES[role])
    node.put("rolesmapping", "less", {"users": ["less"]})
    for permission, less in _each_one_less(ROLES[role]):
        _delete_indices(node)
        node.put("roles", "less", less)
        try:
            await work(node, settings(node, "less"), scenario, prepared=prepared)
        except (BackendError, AssertionError):
            continue
        superfluous.append(permission)
    assert set(superfluous) <= {TIDY}


def _each_one_less(role: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The role without one of its permissions or patterns, each in turn."""
    for permission in role["cluster_permissions"]:
        less = copy.deepcopy(role)
        less["cluster_permissions"].remove(permission)
        yield permission, less
    for place, granted in enumerate(role.get("index_permissions", [])):
        for permission in granted["allowed_actions"]:
            less = copy.deepcopy(role)
            less["index_permissions"][place]["allowed_actions"].remove(permission)
            yield permission, less


async def test_without_the_template_right_a_gateway_goes_on(node: SecuredNode, capsys: pytest.CaptureFixture[str]) -> None:
    """The role lacks it: one line in the log. With the further role the template is there."""
    async with opened(settings(node, "knowledge_gateway")) as (store, _):
        await scenarios.prepare(store)
        assert await store.ready()
    assert node.call("GET", "_index_template")["index_templates"] == []
    said = capsys.readouterr()
    assert "template.refused" in said.out + said.err
    node.put("rolesmapping", "knowledge_template", {"users": ["knowledge_template", "knowledge_gateway"]})
    async with opened(settings(node, "knowledge_gateway")) as (store, _):
        await scenarios.prepare(store)
    node.put("rolesmapping", "knowledge_template", {"users": ["knowledge_template"]})
    (template,) = node.call("GET", "_index_template")["index_templates"]
    assert template["name"] == ALIAS


async def test_a_gateway_that_only_searches_cannot_write(node: SecuredNode, caplog: pytest.LogCaptureFixture) -> None:
    """Nor remove, nor make an index; the error names the permission and nothing else, and each failed item the word."""
    async with opened(settings(node, "knowledge_search")) as (store, _):
        with pytest.raises(BackendError, match="403 security_exception: the role lacks indices:admin/create"):
            await store.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await work(node, settings(node, "knowledge_search"), scenarios.serve, prepared=True)
    async with opened(settings(node, "knowledge_search")) as (store, _):
        for call in (store.write(TENANT, [record("new")], []), store.delete_document(TENANT, "doc-p1")):
            with pytest.raises(BackendError, match=r"403 security_exception: the role lacks indices:[a-z/]+") as caught:
                await call
            assert "knowledge_search" not in str(caught.value)
    assert PASSWORD not in caplog.text


async def test_a_role_reaches_its_own_names_only(node: SecuredNode) -> None:
    """The alias and what begins like it; another index of the cluster is closed to the gateway."""
    node.call("PUT", "others", {"settings": {"number_of_replicas": 0}})
    client = connect(node.url, username="knowledge_gateway", password=PASSWORD, ca_file=node.authority.certificate, pool_size=1)
    for attempt in (client.search(index="others", body={}), client.index(index="others", body={"a": 1}), client.cat.indices()):
        with pytest.raises(Exception, match="403"):
            await attempt
    await client.close()
    node.call("DELETE", "others")


async def _refused(search: SearchSettings, words: str) -> None:
    """Not ready; the start's error is a sentence with these words and without a secret."""
    async with opened(search) as (store, reindexing):
        assert not await store.ready()
        attempts = (
            store.open(fingerprint=FINGERPRINT, dimension=DIMENSION),
            store.msearch([lexical("wasser")], TIMEOUT_S),
            store.write(TENANT, [record("a")], []),
            store.examine(),
            reindexing.begin(FINGERPRINT, DIMENSION),
        )
        for attempt in attempts:
            with pytest.raises(BackendError, match=words) as caught:
                await attempt
            assert PASSWORD not in str(caught.value)


async def test_a_cluster_of_another_authority_is_not_trusted(
    node: SecuredNode, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is sent to it: no password, no document. Without OPENSEARCH_CA_FILE the authorities of the system count."""
    strange = Authority(tmp_path, "strange").certificate
    for authority in (strange, None):
        await _refused(settings(node, "knowledge_gateway", opensearch_ca_file=authority), "OPENSEARCH_CA_FILE")
    _without_secret(caplog, capsys)


async def test_a_wrong_name_or_password_is_401(
    node: SecuredNode, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong, unknown, or none at all."""
    wrong = settings(node, "knowledge_gateway", opensearch_password=f"not-{PASSWORD}")
    for search in (wrong, settings(node, "nobody"), settings(node)):
        await _refused(search, "401.*OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD, or the client certificate")
    _without_secret(caplog, capsys)


async def test_http_where_https_is_spoken(node: SecuredNode, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence names the setting."""
    plain = node.url.replace("https:", "http:")
    await _refused(settings(node, "knowledge_gateway", opensearch_url=plain), "OPENSEARCH_URL")
    _without_secret(caplog, capsys)


def _without_secret(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    said = capsys.readouterr()
    assert PASSWORD not in caplog.text + said.out + said.err


async def test_a_certificate_is_as_good_as_a_password(node: SecuredNode) -> None:
    """The role is mapped to its distinguished name; no name, no password."""
    own = node.authority.issue("gateway")
    certified = settings(node, opensearch_client_cert_file=own.certificate, opensearch_client_key_file=own.key)
    async with opened(certified) as (store, _):
        with pytest.raises(BackendError, match="403"):
            await store.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    node.put("rolesmapping", "knowledge_gateway", {"users": ["knowledge_gateway", own.name]})
    await work(node, certified, scenarios.serve_and_write, prepared=False)
    node.put("rolesmapping", "knowledge_gateway", {"users": ["knowledge_gateway"]})


async def test_a_certificate_of_another_authority_is_refused(node: SecuredNode, tmp_path: Path) -> None:
    """Although it bears the same name; the cluster ends the connection."""
    own = node.authority.issue("twice")
    node.put("rolesmapping", "knowledge_gateway", {"users": ["knowledge_gateway", own.name]})
    forged = Authority(tmp_path, "ca").issue("twice")
    assert forged.name == own.name
    strange = settings(node, opensearch_client_cert_file=forged.certificate, opensearch_client_key_file=forged.key)
    await _refused(strange, "cannot be reached|401")
    node.put("rolesmapping", "knowledge_gateway", {"users": ["knowledge_gateway"]})


async def test_many_searches_at_once_share_the_connections(node: SecuredNode) -> None:
    """More than the pool holds; each is a whole answer."""
    async with opened(as_admin(node)) as (store, _):
        await scenarios.prepare(store)
    async with opened(settings(node, "knowledge_search")) as (store, _):
        await store.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
        answers = await asyncio.gather(*(store.msearch([lexical("wasser")], TIMEOUT_S) for _ in range(40)))
    assert {len(legs[0].hits) for legs in answers} == {len(scenarios.PASSAGES)}


async def test_a_restored_index_is_served(node: SecuredNode) -> None:
    """A snapshot as the page takes it: the alias and `_meta` come back with the index."""
    async with opened(as_admin(node)) as (store, reindexing):
        await scenarios.prepare(store)
        node.call("PUT", "_snapshot/backup", {"type": "fs", "settings": {"location": "backup"}})
        node.call("PUT", "_snapshot/backup/one?wait_for_completion=true", {"indices": "knowledge-*", "include_global_state": False})
        for found in node.call("GET", ALIAS):
            node.call("DELETE", found)
        assert not await store.ready()
        node.call(
            "POST", "_snapshot/backup/one/_restore?wait_for_completion=true", {"indices": "knowledge-*", "include_global_state": False}
        )
        assert await store.ready()
        await scenarios.serve(store, reindexing)


async def test_the_slow_log_is_joined_by_the_trace_id(node: SecuredNode) -> None:
    """Each shard's line holds the id that the span has."""
    async with opened(as_admin(node)) as (store, _):
        await scenarios.prepare(store)
        node.call("PUT", f"{ALIAS}/_settings", {"index.search.slowlog.threshold.query.info": "0ms"})
        with store._tracer.start_as_current_span("search") as span:
            await store.msearch([lexical("wasser")], TIMEOUT_S)
        trace_id = format_trace_id(span.get_span_context().trace_id)
    lines = [line for line in node.log.read_text().splitlines() if f"id[{trace_id}]" in line]
    assert len(lines) == 1
    assert "took[" in lines[0]
