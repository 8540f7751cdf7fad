"""A commit as rows: decided in memory first, then stored in one statement."""
# Compiled by mypyc.

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import final

from shardbus.core.fragment.change import (
    Adopt,
    Append,
    AppendReserved,
    Change,
    Counters,
    ForgetIds,
    RecordChange,
    Remember,
    Remove,
    StageDrop,
    StagePut,
    StateChange,
    Update,
)
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.message import Entry
from shardbus.core.sessions.key import session_key
from shardbus.stores.base.record import DIGEST, SIZE_BYTES, Record
from shardbus.stores.base.store import FragmentCommit, NotStored
from shardbus.stores.chunked.breath import Breath
from shardbus.stores.chunked.chunk import (
    COUNTER_MAX,
    counter_of,
    due_of,
    encoded,
    is_plain,
    key_of,
    local_of,
    pack_counters,
    pack_head,
    pack_record,
    pack_remembered,
    pack_scattered,
    pack_session_state,
    pack_shared,
    record_of,
)
from shardbus.stores.chunked.directory import Chunk, Known, StoreDirectory
from shardbus.stores.chunked.draft import ChunkDraft, Run, Shares, has_common
from shardbus.stores.chunked.head import Head
from shardbus.stores.chunked.journal import ClosedPiece
from shardbus.stores.chunked.lookup import Lookup
from shardbus.stores.chunked.rows import Rows

StageChange = StagePut | StageDrop | Adopt


@final
class Delta:
    """The result of a list of changes for one fragment, message by message."""

    def __init__(self, local: int, counters: Counters) -> None:
        self.local = local
        self.counters = counters
        self.appended: list[Entry] = []
        self.reserved: list[Entry] = []
        self.updated: dict[int, Entry] = {}
        self.removed: dict[int, None] = {}
        self.states: dict[str, StateChange] = {}
        self.records: dict[tuple[int, bytes], bytes | None] = {}
        self.remembered: list[tuple[int, list[bytes]]] = []
        self.stages: list[StageChange] = []
        # The blocks of its journal, and up to which number they are dropped.
        self.blocks: list[StagePut] = []
        self.dropped_to = -1
        # What is adopted, each with the position of the appended message that it precedes.
        self.adopted: list[tuple[int, Adopt]] = []
        self.forgotten_at_ms = 0
        self.is_empty = True

    def collect(self, commit: FragmentCommit) -> None:
        self.counters = commit.counters
        for change in commit.changes:
            self.is_empty = False
            if isinstance(change, Append):
                self.appended += change.entries
            elif isinstance(change, Remove):
                for number in change.sequence_numbers:
                    self.removed[counter_of(number)] = None
            elif isinstance(change, Update):
                for entry in change.entries:
                    self.updated[counter_of(entry.sequence_number)] = entry
            else:
                self._collect_other(change)

    def _collect_other(self, change: Change) -> None:
        if isinstance(change, StateChange):
            self.states[session_key(change.session_id)] = change
        elif isinstance(change, Remember):
            if not self.remembered or self.remembered[-1][0] != change.at_ms:
                self.remembered.append((change.at_ms, []))
            self.remembered[-1][1].append(change.digests)
        elif isinstance(change, RecordChange):
            self.records[change.kind, change.key] = change.data
        elif isinstance(change, AppendReserved):
            self.reserved += change.entries
        elif isinstance(change, (StagePut, StageDrop)):
            self._collect_stage(change)
        elif isinstance(change, Adopt):
            self.stages.append(change)
            self.adopted.append((len(self.appended), change))
        else:
            assert isinstance(change, ForgetIds)
            self.forgotten_at_ms = max(self.forgotten_at_ms, change.until_ms)

    def _collect_stage(self, change: StagePut | StageDrop) -> None:
        if change.stage == LIFECYCLE_STAGE:
            if isinstance(change, StagePut):
                self.blocks.append(change)
                return
            self.dropped_to = max(self.dropped_to, change.until)
        self.stages.append(change)


@final
class Batch:
    """The rows of one commit. Chunks in `directory` change with it, before they are stored.

    Call `add` for each fragment, then `find` the chunks, `learn` the missing ones, and `plan` with
    the heads that `unread` names.
    """

    def __init__(self, directory: StoreDirectory, known: Known) -> None:
        self.directory = directory
        self.known = known
        self.rows = Rows()
        # In order, with the local numbers of their fragments.
        self.stages: list[tuple[int, StageChange]] = []
        # Of journals, stored before these.
        self.closed: list[ClosedPiece] = []
        self._deltas: dict[int, Delta] = {}
        self._removed: list[int] = []
        self._updated: list[tuple[int, Entry]] = []
        self._chunks: dict[int, Chunk] = {}
        self._touched: dict[int, Chunk] = {}
        # Where fragments may share payloads, chunks wait until all payloads are known.
        self._is_sharing = False
        self._drafts: list[ChunkDraft] = []
        self._digests: dict[int, int] = {}
        self._breath = Breath()

    def add(self, local: int, commit: FragmentCommit) -> None:
        delta = self._deltas.get(local)
        if delta is None:
            delta = Delta(local, commit.counters)
            self._deltas[local] = delta
        delta.collect(commit)

    def has_stages(self) -> bool:
        """Whether the commit has more than its rows."""
        return bool(self.stages or self.closed)

    def find(self) -> list[int]:
        """Find the chunks of the changed messages of earlier commits; returns keys not found in
        memory.
        """
        for local, delta in self._deltas.items():
            last_counter = self.known.last_counters[local]
            for counter in delta.removed:
                if counter <= last_counter:
                    self._removed.append(key_of(local, counter))
            for counter, entry in delta.updated.items():
                if counter <= last_counter and counter not in delta.removed:
                    self._updated.append((key_of(local, counter), entry))
        return self._find(self._removed + [key for key, _ in self._updated])

    def learn(self, missing: list[int], chunks: list[Chunk]) -> None:
        """Take over the chunks of missing keys from the database; other missing keys are in no
        chunk.
        """
        keys = sorted(missing)
        # The chunk before a key need not contain it, and the copy in memory may be newer.
        needed = [
            c for c in chunks if bisect_left(keys, c.first + c.span) > bisect_left(keys, c.first)
        ]
        self.directory.add_older(needed)
        self._find(missing)

    def _find(self, keys: list[int]) -> list[int]:
        missing: list[int] = []
        chunk: Chunk | None = None
        for key in keys:
            if chunk is None or not chunk.covers(key):
                chunk = self.directory.find(key)
            if chunk is None:
                missing.append(key)
            else:
                self._chunks[key] = chunk
        return missing

    def unread(self) -> dict[int, int]:
        """Chunks (number to first key) whose heads are needed for planning the rest."""
        needed: dict[int, int] = {}
        for key, _ in self._updated:
            chunk = self._chunks.get(key)
            if chunk is not None:
                needed[chunk.number] = chunk.first
        for key in self._removed:
            chunk = self._chunks.get(key)
            if chunk is not None and chunk.is_mixed:
                needed[chunk.number] = chunk.first
        return needed

    def plan(self, heads: dict[int, Head]) -> None:
        for key, entry in self._updated:
            chunk = self._chunks.get(key)
            self._update(key, entry, chunk, None if chunk is None else heads.get(chunk.number))
        for key in self._removed:
            self._remove(key, self._chunks.get(key))
        self._close_chunks(heads)
        appended = [delta.appended for delta in self._deltas.values() if delta.appended]
        self._is_sharing = has_common(appended)
        self._add_blocks()
        for local, delta in self._deltas.items():
            if delta.reserved:
                self._append_reserved(delta, self.known.last_counters[local])
            last = self._append(delta, self.known.last_counters[local])
            self.known.last_counters[local] = max(last, delta.counters.last_counter)
            if delta.states or delta.remembered or delta.forgotten_at_ms:
                self._add_others(delta)
            if delta.records:
                self._add_records(delta)
            if delta.stages:
                self.stages += [(local, change) for change in delta.stages]
            packed = pack_counters(local, delta.counters)
            open_piece = self.known.open_pieces.get(local)
            if open_piece is not None:
                packed += open_piece.packed()
            if delta.is_empty:
                # SQLite writes no page for unchanged bytes; a commit would then seem to succeed on
                # a full disk.
                self.rows.counters(local, bytes(len(packed)))
            self.rows.counters(local, packed)
        if self._drafts:
            self._share()

    def _add_blocks(self) -> None:
        """Add the blocks of journals to their open pieces, and close those that are full."""
        pieces = self.known.open_pieces
        for local, delta in self._deltas.items():
            piece = pieces.get(local)
            if delta.blocks:
                piece = self.known.open_piece(local)
            if piece is None:
                continue
            for block in delta.blocks:
                piece.add(block.piece, block.data, self.closed)
            if not delta.blocks:
                piece.pass_by(self.closed)
            piece.drop(delta.dropped_to)
        if not self.closed and not pieces:
            return
        for local in self._deltas:
            piece = pieces.get(local)
            # A commit that closes one piece costs little more if it closes several.
            if piece is not None and self.closed and piece.is_half_full():
                piece.close(self.closed)
            if piece is not None and piece.is_empty():
                del pieces[local]

    def _add_others(self, delta: Delta) -> None:
        """Add the states of sessions and remembered ids."""
        local = delta.local
        for key, change in delta.states.items():
            name = encoded(key)
            if change.state is None:
                self.rows.no_state(local, name)
            else:
                spelled = encoded(change.session_id)
                data = pack_session_state(local, spelled, change.at_ms, change.state)
                self.rows.state(local, name, change.at_ms, data)
        lowest = key_of(local, 0)
        if delta.forgotten_at_ms:
            self.rows.forget_ids(lowest, delta.forgotten_at_ms)
        for at_ms, digests in delta.remembered:
            packed = pack_remembered(local, at_ms, b"".join(digests))
            self.rows.remember(lowest, at_ms, packed)

    def _add_records(self, delta: Delta) -> None:
        local = delta.local
        for (kind, key), data in delta.records.items():
            packed = None if data is None else pack_record(local, kind, key, data)
            self.rows.record(local, kind, key, packed)

    def _append(self, delta: Delta, last_counter: int) -> int:
        """Chunks for new unchanged messages, entries for new messages that were changed.

        Returns the last counter. Numbers that were used before mean that the caller's fragment is
        not the stored one.
        """
        last = last_counter
        start = 0
        # No chunk may have numbers on both sides of the adopted ones.
        for position, change in delta.adopted:
            last = self._append_some(delta, delta.appended[start:position], last)
            _check_next(change.first, last)
            last = counter_of(change.last())
            start = position
        rest = delta.appended[start:] if start else delta.appended
        return self._append_some(delta, rest, last)

    def _append_some(self, delta: Delta, entries: list[Entry], last_counter: int) -> int:
        is_simple = not delta.updated and not delta.removed
        run = Run()
        last = last_counter
        for entry in entries:
            counter = _check_next(entry.sequence_number, last)
            last = counter
            payload = entry.payload
            assert payload is not None, "an appended message has a payload"
            latest = entry
            if not is_simple:
                if counter in delta.removed:
                    continue
                latest = delta.updated.get(counter, entry)
            key = key_of(delta.local, counter)
            record = self._record(latest, payload)
            if is_plain(latest):
                self._finish(run.add(key, record, payload))
            else:
                alone = ChunkDraft(key, latest)
                alone.add(key, record, payload)
                self._finish(alone)
        self._finish(run.last())
        return last

    def _append_reserved(self, delta: Delta, last_counter: int) -> None:
        """Scheduled messages are entries, so their numbers need not be the last ones."""
        for entry in delta.reserved:
            counter = counter_of(entry.sequence_number)
            payload = entry.payload
            assert payload is not None, "an appended message has a payload"
            if counter > last_counter:
                raise NotStored(
                    f"sequence number {entry.sequence_number} was not reserved: the fragment "
                    "must be loaded again"
                )
            if counter not in delta.removed:
                latest = delta.updated.get(counter, entry)
                self._bring(key_of(delta.local, counter), latest, payload)

    def _record(self, entry: Entry, payload: bytes) -> Record:
        if not self._is_sharing:
            return record_of(entry, payload)
        digest = self._digests.get(id(payload), -1)
        if digest < 0:
            record = record_of(entry, payload)
            self._digests[id(payload)] = record[DIGEST]
            return record
        return (entry.enqueued_at_ms, entry.expires_at_ms, len(payload), digest)

    def _finish(self, draft: ChunkDraft | None) -> None:
        if draft is None:
            return
        self._breath.note(len(draft.records))
        if self._is_sharing:
            self._drafts.append(draft)
            return
        if draft.positions:
            head = pack_scattered(draft.first, draft.records, draft.positions)
        else:
            head = pack_head(draft.first, draft.records)
        self._add_draft(draft, head, b"".join(draft.payloads))

    def _share(self) -> None:
        """Store payloads that fragments share once, and chunks that refer to them."""
        shares = Shares(self._drafts, self.known.next_part, self._breath)
        self._is_sharing = False
        for draft in self._drafts:
            if not shares.is_sharing(draft):
                self._finish(draft)
                continue
            self._breath.note(len(draft.records))
            spots, parts = shares.spots(draft)
            numbers = [part.number for part in parts]
            head = pack_shared(draft.first, draft.records, spots, numbers)
            self._add_draft(draft, head, str(numbers))
            local = local_of(draft.first)
            if local not in self.known.has_parts:
                self.known.has_parts.add(local)
                self.rows.has_parts(local)
        for part in shares.parts:
            self.rows.part(part.number, part.users, b"".join(part.payloads))
        self.known.next_part = shares.next_part

    def _add_draft(self, draft: ChunkDraft, head: bytes, body: bytes | str) -> None:
        if draft.entry is not None:
            self._add_entry(draft.first, draft.entry, draft.size_bytes, head, body)
            return
        due_at_ms, is_mixed = due_of(draft.records, 0)
        number = self.known.take_number(draft.first)
        chunk = Chunk(number, draft.first, draft.span(), draft.size_bytes, due_at_ms, is_mixed)
        self.rows.append(chunk, head, body)
        if draft.positions:
            chunk.gone = draft.holes()
            chunk.has_gap = True
            self.rows.gap(chunk)
        self.directory.add_recent(chunk)

    def _bring(self, key: int, entry: Entry, payload: bytes) -> None:
        """Add a message that cannot be in a chunk with others, as a chunk of its own."""
        head = pack_head(key, [record_of(entry, payload)])
        self._add_entry(key, entry, len(payload), head, payload)

    def _add_entry(
        self, key: int, entry: Entry, size_bytes: int, head: bytes, body: bytes | str
    ) -> None:
        self.rows.bring(
            key,
            entry,
            number=self.known.take_number(key),
            size_bytes=size_bytes,
            head=head,
            body=body,
        )

    def _move(self, key: int, entry: Entry, chunk: Chunk, head: Head) -> None:
        """Move a message out of its chunk into a chunk of its own, with its bytes as stored."""
        assert head.records is not None
        record = head.records[key - chunk.first]
        part, start = head.place(key - chunk.first)
        self.rows.move(
            key,
            entry,
            number=self.known.take_number(key),
            size_bytes=record[SIZE_BYTES],
            head=pack_head(key, [record]),
            chunk=chunk.number,
            part=part,
            start=start,
        )

    def _remove(self, key: int, chunk: Chunk | None) -> None:
        """Remove a message of an earlier commit; without a chunk it was an entry."""
        if chunk is None or not chunk.holds(key):
            if local_of(key) in self.known.has_parts:
                self.rows.release_entry(key)
            self.rows.forget(key)
            return
        self._leave(key, chunk)

    def _update(self, key: int, entry: Entry, chunk: Chunk | None, head: Head | None) -> None:
        """Update a message of an earlier commit; `head` is that of its chunk."""
        if chunk is None or not chunk.holds(key):
            self.rows.change(key, entry)
            return
        if head is not None and head.has(key - chunk.first):
            self._move(key, entry, chunk, head)
        else:
            self.rows.evidence(chunk)
            if entry.payload is None:
                self.rows.lose(key, entry)
            else:
                self._bring(key, entry, entry.payload)
        self._leave(key, chunk)

    def _leave(self, key: int, chunk: Chunk) -> None:
        chunk.gone |= 1 << (key - chunk.first)
        self._touched[chunk.first] = chunk

    def _close_chunks(self, heads: dict[int, Head]) -> None:
        """Drop the chunks that are empty now, and record the gaps of the others, each once."""
        for chunk in self._touched.values():
            if chunk.is_empty():
                self._drop(chunk)
                continue
            self.rows.gap(chunk)
            chunk.has_gap = True
            head = heads.get(chunk.number) if chunk.is_mixed else None
            if head is not None and head.records is not None:
                self._set_due(chunk, head.records)

    def _drop(self, chunk: Chunk) -> None:
        if local_of(chunk.first) in self.known.has_parts:
            self.rows.release_chunk(chunk.number)
        self.rows.drop(chunk)
        self.directory.drop(chunk)

    def _set_due(self, chunk: Chunk, records: list[Record]) -> None:
        due_at_ms, is_mixed = due_of(records, chunk.gone)
        if due_at_ms == chunk.due_at_ms and is_mixed == chunk.is_mixed:
            return
        chunk.due_at_ms = due_at_ms
        chunk.is_mixed = is_mixed
        self.rows.due(chunk)


def _check_next(sequence_number: int, last: int) -> int:
    """The counter of a number, which must follow the last counter."""
    counter = counter_of(sequence_number)
    if counter <= last or counter > COUNTER_MAX:
        raise NotStored(
            f"sequence number {sequence_number} does not follow counter {last}: the fragment "
            "must be loaded again"
        )
    return counter


def planned(
    lookup: Lookup,
    directory: StoreDirectory,
    known: Known,
    commits: Sequence[tuple[int, FragmentCommit]],
) -> Batch:
    """The rows of a commit of fragments, which are given with their local numbers."""
    batch = Batch(directory, known)
    for local, commit in commits:
        batch.add(local, commit)
    missing = batch.find()
    if missing:
        batch.learn(missing, lookup.places(missing))
    needed = batch.unread()
    heads = lookup.heads_of(list(needed)) if needed else {}
    batch.plan({number: Head(first, heads.get(number, b"")) for number, first in needed.items()})
    return batch
