"""The mark of a message that was sent again, by which an undo finds the message and its reason.

It is an annotation, so that neither the body nor the properties of the sender change.
"""

from __future__ import annotations

import json
from typing import Final

from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import NULL, encode_symbol, encode_text
from shardbus.codec.errors import DecodeError
from shardbus.core.message import Entry
from shardbus.message.revision import Revision, revise
from shardbus.message.scan import enter_map, section_code
from shardbus.message.sections import scan_message

ANNOTATION: Final = "x-opt-shardbus-redriven"

Grounds = tuple[str, str]
"""The reason and the description of a dead letter."""


def marked(payload: bytes, mark: str, entry: Entry) -> bytes:
    """The message with a mark, and the reason and description that it has as a dead letter."""
    told = json.dumps([mark, entry.reason or "", entry.description or ""])
    made = Revision()
    made.annotations[ANNOTATION] = encode_text(told)
    return revise(payload, scan_message(payload), made)


def unmarked(payload: bytes) -> bytes:
    """The message without the mark of an earlier job."""
    if ANNOTATION.encode() not in payload:
        return payload
    made = Revision()
    made.annotations[ANNOTATION] = NULL
    return revise(payload, scan_message(payload), made)


def grounds_of(payload: bytes, mark: str) -> Grounds | None:
    """Why the message was a dead letter; None if it does not have this mark."""
    if ANNOTATION.encode() not in payload:
        return None
    try:
        found = _annotation(payload)
        known, reason, description = json.loads(found) if found else ("", "", "")
    except (DecodeError, ValueError, TypeError):
        # The annotation may come from a sender and contain anything.
        return None
    return (str(reason), str(description)) if known == mark else None


def _annotation(payload: bytes) -> str:
    head = scan_message(payload)
    start = head.message_annotations_offset
    reader = ValueReader(payload, start, start + head.message_annotations_length)
    key = encode_symbol(ANNOTATION)
    section_code(reader)
    for _ in range(enter_map(reader) >> 1):
        if reader.raw() == key:
            value = reader.value()
            return value if isinstance(value, str) else ""
        reader.skip()
    return ""
