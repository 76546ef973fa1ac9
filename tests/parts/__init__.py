"""The real servers and tools that tests run against, and the ways to obtain them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["MissingPart", "cache_folder", "say", "state_folder"]

_PROJECT = "knowledge-gateway"


class MissingPart(RuntimeError):
    """A test needs a part that this machine has not got; the message says how to get it."""


def cache_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of this project alone in which downloaded parts are kept between runs."""
    return _base(env, "XDG_CACHE_HOME", ".cache") / _PROJECT


def state_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of this project alone for servers that outlive the command that started them."""
    return _base(env, "XDG_STATE_HOME", ".local/state") / _PROJECT


def say(line: str) -> None:
    """Report progress where it cannot be mistaken for a result."""
    print(line, file=sys.stderr, flush=True)


def _base(env: Mapping[str, str], variable: str, default: str) -> Path:
    chosen = env.get(variable, "")
    # The XDG specification wants relative values ignored.
    if chosen.startswith("/"):
        return Path(chosen)
    return Path(env.get("HOME") or Path.home()) / default
