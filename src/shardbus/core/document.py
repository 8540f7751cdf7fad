"""Typed reading of decoded JSON: an error names the damaged field."""

from __future__ import annotations

from typing import final


@final
class Fields:
    """The fields of a JSON object. A missing or mistyped field raises a ValueError that names
    it.
    """

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"the {what} is not an object")
        self._values: dict[str, object] = value
        self._what = what

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            raise ValueError(f"field '{name}' of the {self._what} is not text")
        return value

    def text_or(self, name: str, otherwise: str) -> str:
        """The text of a field that older documents lack; `otherwise` where it is missing."""
        return self.text(name) if self.has(name) else otherwise

    def integer(self, name: str) -> int:
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"field '{name}' of the {self._what} is not an integer")
        return value

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise ValueError(f"field '{name}' of the {self._what} is not true or false")
        return value

    def values(self, name: str) -> list[object]:
        value = self.value(name)
        if not isinstance(value, list):
            raise ValueError(f"field '{name}' of the {self._what} is not a list")
        return value

    def integers(self, name: str) -> list[int]:
        numbers: list[int] = []
        for value in self.values(name):
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"field '{name}' of the {self._what} holds more than integers")
            numbers.append(value)
        return numbers

    def value(self, name: str) -> object:
        if name not in self._values:
            raise ValueError(f"the {self._what} has no field '{name}'")
        return self._values[name]
