"""`knowledge seed`."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from knowledge.cli.common import DEVELOPMENT_ROLE, DEVELOPMENT_TENANT, EXIT_CONFIGURATION, EXIT_FAILED, configuration_errors, fail
from knowledge.cli.ingest import bring_in, show
from knowledge.ingest.folder import Defaults
from knowledge.settings import SearchSettings, TimeSettings
from servicekit.settings import load_group

CORPUS = "corpus"
PREMIUM = "Why did the premium on POL-55012 go up?"


class Example(StrEnum):
    """The corpora of the repository."""

    HOUSEPLANTS = "houseplants"
    INSURANCE = "insurance"
    FACTS = "facts"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Who sees the documents that name nobody, and two searches to begin with: a question and the role that asks it."""

    roles: tuple[str, ...]
    searches: tuple[tuple[str, str], tuple[str, str]]


# The documents of insurance and facts name their roles themselves.
RECIPES = {
    Example.HOUSEPLANTS: Recipe(
        (DEVELOPMENT_ROLE,),
        (
            ("Meine unteren Blätter werden gelb, die oberen sind noch grün. Was fehlt?", DEVELOPMENT_ROLE),
            ("Wofür ist das Substrat ZS-204?", DEVELOPMENT_ROLE),
        ),
    ),
    Example.INSURANCE: Recipe((), ((PREMIUM, "adjuster"), (PREMIUM, "underwriter"))),
    Example.FACTS: Recipe((), (("going skiing tomorrow", "person-en"), ("morgen Skifahren gehen", "person-de"))),
}


def seed(
    name: Annotated[Example, typer.Argument(help="The example.")],
    examples: Annotated[Path | None, typer.Option(help="The folder with the examples; the repository's own when left out.")] = None,
) -> None:
    """Development: bring an example corpus in, with its roles, and print two searches to try. Nothing is embedded twice."""
    with configuration_errors():
        search, time = load_group(SearchSettings), load_group(TimeSettings)
    if search.knowledge_env != "development":
        message = "examples are for development mode only. Set KNOWLEDGE_ENV=development on a developer's machine, "
        fail(message + "or bring documents of your own in with `knowledge ingest`.", EXIT_CONFIGURATION)
    folder = (examples or repository_examples()) / name.value / CORPUS
    if not folder.is_dir():
        message = f"there is no example {name.value} at {folder}. Run the command from a clone of the repository, "
        fail(message + "or name its folder with --examples DIR.")
    recipe = RECIPES[name]
    defaults = Defaults(roles=recipe.roles)
    report = bring_in(folder, search, time, tenant=DEVELOPMENT_TENANT, source=name.value, defaults=defaults, prune=False)
    show(report)
    if report.rejects:
        raise typer.Exit(EXIT_FAILED)
    typer.echo("\nTry:")
    for question, role in recipe.searches:
        typer.echo(f'knowledge search "{question}" --role {role}')


def repository_examples() -> Path:
    """Where the examples are if this file lies in a clone of the repository."""
    return Path(__file__).resolve().parents[5] / "examples"
