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
    body = "\n".join(lines)
    section = f"<!-- {name} -->\n## {title}\n\n`{command}`\n\n{body}\n<!-- /{name} -->\n"
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
    pattern = re.compile(rf"<!-- {re.escape(name)} -->.*?<!-- /{re.escape(name)} -->\n", re.DOTALL)
    page = pattern.sub(lambda _: section, page) if pattern.search(page) else f"{page}\n{section}"
    PAGE.write_text(page, encoding="utf-8")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
