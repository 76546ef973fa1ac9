"""Settings: environment over `.env` over YAML, secrets from files, aliases, unknown names, and who may look at the environment."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field, SecretStr

from servicekit.settings import ConfigurationError, SettingsGroup, load_group, process_address, read_sources, suggest_unknown

REPOSITORY = Path(__file__).resolve().parents[3]
MAY_LOOK = {"servicekit/settings.py", "servicekit/telemetry.py"}


class Kitchen(SettingsGroup):
    """A group for these tests."""

    aliases: ClassVar[Mapping[str, str]] = {"KITCHEN_HEAT": "KITCHEN_TEMPERATURE"}

    kitchen_temperature: int = Field(180, ge=0, le=300)
    kitchen_name: str = "home"
    kitchen_key: SecretStr = SecretStr("")


@pytest.fixture
def dotenv(tmp_path: Path) -> Path:
    """The `.env` that is read."""
    return tmp_path / ".env"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The YAML file that CONFIG_FILE names."""
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("CONFIG_FILE", str(path))
    return path


def stops(**overrides: object) -> str:
    """The message that stops the start."""
    with pytest.raises(ConfigurationError) as caught:
        load_group(Kitchen, **overrides)
    return str(caught.value)


def test_environment_over_dotenv_over_yaml_over_default(monkeypatch: pytest.MonkeyPatch, dotenv: Path, config: Path) -> None:
    """Each layer wins over those below it, and keyword arguments over all."""
    config.write_text("kitchen_temperature: 100\nkitchen_name: yaml\n")
    assert load_group(Kitchen).kitchen_temperature == 100
    dotenv.write_text("KITCHEN_TEMPERATURE=110\n")
    assert load_group(Kitchen).kitchen_temperature == 110
    monkeypatch.setenv("KITCHEN_TEMPERATURE", "120")
    found = load_group(Kitchen)
    assert (found.kitchen_temperature, found.kitchen_name) == (120, "yaml")
    assert load_group(Kitchen, kitchen_temperature=1).kitchen_temperature == 1


def test_names_are_case_insensitive(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    """Upper and lower case mean the same setting in all sources."""
    config.write_text("KITCHEN_TEMPERATURE: 100\nkitchen_NAME: yaml\n")
    monkeypatch.setenv("kitchen_temperature", "110")
    found = load_group(Kitchen)
    assert (found.kitchen_temperature, found.kitchen_name) == (110, "yaml")


def test_yaml_takes_variables_from_the_environment(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    """`${VAR}` is replaced; `$$` is a dollar; a missing variable stops the start and is named."""
    monkeypatch.setenv("WHO", "ada")
    config.write_text("kitchen_name: ${WHO}'s $$5\n")
    assert load_group(Kitchen).kitchen_name == "ada's $5"
    config.write_text("kitchen_name: ${NOBODY_SET_THIS}\n")
    assert "NOBODY_SET_THIS" in stops()


@pytest.mark.parametrize("content", ["a: [", "- a list", "text", "a: $", "!!python/object/apply:os.system [echo]", "\t"])
def test_yaml_that_is_no_mapping_stops_the_start(config: Path, content: str) -> None:
    """One sentence that names CONFIG_FILE and a way out."""
    config.write_text(content)
    message = stops()
    assert "CONFIG_FILE" in message
    assert "unset" in message


def test_a_yaml_file_that_is_not_there_stops_the_start(config: Path) -> None:
    """A named file that is missing is a mistake, not a default."""
    assert "CONFIG_FILE" in stops()


def test_an_empty_yaml_file_holds_nothing(config: Path) -> None:
    """Comments only are no mistake."""
    config.write_text("# nothing yet\n")
    assert load_group(Kitchen) == Kitchen()


def test_dotenv_can_name_the_yaml_file(dotenv: Path, tmp_path: Path) -> None:
    """CONFIG_FILE may stand in `.env`."""
    (tmp_path / "other.yaml").write_text("kitchen_name: other\n")
    dotenv.write_text(f"CONFIG_FILE={tmp_path / 'other.yaml'}\n")
    assert load_group(Kitchen).kitchen_name == "other"


def test_host_and_port_come_from_the_process_environment_alone(monkeypatch: pytest.MonkeyPatch, dotenv: Path, config: Path) -> None:
    """A `.env` or a YAML file that several services share never decides them."""
    dotenv.write_text("PORT=1111\nHOST=0.0.0.0\nport=1112\n")
    config.write_text("PORT: 2222\nhost: 0.0.0.0\n")
    assert process_address(8000) == ("127.0.0.1", 8000)
    assert {"HOST", "PORT"}.isdisjoint(read_sources())
    monkeypatch.setenv("PORT", "3333")
    monkeypatch.setenv("HOST", "::1")
    assert process_address(8000) == ("::1", 3333)


@pytest.mark.parametrize("port", ["x", "-1", "65536", "80.5", "", " 80"])
def test_a_port_that_is_none_stops_the_start(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    """With both ways out. An empty one is unset, as everywhere."""
    monkeypatch.setenv("PORT", port)
    if port == "":
        assert process_address(8000)[1] == 8000
        return
    with pytest.raises(ConfigurationError, match="PORT"):
        process_address(8000)


def test_port_zero_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system chooses one."""
    monkeypatch.setenv("PORT", "0")
    assert process_address(8000)[1] == 0


def test_secrets_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Trimmed; both at once, and a file that cannot be read, stop the start; the secret is in no message."""
    (tmp_path / "key").write_text("  geheim\n")
    monkeypatch.setenv("KITCHEN_KEY_FILE", str(tmp_path / "key"))
    assert load_group(Kitchen).kitchen_key.get_secret_value() == "geheim"
    monkeypatch.setenv("KITCHEN_KEY", "anders")
    message = stops()
    assert "KITCHEN_KEY_FILE" in message
    assert "geheim" not in message
    assert "anders" not in message
    monkeypatch.delenv("KITCHEN_KEY")
    monkeypatch.setenv("KITCHEN_KEY_FILE", str(tmp_path / "missing"))
    assert "KITCHEN_KEY_FILE" in stops()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("KITCHEN_KEY_FILE", str(tmp_path / "binary"))
    assert "KITCHEN_KEY_FILE" in stops()


def test_only_secrets_come_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`KITCHEN_NAME_FILE` is no setting."""
    (tmp_path / "name").write_text("x")
    monkeypatch.setenv("KITCHEN_NAME_FILE", str(tmp_path / "name"))
    assert load_group(Kitchen).kitchen_name == "home"
    assert "KITCHEN_NAME_FILE" not in Kitchen.names()
    assert {"KITCHEN_KEY_FILE", "KITCHEN_HEAT"} <= Kitchen.names()


def test_a_wrong_value_is_one_sentence_without_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, limit, two ways out."""
    monkeypatch.setenv("KITCHEN_TEMPERATURE", "301")
    message = stops()
    assert message.startswith("KITCHEN_TEMPERATURE: ")
    assert "300" in message
    assert "unset" in message
    assert "301" not in message


def test_a_wrong_secret_is_not_repeated(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    """Not even where a secret is of the wrong kind."""
    config.write_text("kitchen_key: {geheim: 1}\n")
    assert "geheim" not in stops()


def test_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name for the same setting; unequal values stop the start and name both."""
    monkeypatch.setenv("KITCHEN_HEAT", "90")
    assert load_group(Kitchen).kitchen_temperature == 90
    monkeypatch.setenv("KITCHEN_TEMPERATURE", "91")
    message = stops()
    assert "KITCHEN_HEAT" in message
    assert "KITCHEN_TEMPERATURE" in message


def test_unknown_names_get_a_suggestion(monkeypatch: pytest.MonkeyPatch, dotenv: Path) -> None:
    """From every source, in order, with the nearest right name where one is near; names without the prefix are none of ours."""
    monkeypatch.setenv("KITCHEN_TEMPERATUR", "1")
    monkeypatch.setenv("OTHER_THING", "1")
    dotenv.write_text("KITCHEN_QQQQQQQQQQQQQQQQQQ=1\n")
    assert suggest_unknown([Kitchen], ["KITCHEN_"]) == [
        "unknown setting KITCHEN_QQQQQQQQQQQQQQQQQQ",
        "unknown setting KITCHEN_TEMPERATUR; did you mean KITCHEN_TEMPERATURE?",
    ]


def test_a_loaded_group_is_frozen() -> None:
    """Nothing changes a setting after the start."""
    with pytest.raises(ValueError, match="frozen"):
        load_group(Kitchen).kitchen_name = "other"


def looks_at_the_environment(source: str) -> list[int]:
    """The lines of a module that touch the process environment."""
    names = {"environ", "environb", "getenv", "getenvb"}
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr in names and isinstance(node.value, ast.Name) and node.value.id == "os")
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any(alias.name in names for alias in node.names))
    ]


def test_the_environment_is_looked_at_in_two_modules_only() -> None:
    """`os.environ` and its kin stand in servicekit/settings.py and servicekit/telemetry.py, in no other module of any service."""
    modules = sorted(REPOSITORY.glob("services/*/src/**/*.py"))
    assert len(modules) > 50
    found = {path.relative_to(path.parents[len(path.parts) - 1 - path.parts.index("src") - 1]).as_posix(): path for path in modules}
    offenders = {name: looks_at_the_environment(path.read_text()) for name, path in found.items()}
    assert {name for name, lines in offenders.items() if lines} == MAY_LOOK


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import os\nos.environ['X']", [2]),
        ("import os\nos.getenv('X')", [2]),
        ("from os import environ", [1]),
        ("import os\nos.path.join('a')", []),
    ],
)
def test_the_check_above_sees_what_it_should(source: str, lines: list[int]) -> None:
    """It finds each way to look, and nothing else."""
    assert looks_at_the_environment(source) == lines
