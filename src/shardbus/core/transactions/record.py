"""Promises and decisions about transactions, and the records that store them."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import Message
from shardbus.core.messages.command import Settle
from shardbus.core.packing import (
    Unpacker,
    pack_messages,
    packed_count,
    packed_integer,
    packed_text,
)
from shardbus.core.sessions.holding import PromisedState
from shardbus.core.stages.command import StageShare
from shardbus.core.transactions.command import Home, Reserved

# Flags of what follows the stages.
_KEEPS_REPLY: Final = 1
_HAS_REQUESTS: Final = 2
_HAS_BATCH_KEY: Final = 4


@final
class Promise:
    """A promised settlement: its messages, and the command.

    `tokens` and `deadlines_ms` run parallel to `numbers` as long as the locks are known; after a
    restart both are empty.
    """

    def __init__(
        self, command: Settle, numbers: list[int], tokens: list[bytes], deadlines_ms: list[int]
    ) -> None:
        self.command = command
        self.numbers = numbers
        self.tokens = tokens
        self.deadlines_ms = deadlines_ms


@final
class Prepared:
    """All that a fragment has promised to do if its transaction is committed.

    It waits `wait_ms` for the decision, until `deadline_ms` by the steady clock.
    """

    def __init__(
        self,
        decider: Home,
        wait_ms: int,
        messages: list[Message],
        promises: list[Promise],
        stages: list[StageShare],
    ) -> None:
        self.decider = decider
        self.wait_ms = wait_ms
        self.messages = messages
        self.promises = promises
        self.stages = stages
        self.batch_key = b""
        self.scheduled: list[Reserved] = []
        self.cancelled: list[int] = []
        self.states: list[PromisedState] = []
        self.deadline_ms = 0
        self.size_bytes = 0
        # Whether the client that commits wants to know the numbers of the messages.
        self.keeps_reply = False


@final
class Decision:
    """Whether a transaction is committed, since when, and which other fragments must be told.

    A rollback is kept until `kept_until_ms`, by the steady clock.
    """

    def __init__(self, is_commit: bool, at_ms: int, others: list[Home]) -> None:
        self.is_commit = is_commit
        self.at_ms = at_ms
        self.others = others
        self.kept_until_ms = 0


def pack_prepared(prepared: Prepared) -> bytes:
    parts = [_home(prepared.decider), packed_integer(prepared.wait_ms)]
    pack_messages(prepared.messages, parts)
    parts.append(packed_count(len(prepared.promises)))
    for promise in prepared.promises:
        _pack_promise(promise, parts)
    flags = _KEEPS_REPLY if prepared.keeps_reply else 0
    if prepared.scheduled or prepared.cancelled or prepared.states:
        flags |= _HAS_REQUESTS
    if prepared.batch_key:
        flags |= _HAS_BATCH_KEY
    if prepared.stages or flags:
        parts.append(packed_count(len(prepared.stages)))
        for name, count in prepared.stages:
            parts += (packed_count(len(name)), name, packed_integer(count))
    if flags:
        parts.append(bytes((flags,)))
    if flags & _HAS_REQUESTS:
        _pack_requests(prepared, parts)
    if flags & _HAS_BATCH_KEY:
        parts += (packed_count(len(prepared.batch_key)), prepared.batch_key)
    return b"".join(parts)


def _pack_requests(prepared: Prepared, parts: list[bytes]) -> None:
    pack_messages([message for _, message in prepared.scheduled], parts)
    parts += [packed_integer(number) for number, _ in prepared.scheduled]
    parts.append(packed_count(len(prepared.cancelled)))
    parts += [packed_integer(number) for number in prepared.cancelled]
    parts.append(packed_count(len(prepared.states)))
    for promised in prepared.states:
        parts.append(packed_text(promised.session_id))
        parts.append(packed_integer(promised.old_bytes))
        parts.append(packed_integer(-1 if promised.state is None else len(promised.state)))
        parts.append(promised.state or b"")


def _unpack_requests(unpacker: Unpacker, prepared: Prepared) -> None:
    messages = unpacker.messages()
    prepared.scheduled = [(unpacker.integer(), message) for message in messages]
    prepared.cancelled = [unpacker.integer() for _ in range(unpacker.count())]
    prepared.states = [_unpack_state(unpacker) for _ in range(unpacker.count())]


def _unpack_state(unpacker: Unpacker) -> PromisedState:
    session_id, old_bytes, length = unpacker.text(), unpacker.integer(), unpacker.integer()
    if session_id is None:
        raise ValueError("a promised state belongs to no session")
    state = None if length < 0 else unpacker.piece(length)
    return PromisedState(session_id, state, old_bytes)


def unpack_prepared(data: bytes) -> Prepared:
    """Read what `pack_prepared` wrote; ValueError for damaged bytes."""
    unpacker = Unpacker(data)
    decider, wait_ms = _unpack_home(unpacker), unpacker.integer()
    messages = unpacker.messages()
    promises = [_unpack_promise(unpacker) for _ in range(unpacker.count())]
    stages: list[StageShare] = []
    if not unpacker.is_at_end():
        stages = [_unpack_share(unpacker) for _ in range(unpacker.count())]
    prepared = Prepared(decider, wait_ms, messages, promises, stages)
    flags = 0 if unpacker.is_at_end() else unpacker.byte()
    prepared.keeps_reply = flags & _KEEPS_REPLY != 0
    if flags & _HAS_REQUESTS:
        _unpack_requests(unpacker, prepared)
    if flags & _HAS_BATCH_KEY:
        prepared.batch_key = unpacker.piece(unpacker.count())
    unpacker.end()
    prepared.size_bytes = len(data)
    return prepared


def pack_decision(decision: Decision) -> bytes:
    parts = [b"\x01" if decision.is_commit else b"\x00", packed_integer(decision.at_ms)]
    parts.append(packed_count(len(decision.others)))
    parts += [_home(home) for home in decision.others]
    return b"".join(parts)


def unpack_decision(data: bytes) -> Decision:
    """Read what `pack_decision` wrote; ValueError for damaged bytes."""
    unpacker = Unpacker(data)
    is_commit, at_ms = unpacker.byte() == 1, unpacker.integer()
    others = [_unpack_home(unpacker) for _ in range(unpacker.count())]
    unpacker.end()
    return Decision(is_commit, at_ms, others)


def _pack_promise(promise: Promise, parts: list[bytes]) -> None:
    command = promise.command
    parts.append(command.how.to_bytes(1, "big"))
    parts.append(packed_text(command.reason))
    parts.append(packed_text(command.description))
    parts.append(packed_count(len(command.modified)))
    parts.append(command.modified)
    parts.append(packed_integer(command.delay_ms))
    parts.append(packed_count(len(promise.numbers)))
    parts += [packed_integer(number) for number in promise.numbers]


def _unpack_promise(unpacker: Unpacker) -> Promise:
    how, reason, description = unpacker.byte(), unpacker.text(), unpacker.text()
    modified, delay_ms = unpacker.piece(unpacker.count()), unpacker.integer()
    numbers = [unpacker.integer() for _ in range(unpacker.count())]
    command = Settle(
        how, [], reason=reason, description=description, modified=modified, delay_ms=delay_ms
    )
    return Promise(command, numbers, [], [])


def _unpack_share(unpacker: Unpacker) -> StageShare:
    name = unpacker.piece(unpacker.count())
    return name, unpacker.integer()


def _home(home: Home) -> bytes:
    return packed_integer(home[0]) + packed_integer(home[1])


def _unpack_home(unpacker: Unpacker) -> Home:
    return unpacker.integer(), unpacker.integer()
