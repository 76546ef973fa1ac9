"""The command `knowledge`: serve, ingest, seed, search, explain, canary, token, doctor, status, migrate, reindex, rollback, retire."""

import typer

from knowledge.cli.canary import canary
from knowledge.cli.doctor import doctor
from knowledge.cli.explain import explain
from knowledge.cli.ingest import ingest
from knowledge.cli.migrate import migrate
from knowledge.cli.reindex import reindex, retire, rollback
from knowledge.cli.search import search
from knowledge.cli.seed import seed
from knowledge.cli.serve import serve
from knowledge.cli.status import status
from knowledge.cli.token import token

app = typer.Typer(
    name="knowledge",
    help="Retrieve wide, rerank sharp, never late, never silent, never leaking.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (serve, ingest, seed, search, explain, canary, token, doctor, status, migrate, reindex, rollback, retire):
    app.command()(command)


def main() -> None:
    """Entry point of the console script."""
    app()
