"""Public names are documented once, and the pages agree with the code."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from embedding.settings import EmbeddingSettings
from frontend.language import LANGUAGES, catalogue
from frontend.settings import GROUPS as FRONTEND_GROUPS
from knowledge import telemetry
from knowledge.cli.common import ClientSettings
from knowledge.errors import FallbackReason, RequestError
from knowledge.models import Degraded, PartialReason, SkipReason
from knowledge.settings import GROUPS
from reranker.settings import RerankSettings
from servicekit.settings import SettingsGroup

DOCS = Path("docs")
SERVICE_GROUPS: dict[str, tuple[type[SettingsGroup], ...]] = {
    "Gateway": GROUPS,
    "Reranker-service": (RerankSettings,),
    "Embedding-service": (EmbeddingSettings,),
    "Frontend": FRONTEND_GROUPS,
}
MAX_PICTURE_BYTES = 150_000
SAID_IN_WORDS = {"EMBEDDED_PATH", "MODEL_CACHE_DIR"}


def rows(text: str) -> dict[str, str]:
    """First column (without backticks) -> second column, of all tables of a text."""
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]*?) ?\|", text, flags=re.MULTILINE))


def section(name: str) -> str:
    """The part of docs/settings.md under a heading that begins with `name`."""
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {name}.*?(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)
    assert found, name
    return found.group()


def default_of(group: type[SettingsGroup], field: str) -> str:
    """A default as the page writes it."""
    default = group.model_fields[field].get_default(call_default_factory=False)
    if default is None or isinstance(default, SecretStr):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default)


@pytest.mark.parametrize("service", SERVICE_GROUPS)
def test_settings_page_lists_every_setting_with_its_default(service: str) -> None:
    """Each setting stands in its service's table, with the default of the code, and no other name does."""
    written = rows(section(service))
    known = {field.upper(): (group, field) for group in SERVICE_GROUPS[service] for field in group.model_fields}
    assert set(written) == set(known)
    for name, (group, field) in known.items():
        if name not in SAID_IN_WORDS:
            assert written[name].strip() == default_of(group, field), name


def test_settings_page_names_aliases_and_client_settings() -> None:
    """Second names and the commands' own setting are on the page too."""
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    names = [alias for group in GROUPS for alias in group.aliases] + [name.upper() for name in ClientSettings.model_fields]
    assert all(f"`{name}`" in page for name in names)


def test_errors_page_lists_every_reason() -> None:
    """The fallback table is the closed set, and the other words are all there."""
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    fallbacks = page[: page.index("## Not served")]
    assert set(rows(fallbacks)) == {reason.value for reason in FallbackReason}
    for word in (*SkipReason, *PartialReason, *Degraded):
        assert f"`{word.value}`" in page, word


def test_errors_page_lists_every_problem_with_its_status() -> None:
    """Each error class's status and code stand on the page."""
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    for error in RequestError.__subclasses__():
        assert f"| {error.status} | `{error.code}` |" in page, error


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_have_words_for_every_reason(language: str) -> None:
    """What the gateway may say of an answer has a sentence for people, in each language."""
    reasons = {f"reason.{reason.value}" for reason in (*FallbackReason, *SkipReason, *PartialReason)}
    assert reasons | {f"degraded.{item.value}" for item in Degraded} <= set(catalogue(language))


def test_telemetry_page_lists_every_name() -> None:
    """Each constant that holds a name stands on the page."""
    page = (DOCS / "telemetry.md").read_text(encoding="utf-8")
    names = {value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str) and name != "SERVICE"}
    missing = {name for name in names if f"`{name}`" not in page}
    assert not missing


def test_every_test_that_a_page_names_exists() -> None:
    """A page that says what holds a trap would be worse than none if the test were gone."""
    root = Path(__file__).parents[2]
    tests = "\n".join(path.read_text() for where in ("services", "tests") for path in (root / where).rglob("test_*.py"))
    named = {name for page in (root / "docs").rglob("*.md") for name in re.findall(r"`(test_[a-z0-9_]+)`", page.read_text())}
    assert named
    assert {name for name in named if f"def {name}(" not in tests} == set()


def test_every_picture_that_a_page_shows_exists() -> None:
    """With words for those who cannot see it; small enough to look at, and none is left over."""
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    picture = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
    shown = [(page, alt, target) for page in pages for alt, target in picture.findall(page.read_text(encoding="utf-8"))]
    pictures = {(page.parent / target).resolve() for page, _, target in shown}
    assert [target for _, alt, target in shown if not alt] == []
    assert [file for file in pictures if not file.is_file() or file.stat().st_size > MAX_PICTURE_BYTES] == []
    assert set((root / "docs" / "images").glob("*")) <= pictures
