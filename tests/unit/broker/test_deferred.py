"""Deferred messages that are received without a lock: removed, or free again (R18, R32)."""

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from shardbus.broker.fragment.answers import ReplyTo
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import MESSAGE_LOCK_LOST, Refused, Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import COMPLETE, DEFER, Delivery, Settle, Settled
from tests.unit.broker.house import House
from tests.unit.broker.queues import Queue

# What the deferral itself has counted: a delivery that nobody got adds nothing to it.
DEFERRALS: Final = 1


class Removing:
    """A fragment to which no removal comes: somebody else says what became of it."""

    is_available = True

    def __init__(self, port: FragmentPort) -> None:
        self._port = port
        self.asked: list[tuple[Settle, ReplyTo]] = []
        self.on_asked: Callable[[Settle, ReplyTo], None] = lambda command, reply_to: None

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        if isinstance(command, Settle) and command.how == COMPLETE:
            self.asked.append((command, reply_to))
            self.on_asked(command, reply_to)
        else:
            self._port.submit(command, reply_to)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = b"") -> None:
        raise AssertionError("nobody waits here")

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = b"") -> None:
        raise AssertionError("nobody waits here")


@pytest.fixture
def queue(house: House) -> Queue:
    return Queue(house, 2)


def deferred(queue: Queue) -> list[int]:
    """The numbers of two deferred messages of each fragment."""
    numbers: list[int] = []
    for index, runner in enumerate(queue.runners):
        queue.send(index, Message(b"%d.0" % index), Message(b"%d.1" % index))
        found = queue.house.receive(runner, 2)
        queue.do(queue.operations.settle(Settle(DEFER, [one.token for one in found])))
        numbers += [one.entry.sequence_number for one in found]
    return numbers


def receive(queue: Queue, numbers: list[int], *, is_locking: bool) -> list[Delivery]:
    receiving = queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=is_locking)
    return queue.do(receiving)


def replaced(queue: Queue, index: int) -> Removing:
    removing = Removing(queue.router.ports[index])
    queue.router.ports[index] = removing
    return removing


@pytest.mark.parametrize("is_unknown", [False, True])
def test_what_could_not_be_removed_is_locked_for_nobody(queue: Queue, is_unknown: bool) -> None:
    """With its fragment's broker gone: it would be hidden, and count as delivered, until later."""
    numbers = deferred(queue)
    failure = Unavailable("The broker is out.", is_unknown)
    for index in range(2):
        replaced(queue, index).on_asked = lambda command, reply_to: reply_to(failure)

    with pytest.raises(Unavailable):
        receive(queue, numbers, is_locking=False)
    queue.house.pass_s()

    found = receive(queue, numbers, is_locking=True)
    assert [one.delivery_count for one in found] == [DEFERRALS] * 4


def test_only_what_is_removed_is_handed_out_and_the_rest_is_free(queue: Queue) -> None:
    numbers = deferred(queue)
    failure = Unavailable("The broker is out.", is_unknown=True)
    replaced(queue, 1).on_asked = lambda command, reply_to: reply_to(failure)

    taken = receive(queue, numbers, is_locking=False)
    queue.house.pass_s()

    assert [one.payload for one in taken] == [b"0.0", b"0.1"]
    left = receive(queue, numbers[2:], is_locking=True)
    assert [one.delivery_count for one in left] == [DEFERRALS] * 2


def test_whoever_stops_waiting_for_removals_leaves_nothing_locked(queue: Queue) -> None:
    numbers = deferred(queue)[2:]
    removing = replaced(queue, 1)

    async def give_up() -> None:
        async with asyncio.timeout(5):
            await queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=False)

    with pytest.raises(TimeoutError):
        queue.do(give_up())
    [(_, reply_to)] = removing.asked
    reply_to(Unavailable("The broker is out.", is_unknown=True))
    queue.house.pass_s()

    found = receive(queue, numbers, is_locking=True)
    assert [one.delivery_count for one in found] == [DEFERRALS] * 2


def test_a_lock_that_was_lost_takes_no_other_message_with_it(queue: Queue) -> None:
    """What is removed is handed out, whatever became of its neighbours."""
    numbers = deferred(queue)[2:]
    replaced(queue, 1).on_asked = lambda command, reply_to: reply_to(Settled([False, True]))

    taken = receive(queue, numbers, is_locking=False)

    assert [one.payload for one in taken] == [b"1.0"]


def test_locks_that_were_all_lost_are_told(queue: Queue) -> None:
    numbers = deferred(queue)[2:]
    replaced(queue, 1).on_asked = lambda command, reply_to: reply_to(Settled([True, True]))

    with pytest.raises(Refused) as refusal:
        receive(queue, numbers, is_locking=False)

    assert refusal.value.kind is MESSAGE_LOCK_LOST
