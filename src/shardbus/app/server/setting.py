"""What a setting is: its name in every source, its kind, its default and its range."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from shardbus.app.cli.failures import Usage

Value = str | int | bool

ENVIRONMENT_PREFIX: Final = "SHARDBUS_"


class SettingError(Usage):
    """An invalid setting; the text names the setting, its source and the reason."""

    def __init__(self, name: str, source: str, reason: str) -> None:
        super().__init__(f"setting {name} ({source}): {reason}")
        self.name = name
        self.source = source
        self.reason = reason


class Kind(Enum):
    """How the text of a setting is read; the value is its name in the reference."""

    TEXT = "text"
    PATH = "path"
    PORT = "port"
    COUNT = "count"
    CHOICE = "choice"
    SWITCH = "true or false"
    TEXTS = "texts"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table; `least` and `most` bound numbers, `choices` lists the allowed words."""

    name: str
    kind: Kind
    default: Value
    help: str
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def file_key(self) -> str:
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


def port(name: str, default: int, text: str) -> Setting:
    return Setting(name, Kind.PORT, default, text, least=0, most=65_535)


def choice(name: str, choices: tuple[str, ...], default: str, text: str) -> Setting:
    return Setting(name, Kind.CHOICE, default, text, choices=choices)


def count(name: str, default: int, most: int, text: str) -> Setting:
    return Setting(name, Kind.COUNT, default, text, least=1, most=most)
