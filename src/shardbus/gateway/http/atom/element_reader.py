"""The elements of a description, each read with its type."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.http.atom.markup import Element
from shardbus.gateway.http.moment import parse_duration

CONNECT: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"

_INTEGER_DIGITS_MAX: Final = 18


@final
class ElementReader:
    """The description in an entry, read element by element; an absent or nil element is not set."""

    def __init__(self, elements: dict[str, Element]) -> None:
        self._elements = elements

    def has(self, name: str) -> bool:
        return name in self._elements

    def element(self, name: str) -> Element | None:
        return self._elements.get(name)

    def text(self, name: str, otherwise: str) -> str:
        element = self._elements.get(name)
        return otherwise if element is None else element.text

    def duration_ms(self, name: str, otherwise: int) -> int:
        element = self._elements.get(name)
        return otherwise if element is None else parse_duration(name, element.text.strip())

    def boolean(self, name: str, otherwise: bool) -> bool:
        element = self._elements.get(name)
        if element is None:
            return otherwise
        text = element.text.strip().lower()
        if text in ("true", "1"):
            return True
        if text in ("false", "0"):
            return False
        raise _invalid(f"{name} is '{text[:60]}'; it must be true or false.")

    def integer(self, name: str, otherwise: int) -> int:
        element = self._elements.get(name)
        if element is None:
            return otherwise
        text = element.text.strip()
        digits = text.removeprefix("+")
        if digits.isascii() and digits.isdigit() and len(digits) <= _INTEGER_DIGITS_MAX:
            return int(digits)
        raise _invalid(f"{name} is '{text[:60]}'; it must be a whole number.")


def described_by(element: Element) -> ElementReader:
    """The children of an element by name; each may occur once."""
    elements: dict[str, Element] = {}
    for child in element.children:
        if child.namespace != CONNECT or child.is_nil():
            continue
        if child.name in elements:
            raise _invalid(f"The description has the element '{child.name}' twice.")
        elements[child.name] = child
    return ElementReader(elements)


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
