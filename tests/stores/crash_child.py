"""Commits rounds of a fixed history and reports each that returned; killed by test_crash.

Arguments: the file and the durability. What a round does depends on its number alone, so that
anybody can tell what the store must hold after it.
"""

from __future__ import annotations

import sys

from shardbus.core.change import (
    Append,
    Change,
    Counters,
    LineCounters,
    RecordChange,
    Remember,
    Remove,
    StateChange,
    Update,
)
from shardbus.core.message import DEAD_LETTER_LINE, Entry
from shardbus.stores.base import FragmentCommit, FragmentId
from shardbus.stores.chunk import sequence_base
from shardbus.stores.sqlite import SqliteStore
from tests.stores.harness import ENQUEUED_AT_MS, Durability

FRAGMENTS = [FragmentId(1, number) for number in range(4)]
SESSIONFUL = FRAGMENTS[3]
SESSIONS = 5
COUNTS = (3, 4, 40, 3, 5)


def main() -> None:
    durability: Durability = "full" if sys.argv[2] == "full" else "relaxed"
    store = SqliteStore(sys.argv[1], durability=durability, recent_max=9)
    store.create(FRAGMENTS)
    done = rounds_of(store, FRAGMENTS[0])
    while True:
        done += 1
        store.commit([commit_of(fragment, done) for fragment in FRAGMENTS])
        # A line stands for a commit that returned: what the parent reads here must survive.
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()


def rounds_of(store: SqliteStore, fragment: FragmentId) -> int:
    """How many rounds a fragment has seen; the number is kept where nothing else uses it."""
    return store.load(fragment).counters.set_aside


def first_counter(round_number: int) -> int:
    whole, rest = divmod(round_number - 1, len(COUNTS))
    return 1 + whole * sum(COUNTS) + sum(COUNTS[:rest])


def message(fragment: FragmentId, counter: int) -> Entry:
    size = counter * 37 % 3_000 if counter % 50 else 300_000
    payload = b"%d/%d;" % (fragment.number, counter) + bytes([counter % 256]) * size
    return Entry(
        sequence_base(fragment.number) | counter,
        payload,
        len(payload),
        enqueued_at_ms=ENQUEUED_AT_MS + counter,
        session_id=session_of(counter) if fragment == SESSIONFUL else None,
    )


def session_of(counter: int) -> str:
    return f"session {counter % SESSIONS}"


def state_of(round_number: int) -> bytes:
    """What the state of every session is after a round, unless it is cleared."""
    return b"round %d" % round_number * 50


def digests_of(round_number: int) -> bytes:
    return round_number.to_bytes(16, "big") * 3


def record_changes(round_number: int) -> list[Change]:
    """A record of each round, of which the last three are kept."""
    return [
        RecordChange(1, b"%d" % round_number, state_of(round_number)),
        RecordChange(1, b"%d" % (round_number - 3), None),
    ]


def new_counters(round_number: int) -> range:
    first = first_counter(round_number)
    return range(first, first + COUNTS[(round_number - 1) % len(COUNTS)])


def removed_counters(round_number: int) -> list[int]:
    """One of the round before, and all but two of six rounds before."""
    removed: list[int] = []
    if round_number > 1:
        removed.append(first_counter(round_number - 1))
    if round_number > 6:
        removed += list(new_counters(round_number - 6))[3:]
    return removed


def dead_counters(round_number: int) -> list[int]:
    """One of this round and one of the round before."""
    dead = [first_counter(round_number) + 2]
    if round_number > 1:
        dead.append(first_counter(round_number - 1) + 1)
    return dead


def commit_of(fragment: FragmentId, round_number: int) -> FragmentCommit:
    counters = new_counters(round_number)
    base = sequence_base(fragment.number)
    dead: list[Entry] = []
    for counter in dead_counters(round_number):
        entry = message(fragment, counter)
        entry.payload = None
        entry.line = DEAD_LETTER_LINE
        dead.append(entry)
    changes: list[Change] = [
        Append([message(fragment, counter) for counter in counters]),
        Update(dead),
        Remove([base | counter for counter in removed_counters(round_number)]),
    ]
    if fragment == SESSIONFUL:
        state = state_of(round_number) if round_number % 7 else None
        changes += [StateChange(session_of(at), state, round_number) for at in range(SESSIONS)]
        changes.append(Remember(round_number, digests_of(round_number)))
        changes += record_changes(round_number)
    lines = [LineCounters(round_number, 0), LineCounters(), LineCounters()]
    return FragmentCommit(fragment, changes, Counters(counters[-1], lines, round_number))


def expected(rounds: int) -> tuple[list[int], list[int]]:
    """The counters on the main line and among the dead letters after some rounds."""
    main: set[int] = set()
    dead: set[int] = set()
    for round_number in range(1, rounds + 1):
        main |= set(new_counters(round_number))
        dead |= set(dead_counters(round_number))
        main -= dead
        gone = set(removed_counters(round_number))
        main -= gone
        dead -= gone
    return sorted(main), sorted(dead)


if __name__ == "__main__":
    main()
