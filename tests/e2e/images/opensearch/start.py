"""Starts the node: variables become settings and flags, as the published image's start script makes them.

It is no part of a package: the image holds this file alone.
"""

import json
import os
import re
from pathlib import Path

HOME = Path("/usr/share/opensearch")
# A name with a dot is a setting; DISABLE_... and the like speak of plugins that are not here.
SETTING = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
DEFAULTS = {
    "cluster.name": "docker-cluster",
    "network.host": "0.0.0.0",  # noqa: S104 - inside a container
    "path.data": str(HOME / "data"),
    "path.logs": str(HOME / "logs"),
    # A full disk of the machine would make indices read-only.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}


def main() -> None:
    """Write the settings and become the node, so that signals reach it."""
    settings = DEFAULTS | {name: value for name, value in os.environ.items() if SETTING.fullmatch(name)}
    # JSON strings are YAML strings; the node reads numbers, booleans and lists with commas out of them.
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in settings.items()]
    (HOME / "config/opensearch.yml").write_text("".join(lines))
    command = json.loads((HOME / "command.json").read_text())
    at = command.index("-cp")
    command[at:at] = os.environ.get("OPENSEARCH_JAVA_OPTS", "-Xms512m -Xmx512m").split()
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
