"""The record of an entity in a catalogue: a JSON document with a checksum."""

from __future__ import annotations

import zlib

from shardbus.core.namespace.entity import Entity, entity_from_json


def sound_entity(row: tuple[int, str, int]) -> Entity | None:
    """The entity of a record (id, document, checksum), None if the record is damaged."""
    entity_id, document, checksum = row
    if checksum_of(entity_id, document) != checksum:
        return None
    try:
        return entity_from_json(document)
    except ValueError:
        return None


def checksum_of(entity_id: int, document: str) -> int:
    return zlib.crc32(document.encode("utf-8", "surrogatepass"), entity_id & 0xFFFFFFFF)
