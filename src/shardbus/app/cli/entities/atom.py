"""The ATOM documents of management, as the command line writes and reads them."""

import json
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from shardbus.app.cli.failures import CommandError
from shardbus.core.errors import Refused
from shardbus.core.namespace import property as entity_property
from shardbus.core.namespace.property import EntityProperty, options_of
from shardbus.gateway.http.atom import markup
from shardbus.gateway.http.atom.descriptions import DESCRIPTION_OF, elements_of
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import ATOM, EXTENSION
from shardbus.gateway.http.atom.markup import Element

# For a page of a hundred entities, each with the maximum number of rules.
ELEMENTS_MAX: Final = 100_000

_COUNT_NAMES: Final = {
    "ActiveMessageCount": "active",
    "DeadLetterMessageCount": "dead_letter",
    "ScheduledMessageCount": "scheduled",
    "TransferMessageCount": "transfer",
    "TransferDeadLetterMessageCount": "transfer_dead_letter",
}


@dataclass(frozen=True, slots=True)
class EntityKind:
    """A kind of entity: its word, the name of its description, and its options.

    `elements` are in the dialect's order: a strict reader of the service refuses any other.
    """

    word: str
    description: str
    options: tuple[EntityProperty, ...]
    elements: tuple[str, ...]


def _kind(word: str) -> EntityKind:
    options = tuple(options_of(word))
    known = {each.element for each in options}
    elements = tuple(name for name in elements_of(word) if name in known)
    return EntityKind(word, DESCRIPTION_OF[word], options, elements)


QUEUE: Final = _kind(entity_property.QUEUE)
TOPIC: Final = _kind(entity_property.TOPIC)
SUBSCRIPTION: Final = _kind(entity_property.SUBSCRIPTION)


class AtomError(CommandError):
    """A document that is not a valid answer of the management API."""


@dataclass(frozen=True, slots=True)
class AtomDescription:
    """An entity as the bus describes it: element texts by name, and counts by kind.

    Messages that were set aside are damaged and not in `message_count`. `size_max_mb` is size times
    fragments (R9): the API reports the product. `fragment_count` is None when a bus does not report
    it. A subscription has its short name only and no size. `warnings` lists parts of the
    description that are probably mistakes.
    """

    name: str
    elements: dict[str, str]
    counts: dict[str, int]
    is_partitioned: bool
    fragment_count: int | None
    size_max_mb: int
    size_bytes: int
    message_count: int
    warnings: tuple[str, ...] = ()


def write_entity(
    kind: EntityKind, elements: dict[str, str], rule: ElementTree.Element | None = None
) -> bytes:
    """The entry that creates or updates an entity with these elements, in the dialect's order.

    `rule` is the initial rule of a subscription.
    """
    description = ElementTree.Element(f"{{{CONNECT}}}{kind.description}")
    for name in kind.elements:
        if name in elements:
            ElementTree.SubElement(description, f"{{{CONNECT}}}{name}").text = elements[name]
    if rule is not None:
        description.append(rule)
    return write_entry(description)


def write_entry(description: ElementTree.Element) -> bytes:
    """An entry that holds a description."""
    entry = ElementTree.Element(f"{{{ATOM}}}entry")
    content = ElementTree.SubElement(entry, f"{{{ATOM}}}content", {"type": "application/xml"})
    content.append(description)
    document: bytes = ElementTree.tostring(entry, encoding="utf-8")
    return document


def read_entity(kind: EntityKind, document: bytes) -> AtomDescription | None:
    """The entity of an entry; None when the answer describes none of its kind."""
    root = parse(document)
    is_entry = (root.namespace, root.name) == (ATOM, "entry")
    return _described(kind, root) if is_entry else None


def read_entities(kind: EntityKind, document: bytes) -> list[AtomDescription]:
    """The entities of a feed, in its order."""
    found = (_described(kind, entry) for entry in read_feed(document))
    return [entity for entity in found if entity is not None]


def read_feed(document: bytes) -> list[Element]:
    """The entries of a feed."""
    root = parse(document)
    if (root.namespace, root.name) != (ATOM, "feed"):
        raise AtomError("expected a feed")
    return [child for child in root.children if (child.namespace, child.name) == (ATOM, "entry")]


def content_of(entry: Element, name: str) -> Element | None:
    """The description of that name in an entry."""
    content = entry.child(ATOM, "content")
    return None if content is None else content.child(CONNECT, name)


def read_error(document: bytes) -> str:
    """The detail of an error document, in XML or JSON; empty when there is none."""
    if document.startswith(b"{"):
        return _read_json_error(document)
    try:
        return parse(document).text_of("", "Detail") or ""
    except AtomError:
        return ""


def _read_json_error(document: bytes) -> str:
    try:
        answer: object = json.loads(document)
    except ValueError:
        return ""
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else ""


def parse(document: bytes) -> Element:
    """The root of a document; AtomError when it is invalid or exceeds a bound."""
    try:
        return markup.parse(document, ELEMENTS_MAX)
    except Refused as refusal:
        raise AtomError(refusal.message) from refusal


def _described(kind: EntityKind, entry: Element) -> AtomDescription | None:
    description = content_of(entry, kind.description)
    if description is None:
        return None
    elements = {
        child.name: child.text.strip() for child in description.children if not child.children
    }
    return AtomDescription(
        name=entry.text_of(ATOM, "title") or "",
        elements=elements,
        counts=_counts(description) | {"set_aside": _set_aside_count(entry)},
        is_partitioned=elements.get("EnablePartitioning") == "true",
        fragment_count=_fragment_count(entry, elements),
        size_max_mb=_number(elements, "MaxSizeInMegabytes"),
        size_bytes=_number(elements, "SizeInBytes"),
        message_count=_number(elements, "MessageCount"),
        warnings=tuple(
            child.text
            for child in entry.children
            if (child.namespace, child.name) == (EXTENSION, "Warning")
        ),
    )


def _counts(description: Element) -> dict[str, int]:
    details = description.child(CONNECT, "CountDetails")
    texts = dict.fromkeys(_COUNT_NAMES, "0")
    for child in [] if details is None else details.children:
        texts[child.name] = child.text or "0"
    return {word: _number(texts, name) for name, word in _COUNT_NAMES.items()}


def _fragment_count(entry: Element, elements: dict[str, str]) -> int | None:
    text = entry.text_of(EXTENSION, "FragmentCount")
    if text is not None:
        return _number({"FragmentCount": text}, "FragmentCount")
    return None if elements.get("EnablePartitioning") == "true" else 1


def _set_aside_count(entry: Element) -> int:
    text = entry.text_of(EXTENSION, "SetAsideMessageCount") or "0"
    return _number({"SetAsideMessageCount": text}, "SetAsideMessageCount")


def _number(texts: dict[str, str], name: str) -> int:
    text = texts.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise AtomError(f"{name} is not a number: {text[:40]!r}")
    return int(text)
