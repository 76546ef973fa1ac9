"""Find a Java that is new enough for the server."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["MINIMUM", "find_java", "parse_major"]

MINIMUM: Final = 21
_NEW_ENOUGH: Final = range(MINIMUM, 1000)
_ANSWER_S: Final = 20
# Where packages put several Javas side by side, of which PATH shows only one.
_SIDE_BY_SIDE: Final = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
)


def parse_major(text: str) -> int | None:
    """Return the major version out of what `java -version` prints, or None if it prints something else.

    Java 8 and older call themselves 1.8 and so on.
    """
    found = re.search(r'\bversion "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def find_java(env: Mapping[str, str], side_by_side: Sequence[str] = _SIDE_BY_SIDE, majors: range = _NEW_ENOUGH) -> Path | None:
    """Return the first `java` that fits: JAVA_HOME, then PATH, then the usual folders of the system."""
    seen: set[Path] = set()
    for candidate in _candidates(env, side_by_side):
        java = candidate.resolve()
        if java in seen or not java.is_file():
            continue
        seen.add(java)
        if (_major_of(java) or 0) in majors:
            return java
    return None


def _candidates(env: Mapping[str, str], side_by_side: Sequence[str]) -> Iterator[Path]:
    if home := env.get("JAVA_HOME"):
        yield Path(home, "bin/java")
    if on_path := shutil.which("java", path=env.get("PATH", "")):
        yield Path(on_path)
    for pattern in side_by_side:
        yield from sorted(Path("/").glob(f"{pattern.removeprefix('/')}/bin/java"))


def _major_of(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_major(answer.stderr + answer.stdout)
