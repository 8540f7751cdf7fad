"""Moves messages from entities that forward to their destinations, for ever (R27).

Every gateway does it, and several at once do no harm: a repeated command to a fragment changes
nothing (see `core.transfers.transferring`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, final

from shardbus.broker.bus import Bus, EntityHandle
from shardbus.broker.forwarding.plan import ForwardingPlan, ForwardingVerdict
from shardbus.broker.operations.asking import ask, ask_all, to_port
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import NOT_ALLOWED, QUOTA_EXCEEDED, Refused, Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.messages.command import Delivery, Received
from shardbus.core.namespace.address import line_path
from shardbus.core.namespace.entity import Entity
from shardbus.core.transfers.command import (
    ForgetSources,
    ListSources,
    ListTransfers,
    Outstanding,
    RefuseTransfers,
    ReturnTransfers,
    Sources,
    TakenOver,
    TakeTransfers,
    TransfersDone,
)
from shardbus.core.transfers.transferring import transfer_number
from shardbus.message.forwarded import ForwardFormat, forwarded
from shardbus.stores.base.store import FragmentId

log = logging.getLogger(__name__)

BATCH_MAX: Final = 256
# Source fragments that are processed at once.
AT_ONCE_MAX: Final = 64
ROUND_MS: Final = 30_000
# Between two attempts to reach a destination that is full or away.
PAUSE_MS_MIN: Final = 50
PAUSE_MS_MAX: Final = 2_000
# A destination that cannot be found for this long is missing, not just too new to be known here.
MISSING_MS: Final = 3_000
# How often silent lines are checked: nothing wakes this gateway for what another one left there.
LOOK_MS: Final = 1_000
LOOKS_MAX: Final = 200
# Between two attempts to make room in a fragment that has none, and how many of them are known.
ROOM_MS: Final = 60_000
ROOMS_MAX: Final = 10_000

_LINES: Final = (MAIN_LINE, DEAD_LETTER_LINE)

_IDLE: Final = 0
_MOVED: Final = 1
_STUCK: Final = 2
# Older messages, in fragments of former maps, come first.
_LATER: Final = 3


def target_of(entity: Entity, line: int) -> str:
    """The entity to which a line is forwarded; empty if it is not forwarded."""
    if line == MAIN_LINE:
        return entity.spec.forward_to if entity.spec.forwards() else ""
    return entity.spec.forward_dead_letters_to if line == DEAD_LETTER_LINE else ""


def not_kept(entity: Entity, line: int) -> Refused | None:
    """Why nothing can be received from a line; None if messages can be received."""
    target = target_of(entity, line)
    if not target:
        return None
    return Refused(
        NOT_ALLOWED,
        f"Messages cannot be received from '{line_path(entity.name, line)}', which forwards "
        f"them to '{target}': receive from there.",
    )


@final
class Forwarder:
    """Serves all entities that forward. A `directory.EntityListener`.

    `moved_total` counts the messages that were moved since the start.
    """

    def __init__(self, bus: Bus, format_of: ForwardFormat = forwarded) -> None:
        self.bus = bus
        self.format_of = format_of
        self.at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self.moved_total = 0
        self._movers: dict[tuple[int, int, int], _Mover] = {}
        self._unseen: list[_Mover] = []
        # Lines of former fragments of which everything was moved, at least once.
        self._moved_lines: set[tuple[int, int, int]] = set()
        # Fragments of known entities that have given out messages, whether they still forward or
        # not; and whether there may be more.
        self._attended: set[FragmentId] = set()
        self._has_unattended = True
        # When this gateway last made room in a fragment that refused messages, by entity and
        # position.
        self._made_room_at_s: dict[tuple[int, int], float] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Runs for ever."""
        namespace = self.bus.namespace
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                namespace.subscribe(self)
                for entity in namespace.forwarding():
                    self._attend(entity)
                tasks.create_task(self._attend_former())
                while True:
                    await asyncio.sleep(LOOK_MS / 1000)
                    self._look()
            finally:
                # Fragments that are still watched may call back after this has ended.
                self._tasks = None

    def entity_created(self, entity: Entity) -> None:
        self._attend(entity)
        # It may have been recovered from orphans that forwarded once.
        self._has_unattended = True

    def entity_updated(self, entity: Entity) -> None:
        self._attend(entity)
        # Also those that no longer forward: messages may be on their way.
        self._nudge(self._movers_of(entity))

    def entity_deleted(self, entity: Entity) -> None:
        for mover in self._movers_of(entity):
            self.forget(mover)
            mover.stop()
        for home in entity.fragments:
            self._attended.discard(FragmentId(entity.entity_id, home.number))
            for line in _LINES:
                self._moved_lines.discard((entity.entity_id, home.number, line))

    def start(self, mover: _Mover) -> None:
        if self._tasks is not None:
            self._tasks.create_task(mover.move())

    def forget(self, mover: _Mover) -> None:
        """Drop the mover of a line that is not forwarded any more and has nothing given out."""
        self._movers.pop((mover.entity_id, mover.number, mover.line), None)

    def moves_later(self, source: Entity, number: int, line: int) -> bool:
        """Whether a fragment must wait because older messages may be left in fragments of former
        maps.
        """
        if not source.former_count or source.is_former(number):
            return False
        return any(
            (source.entity_id, home.number, line) not in self._moved_lines
            for home in source.former()
        )

    def note_moved(self, source: Entity, number: int, line: int) -> None:
        """A former fragment has nothing left, neither there nor on its way."""
        key = (source.entity_id, number, line)
        if key not in self._moved_lines:
            self._moved_lines.add(key)
            self._nudge(self._movers_of(source))

    async def make_room(self, destination: EntityHandle, index: int) -> None:
        """Let a fragment forget deleted entities that once forwarded to it; at most now and
        then.
        """
        fragment = (destination.entity.entity_id, index)
        now_s = self.bus.loop.time()
        if now_s < self._made_room_at_s.get(fragment, -ROOM_MS) + ROOM_MS / 1000:
            return
        if len(self._made_room_at_s) >= ROOMS_MAX:
            self._made_room_at_s.clear()
        self._made_room_at_s[fragment] = now_s
        port = destination.router.ports[index]
        sources = await ask(port, ListSources())
        assert isinstance(sources, Sources)
        find_id = self.bus.namespace.find_id
        lost = [entity_id for entity_id in sources.entity_ids if find_id(entity_id) is None]
        gone = await self.bus.without_fragments(lost)
        if gone:
            await ask(port, ForgetSources(gone))

    def _attend(self, entity: Entity) -> None:
        for line in _LINES:
            if target_of(entity, line):
                for home in entity.fragments:
                    self._mover(entity.entity_id, home.number, line).nudge()

    async def _attend_former(self) -> None:
        """Settle the messages given out by entities that stopped forwarding before a restart.

        Repeated while a broker cannot be asked, and when an entity is added.
        """
        while True:
            if self._has_unattended:
                self._has_unattended = False
                found, is_whole = await self.bus.transferring()
                self._has_unattended = self._has_unattended or not is_whole
                for fragment in found:
                    self._attend_once(fragment)
            await asyncio.sleep(LOOK_MS / 1000)

    def _attend_once(self, fragment: FragmentId) -> None:
        if fragment in self._attended or self.bus.namespace.find_id(fragment.entity_id) is None:
            return
        self._attended.add(fragment)
        for line in _LINES:
            self._mover(fragment.entity_id, fragment.number, line).nudge()

    def _mover(self, entity_id: int, number: int, line: int) -> _Mover:
        key = (entity_id, number, line)
        mover = self._movers.get(key)
        if mover is None:
            mover = _Mover(self, entity_id, number, line)
            self._movers[key] = mover
        return mover

    def _movers_of(self, entity: Entity) -> list[_Mover]:
        keys = [
            (entity.entity_id, home.number, line) for home in entity.fragments for line in _LINES
        ]
        return [self._movers[key] for key in keys if key in self._movers]

    def _nudge(self, movers: list[_Mover]) -> None:
        for mover in movers:
            mover.nudge()

    def _look(self) -> None:
        if not self._unseen:
            self._unseen = list(self._movers.values())
        looked_at = self._unseen[-LOOKS_MAX:]
        del self._unseen[-LOOKS_MAX:]
        self._nudge(looked_at)


@final
class _Mover:
    """Moves the messages of one line of one fragment; waits while there are none."""

    def __init__(self, forwarder: Forwarder, entity_id: int, number: int, line: int) -> None:
        self.entity_id = entity_id
        self.number = number
        self.line = line
        self._forwarder = forwarder
        self._bus = forwarder.bus
        self._is_moving = False
        self._is_nudged = False
        self._is_gone = False
        self._watched: FragmentPort | None = None
        self._missing_since_ms = -1
        self._pause_ms = 0

    def nudge(self) -> None:
        """There may be something to do."""
        if self._is_gone:
            return
        if self._is_moving:
            self._is_nudged = True
        else:
            self._is_moving = True
            self._forwarder.start(self)

    def stop(self) -> None:
        self._is_gone = True
        if self._watched is not None:
            self._watched.unwatch(self.line, self._wake)
            self._watched = None

    async def move(self) -> None:
        """Run until there is nothing to move."""
        outcome = _IDLE
        while not self._is_gone:
            self._is_nudged = False
            outcome = await self._tried()
            if outcome == _STUCK:
                self._pause_ms = min(max(2 * self._pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
                await asyncio.sleep(self._pause_ms / 1000)
                continue
            self._pause_ms = 0
            if outcome in (_IDLE, _LATER) and not self._is_nudged:
                break
        self._is_moving = False
        # Whoever waits for others is nudged by them.
        if outcome != _LATER:
            self._rest()

    def _wake(self) -> None:
        self._watched = None
        self.nudge()

    def _rest(self) -> None:
        """Wait for messages, unless the line is not forwarded (any more)."""
        source = self._bus.namespace.find_id(self.entity_id)
        port = self._bus.fragment(self.entity_id, self.number)
        if self._is_gone or self._watched is not None:
            return
        if source is None or port is None or not target_of(source, self.line):
            self._forwarder.forget(self)
            return
        self._watched = port
        port.watch(self.line, self._wake)

    async def _tried(self) -> int:
        try:
            async with self._forwarder.at_once, asyncio.timeout(ROUND_MS / 1000):
                return await self._round()
        except (Refused, Unavailable, TimeoutError) as error:
            log.debug("forwarding from %d.%d waits: %s", self.entity_id, self.number, error)
        except Exception:
            log.exception("forwarding from %d.%d failed", self.entity_id, self.number)
        return _STUCK

    async def _round(self) -> int:
        source = self._bus.namespace.find_id(self.entity_id)
        port = self._bus.fragment(self.entity_id, self.number)
        if source is None or port is None:
            return _IDLE
        name = target_of(source, self.line)
        if not name:
            return await self._call_back(source, port)
        if self._forwarder.moves_later(source, self.number, self.line):
            return _LATER
        destination = self._bus.find(name.lower())
        if destination is None and not self._is_surely_missing():
            return _STUCK
        destination_id = map_start = 0
        if destination is not None:
            self._missing_since_ms = -1
            destination_id = destination.entity.entity_id
            map_start = destination.entity.former_count
        try:
            command = TakeTransfers(self.line, BATCH_MAX, destination_id, map_start)
            taken = await ask(port, command)
        except Refused as refusal:
            if refusal.kind is not NOT_ALLOWED:
                raise
            return await self._call_back(source, port)
        assert isinstance(taken, Received)
        if not taken.deliveries:
            if taken.has_more:
                return _MOVED
            if source.is_former(self.number):
                self._forwarder.note_moved(source, self.number, self.line)
            return _IDLE
        plan = self._plan(source, map_start)
        for delivery in taken.deliveries:
            plan.forward(delivery, destination, name)
        return await self._carry_out(plan, taken.deliveries, destination, port)

    async def _call_back(self, source: Entity, port: FragmentPort) -> int:
        """Take back messages that were given out for a destination other than the present one, or
        for another map of it.

        The fragments of that map alone decide about them, sealed or not.
        """
        outstanding = await ask(port, ListTransfers(self.line))
        assert isinstance(outstanding, Outstanding)
        if outstanding.count == 0:
            return _IDLE
        former = self._bus.namespace.find_id(outstanding.destination_id)
        destination = None if former is None else self._bus.find(former.name.lower())
        if destination is None and outstanding.destination_id:
            # An entity missing in an old catalogue may have taken them, and may come back.
            is_kept = await self._bus.may_be_held(outstanding.destination_id)
            if is_kept or not self._is_surely_missing():
                return _STUCK
        map_start = outstanding.map_start
        command = TakeTransfers(self.line, 0, outstanding.destination_id, map_start)
        taken = await ask(port, command)
        assert isinstance(taken, Received)
        if not taken.deliveries:
            return _IDLE
        self._missing_since_ms = -1
        plan = self._plan(source, map_start)
        for delivery in taken.deliveries:
            plan.call_back(delivery, destination)
        if destination is not None and not destination.entity.map_at(map_start):
            await self._check_open(plan, destination)
        return await self._carry_out(plan, taken.deliveries, destination, port)

    async def _check_open(self, plan: ForwardingPlan, destination: EntityHandle) -> None:
        """Unavailable unless the fragments of a plan accept messages.

        If they are sealed, there is a map that this gateway does not know yet. If not, nobody knows
        the map any more: the destination was recovered without its catalogue.
        """
        entity = destination.entity
        homes = [entity.fragments[index] for index in plan.shares]
        told = await self._bus.seal(entity, homes, 0, is_open=True)
        if any(each.is_sealed for each in told):
            raise Unavailable(f"'{entity.name}' has a map that is not known yet")

    def _plan(self, source: Entity, map_start: int) -> ForwardingPlan:
        now_ms = self._bus.clock.now_ms()
        format_of = self._forwarder.format_of
        return ForwardingPlan(source.name, self.line, format_of, now_ms, map_start)

    def _is_surely_missing(self) -> bool:
        if self._bus.namespace.leftovers.damaged:
            # A description that cannot be read, perhaps of a later version, may be that one.
            return False
        steady_ms = self._bus.clock.steady_ms()
        if self._missing_since_ms < 0:
            self._missing_since_ms = steady_ms
        return steady_ms - self._missing_since_ms >= MISSING_MS

    async def _carry_out(
        self,
        plan: ForwardingPlan,
        deliveries: list[Delivery],
        destination: EntityHandle | None,
        port: FragmentPort,
    ) -> int:
        """Send the planned messages, then tell the source the result of each."""
        done: list[int] = []
        returned = list(plan.unsent)
        refused = dict(plan.refused)
        if destination is not None and plan.shares:
            source = (self.entity_id, self.number, self.line)
            front = transfer_number(deliveries[0])
            ports = destination.router.ports
            answers = await ask_all(
                [
                    to_port(ports[index], share.command(source, front))
                    for index, share in plan.shares.items()
                ]
            )
            full: list[int] = []
            for (index, share), answer in zip(plan.shares.items(), answers, strict=True):
                if not isinstance(answer, TakenOver):
                    log.debug("forwarding from %d.%d: %s", self.entity_id, self.number, answer)
                    if isinstance(answer, Refused) and answer.kind is QUOTA_EXCEEDED:
                        full.append(index)
                    continue
                left = set(answer.skipped)
                for number in [*share.numbers, *share.skipped]:
                    if number not in left:
                        done.append(number)
                    elif number in plan.verdicts:
                        refused[number] = plan.verdicts[number]
                    else:
                        returned.append(number)
            for index in full:
                await self._forwarder.make_room(destination, index)
        if not (done or returned or refused):
            return _STUCK
        await self._settle(port, done, returned, refused)
        return _MOVED

    async def _settle(
        self,
        port: FragmentPort,
        done: list[int],
        returned: list[int],
        refused: dict[int, ForwardingVerdict],
    ) -> None:
        if done:
            await ask(port, TransfersDone(self.line, done))
            self._forwarder.moved_total += len(done)
        if returned:
            await ask(port, ReturnTransfers(self.line, returned))
        for verdict, numbers in _by_verdict(refused):
            log.info("not forwarded from %d.%d: %s", self.entity_id, self.number, verdict.reason)
            command = RefuseTransfers(
                self.line, numbers, verdict.line, verdict.reason, verdict.description
            )
            await ask(port, command)


def _by_verdict(refused: dict[int, ForwardingVerdict]) -> list[tuple[ForwardingVerdict, list[int]]]:
    found: dict[tuple[str, str, int], tuple[ForwardingVerdict, list[int]]] = {}
    for number, verdict in refused.items():
        key = (verdict.reason, verdict.description, verdict.line)
        found.setdefault(key, (verdict, []))[1].append(number)
    return list(found.values())
