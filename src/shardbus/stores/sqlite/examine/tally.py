"""Counts and digests of everything in a store file, to compare it with the store it is moved to."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from xxhash import xxh3_64_intdigest

from shardbus.core.fragment.change import Counters
from shardbus.core.message import ACTIVE, MAIN_LINE, NEVER_MS, SET_ASIDE
from shardbus.stores.base.check import Progress
from shardbus.stores.base.record import DIGEST, ENQUEUED_AT_MS, EXPIRES_AT_MS, SIZE_BYTES
from shardbus.stores.base.tally import StoreTally
from shardbus.stores.chunked.chunk import (
    COUNTER_MAX,
    local_of,
    sequence_of,
    unpack_record,
    unpack_remembered,
    unpack_session_state,
)
from shardbus.stores.chunked.staged import StagedPiece
from shardbus.stores.sqlite.database import store_error
from shardbus.stores.sqlite.examine.check import examine
from shardbus.stores.sqlite.examine.finding import Aside, FoundPiece, Owner
from shardbus.stores.sqlite.examine.salvage import open_unchanged

LINES: Final = ("messages", "dead letters", "transfer dead letters")
_SET_ASIDE: Final = "messages set aside"
_LOST: Final = "damaged messages"


def tally_store(path: Path, progress: Progress) -> StoreTally:
    """The tally of a store whose lock is held, or which nobody else knows; nothing is changed."""
    tallying = _Tallying()
    report, survey = examine(path, path.name, tallying, progress)
    tally = tallying.tally
    tally.namespace_id = report.namespace_id
    tally.highest_entity_id = report.highest_entity_id
    tally.messages = report.messages
    tally.damages = [f"{damage.what}: {damage.meaning}" for damage in report.damages]
    if survey is not None:
        _add_unsurveyed(path, survey.owners, tally)
        for owner in survey.owners.values():
            if not owner.is_deleted and owner.stored is not None:
                tally.add(_name(owner), "counters", *_numbers(owner.stored))
    return tally


@final
class _Tallying:
    """A `finding.Sink`."""

    def __init__(self) -> None:
        self.tally = StoreTally()

    def fragment(self, owner: Owner) -> None:
        self.tally.add(_name(owner), "fragments", int(owner.has_parts))

    def piece(self, owner: Owner, piece: FoundPiece) -> None:
        lost = set(piece.lost)
        first = piece.place.first
        for position in lost:
            self.tally.add(_name(owner), _LOST, sequence_of(owner.base, first + position))
        for position, record in enumerate(piece.records or ()):
            if position in lost or piece.gone >> position & 1:
                continue
            # The survey has compared the payload with the digest.
            self.tally.add(
                _name(owner),
                LINES[MAIN_LINE],
                sequence_of(owner.base, first + position),
                ACTIVE,
                record[ENQUEUED_AT_MS],
                record[EXPIRES_AT_MS],
                record[SIZE_BYTES],
                record[DIGEST],
                0,
                None,
                None,
                b"",
                None,
                NEVER_MS,
            )

    def aside(self, owner: Owner, aside: Aside) -> None:
        entry = aside.entry(owner.base)
        number = sequence_of(owner.base, aside.key)
        if aside.is_lost or entry is None:
            self.tally.add(_name(owner), _LOST, number)
            return
        kind = _SET_ASIDE if entry.state == SET_ASIDE else LINES[entry.line]
        self.tally.add(
            _name(owner),
            kind,
            number,
            entry.state,
            entry.enqueued_at_ms,
            entry.expires_at_ms,
            entry.size_bytes,
            int(xxh3_64_intdigest(aside.body)),
            entry.delivery_count,
            entry.reason,
            entry.description,
            entry.modified,
            entry.session_id,
            entry.delayed_until_ms,
        )

    def stray(self, owner: Owner | None, piece: FoundPiece) -> None:
        """Damage, which the report has."""

    def state(self, owner: Owner, name: bytes, set_at_ms: int, data: bytes) -> None:
        found = unpack_session_state(data)
        assert found is not None, "a survey reports only sound states"
        self.tally.add(
            _name(owner), "session states", name, found.name, found.set_at_ms, found.state
        )

    def remembered(self, owner: Owner, key: int, at_ms: int, data: bytes) -> None:
        found = unpack_remembered(owner.local, data)
        assert found is not None, "a survey reports only sound message ids"
        digests = found.digests
        self.tally.add(_name(owner), "remembered ids", key & COUNTER_MAX, at_ms, digests)

    def record(self, owner: Owner, kind: int, key: bytes, data: bytes) -> None:
        found = unpack_record(data)
        assert found is not None, "a survey reports only sound records"
        self.tally.add(_name(owner), f"records of kind {kind}", key, found[3])

    def staged(self, owner: Owner, piece: StagedPiece, bodies: Mapping[int, bytes]) -> None:
        payloads = [int(xxh3_64_intdigest(bodies[number])) for number in piece.part_numbers()]
        name = (piece.stage, piece.piece)
        self.tally.add(_name(owner), "pieces of stages", *name, piece.data, *payloads)


def _add_unsurveyed(path: Path, owners: Mapping[int, Owner], tally: StoreTally) -> None:
    """What a survey does not report: evidence, and which ids may be forgotten."""
    connection = open_unchanged(path)
    try:
        for key, head, body in connection.execute("SELECT key, head, body FROM evidence"):
            owner = owners.get(local_of(key))
            if owner is not None and not owner.is_deleted:
                tally.add(_name(owner), "evidence", key & COUNTER_MAX, head, body)
        sql = "SELECT local, forgotten_at, forgotten_to FROM fragment WHERE is_deleted = 0"
        for local, at_ms, key in connection.execute(sql):
            if local in owners:
                tally.add(_name(owners[local]), "forgotten ids", at_ms, key & COUNTER_MAX)
    except sqlite3.Error as error:
        raise store_error(path, error) from error
    finally:
        connection.close()


def _name(owner: Owner) -> tuple[int, int]:
    return owner.entity_id, owner.number


def _numbers(counters: Counters) -> list[int]:
    found = [counters.last_counter, counters.set_aside, counters.states, counters.state_bytes]
    for line in counters.lines:
        found += [line.count, line.size_bytes, line.deferred, line.scheduled]
    return [*found, counters.duplicates]
