"""One writer, one reader, group commit."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from shardbus.broker.fragment.storage import (
    COMMITS_PER_TRANSACTION_MAX,
    READS_MAX,
    Storage,
    ThreadWorker,
)
from shardbus.core.fragment.change import Append, new_counters
from shardbus.core.message import Entry
from shardbus.stores.base.store import FragmentCommit, FragmentId, MessageStore, StoreError
from shardbus.stores.memory.store import MemoryStore
from tests.unit.broker.house import LATENCY_S, House

T = TypeVar("T")


def commit_of(number: int, counter: int = 1) -> FragmentCommit:
    entry = Entry(counter, b"a", 1, enqueued_at_ms=0)
    return FragmentCommit(FragmentId(1, number), [Append([entry])], new_counters())


def created(house: House, count: int) -> None:
    house.disk.create([FragmentId(1, number) for number in range(count)])


def test_commits_of_one_turn_of_the_loop_share_a_transaction(house: House) -> None:
    created(house, 3)
    answers: list[StoreError | None] = []

    for number in range(3):
        house.storage.commit(commit_of(number), answers.append)
    house.pass_s()

    assert [len(transaction) for transaction in house.disk.transactions] == [3]
    assert answers == [None, None, None]


def test_commits_that_come_while_one_is_written_share_the_next(house: House) -> None:
    created(house, 4)
    answers: list[StoreError | None] = []
    house.latency_s = 1.0

    house.storage.commit(commit_of(0), answers.append)
    house.pass_s(0.5)
    for number in range(1, 4):
        house.storage.commit(commit_of(number), answers.append)
    house.pass_s(1.0)
    assert answers == []
    house.pass_s(10)

    assert [len(transaction) for transaction in house.disk.transactions] == [1, 3]
    assert answers == [None] * 4


def test_a_transaction_has_a_most(house: House) -> None:
    count = COMMITS_PER_TRANSACTION_MAX + 10
    created(house, count)
    answers: list[StoreError | None] = []

    for number in range(count):
        house.storage.commit(commit_of(number), answers.append)
    house.pass_s()

    assert [len(each) for each in house.disk.transactions] == [COMMITS_PER_TRANSACTION_MAX, 10]
    assert answers == [None] * count


def test_everyone_in_a_failed_transaction_hears_of_it(house: House) -> None:
    created(house, 2)
    answers: list[StoreError | None] = []
    house.disk.commit_failures.append("before")

    house.storage.commit(commit_of(0), answers.append)
    house.storage.commit(commit_of(1), answers.append)
    house.pass_s()
    house.storage.commit(commit_of(0), answers.append)
    house.pass_s()

    assert [str(answer) for answer in answers] == ["the disk is full", "the disk is full", "None"]


def test_commits_that_belong_together_are_never_divided(house: House) -> None:
    count = COMMITS_PER_TRANSACTION_MAX
    created(house, 2 * count + 20)
    answers: list[StoreError | None] = []

    def group(start: int, size: int) -> None:
        commits = [commit_of(number) for number in range(start, start + size)]
        house.storage.commit_together(commits, answers.append)

    group(0, count - 5)
    group(count - 5, 10)
    group(count + 5, count + 10)
    house.storage.commit(commit_of(2 * count + 15), answers.append)
    house.pass_s()

    sizes = [len(transaction) for transaction in house.disk.transactions]
    assert sizes == [count - 5, 10, count + 10, 1]
    assert answers == [None] * 4


def test_commits_that_belong_together_fail_together(house: House) -> None:
    created(house, 2)
    answers: list[StoreError | None] = []
    house.disk.commit_failures.append("before")

    house.storage.commit_together([commit_of(0), commit_of(1)], answers.append)
    house.pass_s()

    assert [str(answer) for answer in answers] == ["the disk is full"]
    assert house.disk.kept.load(FragmentId(1, 0)).counters.lines[0].count == 0


def test_what_is_withdrawn_leaves_the_others_of_its_group(house: House) -> None:
    created(house, 3)
    answers: list[StoreError | None] = []

    house.storage.commit_together([commit_of(0), commit_of(1)], answers.append)
    house.storage.commit(commit_of(1), answers.append)
    house.storage.commit(commit_of(2), answers.append)
    house.storage.withdraw(FragmentId(1, 1))
    house.pass_s()

    assert house.disk.transactions == [[FragmentId(1, 0), FragmentId(1, 2)]]
    assert answers == [None, None]


def test_a_commit_from_the_answer_of_another_is_written_too(house: House) -> None:
    created(house, 2)
    answers: list[StoreError | None] = []

    def again(error: StoreError | None) -> None:
        answers.append(error)
        house.storage.commit(commit_of(1), answers.append)

    house.storage.commit(commit_of(0), again)
    house.pass_s()

    assert answers == [None, None]


def test_reads_and_writes_are_answered_with_what_they_found(house: House) -> None:
    created(house, 1)
    found: list[list[FragmentId] | StoreError] = []
    house.storage.write(lambda store: store.create([FragmentId(2, 0)]), lambda _: None)
    house.pass_s()

    house.storage.read(lambda store: store.fragments(), found.append)
    house.pass_s()

    assert found == [[FragmentId(1, 0), FragmentId(2, 0)]]


def test_a_thread_runs_jobs_in_order_and_answers_in_the_loop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        worker = ThreadWorker("test", loop)
        ran_in: list[str] = []
        answered_in: list[str] = []
        done = asyncio.Event()

        def job() -> None:
            ran_in.append(threading.current_thread().name)

        def then(result: StoreError | None) -> None:
            answered_in.append(threading.current_thread().name)
            if len(answered_in) == 2:
                done.set()

        worker.submit(job, then)
        worker.submit(job, then)
        await asyncio.wait_for(done.wait(), 10)
        worker.close()

        assert ran_in == ["test", "test"]
        assert answered_in == [threading.current_thread().name] * 2

    asyncio.run(main())


def test_a_thread_outlives_a_job_that_fails_in_any_way() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        worker = ThreadWorker("test", loop)
        answers: asyncio.Queue[int | StoreError] = asyncio.Queue()

        def fail_as_told() -> int:
            raise StoreError("full")

        def fail_as_a_bug() -> int:
            raise ZeroDivisionError("planted")

        for job in (fail_as_told, fail_as_a_bug, lambda: 7):
            worker.submit(job, answers.put_nowait)
        found = [str(await asyncio.wait_for(answers.get(), 10)) for _ in range(3)]
        worker.close()

        assert found == ["full", "internal error: planted", "7"]

    asyncio.run(main())


def test_closing_finishes_what_was_submitted() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        store: MessageStore = MemoryStore()
        writer, reader = ThreadWorker("writer", loop), ThreadWorker("reader", loop)
        storage = Storage(store, writer, reader, loop)
        jobs = iter(range(100))
        ran: list[int] = []

        for _ in range(100):
            storage.write(lambda _: ran.append(next(jobs)), lambda _: None)
        storage.close()

        assert ran == list(range(100))

    asyncio.run(main())


def read_of(number: int) -> Callable[[MessageStore], int]:
    return lambda store: number


class EagerWorker:
    """Runs jobs at once; the loop, which has other things to do, hears of it when it is let."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], T], then: Callable[[T | StoreError], None]) -> None:
        result = job()
        self.ready.append(lambda: then(result))

    def close(self) -> None:
        """Nothing runs on."""


def test_few_reads_are_ahead_of_the_loop(house: House) -> None:
    """What was read and not taken over is in memory, whoever asked for it."""
    worker = EagerWorker()
    storage = Storage(house.disk, worker, worker, house.loop)
    told: list[int | StoreError] = []

    for number in range(3 * READS_MAX):
        storage.read(read_of(number), told.append)
    assert len(worker.ready) == READS_MAX
    while worker.ready:
        worker.ready.pop(0)()
        assert len(worker.ready) <= READS_MAX

    assert told == list(range(3 * READS_MAX))


def told(answers: list[StoreError | None]) -> list[str]:
    return ["stored" if answer is None else type(answer).__name__ for answer in answers]


@pytest.mark.parametrize("unfit", [{0}, {7}, {20}, {3, 4}, set(range(21)), set(range(1, 21, 2))])
def test_a_commit_that_cannot_be_stored_hurts_no_other(house: House, unfit: set[int]) -> None:
    """A store error that one member of a group causes is that member's alone."""
    created(house, 21)
    answers: dict[int, list[StoreError | None]] = {number: [] for number in range(21)}
    for number in unfit:
        house.disk.kept.commit([commit_of(number, 5)])

    for number in range(21):
        house.storage.commit(commit_of(number, 3), answers[number].append)
    house.pass_s()

    for number, heard in answers.items():
        assert told(heard) == ["NotStored" if number in unfit else "stored"]
        page = house.disk.kept._fragments[FragmentId(1, number)]
        assert list(page.entries) == [5 if number in unfit else 3]
    assert len(house.disk.transactions) <= 2 * 21


def test_what_belongs_together_is_not_stored_together_and_hurts_no_other(house: House) -> None:
    created(house, 4)
    answers: list[StoreError | None] = []
    alone: list[StoreError | None] = []
    house.disk.kept.commit([commit_of(2, 5)])

    house.storage.commit(commit_of(0), alone.append)
    house.storage.commit_together([commit_of(1), commit_of(2, 3)], answers.append)
    house.storage.commit(commit_of(3), alone.append)
    house.pass_s()

    assert (told(answers), told(alone)) == (["NotStored"], ["stored", "stored"])
    assert house.disk.kept._fragments[FragmentId(1, 1)].entries == {}


def test_what_is_withdrawn_while_it_cannot_be_stored_is_not_tried_again(house: House) -> None:
    created(house, 4)
    answers: list[StoreError | None] = []
    withdrawn: list[StoreError | None] = []
    house.disk.kept.commit([commit_of(0, 5)])
    house.storage.commit(commit_of(0, 3), answers.append)
    house.storage.commit_together([commit_of(1), commit_of(2)], answers.append)
    house.storage.commit(commit_of(3), withdrawn.append)
    house.pass_s(LATENCY_S / 2)

    house.storage.withdraw(FragmentId(1, 1))
    house.storage.withdraw(FragmentId(1, 3))
    house.disk.delete([FragmentId(1, 1), FragmentId(1, 3)])
    house.pass_s()

    assert (told(answers), withdrawn) == (["NotStored", "stored"], [])
    assert list(house.disk.kept._fragments[FragmentId(1, 2)].entries) == [1]


def test_a_failure_of_the_disk_is_everybodys_and_nothing_is_tried_again(house: House) -> None:
    created(house, 3)
    answers: list[StoreError | None] = []
    house.disk.commit_failures.append("after")

    for number in range(3):
        house.storage.commit(commit_of(number), answers.append)
    house.pass_s()

    assert told(answers) == ["StoreError"] * 3
    assert len(house.disk.transactions) == 1


def test_who_fails_to_hear_of_a_commit_keeps_nobody_from_hearing(house: House) -> None:
    created(house, 4)
    answers: list[StoreError | None] = []

    def deaf(error: StoreError | None) -> None:
        raise RuntimeError("planted")

    house.storage.commit(commit_of(0), answers.append)
    house.storage.commit(commit_of(1), deaf)
    house.storage.commit(commit_of(2), answers.append)
    house.pass_s()
    house.storage.commit(commit_of(3), answers.append)
    house.pass_s()

    assert answers == [None, None, None]
