"""A store with a history: messages of several fragments, some removed, some moved, some due."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    MAIN_LINE,
    NEVER_MS,
    Entry,
)
from shardbus.stores.base import FragmentId
from shardbus.stores.sqlite import SqliteStore
from tests.stores.harness import Pen, read_all, without_payload

FRAGMENTS = [FragmentId(7, number) for number in range(3)]
RECENT_MAX = 5
BYTES_MAX = 1 << 30

Shelf = dict[int, tuple[int, int, bytes]]
"""Line, state and payload by sequence number."""


class Filled(NamedTuple):
    """What a store was given and still has to have."""

    path: Path
    shelf: Shelf


def filled(path: Path, *, rounds: int = 12, seed: int = 1, payload_bytes: int = 900) -> Filled:
    """Write a history that depends on the seed alone, and close the store."""
    dice = random.Random(seed)
    store = SqliteStore(path, durability="relaxed", recent_max=RECENT_MAX)
    store.create(FRAGMENTS)
    pens = [Pen(fragment) for fragment in FRAGMENTS]
    shelf: Shelf = {}
    waiting: list[list[Entry]] = [[] for _ in pens]
    for _ in range(rounds):
        for pen, entries in zip(pens, waiting, strict=True):
            _append(pen, entries, shelf, dice, payload_bytes)
            pen.write(store)
            _settle(pen, entries, shelf, dice)
            pen.write(store)
    store.close()
    return Filled(path, shelf)


def _append(
    pen: Pen, waiting: list[Entry], shelf: Shelf, dice: random.Random, payload_bytes: int
) -> None:
    count = dice.choice((1, 4, 20))
    payloads = [dice.randbytes(dice.randrange(1, payload_bytes)) for _ in range(count)]
    expires_at_ms = dice.choice((NEVER_MS, 1 << 45, (1 << 45) + 50_000))
    for entry in pen.append(payloads, expires_at_ms=expires_at_ms):
        assert entry.payload is not None
        shelf[entry.sequence_number] = (MAIN_LINE, ACTIVE, entry.payload)
        waiting.append(entry)


def _settle(pen: Pen, waiting: list[Entry], shelf: Shelf, dice: random.Random) -> None:
    dice.shuffle(waiting)
    third = len(waiting) // 3
    done, moved = waiting[:third], without_payload(waiting[third : third + 3])
    del waiting[: third + 3]
    pen.remove(done)
    for entry in done:
        del shelf[entry.sequence_number]
    for entry, (line, state) in zip(
        moved,
        ((DEAD_LETTER_LINE, ACTIVE), (MAIN_LINE, DEFERRED), (MAIN_LINE, ACTIVE)),
        strict=False,
    ):
        entry.delivery_count += 1
        pen.move([entry], line=line, state=state)
        shelf[entry.sequence_number] = (line, state, shelf[entry.sequence_number][2])


def served(path: Path) -> Shelf:
    """Everything that a store gives out, in every line and state."""
    store = SqliteStore(path)
    try:
        found: Shelf = {}
        for fragment in FRAGMENTS:
            for line in (MAIN_LINE, DEAD_LETTER_LINE):
                read_all(store, fragment, line)
                page = store.browse(
                    fragment, line, start=0, count_max=1_000_000, bytes_max=BYTES_MAX
                )
                assert page.damaged == []
                for entry in page.entries:
                    assert entry.payload is not None
                    found[entry.sequence_number] = (entry.line, entry.state, entry.payload)
        return found
    finally:
        store.close()


def set_aside(path: Path) -> int:
    store = SqliteStore(path)
    try:
        return sum(store.load(fragment).counters.set_aside for fragment in FRAGMENTS)
    finally:
        store.close()
