"""The changes that a fragment decides, as a store receives them."""

from __future__ import annotations

from typing import final

from shardbus.core.limits import BATCH_MAX
from shardbus.core.message import Entry


@final
class Append:
    """New messages with ascending sequence numbers, on the main line, active or scheduled."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries


@final
class AppendReserved:
    """New messages whose sequence numbers an earlier commit passed: scheduled ones for which they
    were reserved, or those with which a subscription is filled.

    No message of the fragment had one of these numbers before.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries


@final
class Update:
    """Messages whose line, state, delivery count, expiry, reason or modifications changed.

    Their payloads did not. An updated message was appended before, perhaps in the same commit.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries


@final
class Remove:
    """Messages that are removed for good; each was appended before, perhaps in the same commit."""

    def __init__(self, sequence_numbers: list[int]) -> None:
        self.sequence_numbers = sequence_numbers


@final
class StateChange:
    """The new state of a session of the main line; None removes the state."""

    def __init__(self, session_id: str, state: bytes | None, at_ms: int) -> None:
        self.session_id = session_id
        self.state = state
        self.at_ms = at_ms


@final
class Remember:
    """Message ids that were accepted at a moment, as concatenated digests of DIGEST_BYTES each."""

    def __init__(self, at_ms: int, digests: bytes) -> None:
        self.at_ms = at_ms
        self.digests = digests


@final
class ForgetIds:
    """The store need no longer remember message ids that were accepted up to a moment.

    A store may remove them later and in pieces. A fragment that is loaded ignores the expired ids
    that the store still has.
    """

    def __init__(self, until_ms: int) -> None:
        self.until_ms = until_ms


@final
class RecordChange:
    """A small record that a fragment keeps beside its messages, by kind and key; None removes it.

    A running fragment has all its records in memory, so they must be few and small.
    """

    def __init__(self, kind: int, key: bytes, data: bytes | None) -> None:
        self.kind = kind
        self.key = key
        self.data = data


@final
class StagePut:
    """A piece of a stage, which nobody sees yet. It replaces a piece of the same number.

    `payloads` are stored beside `data`, so that `Adopt` can make messages of them in place.
    `is_new`: no piece had this number before, so the store need not look for one.
    """

    def __init__(
        self,
        stage: bytes,
        piece: int,
        data: bytes,
        payloads: list[bytes] | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        self.is_new = is_new
        self.stage = stage
        self.piece = piece
        self.data = data
        self.payloads: list[bytes] = [] if payloads is None else payloads


@final
class Adopt:
    """Turns all payloads of a piece into active messages of the main line, and removes the piece.

    Their sequence numbers are consecutive from `first`. `expires_at_ms` has one moment for each
    message, or a single one for all. The same commit changes nothing else about these messages.
    """

    def __init__(
        self,
        stage: bytes,
        piece: int,
        first: int,
        count: int,
        enqueued_at_ms: int,
        expires_at_ms: list[int],
    ) -> None:
        self.stage = stage
        self.piece = piece
        self.first = first
        self.count = count
        self.enqueued_at_ms = enqueued_at_ms
        self.expires_at_ms = expires_at_ms

    def last(self) -> int:
        return self.first + self.count - 1


@final
class StageDrop:
    """Removes all pieces of a stage that is over, or the pieces up to a number, which were sent."""

    def __init__(self, stage: bytes, until: int = BATCH_MAX) -> None:
        self.stage = stage
        self.until = until


Change = (
    Append
    | AppendReserved
    | Update
    | Remove
    | StateChange
    | Remember
    | ForgetIds
    | RecordChange
    | StagePut
    | StageDrop
    | Adopt
)


@final
class LineCounters:
    """How many messages a line holds by state, locked ones included, and the bytes of all.

    `count` is the number of active messages, `scheduled` that of scheduled and delayed ones.
    Messages that are set aside are counted nowhere.
    """

    def __init__(
        self, count: int = 0, size_bytes: int = 0, deferred: int = 0, scheduled: int = 0
    ) -> None:
        self.count = count
        self.size_bytes = size_bytes
        self.deferred = deferred
        self.scheduled = scheduled


@final
class Counters:
    """A fragment's totals, stored with every commit so that start-up need not count.

    `last_counter` is the counter part of the last sequence number given out. `lines[line]` exists
    for MAIN_LINE, DEAD_LETTER_LINE and TRANSFER_DEAD_LETTER_LINE. `states` is the number of
    sessions with a state, `state_bytes` the size of these states, and `duplicates` the number of
    messages that were ever dropped as duplicates.
    """

    def __init__(
        self,
        last_counter: int,
        lines: list[LineCounters],
        set_aside: int = 0,
        *,
        states: int = 0,
        state_bytes: int = 0,
        duplicates: int = 0,
    ) -> None:
        self.last_counter = last_counter
        self.lines = lines
        self.set_aside = set_aside
        self.states = states
        self.state_bytes = state_bytes
        self.duplicates = duplicates

    def copy(self) -> Counters:
        return Counters(
            self.last_counter,
            [
                LineCounters(line.count, line.size_bytes, line.deferred, line.scheduled)
                for line in self.lines
            ],
            self.set_aside,
            states=self.states,
            state_bytes=self.state_bytes,
            duplicates=self.duplicates,
        )

    def total_bytes(self) -> int:
        return sum(line.size_bytes for line in self.lines) + self.state_bytes


def new_counters() -> Counters:
    return Counters(0, [LineCounters(), LineCounters(), LineCounters()])
