"""The same for OpenSearch 2.19: other class names, a policy for each module, and the security plugin beside k-NN."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

from tests.parts.opensearch import layout

__all__ = ["arrange"]

_PLUGINS = ("opensearch-knn", "opensearch-security")
_LATER = ("slf4j-api-*.jar",)
# Until 3.0 a security manager was there to ask; published jars lack the files that answer it.
_POLICY = "grant { permission java.security.AllPermission; };\n"


def arrange(jars: Path, home: Path, version: str) -> None:
    """Move every file of the flat folder `jars` to its place under the new folder `home`.

    What `layout` has is used as it is: a change there would have every machine fetch the other node anew.
    """
    for module in layout._MODULES:
        folder = home / "modules" / module.name
        layout._move(jars, tuple(one for one in module.jars if one not in _LATER), folder)
        old = replace(module, plugin_class=module.plugin_class.replace("ModulePlugin", "Plugin"))
        descriptor = layout._descriptor(old, version).replace("java.version=21", "java.version=17")
        (folder / layout._DESCRIPTOR).write_text(descriptor)
        (folder / "plugin-security.policy").write_text(_POLICY)
    for plugin in _PLUGINS:
        (archive,) = jars.glob(f"{plugin}-*.zip")
        with zipfile.ZipFile(archive) as content:
            content.extractall(home / "plugins" / plugin)
        archive.unlink()
    layout._move(jars, ("*.jar",), home / "lib")
    jars.rmdir()
    # The server would make it, and fail where somebody else owns the installation.
    (home / "bin").mkdir()
