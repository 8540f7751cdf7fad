"""Carries out what a keeper of leases decides, over connections to one database.

All connections of a broker to one database count as one: when one of them breaks, the outcome of
everything that was sent over any of them is unknown, and the keeper determines it. Beats have a
separate connection, because a statement about a slot may wait for a transaction of another broker.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Protocol, final

from shardbus.broker.cluster.leased_slot import LeasedSlot
from shardbus.broker.fragment.storage import ThreadWorker
from shardbus.core.cluster.decision import (
    COMMITS_LOST,
    NEW_TIMELINE,
    Alarm,
    Ask,
    Confirm,
    Decision,
    Drain,
    Drop,
    End,
    Reconnect,
    Resend,
    Resume,
    Serve,
    Settled,
    Stop,
)
from shardbus.core.cluster.keeper import Answer, Keeper
from shardbus.core.cluster.rows import View
from shardbus.core.cluster.statement import MemberStatement, Statement
from shardbus.core.message import NEVER_MS
from shardbus.stores.base.lease import LeaseTable
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

CONNECT_AGAIN_S: Final = 0.3
CONNECT_AGAIN_S_MAX: Final = 2.0
# How long outstanding statements may still be answered before their connection is abandoned.
HANGS_S: Final = 1.0


def lease_ms() -> int:
    """A steady clock that also counts while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000 + 1


class SlotBoard(Protocol):
    """Serves slots. Called in the event loop."""

    def open(self, lease: LeasedSlot, data: bytes | None) -> None:
        """Serve a slot from what is stored, with the locks and sessions that were handed over."""
        ...

    def drain(self, slot: int) -> None:
        """Accept no more requests, and call `LeaseDriver.drained` when all are answered."""
        ...

    def resume(self, slot: int) -> None:
        """Serve a slot again that was being drained."""
        ...

    def drop(self, slot: int) -> None: ...


@final
class _Tables:
    """The connections of one generation, each with its thread."""

    def __init__(self, name: str, new: Callable[[], LeaseTable], loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self.beats, self.slots = new(), new()
        self.beats_worker = ThreadWorker(f"{name}-beats", loop)
        self.slots_worker = ThreadWorker(f"{name}-slots", loop)

    def open(self) -> None:
        self.beats.open()
        self.slots.open()

    def end(self) -> None:
        """Close all connections. Those that hang, for example on a table lock, are aborted, so that
        connections do not accumulate.
        """
        self._loop.call_later(HANGS_S, self.beats.abandon)
        self._loop.call_later(HANGS_S, self.slots.abandon)
        self.beats_worker.submit(self.beats.close, _ignored)
        self.slots_worker.submit(self.slots.close, _ignored)
        self.beats_worker.end()
        self.slots_worker.end()


@final
class LeaseDriver:
    """The membership of one broker in one database. `changed` guards the keeper."""

    def __init__(
        self,
        keeper: Keeper,
        new_table: Callable[[], LeaseTable],
        *,
        loop: asyncio.AbstractEventLoop,
        name: str,
        now_ms: Callable[[], int] = lease_ms,
    ) -> None:
        self.keeper = keeper
        self.changed = threading.Condition()
        self.now_ms = now_ms
        # The keeper gets no answers to statements that were sent over earlier connections.
        self.generation = 0
        self.view: View | None = None
        self.problem = "the database has not been reached yet"
        self.alarms: Counter[str] = Counter()
        self.last_alarm = ""
        self.taken_total = 0
        self.given_total = 0
        self.ended = asyncio.Event()
        self._board: SlotBoard | None = None
        self._new_table = new_table
        self._loop = loop
        self._name = name
        self._tables: _Tables | None = None
        self._leases: dict[int, LeasedSlot] = {}
        self._decided: deque[Decision] = deque()
        self._is_carrying_out = False
        self._timer: asyncio.TimerHandle | None = None
        self._pause_s = CONNECT_AGAIN_S

    def start(self, board: SlotBoard) -> None:
        self._board = board
        self._connect()

    def serves(self, slot: int) -> bool:
        """Whether messages of a slot may be handed out now."""
        return self.keeper.serves(slot, self.now_ms())

    def stop(self) -> None:
        """Give all slots away and leave the cluster; then `ended` is set."""
        self._tell(lambda: self.keeper.stop(self.now_ms()))

    def drained(self, slot: int, data: bytes) -> None:
        self._tell(lambda: self.keeper.drained(slot, data, self.now_ms()))

    def close(self) -> None:
        """End without leaving."""
        if self._timer is not None:
            self._timer.cancel()
        self._hang_up()
        self._finish()

    # For other threads.

    def note(self, decided: list[Decision]) -> None:
        """Carry out the keeper's decisions after a writer's report; the caller has the lock."""
        self.changed.notify_all()
        if decided:
            self._decided.extend(decided)
            self._loop.call_soon_threadsafe(self._carry_out)

    def lost_elsewhere(self, generation: int, why: str) -> None:
        """A connection of this generation was lost."""
        self._loop.call_soon_threadsafe(self._broke, generation, why)

    # Connections.

    def _connect(self) -> None:
        if self.ended.is_set():
            return
        tables = _Tables(self._name, self._new_table, self._loop)
        self._tables = tables

        def opened(result: StoreError | None) -> None:
            if self._tables is not tables:
                return
            if isinstance(result, StoreError):
                self.problem = str(result)
                log.warning("%s: %s", self._name, result)
                self._hang_up()
                self._connect_later()
                return
            self.problem = ""
            self._pause_s = CONNECT_AGAIN_S
            self._tell(lambda: self.keeper.connected(self.now_ms()))

        tables.beats_worker.submit(tables.open, opened)

    def _connect_later(self) -> None:
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, CONNECT_AGAIN_S_MAX)
        self._loop.call_later(pause_s, self._connect)

    def _broke(self, generation: int, why: str) -> None:
        if generation != self.generation or self._tables is None:
            return
        log.warning("%s: %s; connecting again", self._name, why)
        self.problem = why
        self._hang_up()
        self._tell(lambda: self.keeper.disconnected(self.now_ms()))
        self._connect_later()

    def _hang_up(self) -> None:
        tables, self._tables = self._tables, None
        with self.changed:
            self.generation += 1
            self.changed.notify_all()
        for lease in self._leases.values():
            lease.hang_up()
        if tables is not None:
            tables.end()

    def _ask(self, statement: Statement) -> None:
        tables, generation = self._tables, self.generation
        if tables is None:
            return
        is_beat = isinstance(statement, MemberStatement)
        table = tables.beats if is_beat else tables.slots
        worker = tables.beats_worker if is_beat else tables.slots_worker

        def answered(answer: Answer | StoreError) -> None:
            if generation != self.generation:
                return
            if isinstance(answer, StoreError):
                self._broke(generation, str(answer))
                return
            if isinstance(answer, View):
                self.view = answer
            self._tell(lambda: self.keeper.answered(statement, answer, self.now_ms()))

        worker.submit(lambda: table.ask(statement), answered)

    # Decisions.

    def _tell(self, work: Callable[[], list[Decision]]) -> None:
        with self.changed:
            self._decided.extend(work())
            self.changed.notify_all()
        self._carry_out()

    def _carry_out(self) -> None:
        """Carry out decisions in their order, then the decisions that follow from them."""
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._decided:
                self._do(self._decided.popleft())
        finally:
            self._is_carrying_out = False
        self._set_timer()

    def _do(self, decision: Decision) -> None:
        match decision:
            case Ask():
                self._ask(decision.statement)
            case Reconnect():
                self._hang_up()
                self.problem = self.problem or "the database did not answer in time"
                self._connect_later()
            case Serve():
                self._serve(decision)
            case Drain():
                self._on_board().drain(decision.slot)
            case Drop():
                self._drop(decision.slot)
            case Resume():
                self._on_board().resume(decision.slot)
            case Confirm():
                self._settle(decision.slot, is_stored=True)
            case Resend():
                self._settle(decision.slot, is_stored=False)
            case _:
                self._do_for_all(decision)

    def _do_for_all(self, decision: Decision) -> None:
        match decision:
            case Settled():
                self._note_settled(decision.timeline)
            case Alarm():
                self._raise_alarm(decision)
            case End():
                self._hang_up()
                self._finish()
            case Stop():
                log.warning("%s: slot %d waits for the database", self._name, decision.slot)
            case _:
                raise TypeError(f"{type(decision).__name__} is no decision")

    def _raise_alarm(self, alarm: Alarm) -> None:
        self.alarms[alarm.kind] += 1
        log.critical("%s: %s", self._name, alarm.text)
        if alarm.kind == COMMITS_LOST:
            # Kept until this process ends, because an operator must examine the loss.
            self.last_alarm = alarm.text
        elif alarm.kind != NEW_TIMELINE:
            self.problem = alarm.text

    def _serve(self, serve: Serve) -> None:
        if not serve.must_load:
            self._on_board().resume(serve.slot)
            return
        if serve.slot in self._leases:
            self._drop(serve.slot)
        lease = LeasedSlot(self, serve.slot, serve.epoch, serve.commits)
        self._leases[serve.slot] = lease
        self.taken_total += 1
        log.info("%s: serves slot %d at epoch %d", self._name, serve.slot, serve.epoch)
        self._on_board().open(lease, serve.data)

    def _drop(self, slot: int) -> None:
        lease = self._leases.pop(slot, None)
        if lease is None:
            return
        with self.changed:
            lease.is_dropped = True
            self.changed.notify_all()
        self.given_total += 1
        log.info("%s: slot %d is not ours any more", self._name, slot)
        self._on_board().drop(slot)

    def _settle(self, slot: int, *, is_stored: bool) -> None:
        """The outcome of the commit whose answer was lost. If it was not stored, its writer sends
        it again, unless the writer has stopped waiting.
        """
        with self.changed:
            lease = self._leases.get(slot)
            if not self.keeper.has(slot):
                return
            fence = self.keeper.fence(slot)
            if not is_stored:
                self.keeper.withdraw(fence)
            if lease is not None:
                lease.settle(fence.number - int(is_stored), is_stored=is_stored)
            self.changed.notify_all()

    def _note_settled(self, timeline: int) -> None:
        tables = self._tables
        if tables is not None:
            table = tables.beats
            tables.beats_worker.submit(lambda: table.settle(timeline), _ignored)

    def _finish(self) -> None:
        for slot in list(self._leases):
            self._drop(slot)
        if self._timer is not None:
            self._timer.cancel()
        self.ended.set()

    def _on_board(self) -> SlotBoard:
        assert self._board is not None, "the driver was not started"
        return self._board

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.ended.is_set():
            return
        with self.changed:
            at_ms = self.keeper.next_ms()
        if at_ms != NEVER_MS:
            delay_s = max(0, at_ms - self.now_ms()) / 1000
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._tell(lambda: self.keeper.tick(self.now_ms()))


def _ignored(_: StoreError | None) -> None:
    """Ignore the result."""
