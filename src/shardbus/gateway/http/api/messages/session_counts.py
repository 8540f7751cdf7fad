"""The messages of listed sessions, by one bounded walk over the entity, and who holds a session."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, final

from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.readers.command import ReaderStatus
from shardbus.core.sequence import fragment_of
from shardbus.core.sessions.key import session_key
from shardbus.gateway.http.api.messages.scan import scan_of
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces

MESSAGES_MAX: Final = 5_000
BYTES_MAX: Final = 32 * 1024 * 1024
CLAIMS_MAX: Final = 64
"""Claims that are searched for a message, the oldest first."""


@final
class SessionCount:
    """The messages of one session that were seen."""

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.oldest_at_ms = 0

    def add(self, entry: Entry) -> None:
        self.messages += 1
        self.size_bytes += entry.size_bytes
        self.oldest_at_ms = min(self.oldest_at_ms or entry.enqueued_at_ms, entry.enqueued_at_ms)


async def count_sessions(
    places: EntityPlaces, place: EntityPlace, session_ids: Collection[str]
) -> tuple[dict[str, SessionCount], bool]:
    """Counts by the keys of the sessions, and whether all messages of the entity were seen."""
    counts = {session_key(session_id): SessionCount() for session_id in session_ids}
    scan, _ = await scan_of(places, place)
    size_bytes = 0
    while scan.searched < MESSAGES_MAX and size_bytes < BYTES_MAX and (batch := await scan.batch()):
        for entry in batch:
            scan.passed(entry)
            size_bytes += entry.size_bytes
            key = None if entry.session_id is None else session_key(entry.session_id)
            if key is not None and key in counts:
                counts[key].add(entry)
    return counts, scan.cursor is None and not scan.unavailable


async def reader_of_session(place: EntityPlace, messages: Sequence[Entry]) -> str:
    """The reader that has claimed these messages of a session; empty if none is found."""
    if not messages:
        return ""
    number = fragment_of(messages[0].sequence_number)
    known = await place.handle.readers.known(MAIN_LINE)
    for reader in known.found.get(number, []):
        if await _has_claimed(place, number, reader, messages):
            return reader.name
    return ""


async def _has_claimed(
    place: EntityPlace, number: int, reader: ReaderStatus, messages: Sequence[Entry]
) -> bool:
    first = max(reader.completed, reader.lost) + 1
    for ordinal in range(first, min(reader.last, first + CLAIMS_MAX - 1) + 1):
        try:
            claim = await place.handle.readers.describe(number, MAIN_LINE, reader.name, ordinal)
        except (Refused, Unavailable):
            # The claim was completed or lost meanwhile.
            continue
        if any(claim.runs.contains(entry.sequence_number) for entry in messages):
            return True
    return False
