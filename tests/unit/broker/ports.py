"""Fragments and receivers that do what a test tells them."""

from collections.abc import Callable

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.message import Entry
from shardbus.core.messages.command import NO_SESSION, Delivery, Receive, Received, Settle


def delivery(number: int, *, is_locking: bool = True) -> Delivery:
    entry = Entry(number, b"%d" % number, 1, enqueued_at_ms=0)
    token = number.to_bytes(16, "big") if is_locking else b""
    return Delivery(entry, entry.payload, 0, token, 0)


class ScriptedPort:
    """A FragmentPort with so many messages; it answers when `answer` is called."""

    def __init__(self, messages: int = 0, first: int = 1) -> None:
        self.messages = messages
        self.is_available = True
        self.asked: list[tuple[Command, ReplyTo]] = []
        self.released: list[bytes] = []
        self.watchers: list[Callable[[], None]] = []
        self.takes: list[int] = []
        self.watched_session = NO_SESSION
        self._next = first

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        if isinstance(command, Settle):
            self.released += command.tokens
        elif not self.is_available:
            reply_to(Unavailable("the fragment is away"))
        else:
            assert isinstance(command, Receive)
            self.takes.append(command.count_max)
            self.asked.append((command, reply_to))

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        self.watchers.append(wake)
        self.watched_session = session

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        self.watchers.remove(wake)

    def wake(self) -> None:
        watchers, self.watchers = self.watchers, []
        for wake in watchers:
            wake()

    def answer(self, at_most: int = 1 << 30) -> None:
        """Answer the oldest question with what there is, or with a part of it."""
        command, reply_to = self.asked.pop(0)
        assert isinstance(command, Receive)
        count = min(self.messages, command.count_max, at_most)
        self.messages -= count
        numbers = range(self._next, self._next + count)
        self._next += count
        deliveries = [delivery(number, is_locking=command.is_locking) for number in numbers]
        reply_to(Received(deliveries, self.messages > 0))

    def refuse(self, refusal: Refused) -> None:
        _, reply_to = self.asked.pop(0)
        reply_to(refusal)

    def fail(self) -> None:
        _, reply_to = self.asked.pop(0)
        reply_to(Unavailable("the commit failed", is_unknown=True))


class Scripted:
    """A FragmentPort that hears everything and answers when it is told to."""

    def __init__(self) -> None:
        self.is_available = True
        self._asked: list[tuple[Command, ReplyTo]] = []

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        self._asked.append((command, reply_to))

    def commands(self) -> list[Command]:
        """Those that are not answered."""
        return [command for command, _ in self._asked]

    def answer(self, position: int, answer: Answer) -> None:
        _, reply_to = self._asked.pop(position)
        reply_to(answer)

    def fail_all(self) -> None:
        asked, self._asked = self._asked, []
        for _, reply_to in asked:
            reply_to(Unavailable("the broker is out", is_unknown=True))

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        raise AssertionError("nobody receives here")

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        raise AssertionError("nobody receives here")


class Link:
    """A Receiver that keeps what it gets."""

    def __init__(self, credit: int = 0, *, is_locking: bool = True) -> None:
        self.is_locking = is_locking
        self.is_draining = False
        self.granted = credit
        # The most that it takes at a time; then it has no credit until it gets some.
        self.room = 10_000
        self.is_failing = False
        self.got: list[int] = []
        self.tokens: list[bytes] = []
        self.drains = 0
        self.losses: list[Refused] = []

    def credit(self) -> int:
        return self.granted

    def deliver(self, deliveries: list[Delivery]) -> int:
        assert 0 < len(deliveries) <= self.granted
        if self.is_failing:
            raise RuntimeError("planted")
        is_full = len(deliveries) > self.room
        deliveries = deliveries[: self.room]
        self.granted = 0 if is_full else self.granted - len(deliveries)
        self.got += [each.entry.sequence_number for each in deliveries]
        self.tokens += [each.token for each in deliveries]
        return len(deliveries)

    def drained(self) -> None:
        assert self.is_draining
        self.is_draining = False
        self.granted = 0
        self.drains += 1

    def lost(self, failure: Refused) -> None:
        self.losses.append(failure)


class Heard:
    """A SendSink and SettleSink that remembers what became of each position."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}

    def sent(self, positions: list[int], answer: Answer) -> None:
        for position in positions:
            assert position not in self.answers
            self.answers[position] = answer
