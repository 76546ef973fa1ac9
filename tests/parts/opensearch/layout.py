"""Sort the jars that Maven fetched into the folders from which a node loads its modules and plugins."""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["arrange"]


@dataclass(frozen=True)
class _Module:
    """A part of the server that it loads from a folder of its own, with a class loader of its own."""

    name: str
    plugin_class: str
    jars: tuple[str, ...]
    extends: str = ""


_MODULES: Final = (
    _Module("transport-netty4", "org.opensearch.transport.Netty4ModulePlugin", ("*netty*.jar",)),
    _Module(
        "lang-painless",
        "org.opensearch.painless.PainlessModulePlugin",
        ("lang-painless-*.jar", "opensearch-scripting-painless-spi-*.jar", "antlr4-runtime-*.jar", "asm-*.jar"),
    ),
    _Module(
        "analysis-common",
        "org.opensearch.analysis.common.CommonAnalysisModulePlugin",
        ("analysis-common-*.jar",),
        extends="lang-painless",
    ),
    _Module(
        "reindex",
        "org.opensearch.index.reindex.ReindexModulePlugin",
        (
            "reindex-client-*.jar",
            "opensearch-rest-client-*.jar",
            "opensearch-ssl-config-*.jar",
            "http*.jar",
            "commons-codec-*.jar",
            "commons-logging-*.jar",
            "slf4j-api-*.jar",
        ),
    ),
    _Module("mapper-extras", "org.opensearch.index.mapper.MapperExtrasModulePlugin", ("mapper-extras-client-*.jar",)),
    _Module("parent-join", "org.opensearch.join.ParentJoinModulePlugin", ("parent-join-client-*.jar",)),
    _Module(
        "ingest-common",
        "org.opensearch.ingest.common.IngestCommonModulePlugin",
        ("ingest-common-*.jar", "opensearch-grok-*.jar", "opensearch-dissect-*.jar", "joni-*.jar", "jcodings-*.jar"),
        extends="lang-painless",
    ),
    _Module("rank-eval", "org.opensearch.index.rankeval.RankEvalModulePlugin", ("rank-eval-client-*.jar",)),
)
_KNN: Final = "opensearch-knn"
_KNN_NEEDS: Final = ("guava-*.jar", "failureaccess-*.jar", "transport-grpc-spi-*.jar", "protobufs-*.jar")
_DESCRIPTOR: Final = "plugin-descriptor.properties"


def arrange(jars: Path, home: Path, version: str) -> None:
    """Move every file of the flat folder `jars` to its place under the new folder `home`."""
    for module in _MODULES:
        folder = home / "modules" / module.name
        _move(jars, module.jars, folder)
        (folder / _DESCRIPTOR).write_text(_descriptor(module, version))
    _unpack_knn(jars, home / "plugins" / _KNN)
    _move(jars, ("*.jar",), home / "lib")
    jars.rmdir()
    # The server would make it, and fail where somebody else owns the installation.
    (home / "bin").mkdir()


def _move(jars: Path, patterns: tuple[str, ...], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in patterns:
        found = sorted(jars.glob(pattern))
        if not found:
            # Left alone, a renamed jar shows only as a class that the running node cannot find.
            raise FileNotFoundError(f"no jar matches {pattern}, which {folder.name} needs")
        for jar in found:
            shutil.move(jar, folder / jar.name)


def _descriptor(module: _Module, version: str) -> str:
    """Return the text that full distributions carry beside a module's jars and published jars lack."""
    return (
        f"name={module.name}\n"
        f"description={module.name}\n"
        f"version={version}\n"
        f"opensearch.version={version}\n"
        "java.version=21\n"
        f"classname={module.plugin_class}\n"
        f"extended.plugins={module.extends}\n"
        "custom.foldername=\n"
        "has.native.controller=false\n"
    )


def _unpack_knn(jars: Path, folder: Path) -> None:
    (archive,) = jars.glob(f"{_KNN}-*.zip")
    with zipfile.ZipFile(archive) as content:
        content.extractall(folder)
    archive.unlink()
    # The transport-grpc module, which k-NN names here, is not published: its interface goes to k-NN itself.
    descriptor = folder / _DESCRIPTOR
    text, replaced = re.subn(r"^extended\.plugins=.*$", "extended.plugins=lang-painless", descriptor.read_text(), flags=re.MULTILINE)
    if replaced != 1:
        raise ValueError(f"{descriptor} does not say once which plugins k-NN extends")
    descriptor.write_text(text)
    _move(jars, _KNN_NEEDS, folder)
