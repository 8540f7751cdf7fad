"""A store with a history: messages of several fragments, some removed, some moved, some due.

The last fragment requires sessions, has states of some, and remembers message ids.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    Entry,
)
from shardbus.stores.base.store import FragmentId, MessageStore
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen, numbers, read_all, without_payload

FRAGMENTS = [FragmentId(7, number) for number in range(4)]
RECENT_MAX = 5
BYTES_MAX = 1 << 30

SESSIONFUL = FRAGMENTS[3]
SESSIONS = ("red", "green", "", "\udc80")
DELAY_UNTIL_MS = 1 << 44

Shelf = dict[int, tuple[int, int, bytes]]
"""Line, state and payload by sequence number."""
States = dict[str, bytes]
"""States of sessions by their names."""


class Filled(NamedTuple):
    """What a store was given and still has to have."""

    path: Path
    shelf: Shelf
    states: States
    ids: list[tuple[int, bytes]]


def filled(path: Path, *, rounds: int = 12, seed: int = 1, payload_bytes: int = 900) -> Filled:
    """Write a history that depends on the seed alone, and close the store."""
    store = SqliteStore(path, durability="relaxed", recent_max=RECENT_MAX)
    found = fill(store, path, rounds=rounds, seed=seed, payload_bytes=payload_bytes)
    store.close()
    return found


def fill(
    store: MessageStore, path: Path, *, rounds: int = 12, seed: int = 1, payload_bytes: int = 900
) -> Filled:
    """The same for a store that is open, and stays so."""
    dice = random.Random(seed)
    store.create(FRAGMENTS)
    pens = [Pen(fragment) for fragment in FRAGMENTS]
    shelf: Shelf = {}
    states: States = {}
    ids: list[tuple[int, bytes]] = []
    waiting: list[list[Entry]] = [[] for _ in pens]
    for at in range(rounds):
        for pen, entries in zip(pens, waiting, strict=True):
            _append(pen, entries, shelf, dice, payload_bytes)
            pen.write(store)
            _settle(pen, entries, shelf, dice)
            pen.write(store)
        name = SESSIONS[at % len(SESSIONS)]
        states[name] = dice.randbytes(dice.randrange(payload_bytes))
        ids.append((1_000 + at, dice.randbytes(32)))
        pens[3].set_state(name, states[name])
        pens[3].remember(ids[-1][1], ids[-1][0])
        pens[3].write(store)
    return Filled(path, shelf, states, ids)


def _append(
    pen: Pen, waiting: list[Entry], shelf: Shelf, dice: random.Random, payload_bytes: int
) -> None:
    count = dice.choice((2, 6, 30))
    payloads = [dice.randbytes(dice.randrange(1, payload_bytes)) for _ in range(count)]
    expires_at_ms = dice.choice((NEVER_MS, 1 << 45, (1 << 45) + 50_000))
    for payload in payloads if pen.fragment == SESSIONFUL else ():
        name = dice.choice(SESSIONS)
        waiting += pen.append([payload], expires_at_ms=expires_at_ms, session_id=name)
    if pen.fragment != SESSIONFUL:
        waiting += pen.append(payloads, expires_at_ms=expires_at_ms)
    for entry in waiting[-count:]:
        assert entry.payload is not None
        shelf[entry.sequence_number] = (MAIN_LINE, ACTIVE, entry.payload)
    later = pen.append([b"later"], scheduled_at_ms=1 << 44)[0]
    shelf[later.sequence_number] = (MAIN_LINE, SCHEDULED, b"later")


def _settle(pen: Pen, waiting: list[Entry], shelf: Shelf, dice: random.Random) -> None:
    dice.shuffle(waiting)
    third = len(waiting) // 3
    done, moved = waiting[:third], without_payload(waiting[third : third + 4])
    del waiting[: third + 4]
    pen.remove(done)
    for entry in done:
        del shelf[entry.sequence_number]
    for entry, (line, state) in zip(
        moved,
        (
            (DEAD_LETTER_LINE, ACTIVE),
            (MAIN_LINE, DEFERRED),
            (MAIN_LINE, ACTIVE),
            (MAIN_LINE, DELAYED),
        ),
        strict=False,
    ):
        entry.delivery_count += 1
        entry.delayed_until_ms = DELAY_UNTIL_MS if state == DELAYED else NEVER_MS
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
        assert_sessions_agree(store)
        return found
    finally:
        store.close()


def assert_sessions_agree(store: SqliteStore) -> None:
    """Whatever the main line has of sessions is found by session, and nothing else."""
    page = store.browse(SESSIONFUL, MAIN_LINE, start=0, count_max=1_000_000, bytes_max=BYTES_MAX)
    expected: dict[str, list[Entry]] = {}
    for entry in page.entries:
        if entry.session_id is not None:
            expected.setdefault(entry.session_id, []).append(entry)
    ranks = {
        name: min(active)
        for name, entries in expected.items()
        if (active := [e.sequence_number for e in entries if e.state == ACTIVE])
    }
    waiting = store.read_sessions(SESSIONFUL, after=0, count_max=1_000)
    assert {name: rank for rank, name in waiting.sessions} == ranks
    for name, entries in expected.items():
        found = store.browse(
            SESSIONFUL,
            MAIN_LINE,
            start=0,
            count_max=1_000_000,
            bytes_max=BYTES_MAX,
            session_id=name,
        )
        assert numbers(found.entries) == numbers(entries)


def states(path: Path) -> States:
    """The states of all sessions."""
    store = SqliteStore(path)
    try:
        names = store.list_sessions(SESSIONFUL, updated_after_ms=0, skip=0, count_max=1_000)
        return {name: store.read_state(SESSIONFUL, name) or b"" for name in names}
    finally:
        store.close()


def remembered(path: Path) -> list[tuple[int, bytes]]:
    store = SqliteStore(path)
    try:
        return [(one.at_ms, one.digests) for one in store.load(SESSIONFUL).remembered]
    finally:
        store.close()


def set_aside(path: Path) -> int:
    store = SqliteStore(path)
    try:
        return sum(store.load(fragment).counters.set_aside for fragment in FRAGMENTS)
    finally:
        store.close()
