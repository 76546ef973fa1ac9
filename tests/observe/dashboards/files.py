"""The dashboards' files: their text, and what is asked in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tests.observe.dashboards.capacity import capacity
from tests.observe.dashboards.fallbacks import fallbacks
from tests.observe.dashboards.red import red

FOLDER = Path(__file__).parents[3] / "charts" / "knowledge-gateway" / "dashboards"


@dataclass(frozen=True, slots=True)
class Question:
    """One query of one panel."""

    board: str
    panel: str
    expr: str
    instant: bool


def texts() -> dict[str, str]:
    """The text of each file, by its name."""
    built = [make().build() for make in (red, fallbacks, capacity)]
    return {f"{one.uid}.json": json.dumps(one, cls=JSONEncoder, indent=2, sort_keys=True) + "\n" for one in built}


def boards() -> list[dict[str, Any]]:
    """The dashboards as they are committed."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels of a dashboard that show something, also those inside rows."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def questions() -> list[Question]:
    """Every query of every panel."""
    return [
        Question(board["uid"], panel["title"], target["expr"], bool(target.get("instant")))
        for board in boards()
        for panel in panels(board)
        for target in panel["targets"]
    ]
