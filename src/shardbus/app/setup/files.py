"""Set-up files: which format one has, and what it describes."""

import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shardbus.app.setup.arm.template import is_template, read_template
from shardbus.app.setup.emulator import is_emulator_file, read_emulator
from shardbus.app.setup.json_text import parse_json
from shardbus.app.setup.model import Blueprint, SetupError
from shardbus.app.setup.toml_form import ENTITY_KEYS, read_toml

FILE_BYTES_MAX: Final = 16_000_000


class FileUnreadable(SetupError):
    """A file that does not exist, or is not valid in its format."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Config:
    """A file of the server: raw settings by key, and the entities beside them."""

    settings: dict[str, object]
    blueprint: Blueprint


def read_setup(
    path: Path, parameters: Mapping[str, object], setting_keys: Collection[str]
) -> Blueprint:
    """What a file describes: TOML by its name, and JSON by its contents.

    Settings in the file are for the server and are ignored.
    """
    text = _read_text(path)
    if _is_json(path):
        return read_json(parse_json(text, str(path)), str(path), parameters)
    if parameters:
        raise SetupError(f"{path}: only ARM templates have parameters")
    return read_toml(_tables(text, path), text, str(path), setting_keys)


def read_config(path: Path) -> Config:
    """A file of settings, of entities or of both; an ARM template has the tier."""
    text = _read_text(path)
    if _is_json(path):
        blueprint = read_json(parse_json(text, str(path)), str(path), {})
        return Config({"tier": blueprint.tier} if blueprint.tier else {}, blueprint)
    tables = _tables(text, path)
    settings = {key: value for key, value in tables.items() if key not in ENTITY_KEYS}
    return Config(settings, read_toml(tables, text, str(path), settings))


def read_json(value: object, file: str, parameters: Mapping[str, object]) -> Blueprint:
    if is_template(value):
        return read_template(value, file, parameters)
    if not is_emulator_file(value):
        raise SetupError(
            f"{file}: this is neither an emulator's Config.json (UserConfig is missing) nor "
            "an ARM template ($schema and resources are missing)"
        )
    if parameters:
        raise SetupError(f"{file}: only ARM templates have parameters")
    return read_emulator(value, file)


def read_parameters(files: list[Path], texts: list[str]) -> dict[str, object]:
    """Values of parameters from files and from `name=value` texts; later ones take precedence."""
    values: dict[str, object] = {}
    for path in files:
        values.update(_parameters_of(parse_json(_read_text(path), str(path)), str(path)))
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise SetupError(f"--parameter {text!r}: write NAME=VALUE")
        values[name] = _value_of(value)
    return values


def _parameters_of(document: object, file: str) -> dict[str, object]:
    table = document.get("parameters", document) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise SetupError(f"{file}: the object `parameters` is missing")
    values: dict[str, object] = {}
    for name, member in table.items():
        if str(name).startswith("$") or name == "contentVersion":
            continue
        if not isinstance(member, dict) or "value" not in member:
            raise SetupError(f"{file}: parameters.{name}: `value` is missing")
        values[str(name)] = member["value"]
    return values


def _value_of(text: str) -> object:
    """Numbers, true, false, lists and objects as JSON; anything else is the text itself."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return text if value is None else value


def _is_json(path: Path) -> bool:
    return path.suffix.lower() in (".json", ".jsonc")


def _tables(text: str, path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileUnreadable(path, f"is not TOML: {error}") from error


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        # Some editors begin a file with a byte order mark.
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise FileUnreadable(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileUnreadable(path, f"is not UTF-8: {error}") from error
    if len(content) > FILE_BYTES_MAX:
        raise FileUnreadable(path, f"is longer than {FILE_BYTES_MAX} bytes")
    return text
