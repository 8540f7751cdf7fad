"""Receivers that take sessions over from each other, while processes die and answers are lost."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import NamedTuple

from shardbus.broker.operations.asking import ask
from shardbus.core.errors import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, Refused
from shardbus.core.fragment.command import Command
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    RELEASE,
    Delivery,
    Receive,
    Received,
    Renewed,
    Settle,
    Settled,
)
from shardbus.core.sessions.command import (
    SHARED,
    AcceptSession,
    GetState,
    ReleaseSession,
    RenewSession,
    SessionAccepted,
    SessionState,
)
from tests.simulation.reader_book import payload_of
from tests.simulation.reader_scenario import (
    LOCK_MS,
    QUEUES,
    ReaderTown,
    drain,
    drain_line,
    found,
    handle_of,
    send,
)
from tests.simulation.sending import Violation
from tests.simulation.session_reader_scenario import FRAGMENTS_USED, NAMES, SessionReaderSite
from tests.simulation.sites import Site, SitePort
from tests.simulation.taker_book import SessionPlace, TakerBook
from tests.simulation.town import Gateway

OFFERS_MAX = 6
RECEIVERS = 3


class Offer(NamedTuple):
    """What a receiver tells another: a session, the token, and what it has received."""

    name: str
    number: int
    session_id: str
    token: bytes
    is_shared: bool
    deliveries: list[Delivery]


class TakerTown(ReaderTown):
    book: TakerBook

    def __init__(self, seed: int) -> None:
        self.offers: list[Offer] = []
        super().__init__(seed)

    def new_book(self) -> TakerBook:
        return TakerBook()

    def new_site(self, name: str) -> Site:
        return SessionReaderSite(name, self.loop, self.chance, self.faults, self.stored)


def run_takers(seed: int) -> TakerTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = TakerTown(seed)
    town.play(_play(town))
    return town


async def _play(town: TakerTown) -> None:
    await found(town, requires_session=True)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        for name in QUEUES:
            clients.create_task(send(town, name, _message, FRAGMENTS_USED))
            for _ in range(RECEIVERS):
                clients.create_task(_receive(town, name))
    await drain(town, (), partial(_drain_fragment, town))
    town.book.finish()


def _message(chance: Random, mark: int, ttl_ms: int) -> Message:
    payload = payload_of(mark, chance.choice([0, 30]))
    return Message(payload, session_id=chance.choice(NAMES), ttl_ms=ttl_ms)


class Holder:
    """A receiver that was told to have a session."""

    def __init__(self, town: TakerTown, gateway: Gateway, port: SitePort) -> None:
        self.session_id = ""
        self.token = b""
        # The token that takes the session over, b"" if it is held alone.
        self.shared = b""
        self._town = town
        self._gateway = gateway
        self._port = port

    @property
    def place(self) -> SessionPlace:
        return self._port.fragment_id, self.session_id

    async def accept(self, session_id: str | None, sharing: bytes | None) -> bool:
        town = self._town
        asked_at = town.book.step()
        command = AcceptSession(session_id, town.seed(), sharing)
        answer = await town.attempt(self._gateway, ask(self._port, command))
        if isinstance(answer, SessionAccepted):
            self.session_id, self.token = answer.session_id, answer.token
            if sharing is not None:
                self.shared = sharing or answer.token
            town.book.granted(self.place, self.token, asked_at, self.shared, sharing or b"")
            return True
        if isinstance(answer, Refused) and sharing:
            if answer.kind not in (SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST):
                raise Violation(f"a session was not given: {answer}")
            town.book.events[f"not taken over: {answer.kind.condition.split(':')[1]}"] += 1
        return False

    async def receive(self, count_max: int) -> list[Delivery] | None:
        """None when the session may be lost."""
        command = Receive(
            MAIN_LINE,
            count_max,
            is_locking=True,
            token_seed=self._town.seed(),
            session=self.token,
        )
        answer = await self.do(command)
        if not isinstance(answer, Received):
            return None
        numbers = [delivery.entry.sequence_number for delivery in answer.deliveries]
        self._town.book.delivered(self._port.fragment_id, numbers)
        return answer.deliveries

    async def settle(self, how: int, deliveries: list[Delivery]) -> int:
        """How many of them were settled."""
        session = self.token if self.shared else b""
        command = Settle(how, [each.token for each in deliveries], session=session)
        answer = await (self.do(command) if self.shared else self._ask(command))
        if not isinstance(answer, Settled):
            return 0
        done = [
            delivery.entry.sequence_number
            for delivery, is_lost in zip(deliveries, answer.lost, strict=True)
            if not is_lost
        ]
        if how == COMPLETE:
            self._town.book.settled(self._port.fragment_id, done)
        return len(done)

    async def look(self) -> None:
        is_renewal = self._town.chance.random() < 0.5
        await self.do(RenewSession(self.token) if is_renewal else GetState(self.token))

    async def release(self) -> None:
        await self._ask(ReleaseSession(self.token))

    async def do(self, command: Command) -> object:
        """Ask for what only the holder may have."""
        asked_at = self._town.book.step()
        answer = await self._ask(command)
        if isinstance(answer, Received | Settled | Renewed | SessionState):
            self._town.book.done_for(self.place, self.token, asked_at)
        elif isinstance(answer, Refused) and answer.kind is SESSION_LOCK_LOST:
            self._town.book.events["session lost"] += 1
        return answer

    async def _ask(self, command: Command) -> object:
        return await self._town.attempt(self._gateway, ask(self._port, command))


async def _receive(town: TakerTown, name: str) -> None:
    chance = town.chance
    while not town.is_over:
        await asyncio.sleep(chance.expovariate(3.0))
        gateway = await town.open_gateway()
        ports = handle_of(gateway, name).runners[:FRAGMENTS_USED]
        offers = [offer for offer in town.offers if offer.name == name]
        if offers and chance.random() < 0.5:
            offer = chance.choice(offers)
            port = ports[offer.number]
            assert isinstance(port, SitePort)
            holder = Holder(town, gateway, port)
            if not await _take_over(town, holder, offer):
                continue
            number = offer.number
        else:
            number = chance.randrange(len(ports))
            port = ports[number]
            assert isinstance(port, SitePort)
            holder = Holder(town, gateway, port)
            sharing = SHARED if chance.random() < 0.75 else None
            if not await holder.accept(chance.choice([None, None, *NAMES]), sharing):
                continue
        await _serve(town, holder, name, number)


async def _take_over(town: TakerTown, holder: Holder, offer: Offer) -> bool:
    """Whether the session was taken over; what came with it is settled then."""
    is_right = town.chance.random() < 0.85
    token = offer.token if is_right else town.seed() * 2
    if not await holder.accept(offer.session_id.upper(), token):
        if is_right and offer in town.offers and town.chance.random() < 0.5:
            town.offers.remove(offer)
        return False
    if not is_right or not offer.is_shared:
        raise Violation(f"{offer.session_id!r} was taken over, and should not have been")
    if offer.deliveries:
        done = await holder.settle(COMPLETE, offer.deliveries)
        town.book.events["completed for another"] += done
    return True


async def _serve(town: TakerTown, holder: Holder, name: str, number: int) -> None:
    chance = town.chance
    for _ in range(chance.randint(1, 6)):
        deliveries = await holder.receive(chance.randint(1, 4))
        if deliveries is None:
            break
        kept = deliveries[: chance.choice([0, 0, 1, 4])]
        if len(deliveries) > len(kept):
            how = chance.choice([COMPLETE, COMPLETE, COMPLETE, ABANDON, RELEASE])
            await holder.settle(how, deliveries[len(kept) :])
        if chance.random() < 0.6:
            offered = holder.shared or holder.token
            offer = Offer(name, number, holder.session_id, offered, bool(holder.shared), kept)
            town.offers = [*town.offers, offer][-OFFERS_MAX:]
        # Somebody is slow: the session may be lost, or another has it, meanwhile.
        slow_s = chance.uniform(0.5, 1.2) * LOCK_MS / 1000
        await asyncio.sleep(slow_s if chance.random() < 0.1 else chance.uniform(0.0, 0.6))
        await holder.look()
        if kept and chance.random() < 0.5:
            await holder.settle(COMPLETE, kept)
    if chance.random() < 0.7:
        await holder.release()


async def _drain_fragment(town: TakerTown, gateway: Gateway, port: SitePort) -> None:
    holder = Holder(town, gateway, port)
    while await holder.accept(None, None):
        while deliveries := await holder.receive(10):
            await holder.settle(COMPLETE, deliveries)
        await holder.release()
        holder = Holder(town, gateway, port)
    await drain_line(town, gateway, port, DEAD_LETTER_LINE)
