"""New messages on their way into chunks, and which payloads the chunks share."""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import Entry
from shardbus.stores.base.record import Record
from shardbus.stores.chunked.breath import Breath
from shardbus.stores.chunked.chunk import (
    CHUNK_BYTES_MAX,
    CHUNK_COUNT_MAX,
    CHUNK_SPAN_MAX,
    Spot,
)

# Shared payloads smaller than this are written into each chunk: counting the users of a part costs
# more than writing these bytes again.
PART_BYTES_MIN: Final = 512


@final
class ChunkDraft:
    """The messages of one chunk. `entry` is set for a message that must be alone in its chunk.

    `positions` is empty where the numbers have no holes.
    """

    def __init__(self, first: int, entry: Entry | None = None) -> None:
        self.first = first
        self.entry = entry
        self.size_bytes = 0
        self.records: list[Record] = []
        self.payloads: list[bytes] = []
        self.positions: list[int] = []

    def add(self, key: int, record: Record, payload: bytes) -> None:
        count = len(self.records)
        position = key - self.first
        if self.positions or position != count:
            if not self.positions:
                self.positions = list(range(count))
            self.positions.append(position)
        self.records.append(record)
        self.payloads.append(payload)
        self.size_bytes += len(payload)

    def span(self) -> int:
        return self.positions[-1] + 1 if self.positions else len(self.records)

    def holes(self) -> int:
        """A bit for each number between the first and the last that no message has."""
        if not self.positions:
            return 0
        taken = 0
        for position in self.positions:
            taken |= 1 << position
        return ((1 << self.span()) - 1) ^ taken


@final
class Run:
    """Puts new messages of one fragment, in ascending order, into as few chunks as possible."""

    def __init__(self) -> None:
        self._draft: ChunkDraft | None = None

    def add(self, key: int, record: Record, payload: bytes) -> ChunkDraft | None:
        """Add a message; returns the chunk that is full, if it did not fit."""
        draft = self._draft
        full: ChunkDraft | None = None
        if draft is not None and (
            len(draft.records) >= CHUNK_COUNT_MAX
            or draft.size_bytes + len(payload) > CHUNK_BYTES_MAX
            or key - draft.first >= CHUNK_SPAN_MAX
        ):
            full, draft = draft, None
        if draft is None:
            draft = ChunkDraft(key)
            self._draft = draft
        draft.add(key, record, payload)
        return full

    def last(self) -> ChunkDraft | None:
        """The chunk that is not full, if there is one."""
        return self._draft


@final
class PartDraft:
    """Payloads that all chunks of one set share."""

    def __init__(self, users: int) -> None:
        self.number = 0
        self.users = users
        self.size_bytes = 0
        self.payloads: list[bytes] = []

    def add(self, payload: bytes) -> int:
        """Add a payload; returns where in the part it begins."""
        start = self.size_bytes
        self.payloads.append(payload)
        self.size_bytes += len(payload)
        return start


@final
class Used:
    """A payload, the chunks that have it, and its place if it is in a part."""

    def __init__(self, payload: bytes, chunk: int) -> None:
        self.payload = payload
        self.chunks = [chunk]
        self.part: PartDraft | None = None
        self.start = 0


@final
class Shares:
    """The payloads of a commit as parts, each with exactly those chunks that need all of it.

    So no chunk keeps bytes alive that it does not use, whatever the rules of subscriptions choose.
    Payloads are the same when they are the same object.
    """

    def __init__(self, drafts: list[ChunkDraft], next_part: int, breath: Breath) -> None:
        self.next_part = next_part
        self.parts: list[PartDraft] = []
        self._used: dict[int, Used] = {}
        for index, draft in enumerate(drafts):
            self._use(index, draft)
            breath.note(len(draft.records))
        groups: dict[tuple[int, ...], PartDraft] = {}
        for used in self._used.values():
            if len(used.chunks) > 1:
                self._group(used, groups)
        for part in groups.values():
            if part.size_bytes >= PART_BYTES_MIN:
                self._take(part)

    def spots(self, draft: ChunkDraft) -> tuple[list[Spot], list[PartDraft]]:
        """Where the payloads of a chunk are, and its parts; both empty when it shares nothing."""
        parts: dict[int, int] = {}
        found: list[PartDraft] = []
        spots: list[Spot] = []
        own: PartDraft | None = None
        for index, payload in enumerate(draft.payloads):
            used = self._used[id(payload)]
            part, start = used.part, used.start
            if part is None or part.number == 0:
                if own is None:
                    own = PartDraft(1)
                    self._take(own)
                part, start = own, own.add(payload)
            at = parts.get(part.number, -1)
            if at < 0:
                at = len(found)
                parts[part.number] = at
                found.append(part)
            spots.append((draft.positions[index] if draft.positions else index, at, start))
        return spots, found

    def is_sharing(self, draft: ChunkDraft) -> bool:
        """Whether any payload of the chunk is in a part with others."""
        for payload in draft.payloads:
            part = self._used[id(payload)].part
            if part is not None and part.number > 0:
                return True
        return False

    def _use(self, index: int, draft: ChunkDraft) -> None:
        for payload in draft.payloads:
            used = self._used.get(id(payload))
            if used is None:
                self._used[id(payload)] = Used(payload, index)
            elif used.chunks[-1] != index:
                used.chunks.append(index)

    def _group(self, used: Used, groups: dict[tuple[int, ...], PartDraft]) -> None:
        chunks = tuple(used.chunks)
        part = groups.get(chunks)
        if part is None:
            part = PartDraft(len(chunks))
            groups[chunks] = part
        used.part = part
        used.start = part.add(used.payload)

    def _take(self, part: PartDraft) -> None:
        part.number = self.next_part
        self.next_part += 1
        self.parts.append(part)


def has_common(payloads_of: list[list[Entry]]) -> bool:
    """Whether any two of these messages share a payload.

    In a single list these are copies made by actions, which have other properties.
    """
    if len(payloads_of) == 1:
        [alone] = payloads_of
        is_changed = any(entry.modified for entry in alone)
        return is_changed and len({id(entry.payload) for entry in alone}) < len(alone)
    seen: set[int] = set()
    for entries in payloads_of:
        mine = {id(entry.payload) for entry in entries}
        if len(mine) < len(entries) or not seen.isdisjoint(mine):
            return True
        seen |= mine
    return False
