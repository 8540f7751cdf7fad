"""Messages that wait for a moment, on a machine whose wall clock is set and whose process dies.

A moment has come when the wall clock says so. What was scheduled for it is active within a bound
after that, if the clock says so all the while, and never before the clock has said so once; what
has expired is delivered to nobody, and is gone within the same bound.
"""

from __future__ import annotations

import asyncio
import hashlib
from random import Random
from typing import Final

from shardbus.broker.fragment.alarm import LOOK_MS_MAX
from shardbus.broker.fragment.runner import Runner
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.operations.asking import ask
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.message import MAIN_LINE, NEVER_MS, SCHEDULED, Entry, Message
from shardbus.core.messages.command import COMPLETE, Receive, Received, Send, Sent, Settle
from shardbus.stores.base.store import FragmentId
from tests.simulation.faults import Disk
from tests.simulation.sending import Violation
from tests.simulation.tally import asked, befell
from tests.simulation.walls import STEP_MS, Clockmaker
from tests.simulation.world import VirtualClock, VirtualLoop, VirtualWorker, Wall

FRAGMENT: Final = FragmentId(1, 0)
CHAOS_S: Final = (120.0, 240.0)
LOOK_S: Final = 1.0
# The alarm's bound, one look of the book, a restart, and what a disk takes.
LATE_S_MAX: Final = LOOK_MS_MAX / 1000 + 2 * LOOK_S + 3.0
MOMENTS_MS: Final = (300, 5_000, 20_000, STEP_MS // 2, STEP_MS, 6 * STEP_MS)
LIVES_MS: Final = (-1, -1, 5_000, 30_000, STEP_MS)


class Village:
    """One machine with one fragment."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop, Wall())
        self.disk = Disk()
        self.disk.create([FRAGMENT])
        self.is_over = False
        # Nobody asks for anything: only the alarm can notice that a moment has come.
        self.is_quiet = False
        self.notes: list[str] = []
        self.restarts = 0
        self.activated: set[bytes] = set()
        self.clockmaker = Clockmaker(seed, [self.clock.wall], self.note)
        # By number: since when the clock says that the time of a message has come.
        self._due_since_s: dict[int, float] = {}
        # By the payload of what is scheduled: its moment. And what the clock has said at most.
        self._moments_ms: dict[bytes, int] = {}
        self._latest_ms: dict[bytes, int] = {}
        self._workers: list[VirtualWorker] = []
        self.runner = self._started()

    def note(self, line: str) -> None:
        """Whoever sets the clock says so: what it says then counts, however short that lasts."""
        self._hear_the_clock()
        self.notes.append(f"{self.loop.time():.6f} {line}")

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.notes).encode()).hexdigest()

    def calm(self) -> None:
        self.is_over = True
        self.clockmaker.put_right()

    def restart(self) -> None:
        """The process dies, and the next one loads what is stored."""
        befell("process crash")
        self.restarts += 1
        for worker in self._workers:
            worker.die()
        self.runner.stop()
        self.runner = self._started()

    def _started(self) -> Runner:
        self._workers = [VirtualWorker(self.loop, self._latency_s, self.restart) for _ in range(2)]
        storage = Storage(self.disk, self._workers[0], self._workers[1], self.loop)
        rules = FragmentRules(
            lock_ms=5_000,
            delivery_count_max=1_000,
            default_ttl_ms=-1,
            dead_letters_on_expiration=False,
            size_bytes_max=1 << 40,
        )
        return Runner(FRAGMENT, rules, storage, self.clock, self.loop)

    def _latency_s(self) -> float:
        return self.chance.uniform(0.0002, 0.05)

    # What clients do.

    async def send(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self.chance.expovariate(2.0))
            if self.is_quiet:
                continue
            moment_ms = NEVER_MS
            if self.chance.random() < 0.7:
                moment_ms = self.clock.now_ms() + self.chance.choice(MOMENTS_MS)
            payload = b"%d" % len(self._moments_ms)
            message = Message(
                payload, ttl_ms=self.chance.choice(LIVES_MS), scheduled_at_ms=moment_ms
            )
            self._moments_ms[payload] = moment_ms
            self._latest_ms[payload] = self.clock.now_ms()
            asked()
            try:
                sent = await ask(self.runner, Send([message]))
            except Unavailable:
                continue
            assert isinstance(sent, Sent)
            self.note(f"sent {sent.numbers()} for {moment_ms}")

    async def receive(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self.chance.expovariate(1.0))
            if not self.is_quiet:
                await self._take()

    async def _take(self) -> None:
        asked()
        runner, before_ms, ahead_ms = self.runner, self.clock.now_ms(), self.clock.wall.ahead_ms
        command = Receive(MAIN_LINE, 3, is_locking=True, token_seed=self.chance.randbytes(8))
        try:
            received = await ask(runner, command)
            assert isinstance(received, Received)
            for delivery in received.deliveries:
                is_sure = ahead_ms == self.clock.wall.ahead_ms
                if is_sure and delivery.entry.is_expired(before_ms):
                    raise Violation(f"{delivery.entry.sequence_number} was delivered, and expired")
            tokens = [delivery.token for delivery in received.deliveries]
            if tokens and self.chance.random() < 0.8:
                await ask(runner, Settle(COMPLETE, tokens))
        except (Refused, Unavailable):
            return

    async def rest(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self.chance.uniform(5, 20))
            self.is_quiet = True
            await asyncio.sleep(self.chance.uniform(20, 60))
            self.is_quiet = False

    async def die(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self.chance.expovariate(1 / 60))
            if not self.is_over:
                self.restart()

    # What is promised.

    async def watch(self, until_s: float) -> None:
        while self.loop.time() < until_s:
            self._check()
            await asyncio.sleep(LOOK_S)

    def _check(self) -> None:
        now_ms, now_s = self.clock.now_ms(), self.loop.time()
        entries = self.disk.kept._fragments[FRAGMENT].entries
        self._hear_the_clock()
        for number, entry in entries.items():
            due_ms = entry.due_ms()
            if due_ms == NEVER_MS or due_ms > now_ms:
                self._check_moment(entry)
                continue
            late_s = now_s - self._due_since_s.setdefault(number, now_s)
            # A message that somebody has locked expires when it is let go.
            held_s = 0.0 if entry.state == SCHEDULED else 10.0
            if late_s > LATE_S_MAX + held_s:
                raise Violation(f"{number} was due at {due_ms}, for {late_s:.1f} s already")

    def _hear_the_clock(self) -> None:
        now_ms = self.clock.now_ms()
        entries = self.disk.kept._fragments[FRAGMENT].entries
        for number in list(self._due_since_s):
            due_ms = entries[number].due_ms() if number in entries else NEVER_MS
            if due_ms == NEVER_MS or due_ms > now_ms:
                # Whoever looked while the clock said that its time is to come looked in vain.
                del self._due_since_s[number]
        for payload, latest_ms in self._latest_ms.items():
            self._latest_ms[payload] = max(latest_ms, now_ms)

    def _check_moment(self, entry: Entry) -> None:
        """Whatever is active was sent so, or the clock has said that its time has come."""
        payload = entry.payload
        if payload is None or entry.state == SCHEDULED:
            return
        moment_ms = self._moments_ms[payload]
        if moment_ms != NEVER_MS:
            self.activated.add(payload)
        if moment_ms > self._latest_ms[payload] + STEP_MS // 2:
            raise Violation(f"{entry.sequence_number} was active before its moment, {moment_ms}")


def run_moments(seed: int) -> Village:
    """Play one seed to its end; a broken promise raises Violation."""
    village = Village(seed)
    village.loop.finish(village.loop.create_task(_play(village)))
    return village


async def _play(village: Village) -> None:
    chaos_s = village.chance.uniform(*CHAOS_S)
    village.loop.call_later(chaos_s, village.calm)
    async with asyncio.TaskGroup() as group:
        group.create_task(village.send())
        group.create_task(village.receive())
        group.create_task(village.rest())
        group.create_task(village.die())
        group.create_task(village.clockmaker.run())
        # With the clock put right everything that is due comes soon.
        group.create_task(village.watch(chaos_s + 3 * LATE_S_MAX))
    village.runner.stop()
