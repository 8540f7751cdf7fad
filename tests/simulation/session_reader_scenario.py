"""Readers and receivers of the same sessions, while processes die and answers are lost."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

from shardbus.broker.operations.asking import ask
from shardbus.core.errors import SESSION_CANNOT_BE_LOCKED, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import ABANDON, COMPLETE, RELEASE, Receive, Received
from shardbus.core.sessions.command import AcceptSession, ReleaseSession, SessionAccepted
from tests.simulation.reader_book import payload_of
from tests.simulation.reader_clients import Task
from tests.simulation.reader_scenario import (
    LOCK_MS,
    QUEUES,
    CutSite,
    ReaderTown,
    drain,
    drain_line,
    drive,
    found,
    handle_of,
    operate,
    send,
    settle,
)
from tests.simulation.session_reader_book import SessionReaderBook
from tests.simulation.sites import Site, SitePort
from tests.simulation.town import Gateway

# Few, so that sessions meet.
FRAGMENTS_USED = 4
NAMES = ("red", "Red", "blue", "green", "grey")
TASKS = (
    Task("plain", MAIN_LINE, "lake"),
    Task("plain", MAIN_LINE, "pond"),
    Task("parted", MAIN_LINE, "lake"),
    Task("parted", DEAD_LETTER_LINE, "morgue"),
)


class SessionReaderSite(CutSite):
    """So little is read at a time that claims look several times."""

    bounds = Bounds(
        page_count_max=4,
        page_bytes_max=400,
        sessions_known_max=2,
        sessions_page_max=2,
        session_window_count_max=4,
    )


class SessionReaderTown(ReaderTown):
    book: SessionReaderBook

    def new_book(self) -> SessionReaderBook:
        return SessionReaderBook()

    def new_site(self, name: str) -> Site:
        return SessionReaderSite(name, self.loop, self.chance, self.faults, self.stored)


def run_session_readers(seed: int) -> SessionReaderTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = SessionReaderTown(seed)
    town.play(_play(town))
    return town


async def _play(town: SessionReaderTown) -> None:
    await found(town, requires_session=True)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(operate(town, TASKS))
        for task in (*TASKS, TASKS[0]):
            clients.create_task(drive(town, task))
        for name in QUEUES:
            clients.create_task(send(town, name, _message, FRAGMENTS_USED))
            clients.create_task(_receive(town, name))
            clients.create_task(_receive(town, name))
    await drain(town, TASKS, partial(_drain_fragment, town))
    town.book.finish()


def _message(chance: Random, mark: int, ttl_ms: int) -> Message:
    payload = payload_of(mark, chance.choice([0, 30]))
    return Message(payload, session_id=chance.choice(NAMES), ttl_ms=ttl_ms)


async def _receive(town: SessionReaderTown, name: str) -> None:
    chance = town.chance
    while not town.is_over:
        await asyncio.sleep(chance.expovariate(2.0))
        gateway = await town.open_gateway()
        port = chance.choice(handle_of(gateway, name).runners[:FRAGMENTS_USED])
        assert isinstance(port, SitePort)
        session_id = chance.choice([None, None, *NAMES])
        accepted = await _accept(town, gateway, port, session_id)
        if accepted is None:
            continue
        for _ in range(chance.randint(1, 4)):
            how = chance.choice([COMPLETE, COMPLETE, ABANDON, RELEASE])
            if await _serve(town, gateway, port, accepted, how) < 0:
                break
            # Somebody is slow: the session may be lost meanwhile.
            slow_s = chance.uniform(0.5, 1.2) * LOCK_MS / 1000
            await asyncio.sleep(slow_s if chance.random() < 0.1 else chance.uniform(0.0, 0.5))
        if chance.random() < 0.8:
            await town.attempt(gateway, ask(port, ReleaseSession(accepted.token)))


async def _accept(
    town: SessionReaderTown, gateway: Gateway, port: SitePort, session_id: str | None
) -> SessionAccepted | None:
    answer = await town.attempt(gateway, ask(port, AcceptSession(session_id, town.seed())))
    if isinstance(answer, SessionAccepted):
        town.book.accepted(port.fragment_id, answer.session_id)
        return answer
    if isinstance(answer, Refused) and answer.kind is SESSION_CANNOT_BE_LOCKED:
        town.book.events["session refused"] += 1
    return None


async def _serve(
    town: SessionReaderTown, gateway: Gateway, port: SitePort, accepted: SessionAccepted, how: int
) -> int:
    """How many messages were received and settled; -1 when the session may be lost."""
    command = Receive(
        MAIN_LINE,
        town.chance.randint(1, 6),
        is_locking=True,
        token_seed=town.seed(),
        session=accepted.token,
    )
    answer = await town.attempt(gateway, ask(port, command))
    if not isinstance(answer, Received):
        return -1
    town.book.served(port.fragment_id, accepted.session_id)
    numbers = [delivery.entry.sequence_number for delivery in answer.deliveries]
    town.book.delivered(port.fragment_id, numbers)
    if answer.deliveries:
        await settle(town, gateway, port, how, answer.deliveries)
    return len(numbers)


async def _drain_fragment(town: SessionReaderTown, gateway: Gateway, port: SitePort) -> None:
    while (accepted := await _accept(town, gateway, port, None)) is not None:
        while await _serve(town, gateway, port, accepted, COMPLETE) > 0:
            pass
        await town.attempt(gateway, ask(port, ReleaseSession(accepted.token)))
    await drain_line(town, gateway, port, DEAD_LETTER_LINE)
