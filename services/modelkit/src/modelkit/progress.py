"""Progress of fetching: a bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

Advance = Callable[[int], None]


class Progress(Protocol):
    """What fetching tells about itself."""

    def task(self, name: str, total: int | None) -> AbstractContextManager[Advance]:
        """Announce a step of `total` bytes (None: unknown); the callable takes the bytes just done."""

    def note(self, message: str) -> None:
        """Say one sentence."""


class LineProgress:
    """One line when a step starts and one when it ends, through `emit`."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit

    @contextmanager
    def task(self, name: str, total: int | None) -> Iterator[Advance]:
        """Print the begin and the end."""
        size = "" if total is None else f" ({total / 1e6:.0f} MB)"
        self._emit(f"{name}{size} ...")
        yield lambda _: None
        self._emit(f"{name}: done")

    def note(self, message: str) -> None:
        """Print the sentence."""
        self._emit(message)


class BarProgress:
    """A rich bar a step on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    @contextmanager
    def task(self, name: str, total: int | None) -> Iterator[Advance]:
        """Draw a bar; one that only pulses where the total is unknown."""
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
        shown = columns if total is not None else (columns[0], columns[1], columns[-1])
        with Bars(*shown, console=self._console) as bars:
            task = bars.add_task(name, total=total)
            yield lambda done: bars.advance(task, done)
            if total is None:
                bars.update(task, total=1, completed=1)

    def note(self, message: str) -> None:
        """Print the sentence above the bars."""
        self._console.print(message, highlight=False)


def stderr_progress() -> Progress:
    """Bars if stderr is a terminal, else lines."""
    if sys.stderr.isatty():
        return BarProgress()
    console = Console(stderr=True, soft_wrap=True)
    return LineProgress(lambda line: console.print(line, highlight=False, markup=False))
