"""XML in and out: parsed without entities and within bounds, written with everything escaped.

Why expat and not ElementTree or a library: docs/adr/0006-xml.md.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final, final
from xml.parsers import expat

from shardbus.core.errors import INVALID_ARGUMENT, Refused

DEPTH_MAX: Final = 32
ELEMENTS_MAX: Final = 5000
ATTRIBUTES_MAX: Final = 50
NAME_CHARACTERS_MAX: Final = 256
NAMESPACE_CHARACTERS_MAX: Final = 256

_SEPARATOR: Final = "\n"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
# The first bytes of a document tell which of them it is in: some writers declare the other one.
_ENCODINGS: Final = ("utf-8", "utf-16")
# What XML 1.0 cannot contain even when escaped.
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@final
class Element:
    """One element of a parsed document; `attributes` are keyed by (namespace, name)."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.attributes: dict[tuple[str, str], str] = {}
        self.children: list[Element] = []
        self.text = ""

    def child(self, namespace: str, name: str) -> Element | None:
        """The first child of that name."""
        for child in self.children:
            if child.name == name and child.namespace == namespace:
                return child
        return None

    def text_of(self, namespace: str, name: str) -> str | None:
        """The text of the first child of that name; None when there is none."""
        found = self.child(namespace, name)
        return None if found is None else found.text

    def is_nil(self) -> bool:
        """Whether the element says that it has no value, which differs from an empty one."""
        return self.attributes.get((INSTANCE, "nil"), "").strip() in ("true", "1")


def parse(document: bytes, elements_max: int = ELEMENTS_MAX) -> Element:
    """The root of a document; Refused when it is not well formed or exceeds a bound.

    It is read as UTF-8, or as UTF-16 where its first bytes show that. A document that declares
    another encoding is refused unless it is plain ASCII, which is the same in all: read as UTF-8 it
    could mean something else.

    A document type is refused: without one there are no entities to expand, no files or hosts to
    read, and no attribute defaults. Only namespaces still expand, because every name in one repeats
    it: 5,000 short elements in a namespace of a megabyte would take 5 GB.
    """
    reader = _Reader(elements_max, is_ascii=document.isascii())
    parser = expat.ParserCreate("utf-8", _SEPARATOR)
    parser.buffer_text = True
    parser.XmlDeclHandler = reader.declaration
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartNamespaceDeclHandler = reader.declare
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = reader.document_type
    parser.EntityDeclHandler = reader.document_type
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise _refused(f"it is not well formed: {error}") from error
    assert reader.root is not None
    return reader.root


def tag(name: str, text: str) -> str:
    """An element that holds text."""
    return f"<{name}>{escaped(text)}</{name}>"


def optional(name: str, text: str) -> str:
    """An element that holds text; nothing when there is none."""
    return tag(name, text) if text else ""


def escaped(text: str) -> str:
    """Escape text for between tags or double quotes; characters that XML cannot represent become
    U+FFFD.

    A carriage return is written as it is, and readers turn it into a line feed: as a character
    reference, the JavaScript SDK would take it for five letters, and send those back.
    """
    return escape(_FORBIDDEN.sub("\ufffd", text), quote=False).replace('"', "&quot;")


@final
class _Reader:
    def __init__(self, elements_max: int, *, is_ascii: bool) -> None:
        self._elements_max = elements_max
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0
        self._is_ascii = is_ascii

    def declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is None or self._is_ascii or encoding.lower() in _ENCODINGS:
            return
        raise _refused(f"it is declared to be in '{encoding[:40]}'; UTF-8 and UTF-16 are read")

    def declare(self, prefix: str | None, namespace: str | None) -> None:
        if namespace is not None and len(namespace) > NAMESPACE_CHARACTERS_MAX:
            raise _refused(f"a namespace has more than {NAMESPACE_CHARACTERS_MAX} characters")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > self._elements_max:
            raise _refused(f"it has more than {self._elements_max} elements")
        if len(self._open) >= DEPTH_MAX:
            raise _refused(f"its elements are more than {DEPTH_MAX} deep")
        if len(attributes) > ATTRIBUTES_MAX:
            raise _refused(f"an element has more than {ATTRIBUTES_MAX} attributes")
        element = Element(*_split(name))
        if len(element.name) > NAME_CHARACTERS_MAX:
            raise _refused(f"a name has more than {NAME_CHARACTERS_MAX} characters")
        for key, value in attributes.items():
            element.attributes[_split(key)] = value
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, name: str) -> None:
        self._open.pop()

    def characters(self, text: str) -> None:
        # Only leaves have text in this dialect: white space between elements is not collected.
        element = self._open[-1]
        if not element.children:
            element.text += text

    def document_type(self, *_: object) -> None:
        raise _refused("a document type is not allowed")


def _split(name: str) -> tuple[str, str]:
    namespace, separator, local = name.rpartition(_SEPARATOR)
    return (namespace, local) if separator else ("", name)


def _refused(reason: str) -> Refused:
    return Refused(INVALID_ARGUMENT, f"The XML document is refused: {reason}.")
