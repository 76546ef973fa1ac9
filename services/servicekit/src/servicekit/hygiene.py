"""Text that came in made safe to store, to search and to answer: what cannot be encoded or printed goes out, nothing else."""

import math
import re
from typing import Any

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# Tab, line feed and carriage return are text; the other C0 and C1 controls, NUL first among them, are not.
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
MAX_DEPTH = 64


def clean_text(text: str) -> str:
    """`text` with lone surrogates as U+FFFD and without control characters."""
    return CONTROLS.sub("", LONE_SURROGATES.sub("\ufffd", text))


def clean(value: Any, depth: int = MAX_DEPTH) -> Any:
    """`value` as JSON can hold it, with every string in it, keys included, cleaned.

    YAML and Python know more than JSON: a date becomes its text, a number that is not finite becomes null.

    Raises:
        ValueError: nested deeper than `depth`.
    """
    if depth < 0:
        raise ValueError("nested too deeply")
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return clean_text(value)
        case dict():
            return {clean_text(str(key)): clean(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | set():
            return [clean(item, depth - 1) for item in value]
        case _:
            return clean_text(str(value))
