"""Applications that compete: several receivers of one queue, and of the sessions of another.

Every receipt and every settlement is written down with the moment at which it was begun and ended,
so that the book can tell whether a message or a session ever had two holders. The queues record the
lifecycle of their messages: what an application was not told of a completion, the bus has stored.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    SessionLockLostError,
)

from tests.chaos.nodes import Node, NotJudged
from tests.chaos.open_messages import Recorded, free_in, left_in, recorded_in

SHARED: Final = "shared"
SESSIONS: Final = "sessions"
QUEUES: Final = (SHARED, SESSIONS)
LINES: Final = tuple(f"line-{number}" for number in range(4))
RECEIVERS: Final = 3
PAUSE_S: Final = 0.1
HELD_S: Final = (0.0, 0.3)
# Messages after which a receiver lets another one have the session.
TURN: Final = 5
# Without any completion.
DRAINED_S: Final = 150.0
DRAIN_LOOK_S: Final = 0.25
LOCK_S: Final = 60.0
BEHIND_MAX: Final = 40
# Of the SDK: over the restart of a gateway.
AGAIN_S: Final = 1.0
RETRIES: Final = 60

Receive = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class Receipt:
    """A message in the hands of one receiver."""

    line: str
    number: int
    holder: str
    at_s: float
    # When a settlement that succeeded was begun and had ended.
    settling_s: float | None = None
    settled_s: float | None = None
    is_lost: bool = False
    # Its receiver has gone, because its connection broke.
    is_left: bool = False

    def told(self, began_s: float) -> str:
        """Who had it, when, and how that ended."""
        if self.settled_s is not None:
            end = f"completed at {self.settled_s - began_s:.1f} s"
        elif self.is_lost:
            end = "the lock was lost"
        elif self.is_left:
            end = "the connection broke"
        else:
            end = "not settled" if self.settling_s is None else "no answer to its completion"
        return f"{self.holder} at {self.at_s - began_s:.1f} s, {end}"


@dataclass(slots=True)
class Hold:
    """A session in the hands of one receiver; `used_s`: the last use that was begun and worked."""

    holder: str
    at_s: float
    used_s: float = 0.0


class HolderBook:
    """What competing applications saw. `excuses` are faults that end locks, as intervals."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self.refused: list[str] = []
        self.receipts: dict[tuple[str, int], list[Receipt]] = defaultdict(list)
        # Of sessions, in the order of first receipts.
        self.order: dict[str, list[int]] = defaultdict(list)
        self.holds: dict[str, list[Hold]] = defaultdict(list)
        self.excuses: list[tuple[float, float]] = []
        self.interrupted: list[str] = []
        # Readings are told as seconds since then.
        self.began_s = time.monotonic()
        # Of messages that are open at the end: what the queue said of them while receivers waited,
        # and which of them a new receiver got when those had ended. A text says why nobody knows.
        self.left: dict[tuple[str, int], str] | str = {}
        self.free: set[tuple[str, int]] | str = set()
        # What the bus recorded; a text says why nobody knows.
        self.recorded: Recorded | str = "nobody asked the bus"

    def received(self, sequence_number: int, receipt: Receipt) -> None:
        # Each queue has numbers of its own.
        queue = receipt.line.partition("-")[0]
        self.receipts[queue, sequence_number].append(receipt)
        if receipt.number not in self.order[receipt.line]:
            self.order[receipt.line].append(receipt.number)

    def completed(self) -> Counter[tuple[str, int]]:
        return Counter(
            (each.line, each.number)
            for receipts in self.receipts.values()
            for each in receipts
            if each.settled_s is not None
        )

    def open(self) -> list[tuple[str, int]]:
        """Accepted, and neither answered nor recorded as completed."""
        done = self.completed()
        recorded = self._recorded_names()
        return [
            (line, number)
            for line, numbers in self.accepted.items()
            for number in numbers
            if not done[line, number] and not recorded[line, number]
        ]

    def missing(self) -> list[tuple[str, int]]:
        """Open, and not in doubt."""
        unsure = self.in_doubt()
        return [name for name in self.open() if name not in unsure]

    def in_doubt(self) -> set[tuple[str, int]]:
        """One whose completion was not answered may be completed, and not come again."""
        return {
            (each.line, each.number)
            for receipts in self.receipts.values()
            for each in receipts
            if each.settling_s is not None and each.settled_s is None and not each.is_lost
        }

    def _recorded_names(self) -> Counter[tuple[str, int]]:
        """How often each message was completed, as the bus recorded it."""
        found: Counter[tuple[str, int]] = Counter()
        if isinstance(self.recorded, Recorded):
            for message, count in self.recorded.completed.items():
                receipts = self.receipts.get(message, [])
                for name in {(each.line, each.number) for each in receipts}:
                    found[name] += count
        return found

    def unrecorded(self) -> list[tuple[str, int]]:
        """Completions that were answered and have no record, although none is missing there."""
        if isinstance(self.recorded, str):
            return []
        return [
            (each.line, each.number)
            for message, receipts in self.receipts.items()
            for each in receipts
            if each.settled_s is not None
            and not self.recorded.completed[message]
            and self.recorded.is_whole(message)
        ]

    def unanswered(self) -> int:
        """Messages whose completion the bus recorded, and told nobody."""
        return len(self._recorded_names().keys() - self.completed().keys())

    def two_holders(self) -> list[str]:
        """Messages and sessions that two receivers had at the same time."""
        found: list[str] = []
        for sequence_number, receipts in self.receipts.items():
            for first, second in itertools.pairwise(receipts):
                if first.settling_s is not None and first.settled_s is not None:
                    is_overlap = first.settling_s > second.at_s
                else:
                    is_ended = first.is_lost or first.is_left or second.at_s - first.at_s >= LOCK_S
                    is_overlap = not is_ended and not self._is_excused(first.at_s, second.at_s)
                if is_overlap:
                    found.append(
                        f"{first.line}:{first.number} (sequence number {sequence_number[1]}): "
                        f"{first.holder} and {second.holder}"
                    )
        for session, holds in self.holds.items():
            for hold, later in itertools.pairwise(holds):
                if hold.holder != later.holder and hold.used_s > later.at_s:
                    found.append(f"session {session}: {hold.holder} and {later.holder}")
        return found

    def _is_excused(self, from_s: float, to_s: float) -> bool:
        return any(began_s <= to_s and from_s <= ended_s for began_s, ended_s in self.excuses)

    def unordered(self) -> list[tuple[str, int]]:
        """First receipts of a session that came after later ones."""
        found: list[tuple[str, int]] = []
        for line, numbers in self.order.items():
            if not line.startswith(SESSIONS):
                continue
            highest = -1
            for number in numbers:
                if number < highest:
                    found.append((line, number))
                highest = max(highest, number)
        return found

    def stored_twice(self) -> list[tuple[str, int]]:
        stored: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        for sequence_number, receipts in self.receipts.items():
            for each in receipts:
                stored[each.line, each.number].add(sequence_number)
        return [name for name, numbers in stored.items() if len(numbers) > 1]

    def check(self) -> None:
        """What must be true whatever happened to nodes and databases."""
        assert sum(map(len, self.accepted.values())) > 0
        assert self.refused == [], f"sends failed for good: {self.refused[:5]}"
        two = self.two_holders()
        assert two == [], f"two receivers had the same at once: {two[:5]}"
        for told in (self.completed(), self._recorded_names()):
            twice = [name for name, count in told.items() if count > 1]
            assert twice == [], f"completed twice: {twice[:20]}"
        stored = self.stored_twice()
        assert stored == [], f"stored twice: {stored[:20]}"
        unordered = self.unordered()
        assert unordered == [], f"the order of a session was not kept: {unordered[:20]}"
        unrecorded = self.unrecorded()
        assert unrecorded == [], f"completed and not recorded: {unrecorded[:20]}"
        assert isinstance(self.recorded, str) or self.recorded.damaged == 0, "damaged records"
        if missing := self.open() if isinstance(self.recorded, Recorded) else self.missing():
            if isinstance(self.left, dict):
                lost = [name for name in missing if name not in self.left and self._is_gone(name)]
                told_of = [self.story(name) for name in lost[:20]]
                assert lost == [], f"accepted messages were lost: {'; '.join(told_of)}"
            stories = "; ".join(self.story(name) for name in missing[:20])
            raise NotJudged(f"{len(missing)} not completed by those who compete: {stories}")

    def _is_gone(self, name: tuple[str, int]) -> bool:
        """Whether nobody can have completed an open message."""
        if not self.had(name):
            return True
        if isinstance(self.recorded, str):
            return False
        return all(
            self.recorded.is_whole(message)
            for message, receipts in self.receipts.items()
            if any((each.line, each.number) == name for each in receipts)
        )

    def had(self, name: tuple[str, int]) -> list[Receipt]:
        """All receipts of a message."""
        found = [
            each
            for some in self.receipts.values()
            for each in some
            if (each.line, each.number) == name
        ]
        return sorted(found, key=lambda each: each.at_s)

    def story(self, name: tuple[str, int]) -> str:
        """Of a message that is open: who received it when, and whether the queue has it."""
        receipts = [each.told(self.began_s) for each in self.had(name)]
        return f"{name[0]}:{name[1]} was {_receipts(receipts)}; it is {self._place(name)}"

    def _place(self, name: tuple[str, int]) -> str:
        if isinstance(self.left, str):
            return f"somewhere: {self.left}"
        if name not in self.left:
            # A completion whose answer was lost is tried again by the SDK, and finds no lock.
            if not self.had(name):
                return "not in the queue"
            if self._is_gone(name):
                return "not in the queue, and its completion is not recorded"
            why = self.recorded if isinstance(self.recorded, str) else "records are missing"
            return f"not in the queue, perhaps completed ({why})"
        if not name[0].startswith(SHARED) or "dead-lettered" in self.left[name]:
            return self.left[name]
        if isinstance(self.free, str):
            return f"{self.left[name]}, {self.free}"
        return f"{self.left[name]}, {'free' if name in self.free else 'locked'} at the end"


def _receipts(told: list[str]) -> str:
    return f"received by {', then by '.join(told)}" if told else "not received"


class Holders:
    """Senders of lines and of sessions, and receivers that compete for both."""

    def __init__(self, node: Node, seed: int) -> None:
        """At the gateway of this node."""
        self.book = HolderBook()
        self._node = node
        self._at = node.connection_string
        self._chance = Random(seed)
        self._is_sending = True
        self._is_receiving = True

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            sending = [
                tasks.create_task(self._send(queue, line))
                for queue in (SHARED, SESSIONS)
                for line in LINES
            ]
            receiving = [
                tasks.create_task(self._again(receive, f"{queue} {number}"))
                for number in range(RECEIVERS)
                for queue, receive in (
                    (SHARED, self._receive_shared),
                    (SESSIONS, self._receive_session),
                )
            ]
            try:
                yield
            finally:
                self._is_sending = False
                await asyncio.wait(sending)
                await self._drained()
                self.book.left = await self._left()
                self._is_receiving = False
                await asyncio.wait(receiving, timeout=LOCK_S)
                for task in receiving:
                    task.cancel()
                api = self._node.api()
                self.book.recorded = await asyncio.to_thread(recorded_in, api, QUEUES)
                if self.book.open():
                    self.book.free = await asyncio.to_thread(free_in, self._node.api(), SHARED)

    async def _drained(self) -> None:
        """Until all was completed, or nothing more was for a while."""
        least, until_s = len(self.book.missing()), time.monotonic() + DRAINED_S
        while least and time.monotonic() < until_s:
            await asyncio.sleep(DRAIN_LOOK_S)
            left = len(self.book.missing())
            if left < least:
                least, until_s = left, time.monotonic() + DRAINED_S

    async def _left(self) -> dict[tuple[str, int], str] | str:
        """What the queues have when no message in doubt can come again."""
        until_s = time.monotonic() + DRAINED_S
        while True:
            left = await asyncio.to_thread(left_in, self._node.api(), QUEUES)
            doubted = self.book.in_doubt().intersection(self.book.open())
            if isinstance(left, str) or not doubted & left.keys() or time.monotonic() > until_s:
                return left
            await asyncio.sleep(DRAIN_LOOK_S)

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self._at, retry_mode="fixed", retry_backoff_factor=AGAIN_S, retry_total=RETRIES
        )

    async def _send(self, queue: str, line: str) -> None:
        name, number = f"{queue}-{line}", 0
        async with self._client() as client, client.get_queue_sender(queue) as sender:
            while self._is_sending:
                session = line if queue == SESSIONS else None
                message = ServiceBusMessage(f"{name}:{number}", session_id=session)
                try:
                    await sender.send_messages(message)
                except ServiceBusError as error:
                    self.book.refused.append(f"{name}:{number}: {error!r}")
                else:
                    self.book.accepted[name].append(number)
                number += 1
                await asyncio.sleep(PAUSE_S)
                while self._is_behind(name):  # noqa: ASYNC110 - the book tells nobody
                    await asyncio.sleep(PAUSE_S)

    def _is_behind(self, name: str) -> bool:
        behind = len(self.book.accepted[name]) - len(self.book.order[name])
        return self._is_sending and behind > BEHIND_MAX

    async def _again(self, receive: Receive, holder: str) -> None:
        """Receive, and again with a new connection whenever one broke."""
        while self._is_receiving:
            try:
                await receive(holder)
            except ServiceBusError as error:
                self.book.interrupted.append(f"{holder}: {error!r}")
                await asyncio.sleep(PAUSE_S)

    async def _receive_shared(self, holder: str) -> None:
        async with self._client() as client, client.get_queue_receiver(SHARED) as receiver:
            while self._is_receiving:
                for message in await receiver.receive_messages(max_wait_time=1):
                    await self._take(receiver, message, holder)

    async def _receive_session(self, holder: str) -> None:
        async with self._client() as client:
            while self._is_receiving:
                receiving = client.get_queue_receiver(
                    SESSIONS, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
                )
                try:
                    async with receiving as receiver:
                        await self._hold(receiver, holder)
                except OperationTimeoutError:
                    # All sessions are held by others, or empty.
                    await asyncio.sleep(PAUSE_S)
                except SessionLockLostError as error:
                    self.book.interrupted.append(f"{holder}: {error!r}")

    async def _hold(self, receiver: ServiceBusReceiver, holder: str) -> None:
        session = receiver.session.session_id or ""
        hold = Hold(holder, time.monotonic())
        self.book.holds[session].append(hold)
        for _ in range(TURN):
            # With one credit the order is that of the bus, see test_session_order.
            found = await receiver.receive_messages(max_message_count=1, max_wait_time=1)
            if not found:
                return
            for message in found:
                hold.used_s = await self._take(receiver, message, holder) or hold.used_s

    async def _take(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, holder: str
    ) -> float:
        """Hold a message for a while, and complete it; when that began, 0 if it did not work."""
        line, _, number = str(message).partition(":")
        receipt = Receipt(line, int(number), holder, time.monotonic())
        assert message.sequence_number is not None
        self.book.received(message.sequence_number, receipt)
        await asyncio.sleep(self._chance.uniform(*HELD_S))
        receipt.settling_s = time.monotonic()
        try:
            await receiver.complete_message(message)
        except (MessageLockLostError, SessionLockLostError):
            receipt.is_lost = True
            return 0.0
        except ServiceBusError:
            receipt.is_left = True
            raise
        receipt.settled_s = time.monotonic()
        return receipt.settling_s
