"""What a runner reads from its store for a fragment, and how the fragment takes it over.

The jobs run on the store's reader, the rest in the event loop.
"""
# Compiled by mypyc.

from __future__ import annotations

import logging
import time
from typing import Final, final

from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import Change
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.fragment.need import (
    Need,
    NeedBlocks,
    NeedEntries,
    NeedHeads,
    NeedPage,
    NeedPayloads,
    NeedSession,
    NeedSessions,
    NeedStages,
    NeedState,
)
from shardbus.core.limits import DIGEST_BYTES, STATES_MAX
from shardbus.core.message import Entry
from shardbus.core.messages.duplicate_history import History
from shardbus.core.sealing.seal import Standing
from shardbus.core.sessions.key import session_key
from shardbus.core.stages.record import ReadStage, read_piece
from shardbus.stores.base.store import (
    FragmentId,
    FragmentImage,
    MessageStore,
    Page,
    SessionPage,
    StoreError,
)

log = logging.getLogger(__name__)

LIST_COUNT_MAX: Final = 10_000
# Pieces of stages that are read before others read: sixteen megabytes, or the largest messages.
PIECES_PER_STEP: Final = 16
# Ten thousand ids: some milliseconds.
LOAD_STEP_BYTES: Final = 10_000 * DIGEST_BYTES


@final
class ReadState:
    """The state of a session, or why it cannot be read."""

    def __init__(self, state: bytes | None, error: str = "") -> None:
        self.state = state
        self.error = error


@final
class Lacking:
    """What replies lack: payloads by sequence number, states by session."""

    def __init__(self, payloads: dict[int, bytes | None], states: dict[str, ReadState]) -> None:
        self.payloads = payloads
        self.states = states


@final
class Loaded:
    """A fragment as it was stored, with its history ready for use."""

    def __init__(self, image: FragmentImage, history: History) -> None:
        self.image = image
        self.history = history
        # The messages that were handed over locked.
        self.handed: list[Entry | None] = []
        # What is stored of the topic's fragment, if that was asked for and can be read.
        self.leader: Standing | None = None

    def fragment(
        self,
        number: int,
        rules: FragmentRules,
        bounds: Bounds | None,
        now_ms: int,
        steady_ms: int,
    ) -> Fragment:
        image = self.image
        return Fragment(
            number,
            rules,
            image.counters,
            image.next_due_ms,
            self.history,
            bounds,
            image.records,
            loaded_at_ms=now_ms,
            steady_ms=steady_ms,
        )


@final
class ReadStages:
    """The messages of stages by their names."""

    def __init__(self, stages: dict[bytes, ReadStage]) -> None:
        self.stages = stages


Found = Page | SessionPage | ReadState | ReadStages | list[Entry | None] | dict[int, bytes | None]


def load(store: MessageStore, fragment: FragmentId, window_ms: int, now_ms: int) -> Loaded:
    image = store.load(fragment)
    history = History()
    step_bytes = 0
    for remembered in image.remembered:
        # The clock may have been set back since: nothing was accepted later than now.
        at_ms = min(remembered.at_ms, now_ms)
        history.load(at_ms, remembered.digests, now_ms - window_ms)
        step_bytes += len(remembered.digests)
        if step_bytes >= LOAD_STEP_BYTES:
            # Compiled code does not let other threads run: a million ids would stop the event loop.
            time.sleep(0)
            step_bytes = 0
    image.remembered = []
    return Loaded(image, history)


@final
class Reading:
    """What a fragment needs, read in steps, between which others may read."""

    def __init__(self, fragment: FragmentId, need: Need) -> None:
        self._fragment = fragment
        self._need = need
        self._stages: dict[bytes, ReadStage] = {}
        self._steps: list[tuple[bytes, list[int]]] = []
        self._position = 0
        self._count = 0
        self._bytes = 0
        if isinstance(need, NeedStages):
            for name, numbers in zip(need.stages, need.pieces, strict=True):
                self._stages[name] = ReadStage()
                for start in range(0, len(numbers), PIECES_PER_STEP):
                    self._steps.append((name, numbers[start : start + PIECES_PER_STEP]))

    def step(self, store: MessageStore) -> Found | None:
        """Read the next step; returns what was needed, None when there is more to read."""
        need = self._need
        if not isinstance(need, NeedStages):
            return _read(store, self._fragment, need)
        if self._position < len(self._steps):
            name, numbers = self._steps[self._position]
            self._position += 1
            if need.count_max:
                self._read_some(store, need, name, numbers)
            else:
                self._read_pieces(store, need, name, numbers)
        return ReadStages(self._stages) if self._position >= len(self._steps) else None

    def _read_some(
        self, store: MessageStore, need: NeedStages, name: bytes, numbers: list[int]
    ) -> None:
        """Read pieces one after the other, until there are enough."""
        pieces = self._stages[name].pieces
        for number in numbers:
            self._read_pieces(store, need, name, [number])
            if number in pieces:
                self._count += pieces[number].count
                self._bytes += pieces[number].data_bytes
            if self._count >= need.count_max or self._bytes >= need.bytes_max:
                self._position = len(self._steps)
                return

    def _read_pieces(
        self, store: MessageStore, need: NeedStages, name: bytes, numbers: list[int]
    ) -> None:
        fragment, stage = self._fragment, self._stages[name]
        after, until = numbers[0] - 1, numbers[-1]
        damaged: list[int] = []
        if need.is_checked:
            damaged = store.check_stage(fragment, name, after=after, until=until)
        pieces = store.read_stage(fragment, name, after=after, until=until)
        known = len(stage.damaged)
        for number in numbers:
            data = None if number in damaged else pieces.pop(number, None)
            _unpack(stage, number, data, is_wanted=need.is_unpacked)
            # Compiled code does not let other threads run: a large stage would stop the event loop.
            time.sleep(0)
        if len(stage.damaged) > known:
            log.error("fragment %s: pieces %s of a stage are damaged", fragment, stage.damaged)


def _read(store: MessageStore, fragment: FragmentId, need: Need) -> Found:
    if isinstance(need, NeedPage):
        return store.read_line(
            fragment,
            need.line,
            after=need.after,
            count_max=need.count_max,
            bytes_max=need.bytes_max,
        )
    if isinstance(need, NeedHeads):
        return store.read_heads(
            fragment,
            need.line,
            after=need.after,
            count_max=need.count_max,
            bytes_max=need.bytes_max,
        )
    if isinstance(need, NeedPayloads):
        return _payloads(store, fragment, need.sequence_numbers)
    if isinstance(need, NeedEntries):
        return store.read_entries(fragment, need.sequence_numbers, bytes_max=need.bytes_max)
    if isinstance(need, NeedSession):
        return store.read_session(
            fragment,
            need.session_id,
            after=need.after,
            count_max=need.count_max,
            bytes_max=need.bytes_max,
        )
    if isinstance(need, NeedSessions):
        return store.read_sessions(fragment, after=need.after, count_max=need.count_max)
    if isinstance(need, NeedBlocks):
        return store.read_stage(fragment, need.stage, after=need.after, until=need.until)
    assert isinstance(need, NeedState)
    return _replaced_state(store, fragment, need.session_id)


def read_lacking(
    store: MessageStore, fragment: FragmentId, numbers: list[int], session_ids: list[str]
) -> Lacking:
    """Read what replies lack; a payload that is None is damaged."""
    payloads = _payloads(store, fragment, numbers) if numbers else {}
    return Lacking(payloads, {name: _state(store, fragment, name) for name in session_ids})


def feed(fragment: Fragment, need: Need, found: Found, now_ms: int) -> list[Change]:
    """Let a fragment take over what was read; returns the changes to commit."""
    reads = fragment.reads
    if isinstance(found, Page):
        if found.damaged:
            log.error("fragment %d: damaged messages %s set aside", fragment.number, found.damaged)
        if isinstance(need, (NeedPage, NeedHeads)):
            return reads.page_in(need, found.entries, found.damaged, found.is_end)
        assert isinstance(need, NeedSession)
        return reads.session_in(need, found.entries, found.damaged, found.is_end, now_ms)
    if isinstance(found, dict):
        if isinstance(need, NeedBlocks):
            reads.blocks_in(found)
            return []
        assert isinstance(need, NeedPayloads)
        return reads.payloads_in(need, found)
    if isinstance(found, list):
        assert isinstance(need, NeedEntries)
        reads.entries_in(need, found)
    elif isinstance(found, SessionPage):
        ranks = [session.rank for session in found.sessions]
        keys = [session.key for session in found.sessions]
        reads.sessions_in(ranks, keys, found.is_end)
    elif isinstance(found, ReadStages):
        reads.stages_in(found.stages)
    else:
        assert isinstance(need, NeedState)
        # The size of a damaged state is unknown: it remains counted.
        reads.state_in(need, b"" if found.error else found.state)
    return []


def _payloads(
    store: MessageStore, fragment: FragmentId, numbers: list[int]
) -> dict[int, bytes | None]:
    return dict(zip(numbers, store.read_payloads(fragment, numbers), strict=True))


def _unpack(stage: ReadStage, number: int, data: bytes | None, *, is_wanted: bool) -> None:
    if data is None:
        stage.damaged.append(number)
    elif is_wanted:
        try:
            stage.pieces[number] = read_piece(data)
        except ValueError:
            stage.damaged.append(number)


def _replaced_state(store: MessageStore, fragment: FragmentId, session_id: str) -> ReadState:
    """The state to be replaced; any failure other than damage is raised."""
    found = _state(store, fragment, session_id)
    if found.error and not _has_state(store, fragment, session_id):
        raise StoreError(found.error)
    return found


def _has_state(store: MessageStore, fragment: FragmentId, session_id: str) -> bool:
    """Whether a state is stored, readable or not."""
    key = session_key(session_id)
    for skip in range(0, STATES_MAX, LIST_COUNT_MAX):
        names = store.list_sessions(
            fragment, updated_after_ms=0, skip=skip, count_max=LIST_COUNT_MAX
        )
        if any(session_key(name) == key for name in names):
            return True
        if len(names) < LIST_COUNT_MAX:
            break
    return False


def _state(store: MessageStore, fragment: FragmentId, session_id: str) -> ReadState:
    """Read a state. A damaged state is the problem of one session, not of the fragment."""
    try:
        return ReadState(store.read_state(fragment, session_id))
    except StoreError as error:
        log.error("fragment %s: the state of a session cannot be read: %s", fragment, error)
        return ReadState(None, str(error))
