"""Values of a file with their place, so that every error can name it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Final, final

from shardbus.app.setup.model import SetupError

DEPTH_MAX: Final = 64
_SHOWN_MAX: Final = 60

Locate = Callable[[str], str]
"""Turns a path in the file into a place for texts, such as a line."""


@final
class Unresolved:
    """A value that the reader could not evaluate; `reason` is used when the value is needed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


@final
class PlacedValue:
    """A value as the parser of the file returned it.

    `folds_case` says that the format does not distinguish the case of names.
    """

    def __init__(
        self, value: object, path: str, locate: Locate, *, folds_case: bool = False
    ) -> None:
        self.value = value
        self.path = path
        self._locate = locate
        self._folds_case = folds_case

    @property
    def place(self) -> str:
        return self._locate(self.path)

    def wrong(self, reason: str) -> SetupError:
        return SetupError(f"{self.place}: {reason}")

    def is_said(self) -> bool:
        return self.value is not None

    def with_value(self, value: object) -> PlacedValue:
        """Another value at the same place."""
        return PlacedValue(value, self.path, self._locate, folds_case=self._folds_case)

    def members(self) -> dict[str, PlacedValue]:
        """The members of a table by their names as written."""
        if not isinstance(self.value, dict):
            raise self._mistaken("a table of names and values")
        return {str(key): self._below(f".{key}", value) for key, value in self.value.items()}

    def get(self, name: str) -> PlacedValue | None:
        """The member of this name; None when there is none or it is null."""
        for key, node in self.members().items():
            is_it = key.lower() == name.lower() if self._folds_case else key == name
            if is_it and node.is_said():
                return node
        return None

    def need(self, name: str) -> PlacedValue:
        node = self.get(name)
        if node is None:
            raise self.wrong(f"{name} is missing")
        return node

    def items(self) -> list[PlacedValue]:
        """The members of a list."""
        if not isinstance(self.value, list):
            raise self._mistaken("a list")
        return [self._below(f"[{at}]", value) for at, value in enumerate(self.value)]

    def items_of(self, name: str) -> list[PlacedValue]:
        """The members of an optional list."""
        node = self.get(name)
        return [] if node is None else node.items()

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self._mistaken("a text in quotes")
        return self.value

    def name(self) -> str:
        text = self.text().strip()
        if not text:
            raise self.wrong("a name must not be empty")
        return text

    def switch(self) -> bool:
        if not isinstance(self.value, bool):
            raise self._mistaken("true or false")
        return self.value

    def number(self) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self._mistaken("a whole number")
        return self.value

    def plain(self) -> str:
        """The text of a text, number or boolean, each of which may be written as text."""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        if isinstance(self.value, int | str):
            return str(self.value)
        raise self._mistaken("a text, a number, true or false")

    def unknown(self, known: Iterable[str]) -> list[PlacedValue]:
        """The members that are not among the known names."""
        names = {name.lower() if self._folds_case else name for name in known}
        return [
            node
            for key, node in self.members().items()
            if (key.lower() if self._folds_case else key) not in names
        ]

    def refuse_unknown(self, known: Iterable[str]) -> None:
        names = sorted(set(known))
        for node in self.unknown(names):
            key = node.path.rpartition(".")[2]
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known names are {', '.join(names)}"
            raise node.wrong(f"there is no {key}; {hint}")

    def _below(self, step: str, value: object) -> PlacedValue:
        path = (self.path + step).removeprefix(".")
        return PlacedValue(value, path, self._locate, folds_case=self._folds_case)

    def _mistaken(self, expected: str) -> SetupError:
        if isinstance(self.value, Unresolved):
            return self.wrong(self.value.reason)
        return self.wrong(f"{self._shown()} is given where {expected} is expected")

    def _shown(self) -> str:
        shown = repr(self.value)
        return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"
