"""What the commands share: consoles, and failures as one sentence and an exit status."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from pydantic import SecretStr
from rich.console import Console

from servicekit.settings import ConfigurationError, SettingsGroup

EXIT_FAILED = 1
EXIT_CONFIGURATION = 2
PIPE_WIDTH = 140

DEVELOPMENT_TENANT = "default"
DEVELOPMENT_SUBJECT = "developer"
DEVELOPMENT_ROLE = "reader"


class ClientSettings(SettingsGroup):
    """Where commands find the gateway, and the token that they bring; without one they mint it, in development."""

    gateway_url: str = "http://127.0.0.1:8000"
    gateway_token: SecretStr = SecretStr("")


def console(*, stderr: bool = False) -> Console:
    """A console; wide enough for tables when the output goes to a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else PIPE_WIDTH)


def fail(message: str, status: int = EXIT_FAILED) -> NoReturn:
    """End the command with one sentence on stderr."""
    typer.echo(f"knowledge: {message}", err=True)
    raise typer.Exit(status)


@contextmanager
def configuration_errors() -> Iterator[None]:
    """Turn wrong settings into their sentence."""
    try:
        yield
    except ConfigurationError as error:
        fail(str(error), EXIT_CONFIGURATION)
