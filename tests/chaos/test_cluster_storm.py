"""The storm over a cluster tells the truth about what it has seen, also when it is cut short."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import cast

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from shardbus.core.sequence import fragment_of
from tests.chaos import open_messages
from tests.chaos.cluster_storm import NAMES, NOT_JUDGED, Storm, World, judge
from tests.chaos.databases import fill
from tests.chaos.holders import SHARED, Hold, HolderBook, Receipt
from tests.chaos.nodes import KEYS, PEEKED, QUEUE, Applications, Book, Node, NotJudged
from tests.chaos.open_messages import Recorded, free_in, left_in, recorded_in
from tests.support.queues import create_queue
from tests.support.server import running_server

HOUR_S = 3600.0
STORM_S = 300


def a_book(accepted: int, received: int) -> Book:
    book = Book()
    for number in range(accepted):
        book.accepted["key"].append(number)
    for number in range(received):
        book.receive("key", number, number)
        book.completed[number] += 1
    return book


def a_held_book(*receipts: Receipt) -> HolderBook:
    """A message of a session that was received so often, each time by somebody else."""
    book = HolderBook()
    book.accepted["sessions-s"].append(0)
    for receipt in receipts or (a_receipt("one", 0.0, settled=(1.0, 2.0)),):
        book.received(7, receipt)
    return book


def a_receipt(
    holder: str, at_s: float, settled: tuple[float, float] | None = None, *, is_lost: bool = False
) -> Receipt:
    began_s, ended_s = settled or (None, None)
    return Receipt("sessions-s", 0, holder, at_s, began_s, ended_s, is_lost)


def test_a_message_that_comes_again_after_its_lock_has_one_holder() -> None:
    """R18: it was lost, or it ended, or a fault ended it; and a late answer is no second hold."""
    done = a_receipt("two", 70.0, (71.0, 72.0))
    for first in (
        a_receipt("one", 0.0),
        a_receipt("one", 69.0, is_lost=True),
        a_receipt("one", 69.0, (69.5, 70.5)),
    ):
        book = a_held_book(first, done)
        assert book.two_holders() == []
    book = a_held_book(a_receipt("one", 69.0), done)
    book.excuses.append((60.0, 69.5))
    assert book.two_holders() == []


def test_a_message_with_two_holders_is_told() -> None:
    """R18"""
    overlapping = a_held_book(a_receipt("one", 0.0), a_receipt("two", 5.0, (6.0, 7.0)))
    both = a_held_book(a_receipt("one", 0.0, (8.0, 9.0)), a_receipt("two", 5.0, (6.0, 7.0)))
    both.excuses.append((0.0, 9.0))
    for book in (overlapping, both):
        with pytest.raises(AssertionError):
            book.check()
        assert judge(a_storm(), a_book(accepted=5, received=5), book) == 1


def test_a_session_with_two_holders_is_told() -> None:
    """R20"""
    book = a_held_book()
    book.holds["s"] = [Hold("one", 0.0, 3.0), Hold("two", 4.0)]
    assert book.two_holders() == []
    book.holds["s"][0].used_s = 5.0
    with pytest.raises(AssertionError):
        book.check()


def test_a_session_out_of_order_is_told() -> None:
    """R20"""
    book = a_held_book()
    for number in (2, 1):
        book.accepted["sessions-s"].append(number)
        book.received(10 + number, Receipt("sessions-s", number, "one", 3.0, 3.0, 4.0))
    with pytest.raises(AssertionError, match=r"session was not kept: \[\('sessions-s', 1\)\]"):
        book.check()


def test_the_story_of_an_open_message_is_told() -> None:
    """Who received it and when, how that ended, and what the queue still has."""
    book = a_held_book(a_receipt("one", 3.0, is_lost=True))
    book.began_s = 1.0
    name = ("sessions-s", 0)
    book.left = {name: "in the queue (state active)"}

    with pytest.raises(NotJudged, match=r"one at 2[.]0"):
        book.check()
    assert judge(a_storm(), a_book(accepted=5, received=5), book) == NOT_JUDGED
    book.left = "the queue does not answer"
    assert "it is somewhere: the queue does not answer" in book.story(name)


def test_a_free_message_and_a_locked_one_are_told_apart() -> None:
    book = HolderBook()
    book.accepted["shared-l"] += [0, 1, 2]
    book.left = {("shared-l", number): "in the queue" for number in (0, 1)}
    book.left["shared-l", 2] = "dead-lettered"
    book.free = {("shared-l", 0)}

    stories = [book.story(("shared-l", number)) for number in range(3)]

    assert stories == [
        "shared-l:0 was not received; it is in the queue, free at the end",
        "shared-l:1 was not received; it is in the queue, locked at the end",
        "shared-l:2 was not received; it is dead-lettered",
    ]


def test_a_message_that_nobody_received_and_no_queue_has_is_lost() -> None:
    book = HolderBook()
    book.accepted["shared-l"].append(0)
    with pytest.raises(AssertionError, match="shared-l:0"):
        book.check()
    assert judge(a_storm(), a_book(accepted=5, received=5), book) == 1


def test_a_completion_whose_answer_was_lost_is_judged_by_the_record_of_it() -> None:
    """The SDK tries it again on a new connection, and is told that the lock is lost."""
    book = a_held_book(a_receipt("one", 3.0, is_lost=True))
    assert judge(a_storm(), a_book(accepted=5, received=5), book) == NOT_JUDGED

    book.recorded = Recorded(Counter({("sessions", 7): 1}))
    assert judge(a_storm(), a_book(accepted=5, received=5), book) == 0
    assert book.unanswered() == 1

    book.recorded = Recorded(Counter({("sessions", 7): 2}))
    with pytest.raises(AssertionError, match="twice"):
        book.check()


def test_what_was_received_and_is_neither_recorded_nor_left_is_lost() -> None:
    """A completion that was not answered is no excuse."""
    lock_lost = a_receipt("one", 3.0, is_lost=True)
    broken = a_receipt("one", 3.0)
    broken.settling_s, broken.is_left = 4.0, True
    for receipt in (lock_lost, broken):
        book = a_held_book(receipt)
        book.recorded = Recorded(Counter({("sessions", 8): 1}))
        with pytest.raises(AssertionError, match="lost"):
            book.check()
        book.left = {("sessions-s", 0): "in the queue"}
        assert judge(a_storm(), a_book(accepted=5, received=5), book) == NOT_JUDGED


def test_a_fragment_that_lacks_records_proves_no_loss() -> None:
    book = a_held_book(a_receipt("one", 3.0, is_lost=True))
    book.recorded = Recorded(incomplete={("sessions", 0)})
    with pytest.raises(NotJudged, match="sessions-s:0"):
        book.check()


def test_a_completion_that_was_answered_and_is_not_recorded_is_told() -> None:
    """P8"""
    book = a_held_book()
    book.recorded = Recorded()
    assert book.unrecorded() == [("sessions-s", 0)]
    with pytest.raises(AssertionError):
        book.check()
    book.recorded = Recorded(incomplete={("sessions", 0)})
    book.check()


def test_a_violation_is_told_also_where_the_other_book_is_not_judged() -> None:
    open_book = a_book(accepted=5, received=3)
    open_book.left = None
    overlapping = a_held_book(a_receipt("one", 0.0), a_receipt("two", 5.0, (6.0, 7.0)))
    assert judge(a_storm(), open_book, overlapping) == 1


def test_recorded_completions_are_found_in_all_fragments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8: page by page."""
    monkeypatch.setattr(open_messages, "RECORDS", 3)
    with running_server(tmp_path / "bus") as server:
        create_queue(server, SHARED, EnablePartitioning="true", Lifecycle="true")
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender(SHARED) as sender:
                for number in range(12):
                    text = f"shared-l:{number}"
                    sender.send_messages(ServiceBusMessage(text, partition_key=text))
            completed: set[tuple[str, int]] = set()
            with client.get_queue_receiver(SHARED) as receiver:
                while len(completed) < 9:
                    for message in receiver.receive_messages(max_wait_time=10)[:1]:
                        receiver.complete_message(message)
                        completed.add((SHARED, message.sequence_number or 0))

        found = recorded_in(Node.api(cast(Node, server)), (SHARED,))

    assert isinstance(found, Recorded)
    assert found.completed == Counter(completed)
    assert len({fragment_of(number) for _, number in completed}) > 1
    assert found.incomplete == set() and found.damaged == 0


def test_open_messages_are_found_in_both_lines_and_locked_ones_are_not_free(tmp_path: Path) -> None:
    with running_server(tmp_path / "bus") as server:
        create_queue(server, SHARED, EnablePartitioning="true")
        api = Node.api(cast(Node, server))
        texts = [f"shared-l:{number}" for number in range(4)]
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender(SHARED) as sender:
                for text in texts:
                    sender.send_messages(ServiceBusMessage(text, partition_key="l"))
            with client.get_queue_receiver(SHARED) as receiver:
                [first] = receiver.receive_messages(max_wait_time=10)
                receiver.dead_letter_message(first)
                [_] = receiver.receive_messages(max_wait_time=10)

                left, free = left_in(api, (SHARED,)), free_in(api, SHARED)

    assert isinstance(left, dict) and isinstance(free, set)
    assert sorted(left) == [("shared-l", number) for number in range(4)]
    assert [name for name, told in left.items() if "dead-lettered" in told] == [("shared-l", 0)]
    assert free == {("shared-l", 2), ("shared-l", 3)}


def a_storm(kind: str = "pause") -> Storm:
    return Storm(1, [kind], (HOUR_S, HOUR_S), is_in_turn=False)


def test_messages_that_are_still_in_the_queue_are_not_called_lost() -> None:
    book = a_book(accepted=5, received=3)
    book.left = {("key", 3), ("key", 4)}

    with pytest.raises(NotJudged, match="still"):
        book.check()
    assert judge(a_storm(), book, a_held_book()) == NOT_JUDGED


def test_a_queue_that_does_not_answer_is_not_judged() -> None:
    book = a_book(accepted=5, received=3)
    book.left = None

    with pytest.raises(NotJudged, match="answer"):
        book.check()


def test_a_message_that_the_queue_does_not_have_is_lost() -> None:
    book = a_book(accepted=5, received=3)
    book.left = {("key", 4)}

    with pytest.raises(AssertionError, match=r"lost: \[\('key', 3\)\]"):
        book.check()
    assert judge(a_storm(), book, a_held_book()) == 1


def test_a_completed_message_that_comes_again_is_told() -> None:
    book = a_book(accepted=3, received=3)
    book.receive("key", 1, 1)

    with pytest.raises(AssertionError, match=r"again: \[\('key', 1\)\]"):
        book.check()


def test_a_message_that_is_stored_twice_is_told() -> None:
    book = a_book(accepted=3, received=3)
    book.receive("key", 1, 1000)

    with pytest.raises(AssertionError, match=r"twice: \[\('key', 1\)\]"):
        book.check()


def test_all_that_was_received_once_in_order_is_well() -> None:
    assert judge(a_storm(), a_book(accepted=5, received=5), a_held_book()) == 0


def test_what_is_left_is_found_in_all_fragments(tmp_path: Path) -> None:
    numbers = range(3 * PEEKED // len(KEYS))
    with running_server(tmp_path / "bus") as server:
        create_queue(server, QUEUE, EnablePartitioning="true")
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender(QUEUE) as sender,
        ):
            # A page has messages of each key.
            for some in (numbers[at : at + 10] for at in range(0, len(numbers), 10)):
                for key in KEYS:
                    texts = [f"{key}:{number}" for number in some]
                    sender.send_messages([ServiceBusMessage(t, partition_key=key) for t in texts])
        where = server.connection_string

        assert asyncio.run(Applications(where, where).left()) == set(product(KEYS, numbers))


class Calm:
    """What a storm uses of a world, in which slots are always spread evenly."""

    def __init__(self) -> None:
        self.book = Book()
        self.applications = self.databases = self.door = self.second = self
        self.holders = Idle()
        self.nodes = [Nobody(name) for name in NAMES]
        self.done: list[str] = []
        self.is_paused = asyncio.Event()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async def send() -> None:
            while True:
                for key in KEYS:
                    self.book.accepted[key].append(0)
                await asyncio.sleep(0.01)

        sending = asyncio.create_task(send())
        yield
        sending.cancel()
        self.done.append("drained")

    def owners(self) -> Counter[str]:
        return Counter(dict.fromkeys(NAMES, 2))

    def number(self, _sql: str) -> int:
        return 0

    def node(self, _name: str) -> Calm:
        return self

    def pause(self) -> None:
        self.done.append("paused")
        self.is_paused.set()

    def resume(self) -> None:
        self.done.append("resumed")


class Idle:
    """Applications that do nothing."""

    def __init__(self) -> None:
        self.book = HolderBook()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        yield


class Nobody:
    def __init__(self, name: str) -> None:
        self.name = name


def test_a_storm_that_is_told_to_stop_mends_its_fault_and_drains() -> None:
    asyncio.run(_stop_a_storm())


async def _stop_a_storm() -> None:
    storm, world = a_storm(), Calm()
    raging = asyncio.create_task(storm.rage(cast(World, cast(object, world)), 200))
    await world.is_paused.wait()

    storm.stop()
    await raging

    assert world.done == ["paused", "resumed", "drained"]
    assert storm.count == 1


def test_a_disk_is_filled_to_its_last_byte(tmp_path: Path) -> None:
    """Here the size of a file is limited, and not that of its disk."""
    size = 100_001
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        fill(tmp_path / "ballast")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert (tmp_path / "ballast").stat().st_size == size


@pytest.mark.release
def test_a_storm_that_is_cut_short_judges_what_it_has_seen() -> None:
    """Whole, but for the number of its faults, so that it can be trusted when it is needed."""
    command = [sys.executable, "-m", "tests.chaos.cluster_storm", "--in-turn", "--lasts", "2"]
    command += ["--kind", "pause", "--kind", "kill database"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as storm:
        try:
            assert storm.stdout is not None
            told = [line for line in iter(storm.stdout.readline, "") if not _is_second(storm, line)]
            code = storm.wait(STORM_S)
        finally:
            storm.kill()
    assert code == 0, told
    assert "none lost, none twice, each key and session in order" in told[-1]


def _is_second(storm: subprocess.Popen[str], line: str) -> bool:
    """Tell the storm to stop after its second fault."""
    if line.startswith("2: "):
        storm.send_signal(signal.SIGTERM)
        return True
    return False
