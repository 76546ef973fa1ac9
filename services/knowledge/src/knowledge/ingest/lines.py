"""The lines of a body as they arrive, with a limit on each and none on their number."""

from collections.abc import AsyncIterable, AsyncIterator

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A document of the longest content allowed, in any European language, fits into one line."""

Line = tuple[int, bytes | None]
"""(number, from 1; the line without its end, or None where it is longer than the limit)."""


async def arriving_lines(parts: AsyncIterable[bytes]) -> AsyncIterator[list[Line]]:
    """The lines that ended with each part, together; the last one needs no end. Only line feeds end a line."""
    number, begun, too_long = 1, bytearray(), False
    async for part in parts:
        *ended, rest = part.split(b"\n")
        found: list[Line] = []
        for piece in ended:
            too_long = too_long or len(begun) + len(piece) > MAX_LINE_BYTES
            found.append((number, None if too_long else bytes(begun) + piece))
            number, too_long = number + 1, False
            begun.clear()
        too_long = too_long or len(begun) + len(rest) > MAX_LINE_BYTES
        begun = bytearray() if too_long else begun + rest
        if found:
            yield found
    if begun or too_long:
        yield [(number, None if too_long else bytes(begun))]
