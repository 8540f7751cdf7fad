"""How clients of the simulation let a transaction schedule, cancel and set a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.asking import ask
from shardbus.core.message import Message
from shardbus.core.messages.command import Cancel, Sent
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.sessions.command import (
    AcceptSession,
    GetState,
    ReleaseSession,
    SessionAccepted,
    SessionState,
    SetState,
)
from shardbus.core.transactions.command import Enlist, Work
from shardbus.stores.base.store import FragmentId
from tests.simulation.sites import SitePort
from tests.simulation.town import Gateway, outcome_of
from tests.simulation.transaction_requests import Notice, Place, Requests, notice_payload

if TYPE_CHECKING:
    from tests.simulation.transaction_scenario import TransactionTown

AGENDA = "agenda"
TALKS = "talks"
SESSIONS = ("s0", "s1")
NOTICES = 2
DELAY_S = (0.0, 20.0)

WorkAt = Callable[[SitePort], Work]


async def found_requests(gateway: Gateway, lock_ms: int) -> None:
    """The queue of notices, of several fragments, and the one whose sessions have states."""
    agenda, talks = EntitySpec(), EntitySpec()
    agenda.lock_ms = talks.lock_ms = lock_ms
    agenda.delivery_count_max = 1_000
    agenda.is_partitioned = True
    talks.requires_session = True
    await gateway.namespace.create_queue(AGENDA, agenda)
    await gateway.namespace.create_queue(TALKS, talks)


class Requesting:
    """The requests of one transaction, while they are made."""

    def __init__(self, town: TransactionTown, gateway: Gateway, number: int) -> None:
        self._town = town
        self._gateway = gateway
        self._number = number
        self._session: tuple[SitePort, bytes] | None = None
        self.requests = town.book.requests.asked[number] = Requests()

    async def make(self, work_at: WorkAt) -> None:
        """Some of everything; what cannot be asked for is left out."""
        chance = self._town.chance
        for which in range(NOTICES):
            if chance.random() < 0.4:
                await self._schedule(work_at, (self._number, which))
        known = list(self._town.book.requests.known.items())
        if known and chance.random() < 0.5:
            await self._cancel(work_at, *chance.choice(known))
        if chance.random() < 0.4:
            await self._set_state(work_at)

    async def end(self) -> None:
        if self._session is not None and self._town.chance.random() < 0.8:
            port, token = self._session
            await self._attempt(port, ReleaseSession(token))

    async def _schedule(self, work_at: WorkAt, notice: Notice) -> None:
        town = self._town
        port = town.chance.choice(_ports(self._gateway, AGENDA))
        answer = await self._attempt(port, Enlist(Work([], []), 1))
        if not isinstance(answer, Sent):
            return
        [number] = answer.numbers()
        at_ms = town.now_ms() + int(town.chance.uniform(*DELAY_S) * 1000)
        message = Message(notice_payload(notice), scheduled_at_ms=at_ms)
        work_at(port).scheduled.append((number, message))
        self.requests.notices[notice] = (port.fragment_id, number)

    async def _cancel(self, work_at: WorkAt, notice: Notice, place: Place) -> None:
        port = _port_at(self._gateway, place[0])
        if self._town.chance.random() < 0.5:
            work = Work([], [])
            work.cancelled.append(place[1])
            if not isinstance(await self._attempt(port, Enlist(work)), Sent):
                return
        work_at(port).cancelled.append(place[1])
        self.requests.cancelled.append(notice)

    async def _set_state(self, work_at: WorkAt) -> None:
        town = self._town
        session_id = town.chance.choice(SESSIONS)
        [port] = _ports(self._gateway, TALKS)
        entity_id, registers = port.fragment_id.entity_id, town.book.requests.registers
        accepted = await self._attempt(port, AcceptSession(session_id, town.seed()))
        if not isinstance(accepted, SessionAccepted):
            return
        self._session = (port, accepted.token)
        began = registers.step()
        found = await self._attempt(port, GetState(accepted.token))
        if isinstance(found, SessionState):
            registers.read(entity_id, session_id, found.state, began)
        state = b"%d:" % self._number + b"." * town.chance.choice([0, 7, 50])
        work_at(port).states.append(SetState(accepted.token, state))
        self.requests.state = state
        self.requests.write = registers.write(entity_id, session_id, state)

    async def _attempt(
        self, port: SitePort, command: Enlist | AcceptSession | GetState | ReleaseSession
    ) -> object:
        return await self._town.attempt(self._gateway, ask(port, command))


async def cancel_outside(town: TransactionTown, gateway: Gateway) -> None:
    """Somebody cancels a notice without a transaction."""
    book = town.book.requests
    known = [each for each in book.known.items() if each[0] not in book.outside]
    if not known:
        return
    notice, place = town.chance.choice(known)
    book.outside[notice] = "unknown"
    port = _port_at(gateway, place[0])
    answer = await town.attempt(gateway, ask(port, Cancel([place[1]])))
    book.outside[notice] = outcome_of(answer)


def _ports(gateway: Gateway, name: str) -> list[SitePort]:
    handle = gateway.bus.find(name)
    assert handle is not None
    return _site_ports(handle)


def _port_at(gateway: Gateway, fragment: FragmentId) -> SitePort:
    [port] = [each for each in _ports(gateway, AGENDA) if each.fragment_id == fragment]
    return port


def _site_ports(handle: EntityHandle) -> list[SitePort]:
    return [port for port in handle.runners if isinstance(port, SitePort)]
