"""`python -m tests.durability.repartition_storm [--messages N] [--kill all] ...`

A queue, or with `--topic` a topic with two subscriptions, gets other fragments while senders and
receivers of the official Python SDK use it, and the server, or one of its brokers, is killed in a
phase of each change. Prints a verdict as JSON: what became of each message, in each subscription,
and whether each receiver got those of each key in their order (P6). With `--sessions` each key is a
session, and its messages are in order whoever receives them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, final

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC
from shardbus.app.cli.entities.rule_atom import SQL, AtomRule
from tests.durability.killed_server import PHASES, SERVER, VICTIMS
from tests.durability.test_repartition import NAME, asked, repartition
from tests.support.queues import management
from tests.support.server import Server, running_server

BROKERS: Final = 4
BATCH: Final = 100
# Of those that only go on until the last change is over.
FEW: Final = 5
PREFETCH: Final = 200
RECEIVED_MAX: Final = 100
WAIT_S: Final = 0.5
# How long to wait for a session that nobody holds.
ACCEPT_S: Final = 3.0
# Of a session that has more, so that sessions change hands.
HELD_MAX: Final = 2_000
PAUSE_S: Final = 0.2
POLL_S: Final = 0.1
# What takes longer says so.
QUIET_S: Final = 30.0
STEP_S: Final = 1_800.0
# What is waiting when the first repartition begins.
BACKLOG: Final = 0.5
DRAINING: Final = "draining"
# The subscriptions of a topic: of all messages, and of those with even keys.
EVEN: Final = "even"
PLACES: Final = ("all", EVEN)
IDLE: Final = "idle"
"""The map stays as it is: what a kill does without a repartition."""
ALL: Final = "all"
SOME: Final = (50, 300)
EXAMPLES_MAX: Final = 5
# The last is the SDK's own, when a connection ends while a link is opened.
LOST: Final = (ServiceBusError, OSError, ValueError, AttributeError)


@final
@dataclass(frozen=True)
class Plan:
    """`phases` has one for each change of the map that is struck; the others are calm."""

    messages: int
    keys: int
    senders: int
    receivers: int
    first: int
    counts: Sequence[int]
    phases: Sequence[str]
    victim: str
    seed: int
    is_topic: bool = False
    has_sessions: bool = False


@final
@dataclass
class Verdict:
    """Counts. A send that nobody answered is `unsure`: it may be there or not, but not twice.

    A receiver that loses its connection loses its locks, and what it held goes to whoever asks
    next. So another receiver may get a message after a later one of its key that it had before:
    `redelivered`. Everything else that comes after a later one is `disordered`, and so is every
    message of a session that comes first after a later one.
    """

    sent: int = 0
    unsure: int = 0
    completed: int = 0
    missing: int = 0
    twice: int = 0
    strangers: int = 0
    disordered: int = 0
    redelivered: int = 0
    kills: int = 0
    changes: int = 0
    slowest_send_s: float = 0.0
    failed_sends: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        """Add what is known of another subscription."""
        for name in ("sent", "unsure", "completed", "missing", "twice", "strangers"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.disordered += other.disordered
        self.redelivered += other.redelivered
        self.examples += other.examples

    @property
    def is_good(self) -> bool:
        wrong = self.missing or self.twice or self.strangers or self.disordered
        return self.sent > 0 and not wrong


@final
class Books:
    """What clients know of each message; one is known by its key and its number.

    `place` is a subscription, or empty for the queue.
    """

    def __init__(self, plan: Plan, place: str = "") -> None:
        self.plan = plan
        self.place = place
        self.verdict = Verdict()
        self.accepted: set[tuple[int, int]] = set()
        self.unsure: set[tuple[int, int]] = set()
        self.seen: set[tuple[int, int]] = set()
        self.completed: dict[tuple[int, int], int] = {}
        self.settling: set[tuple[int, int]] = set()
        # The last that anybody got of each session.
        self.last: dict[int, tuple[int, float]] = {}
        # Moments at which receivers lost what they held.
        self.breaks_s: list[float] = []
        self.is_sent = False
        self.is_over = False

    def takes(self, key: int) -> bool:
        """Whether the queue or subscription gets the messages of a key."""
        return self.place != EVEN or key % 2 == 0

    def note_break(self) -> None:
        self.breaks_s.append(time.monotonic())

    def was_broken_between(self, first_s: float, last_s: float) -> bool:
        return bisect_right(self.breaks_s, first_s) < bisect_right(self.breaks_s, last_s)

    def left(self) -> int:
        """Accepted messages that nobody has completed."""
        return len(self.accepted) - len(self.accepted & (self.completed.keys() | self.settling))

    def close(self) -> Verdict:
        found = self.verdict
        found.sent, found.unsure = len(self.accepted), len(self.unsure)
        found.completed = len(self.completed)
        # One whose completion nobody answered may be gone.
        missing = self.accepted - self.completed.keys() - self.settling
        strangers = self.completed.keys() - self.accepted - self.unsure
        twice = [one for one, times in self.completed.items() if times > 1]
        found.missing, found.strangers, found.twice = len(missing), len(strangers), len(twice)
        for what, some in (("missing", missing), ("stranger", strangers), ("twice", twice)):
            found.examples += [f"{what} {one}" for one in list(some)[:EXAMPLES_MAX]]
        return found


@final
class Sender:
    """Has keys of its own, and numbers the messages of each."""

    def __init__(self, plan: Plan, books: Sequence[Books], index: int, dice: random.Random) -> None:
        self._books = books
        self._is_topic = plan.is_topic
        self._has_sessions = plan.has_sessions
        self.failed_sends = 0
        self.slowest_send_s = 0.0
        self._keys = range(index, plan.keys, plan.senders)
        self._next = dict.fromkeys(self._keys, 0)
        self._dice = dice
        self._backlog = int(plan.messages * BACKLOG) // plan.senders
        self._most = plan.messages // plan.senders
        self.sent = 0

    async def run(self, server: Server, going_on: asyncio.Event) -> None:
        while not self._is_done():
            with suppress(*LOST):
                async with (
                    # One that sends again what was not answered might send it twice.
                    ServiceBusClient.from_connection_string(
                        server.connection_string, retry_total=0
                    ) as client,
                    self._sender(client) as sender,
                ):
                    while not self._is_done():
                        if self.sent >= self._backlog and not going_on.is_set():
                            await going_on.wait()
                        await self._send(sender)
                        if self.sent >= self._most:
                            await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(PAUSE_S)

    def has_backlog(self) -> bool:
        return self.sent >= self._backlog

    def _sender(self, client: ServiceBusClient) -> ServiceBusSender:
        return client.get_topic_sender(NAME) if self._is_topic else client.get_queue_sender(NAME)

    def _is_done(self) -> bool:
        return self._books[0].is_sent and self.sent >= self._most

    async def _send(self, sender: ServiceBusSender) -> None:
        count = BATCH if self.sent < self._most else FEW
        ones = [self._numbered(self._dice.choice(self._keys)) for _ in range(count)]
        self.sent += len(ones)
        messages = [
            ServiceBusMessage(
                f"{key}:{number}",
                partition_key=f"key-{key}",
                session_id=f"key-{key}" if self._has_sessions else None,
                application_properties={"parity": key % 2},
            )
            for key, number in ones
        ]
        began_s = time.monotonic()
        try:
            await sender.send_messages(messages)
        except LOST:
            for books in self._books:
                books.unsure.update(one for one in ones if books.takes(one[0]))
            self.failed_sends += 1
            raise
        self.slowest_send_s = max(self.slowest_send_s, time.monotonic() - began_s)
        for books in self._books:
            books.accepted.update(one for one in ones if books.takes(one[0]))

    def _numbered(self, key: int) -> tuple[int, int]:
        number = self._next[key]
        self._next[key] = number + 1
        return key, number


@final
class Receiver:
    """Completes what it gets, and checks the order of each key."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._has_sessions = books.plan.has_sessions
        self._last: dict[int, tuple[int, float]] = books.last if self._has_sessions else {}

    async def run(self, server: Server) -> None:
        while not self._books.is_over:
            with suppress(*LOST):
                async with ServiceBusClient.from_connection_string(
                    server.connection_string, retry_total=0
                ) as client:
                    while not self._books.is_over:
                        await self._hold(client)
            await asyncio.sleep(PAUSE_S)

    async def _hold(self, client: ServiceBusClient) -> None:
        """Receive until all is over or, if there are sessions, what one of them has."""
        try:
            async with self._receiver(client) as receiver:
                try:
                    await self._receive(receiver)
                finally:
                    self._books.note_break()
        except OperationTimeoutError:
            # No session was free.
            if not self._has_sessions:
                raise

    def _receiver(self, client: ServiceBusClient) -> ServiceBusReceiver:
        place = self._books.place
        session = NEXT_AVAILABLE_SESSION if self._has_sessions else None
        wait_s = ACCEPT_S if self._has_sessions else None
        if place:
            return client.get_subscription_receiver(
                NAME, place, session_id=session, prefetch_count=PREFETCH, max_wait_time=wait_s
            )
        return client.get_queue_receiver(
            NAME, session_id=session, prefetch_count=PREFETCH, max_wait_time=wait_s
        )

    async def _receive(self, receiver: ServiceBusReceiver) -> None:
        held = 0
        while not self._books.is_over and held < HELD_MAX:
            found = await receiver.receive_messages(RECEIVED_MAX, max_wait_time=WAIT_S)
            if self._has_sessions:
                # One that has little is left to whoever asks next, or it would be held for ever.
                held += len(found) if len(found) > FEW else HELD_MAX
            ones = [self._checked(message) for message in found]
            pairs = zip(found, ones, strict=True)
            outcomes = await asyncio.gather(
                *(self._complete(receiver, message, one) for message, one in pairs),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _complete(
        self,
        receiver: ServiceBusReceiver,
        message: ServiceBusReceivedMessage,
        one: tuple[int, int],
    ) -> None:
        self._books.settling.add(one)
        await receiver.complete_message(message)
        self._books.completed[one] = self._books.completed.get(one, 0) + 1

    def _checked(self, message: ServiceBusReceivedMessage) -> tuple[int, int]:
        key, number = map(int, str(message).split(":"))
        one = key, number
        books, now_s = self._books, time.monotonic()
        # What comes again, after its lock was lost, comes late.
        if one not in books.seen and one not in books.unsure:
            last, last_s = self._last.get(key, (-1, now_s))
            if number < last:
                # Nobody has a later message of a session before the holder had this one.
                is_explained = not self._has_sessions and books.was_broken_between(last_s, now_s)
                self._note_late(one, last, is_explained)
            else:
                self._last[key] = number, now_s
        books.seen.add(one)
        return one

    def _note_late(self, one: tuple[int, int], last: int, is_explained: bool) -> None:
        verdict = self._books.verdict
        if is_explained:
            verdict.redelivered += 1
            return
        verdict.disordered += 1
        if verdict.disordered <= EXAMPLES_MAX:
            verdict.examples.append(f"{one} came after {last}")


@final
class Storm:
    """A running server whose queue or topic gets other maps."""

    def __init__(self, server: Server, fate: Path, plan: Plan) -> None:
        self._server = server
        self._fate = fate
        self._books = [Books(plan, place) for place in (PLACES if plan.is_topic else ("",))]
        self._plan = plan
        self._dice = random.Random(plan.seed)
        self._kills = self._changes = 0
        self._began_s = self._said_s = time.monotonic()

    async def run(self) -> Verdict:
        if self._plan.first > 1:
            await self._change(self._plan.first, "")
        going_on = asyncio.Event()
        senders = [
            Sender(self._plan, self._books, index, random.Random(self._dice.random()))
            for index in range(self._plan.senders)
        ]
        async with asyncio.TaskGroup() as clients:
            sending = [clients.create_task(one.run(self._server, going_on)) for one in senders]
            await self._until(lambda: all(one.has_backlog() for one in senders), "a backlog")
            self._say("the backlog is there")
            going_on.set()
            for books in self._books:
                for _ in range(self._plan.receivers):
                    clients.create_task(Receiver(books).run(self._server))
            phases = self._plan.phases
            for turn, count in enumerate(self._plan.counts):
                await self._change(count, phases[turn] if turn < len(phases) else "")
                await self._settled()
            for books in self._books:
                books.is_sent = True
            await asyncio.wait(sending)
            await self._until(lambda: all(one.left() == 0 for one in self._books), "receiving")
            for books in self._books:
                books.is_over = True
        return self._verdict(senders)

    def _verdict(self, senders: Sequence[Sender]) -> Verdict:
        whole = Verdict(kills=self._kills, changes=self._changes)
        for books in self._books:
            whole.add(books.close())
        whole.failed_sends = sum(one.failed_sends for one in senders)
        whole.slowest_send_s = max(one.slowest_send_s for one in senders)
        return whole

    async def _change(self, count: int, phase: str) -> None:
        """Another map, whatever is killed meanwhile."""
        if phase == IDLE:
            books = self._books[0]
            done = len(books.completed) + self._dice.randrange(*SOME)
            await self._until(lambda: len(books.completed) >= done, "receiving")
            await self._start_again()
            self._say("killed")
            return
        if phase in PHASES:
            self._fate.write_text(f"{phase} {self._plan.victim}", "ascii")
        deadline_s = time.monotonic() + STEP_S
        while True:
            answer = await repartition(self._server, count)
            # After a kill the map may be there although nobody said so.
            shown = await self._map()
            ranges = shown.get("ranges")
            if isinstance(ranges, list) and len(ranges) == count and shown["state"] != "preparing":
                break
            if not self._server.is_running:
                await self._start_again()
            assert time.monotonic() < deadline_s, answer
            await asyncio.sleep(POLL_S)
        if not self._server.is_running:
            await self._start_again()
        elif phase in PHASES and self._plan.victim != SERVER:
            self._note_kill()
        if phase == DRAINING:
            await asyncio.sleep(self._dice.random())
            await self._start_again()
        self._changes += 1
        self._say(f"{count} fragments" + (f", killed when {phase}" if phase else ""))

    async def _start_again(self) -> None:
        self._server.kill()
        self._note_kill()
        await asyncio.to_thread(self._server.start)

    def _note_kill(self) -> None:
        for books in self._books:
            books.note_break()
        self._kills += 1

    async def _map(self) -> dict[str, object]:
        answer = await asyncio.to_thread(asked, self._server, "GET", f"/api/v1/entities/{NAME}/map")
        if answer is None or answer.status != 200:
            return {}
        document: dict[str, object] = json.loads(answer.body)
        return document

    async def _settled(self) -> None:
        deadline_s = time.monotonic() + STEP_S
        while (await self._map()).get("state") != "settled":
            assert time.monotonic() < deadline_s, "the former fragments are not empty"
            await self._pause("former fragments are received")
        self._say("former fragments are empty")

    async def _until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + STEP_S
        while not is_so():
            assert time.monotonic() < deadline_s, f"{what} takes too long"
            await self._pause(what)

    async def _pause(self, what: str) -> None:
        await asyncio.sleep(POLL_S)
        if time.monotonic() > self._said_s + QUIET_S:
            self._say(f"{what} ...")

    def _say(self, text: str) -> None:
        self._said_s = time.monotonic()
        passed_s = time.monotonic() - self._began_s
        sent, completed = len(self._books[0].accepted), len(self._books[0].completed)
        sys.stderr.write(
            f"{passed_s:7.1f} s, load {os.getloadavg()[0]:.0f}, {sent} sent, "
            f"{completed} completed: {text}\n"
        )
        sys.stderr.flush()


def run(plan: Plan, directory: Path, *options: str) -> Verdict:
    """The verdict on one storm in a directory."""
    # A hundred settlements that fail at once are a hundred traces of the SDK.
    for name in ("azure", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    fate = directory / "fate"
    command = (sys.executable, "-m", "tests.durability.killed_server", str(fate), "serve")
    brokers = ("--brokers", str(BROKERS), *options)
    with running_server(directory / "data", *brokers, command=command) as server:
        _make(server, plan)
        return asyncio.run(Storm(server, fate, plan).run())


def _make(server: Server, plan: Plan) -> None:
    entities, settings = management(server), {"EnablePartitioning": "false"}
    sessions = {"RequiresSession": "true"} if plan.has_sessions else {}
    if not plan.is_topic:
        entities.create(QUEUE, NAME, settings | sessions)
        return
    entities.create(TOPIC, NAME, settings)
    for place in PLACES:
        rule = AtomRule("mine", SQL, "parity = 0") if place == EVEN else None
        entities.create(SUBSCRIPTION, f"{NAME}/Subscriptions/{place}", sessions, rule)


def main(arguments: Sequence[str]) -> int:
    """0 when the verdict is good."""
    wanted = _parser().parse_args(arguments)
    counts = [int(count) for count in wanted.to.split(",")]
    every = [*PHASES, DRAINING]
    phases: list[str] = every if wanted.kill == ALL else [wanted.kill or ""] * len(counts)
    # A change for each phase.
    counts = [counts[turn % len(counts)] for turn in range(max(len(counts), len(phases)))]
    plan = Plan(
        wanted.messages,
        wanted.keys,
        wanted.senders,
        wanted.receivers,
        wanted.first,
        counts,
        phases,
        wanted.victim,
        wanted.seed,
        wanted.topic,
        wanted.sessions,
    )
    options = ("--broker-processes",) if wanted.broker_processes else ()
    directory = Path(tempfile.mkdtemp(prefix="repartition-storm-", dir=wanted.directory))
    sys.stderr.write(f"seed {plan.seed}, in {directory}\n")
    began_s = time.monotonic()
    verdict = run(plan, directory, *options)
    result = {
        "is_good": verdict.is_good,
        **asdict(plan),
        **asdict(verdict),
        "seconds": round(time.monotonic() - began_s, 1),
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if verdict.is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.durability.repartition_storm")
    parser.add_argument("--messages", type=int, default=1_000_000, help="at least so many are sent")
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--receivers", type=int, default=4)
    parser.add_argument("--from", type=int, default=1, dest="first", help="fragments at first")
    parser.add_argument("--to", default="16,4", help="fragments after each change, in turns")
    parser.add_argument(
        "--kill", choices=[*PHASES, DRAINING, IDLE, ALL], help="in which phase of each change"
    )
    parser.add_argument("--victim", choices=VICTIMS, default=SERVER)
    parser.add_argument("--broker-processes", action="store_true")
    parser.add_argument("--topic", action="store_true", help="a topic with two subscriptions")
    parser.add_argument("--sessions", action="store_true", help="each key is a session")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--directory", type=Path, help="where to work; a temporary one by default")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
