"""Settings: process environment, then `.env`, then one YAML file; parsed once into frozen groups.

Besides telemetry's one default, this is the only module that looks at the environment.
"""

import difflib
import os
import string
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from dotenv import dotenv_values
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

DOTENV = Path(".env")
CONFIG_FILE = "CONFIG_FILE"
PROCESS_ONLY = frozenset({"HOST", "PORT"})

Group = TypeVar("Group", bound="SettingsGroup")


class ConfigurationError(Exception):
    """Stops the start. The message names the setting and two ways out."""


class SettingsGroup(BaseSettings):
    """Base of a frozen group of settings; a field's upper-case name is the setting's name."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_file=None, populate_by_name=True)

    aliases: ClassVar[Mapping[str, str]] = {}
    """Second names of settings, `{ALIAS: NAME}`; both set and unequal stops the start."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keyword arguments (tests, commands) win over everything that `_Layers` merges."""
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, _Layers(settings_cls)

    @classmethod
    def names(cls) -> set[str]:
        """The settings' names, aliases and `..._FILE` variants of secrets included."""
        names = {name.upper() for name in cls.model_fields}
        secrets = {f"{name.upper()}_FILE" for name, field in cls.model_fields.items() if _is_secret(field)}
        return names | secrets | set(cls.aliases)


class _Layers(PydanticBaseSettingsSource):
    """Environment over `.env` over YAML, with aliases and secret files resolved."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        del field
        return None, field_name, False  # everything is done in __call__

    def __call__(self) -> dict[str, Any]:
        cls = self.settings_cls
        assert issubclass(cls, SettingsGroup)  # noqa: S101 - narrows the type
        raw = {name: value for name, value in read_sources().items() if value not in (None, "")}
        for alias, name in cls.aliases.items():
            if alias in raw and name in raw and str(raw[alias]) != str(raw[name]):
                message = f"{alias} is another name of {name}, and they are set to different values. "
                raise ConfigurationError(message + f"Remove {alias}, or give both the same value.")
            if alias in raw:
                raw.setdefault(name, raw[alias])
        values: dict[str, Any] = {}
        for field_name, field in cls.model_fields.items():
            name = field_name.upper()
            value = _secret_from_file(name, raw) if _is_secret(field) else raw.get(name)
            if value is not None:
                values[field_name] = value
        return values


def _is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation)


def _secret_from_file(name: str, raw: Mapping[str, Any]) -> Any:
    path = raw.get(f"{name}_FILE")
    if not path:
        return raw.get(name)
    if raw.get(name):
        raise ConfigurationError(f"{name} and {name}_FILE are both set. Remove one of them, or unset both to go without.")
    try:
        return SecretStr(Path(str(path)).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        message = f"{name}_FILE names a file that cannot be read ({type(error).__name__}). "
        raise ConfigurationError(message + f"Correct the path, or set {name} itself.") from error


def read_sources() -> dict[str, Any]:
    """All settings in force by upper-case name: environment over `.env` over the YAML file."""
    environ = {name.upper(): value for name, value in os.environ.items()}
    dotenv = {name.upper(): value for name, value in dotenv_values(DOTENV).items() if name.upper() not in PROCESS_ONLY}
    path = environ.get(CONFIG_FILE) or dotenv.get(CONFIG_FILE)
    file = _read_yaml(Path(path), environ) if path else {}
    return {**file, **dotenv, **environ}


def _read_yaml(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    way_out = f"Correct the file, or unset {CONFIG_FILE} to go without it."
    try:
        text = string.Template(path.read_text(encoding="utf-8")).substitute(environ)
        loaded = yaml.safe_load(text) or {}
    except OSError as error:
        raise ConfigurationError(f"{CONFIG_FILE} cannot be read ({error.strerror}). {way_out}") from error
    except KeyError as error:
        message = f"{CONFIG_FILE} uses the variable {error}, which is not set. "
        raise ConfigurationError(message + "Set it, or write the value into the file.") from error
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{CONFIG_FILE} does not parse ({type(error).__name__}). {way_out}") from error
    if not isinstance(loaded, dict):
        raise ConfigurationError(f"{CONFIG_FILE} must hold one mapping of settings. {way_out}")
    return {str(name).upper(): value for name, value in loaded.items() if str(name).upper() not in PROCESS_ONLY}


def load_group(group: type[Group], **overrides: Any) -> Group:
    """Parse one group.

    Raises:
        ConfigurationError: a value is missing or invalid; the message names the setting and two ways out.
    """
    try:
        return group(**overrides)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"]).upper()
        message = str(first["msg"]).removeprefix("Value error, ")
        if name and name not in message:
            message = f"{name}: {message}. Correct {name}, or unset it to use its default."
        raise ConfigurationError(message) from None


def suggest_unknown(groups: Iterable[type[SettingsGroup]], prefixes: Iterable[str], siblings: Collection[str] = ()) -> list[str]:
    """One warning for each set name that begins like a setting but is none, with the nearest right name.

    Names of `siblings`, the settings of other services in the same environment, are passed over.
    """
    known = set().union(*(group.names() for group in groups))
    warnings = []
    for name in sorted(read_sources()):
        if name in known or name in siblings or not name.startswith(tuple(prefixes)):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        warnings.append(f"unknown setting {name}{hint}")
    return warnings


def process_address(default_port: int) -> tuple[str, int]:
    """`HOST` and `PORT`, from the process environment only: a `.env` shared by several services must not decide them."""
    host, port = os.environ.get("HOST") or "127.0.0.1", os.environ.get("PORT") or str(default_port)
    if not port.isdigit() or int(port) > 65535:
        raise ConfigurationError("PORT must be a number from 0 to 65535. Correct it, or unset it to use the default.")
    return host, int(port)
