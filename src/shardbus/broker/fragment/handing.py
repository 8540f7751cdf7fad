"""Locks and held sessions of all fragments of a slot, from one broker to the next."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from shardbus.core.fragment.handover import HandOver, unpacked
from shardbus.core.packing import Unpacker, packed_count, packed_integer
from shardbus.stores.base.store import FragmentId

if TYPE_CHECKING:
    from shardbus.broker.fragment.reading import Loaded
    from shardbus.core.fragment.fragment import Fragment

log = logging.getLogger(__name__)

FORMAT: Final = 1


def take_over(fragment: Fragment, handed: HandOver | None, loaded: Loaded, steady_ms: int) -> None:
    """Go on with what was handed over, if anything was, in a fragment that was just loaded."""
    if handed is None:
        return
    try:
        fragment.take_over(handed, loaded.handed, steady_ms)
    except ValueError as error:
        log.error("what was handed over is left out, so locks are lost: %s", error)


def packed(handed: dict[FragmentId, HandOver]) -> bytes:
    parts = [bytes([FORMAT]), packed_count(len(handed))]
    for fragment_id, one in handed.items():
        data = one.packed()
        parts += [
            packed_integer(fragment_id.entity_id),
            packed_integer(fragment_id.number),
            packed_count(len(data)),
            data,
        ]
    return b"".join(parts)


def read_handed(data: bytes) -> dict[FragmentId, HandOver]:
    """What `packed` made; what another version of it made is left out, so that locks are lost."""
    handed: dict[FragmentId, HandOver] = {}
    try:
        unpacker = Unpacker(data)
        if unpacker.byte() != FORMAT:
            raise ValueError("its format is of another version")
        for _ in range(unpacker.count()):
            fragment_id = FragmentId(unpacker.integer(), unpacker.integer())
            handed[fragment_id] = unpacked(unpacker.piece(unpacker.count()))
        unpacker.end()
    except ValueError as error:
        log.error("what was handed over cannot be read, so locks are lost: %s", error)
    return handed
