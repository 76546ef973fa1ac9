"""docs/benchmarks.md: one section a benchmark, each replaced as a whole by the run that made it."""

import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path("docs/benchmarks.md")
HEAD = """# Benchmarks

Every section is written by the command that it names, on two cores. Machines are noisy: ratios within one run mean something,
single times do not, so none are given.
"""


def write_section(name: str, title: str, command: str, lines: Sequence[str]) -> None:
    """Replace section `name`, or append it."""
    write_block(PAGE, name, [f"## {title}", "", f"`{command}`", "", *lines])


def write_block(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what stands between the marks of `name` on a page, or append it with its marks."""
    body = "\n".join(lines)
    block = f"<!-- {name} -->\n{body}\n<!-- /{name} -->\n"
    text = page.read_text(encoding="utf-8") if page.exists() else HEAD
    pattern = re.compile(rf"<!-- {re.escape(name)} -->.*?<!-- /{re.escape(name)} -->\n", re.DOTALL)
    text = pattern.sub(lambda _: block, text) if pattern.search(text) else f"{text}\n{block}"
    page.write_text(text, encoding="utf-8")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
