"""One life of a broker: the driver of a keeper, and clients that send, receive and settle."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from shardbus.core.cluster.decision import (
    AboutSlot,
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
from shardbus.core.cluster.keeper import Keeper
from shardbus.core.cluster.statement import Commit, Statement
from shardbus.core.message import NEVER_MS
from tests.simulation.lease_checks import LeaseChecks, Lock, packed, unpacked
from tests.simulation.lease_database import CLUSTER, Answer, Entry, Transaction
from tests.simulation.lease_net import Agenda, Link, Server, Wire
from tests.simulation.tally import asked

LOCK_S: Final = 20.0
# Of the steady clocks of machines, against each other.
RATES: Final = (0.9, 1.1)
DRAIN_S: Final = 0.05


class Surroundings(Protocol):
    """What outlives a broker."""

    agenda: Agenda
    chance: Random
    server: Server
    checks: LeaseChecks
    timeline: int

    def note(self, line: str) -> None: ...

    def new_mark(self) -> int: ...

    def check_holders(self, slot: int) -> None: ...

    def alarmed(self, life: Life, alarm: Alarm) -> None: ...


class Memory:
    """What a broker has of a slot: entries in order, and locks by message, as (token, until)."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.messages: dict[int, None] = {}
        self.locks: dict[int, tuple[int, int]] = {}
        self.is_draining = False
        for entry in entries:
            self.note(entry)

    def note(self, entry: Entry) -> None:
        if entry.what == "sent":
            self.messages[entry.message] = None
        else:
            self.messages.pop(entry.message, None)
            self.locks.pop(entry.message, None)

    def tokens(self) -> frozenset[int]:
        return frozenset(token for token, _ in self.locks.values())

    def apply(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.note(entry)


class Life:
    """A process, from its start to its end; it may be paused, and its clock may stand."""

    def __init__(self, name: str, world: Surroundings, wire: Wire) -> None:
        self.name = name
        self.wire = wire
        self.is_dead = False
        self.is_paused = False
        self.memories: dict[int, Memory] = {}
        # Its clock stood: for as long as it believes in its lease nobody can tell it otherwise.
        self.doubtful_until_s = 0.0
        self.troubled_until_s = world.agenda.now_s
        self.began_s = world.agenda.now_s
        self._world = world
        self._started_at_ms = world.chance.randrange(1_000, 100_000_000)
        self._rate = world.chance.uniform(*RATES)
        self._stood_ms = 0
        self._frozen_at_ms: int | None = None
        self._missed: list[Callable[[], None]] = []
        self._link: Link | None = None
        self._pending: dict[int, tuple[Commit, Entry]] = {}
        self._timer_ms = NEVER_MS
        self.keeper = Keeper(name, world.chance.getrandbits(40), CLUSTER, world.timeline)

    # Time.

    def now_ms(self) -> int:
        if self._frozen_at_ms is not None:
            return self._frozen_at_ms
        passed_ms = int(self._world.agenda.now_s * 1000 * self._rate)
        return self._started_at_ms + passed_ms - self._stood_ms

    def pause(self, seconds: float, clock_stands: bool) -> None:
        if self.is_paused or self.is_dead:
            return
        self.is_paused = True
        if clock_stands:
            self._frozen_at_ms = self.now_ms()
            until_s = self._world.agenda.now_s + seconds + 4.0
            self.doubtful_until_s = max(self.doubtful_until_s, until_s)
        self.trouble(seconds)
        self._world.agenda.after(seconds, lambda: self._wake(seconds))

    def trouble(self, seconds: float) -> None:
        """Something of its own keeps it from beating for so long."""
        until_s = self._world.agenda.now_s + seconds + 10.0
        self.troubled_until_s = max(self.troubled_until_s, until_s)

    def _wake(self, seconds: float) -> None:
        if self._frozen_at_ms is not None:
            self._stood_ms += int(seconds * 1000 * self._rate)
            self._frozen_at_ms = None
        self.is_paused = False
        missed, self._missed = self._missed, []
        for thing in missed:
            self._happen(thing)

    def _happen(self, thing: Callable[[], None]) -> None:
        """Something reaches the process; a paused one when it goes on."""
        if self.is_paused:
            self._missed.append(thing)
        elif not self.is_dead:
            thing()

    def die(self) -> None:
        self.is_dead = True
        if self._link is not None:
            self._link.close()

    # The connection.

    def connect(self) -> None:
        world = self._world
        delay_s = world.chance.uniform(0.001, 0.05)
        world.agenda.after(delay_s, lambda: self._happen(self._try_to_connect))

    def _try_to_connect(self) -> None:
        world, wire = self._world, self.wire
        if not (world.server.is_up and wire.carries_answers and wire.carries_questions):
            delay_s = world.chance.uniform(0.1, 0.6)
            world.agenda.after(delay_s, lambda: self._happen(self._try_to_connect))
            return
        self._link = Link(world.server, wire, self._broke)
        self._carry_out(self.keeper.connected(self.now_ms()))

    def break_link(self) -> None:
        if self._link is not None:
            self._link.reset()

    def _broke(self, link: Link) -> None:
        def learn() -> None:
            if link is self._link:
                self._link = None
                self._carry_out(self.keeper.disconnected(self.now_ms()))
                self.connect()

        self._happen(learn)

    def _ask(self, statement: Statement, entry: Entry | None) -> None:
        link = self._link
        assert link is not None

        def told(transaction: Transaction, answer: Answer) -> None:
            self._happen(lambda: self._told(link, transaction, answer))

        link.ask(statement, entry, told)

    def _told(self, link: Link, transaction: Transaction, answer: Answer) -> None:
        if link is not self._link:
            return
        statement = transaction.statement
        if not isinstance(statement, Commit):
            self._carry_out(self.keeper.answered(statement, answer, self.now_ms()))
            return
        pending = self._pending.get(statement.slot)
        if pending is not None and pending[1] is transaction.entry and answer:
            self._acknowledge(statement.slot)
        self._carry_out(self.keeper.committed(statement, bool(answer)))

    # Decisions.

    def start(self) -> None:
        self.connect()
        self._work_later()

    def stop(self) -> None:
        self._happen(lambda: self._carry_out(self.keeper.stop(self.now_ms())))

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            self._do(decision)
        self._set_timer()

    def _do(self, decision: Decision) -> None:
        world = self._world
        if isinstance(decision, Ask):
            self._ask(decision.statement, None)
        elif isinstance(decision, Reconnect):
            assert self._link is not None
            self._link.close()
            self._link = None
            self.connect()
        elif isinstance(decision, Serve):
            self._serve(decision)
        elif isinstance(decision, Settled):
            world.timeline = max(world.timeline, decision.timeline)
        elif isinstance(decision, Alarm):
            world.alarmed(self, decision)
        elif isinstance(decision, End):
            world.note(f"{self.name} left")
            self.die()
        else:
            assert isinstance(decision, AboutSlot)
            self._do_to_slot(decision, decision.slot)

    def _do_to_slot(self, decision: AboutSlot, slot: int) -> None:
        if isinstance(decision, Drop):
            self.memories.pop(slot, None)
            self._pending.pop(slot, None)
            self._world.checks.dropped(self, slot)
        elif isinstance(decision, Drain):
            self.memories[slot].is_draining = True
            self._drain_later(slot, self.memories[slot])
        elif isinstance(decision, Confirm):
            self._acknowledge(slot)
        elif isinstance(decision, Resend):
            self._send_again(slot)
        elif isinstance(decision, Resume):
            self.memories[slot].is_draining = False
            self._world.checks.has_locks(self, slot, self.memories[slot].tokens())
        else:
            assert isinstance(decision, Stop)

    def _serve(self, serve: Serve) -> None:
        world, slot = self._world, serve.slot
        if serve.must_load:
            self._pending.pop(slot, None)
            self.memories[slot] = Memory(list(world.server.database.logs[slot]))
            now_ms = self.now_ms()
            for message, (token, left_ms) in unpacked(serve.data).items():
                self.memories[slot].locks[message] = (token, now_ms + left_ms)
        memory = self.memories[slot]
        memory.is_draining = False
        world.note(f"{self.name} serves {slot} at {serve.epoch}")
        if world.server.database.slots[slot].epoch != serve.epoch:
            # It slept, somebody else has it, and this one will be told before it serves.
            is_sure = self.doubtful_until_s < world.agenda.now_s
            assert not (is_sure and self.keeper.serves(slot, self.now_ms()))
            return
        world.checks.served(self, serve, memory.tokens())
        if len(memory.entries) != serve.commits:
            raise AssertionError(f"{self.name} has {len(memory.entries)} commits of slot {slot}")
        world.check_holders(slot)

    def _set_timer(self) -> None:
        at_ms = self.keeper.next_ms()
        if self.is_dead or at_ms == NEVER_MS or at_ms == self._timer_ms:
            return
        self._timer_ms = at_ms
        delay_s = max(0.0, (at_ms - self.now_ms()) / 1000 / self._rate)
        self._world.agenda.after(delay_s, lambda: self._happen(lambda: self._tick(at_ms)))

    def _tick(self, at_ms: int) -> None:
        if at_ms == self._timer_ms:
            self._timer_ms = NEVER_MS
            self._carry_out(self.keeper.tick(self.now_ms()))

    # Clients.

    def _work_later(self) -> None:
        delay_s = self._world.chance.expovariate(8.0)
        self._world.agenda.after(delay_s, lambda: self._happen(self._work))

    def _work(self) -> None:
        chance = self._world.chance
        self._work_later()
        if not self.memories:
            return
        slot = chance.choice(list(self.memories))
        memory = self.memories[slot]
        if memory.is_draining:
            return
        what = chance.random()
        if what < 0.4:
            self._commit(slot, "sent", self._world.new_mark())
        elif what < 0.75:
            self._hand_out(slot, memory)
        elif memory.locks:
            self._settle(slot, memory)

    def _hand_out(self, slot: int, memory: Memory) -> None:
        world, now_ms = self._world, self.now_ms()
        if not self.keeper.serves(slot, now_ms):
            return
        memory.locks = {m: lock for m, lock in memory.locks.items() if lock[1] > now_ms}
        for message in memory.messages:
            if message not in memory.locks:
                token = world.new_mark()
                memory.locks[message] = (token, now_ms + int(LOCK_S * 1000))
                world.check_holders(slot)
                if self.doubtful_until_s < world.agenda.now_s:
                    # Some clocks are faster, and none has parts of milliseconds.
                    until_s = world.agenda.now_s + LOCK_S / RATES[1] - 0.002
                    lock = Lock(token, until_s, self)
                    world.checks.handed_out(slot, message, lock, world.agenda.now_s)
                return

    def _settle(self, slot: int, memory: Memory) -> None:
        message = self._world.chance.choice(list(memory.locks))
        if memory.locks[message][1] > self.now_ms() and message in memory.messages:
            self._commit(slot, "settled", message)

    def _commit(self, slot: int, what: str, message: int) -> None:
        fence = self.keeper.commit(slot, self.now_ms())
        if fence is not None:
            asked()
            self._send(slot, fence, what, message)

    def _send(self, slot: int, fence: Commit, what: str, message: int) -> None:
        entries = self.memories[slot].entries
        after = entries[-1].mark if entries else 0
        entry = Entry(self._world.new_mark(), after, what, message)
        self._pending[slot] = (fence, entry)
        self._ask(fence, entry)

    def _send_again(self, slot: int) -> None:
        entry = self._pending[slot][1]
        self._world.checks.given_up(entry)
        self._send(slot, self.keeper.fence(slot), entry.what, entry.message)

    def _acknowledge(self, slot: int) -> None:
        entry = self._pending.pop(slot)[1]
        self.memories[slot].apply(entry)
        self._world.checks.acknowledged(slot, entry)
        if entry.what == "settled":
            self._world.checks.settled(slot, entry.message)

    def _drain_later(self, slot: int, memory: Memory) -> None:
        self._world.agenda.after(DRAIN_S, lambda: self._happen(lambda: self._drain(slot, memory)))

    def _drain(self, slot: int, memory: Memory) -> None:
        if self.memories.get(slot) is not memory or not memory.is_draining:
            return
        if slot in self._pending:
            self._drain_later(slot, memory)
            return
        now_ms = self.now_ms()
        memory.locks = {m: lock for m, lock in memory.locks.items() if lock[1] > now_ms}
        left = {m: (token, until - now_ms) for m, (token, until) in memory.locks.items()}
        self._world.checks.draining[slot] = memory.tokens()
        self._carry_out(self.keeper.drained(slot, packed(left), now_ms))
