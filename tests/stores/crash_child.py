"""Commits rounds of a fixed history and reports each that returned; killed by test_crash.

Arguments: the file and the durability. What a round does depends on its number alone, so that
anybody can tell what the store must hold after it.
"""

from __future__ import annotations

import sys
from functools import lru_cache, partial

from shardbus.core.fragment.change import (
    Append,
    Change,
    Counters,
    LineCounters,
    RecordChange,
    Remember,
    Remove,
    StagePut,
    StateChange,
    Update,
)
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.message import DEAD_LETTER_LINE, Entry
from shardbus.stores.base.store import FragmentCommit, FragmentId
from shardbus.stores.chunked.chunk import sequence_base
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import ENQUEUED_AT_MS, Durability

# Those with the same number have their payloads in common; the last gets every third message.
FRAGMENTS = [
    FragmentId(1, 0),
    FragmentId(1, 1),
    FragmentId(2, 1),
    FragmentId(1, 3),
    FragmentId(2, 3),
    FragmentId(3, 3),
]
SESSIONFUL = FRAGMENTS[3]
SPARSE = FRAGMENTS[5]
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


@lru_cache(maxsize=256)
def payload_of(number: int, counter: int) -> bytes:
    """The same object for all fragments of a number, as when a message is published."""
    size = counter * 37 % 3_000 if counter % 50 else 300_000
    return b"%d/%d;" % (number, counter) + bytes([counter % 256]) * size


def message(fragment: FragmentId, counter: int) -> Entry:
    payload = payload_of(fragment.number, counter)
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


def block_of(fragment: FragmentId, round_number: int) -> bytes:
    """The block of its journal that a fragment stores in a round."""
    return b"%d/%d;" % (fragment.number, round_number) * (1 + round_number * 7 % 60)


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
    for counter in filter(partial(is_for, fragment), dead_counters(round_number)):
        entry = message(fragment, counter)
        entry.payload = None
        entry.line = DEAD_LETTER_LINE
        dead.append(entry)
    changes: list[Change] = [
        Append([message(fragment, counter) for counter in counters if is_for(fragment, counter)]),
        Update(dead),
        Remove([base | c for c in removed_counters(round_number) if is_for(fragment, c)]),
        StagePut(LIFECYCLE_STAGE, round_number, block_of(fragment, round_number), is_new=True),
    ]
    if fragment == SESSIONFUL:
        state = state_of(round_number) if round_number % 7 else None
        changes += [StateChange(session_of(at), state, round_number) for at in range(SESSIONS)]
        changes.append(Remember(round_number, digests_of(round_number)))
        changes += record_changes(round_number)
    lines = [LineCounters(round_number, 0), LineCounters(), LineCounters()]
    return FragmentCommit(fragment, changes, Counters(counters[-1], lines, round_number))


def is_for(fragment: FragmentId, counter: int) -> bool:
    return fragment != SPARSE or counter % 3 == 0


def expected(fragment: FragmentId, rounds: int) -> tuple[list[int], list[int]]:
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
    mine = partial(is_for, fragment)
    return sorted(filter(mine, main)), sorted(filter(mine, dead))


if __name__ == "__main__":
    main()
