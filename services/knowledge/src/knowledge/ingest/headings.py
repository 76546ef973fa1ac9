"""Markdown along its headings: which text stands under which of them."""

import re
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

# Blocks are enough to find headings: a `#` in a fence or a list is none. Inline markup is looked at in headings only.
_BLOCKS = MarkdownIt("commonmark").disable("inline")
_INLINE = MarkdownIt("commonmark")
_MARKS = re.compile(r"[*_`\[\]\\!<&\n]")
_LINE_END = re.compile(r"\r\n?")


@dataclass(frozen=True, slots=True)
class Section:
    """Text under its headings, the outermost first. `text` is without them."""

    headings: tuple[str, ...]
    text: str


def sections(markdown: str) -> list[Section]:
    """The sections of a text in order; one for what stands before the first heading, if anything does.

    A heading without text of its own is in the headings of what follows below it; where nothing follows, it is its own text.
    """
    lines = _LINE_END.sub("\n", markdown).split("\n")  # as the parser counts them
    found: list[Section] = []
    path: list[tuple[int, str]] = []
    begin = 0

    def close(end: int, next_level: int) -> None:
        text = "\n".join(lines[begin:end]).strip("\n")
        if text.strip():
            found.append(Section(tuple(heading for _, heading in path), text))
        elif path and next_level <= path[-1][0]:
            found.append(Section(tuple(heading for _, heading in path), path[-1][1]))

    for level, heading, first, after in _headings(_BLOCKS.parse(markdown)):
        close(first, level)
        path = [*((outer, name) for outer, name in path if outer < level), (level, heading)]
        begin = after
    close(len(lines), 0)
    return found


def first_heading(markdown: str) -> str:
    """The first heading of the first level; empty without one."""
    return next((text for level, text, _, _ in _headings(_BLOCKS.parse(markdown)) if level == 1), "")


def _headings(tokens: list[Token]) -> list[tuple[int, str, int, int]]:
    """(level, text, its first line, the line after it) of the headings that stand in no list and no quote."""
    found = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map and (text := plain(inline.content)):
            found.append((int(token.tag[1:]), text, token.map[0], token.map[1]))
    return found


def plain(inline: str) -> str:
    """Inline Markdown without its marks."""
    if not _MARKS.search(inline):
        return " ".join(inline.split())
    [token] = _INLINE.parseInline(inline)
    return " ".join("".join(child.content or " " * (child.type == "softbreak") for child in token.children or []).split())
