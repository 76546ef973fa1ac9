"""Text that came in made safe to store, to search and to answer: what cannot be encoded or printed goes out, nothing else."""

import re
from typing import Any

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# Tab, line feed and carriage return are text; the other C0 and C1 controls, NUL first among them, are not.
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def clean_text(text: str) -> str:
    """`text` with lone surrogates as U+FFFD and without control characters."""
    return CONTROLS.sub("", LONE_SURROGATES.sub("\ufffd", text))


def clean(value: Any) -> Any:
    """A JSON value with every string in it, keys included, cleaned."""
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean(key): clean(item) for key, item in value.items()}
        case list() | tuple():
            return [clean(item) for item in value]
        case _:
            return value
