"""Lines out of a body that arrives in parts."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.ingest.lines import Line, arriving_lines


async def lines(*parts: bytes) -> list[list[Line]]:
    """The lines, as they came."""

    async def arriving() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return [found async for found in arriving_lines(arriving())]


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"a", b"\n")), st.lists(st.integers(0, 60), max_size=6))
async def test_lines_do_not_depend_on_the_parts(raw: bytes, cuts: list[int]) -> None:
    """However a body is cut: the same lines with the same numbers."""
    bounds = [0, *sorted(cuts), len(raw)]
    found = [line for some in await lines(*(raw[begin:end] for begin, end in pairwise(bounds))) for line in some]
    expected = raw.split(b"\n")
    assert found == list(enumerate(expected if expected[-1] else expected[:-1], start=1))


async def test_lines_come_as_soon_as_they_end() -> None:
    """Those of one part together."""
    assert await lines(b"a\nb\nc", b"", b"d\n", b"e") == [[(1, b"a"), (2, b"b")], [(3, b"cd")], [(4, b"e")]]


async def test_a_line_that_is_too_long_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one part, over several, and at the end; the next line is whole."""
    monkeypatch.setattr("knowledge.ingest.lines.MAX_LINE_BYTES", 4)
    assert await lines(b"12345\n1234\n12", b"34", b"5", b"6\nx\n12345") == [
        [(1, None), (2, b"1234")],
        [(3, None), (4, b"x")],
        [(5, None)],
    ]
