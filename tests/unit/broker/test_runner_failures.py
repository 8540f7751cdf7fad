"""A fragment whose store fails is away with a reason, and comes back by itself (D1)."""

from collections import deque

import pytest

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.recovery import RELOAD_MS_MAX, STEADY_MS
from shardbus.broker.fragment.runner import AVAILABLE, RECOVERING, UNAVAILABLE
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.records import TRANSFERRED
from shardbus.core.integers import pack_integers
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import COMPLETE, Receive, Renew, Sent, Settle, Settled
from shardbus.stores.base.store import FragmentCommit, Page
from tests.unit.broker.house import SEED, House, payloads_of, send_of


def unknown(answer: Answer) -> bool:
    assert isinstance(answer, Unavailable)
    return answer.is_unknown


@pytest.mark.parametrize(("moment", "is_stored"), [("before", False), ("after", True)])
def test_a_failed_commit_is_unknown_and_the_store_decides(
    house: House, moment: str, is_stored: bool
) -> None:
    runner = house.runner()
    house.pass_s()
    house.disk.commit_failures.append(moment)

    answer = house.answer(runner, send_of(b"a"))
    house.pass_s(1)

    assert unknown(answer)
    assert runner.is_available
    assert payloads_of(house.receive(runner)) == ([b"a"] if is_stored else [])


def test_a_failed_completion_may_be_tried_again_after_the_reload(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    [delivery] = house.receive(runner)
    house.disk.commit_failures.append("before")

    assert unknown(house.settle(runner, COMPLETE, delivery))
    house.pass_s(1)

    answer = house.settle(runner, COMPLETE, delivery)
    assert isinstance(answer, Settled) and answer.lost == [True]
    assert payloads_of(house.receive(runner)) == [b"a"]


def test_what_was_not_applied_when_a_commit_failed_is_merely_unavailable(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.disk.commit_failures.append("before")
    house.latency_s = 0.2

    applied = house.ask(runner, send_of(b"a"))
    house.pass_s(0.1)
    waiting = house.ask(runner, send_of(b"b"))
    house.pass_s(0.35)

    assert [unknown(applied[0]), unknown(waiting[0])] == [True, False]


def test_a_refusal_stays_a_refusal_when_its_commit_fails(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.disk.commit_failures.append("after")

    house.ask(runner, send_of(b"a"))
    refused = house.ask(runner, Renew([b"no such lock"]))
    house.pass_s()

    assert isinstance(refused[0], Refused)


def test_a_fragment_that_is_away_turns_commands_down_at_once(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.disk.commit_failures.append("before")
    house.disk.failing_reads.add("load")
    house.answer(runner, send_of(b"a"))

    answers = house.ask(runner, send_of(b"b"))

    assert not unknown(answers[0])
    assert isinstance(answers[0], Unavailable)
    assert answers[0].message.startswith("Fragment 0 is ")
    assert runner.state in (UNAVAILABLE, RECOVERING)


def test_a_fragment_comes_back_by_itself_and_is_tried_ever_more_rarely(house: House) -> None:
    house.disk.failing_reads.add("load")
    runner = house.runner()
    first = house.ask(runner, send_of(b"a"))
    house.pass_s(60)
    tries = house.disk.reads.count("load")
    assert not runner.is_available and not unknown(first[0])
    assert 12 <= tries <= 30

    house.disk.failing_reads.clear()
    house.pass_s(RELOAD_MS_MAX / 1000 + 0.1)

    assert runner.state == AVAILABLE
    assert isinstance(house.answer(runner, send_of(b"b")), Sent)


def test_a_fragment_that_cannot_write_stays_away_and_fails_one_send_only_as_unknown(
    house: House,
) -> None:
    """R15, R16: a full disk can be read, which is not enough to take messages."""
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.disk.is_full = True

    first = house.answer(runner, send_of(b"b"))
    later: list[Answer] = []
    for _ in range(40):
        house.pass_s(0.5)
        later += house.ask(runner, send_of(b"c"))
        assert runner.state == UNAVAILABLE

    assert unknown(first)
    assert len(later) == 40 and not any(unknown(answer) for answer in later)
    assert all("the disk is full" in str(answer) for answer in later)


def test_a_fragment_is_back_by_itself_when_a_write_succeeds(house: House) -> None:
    """R17: an unavailable fragment rejoins by itself, and nothing accepted is lost."""
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.disk.is_full = True
    house.answer(runner, send_of(b"b"))
    house.pass_s(60)
    woken: list[str] = []
    runner.watch(MAIN_LINE, lambda: woken.append("main"))
    house.pass_s(60)
    assert woken == [] and not runner.is_available

    house.disk.is_full = False
    house.pass_s(RELOAD_MS_MAX / 1000 + 0.1)

    assert (runner.state, runner.reason, woken) == (AVAILABLE, "", ["main"])
    assert payloads_of(house.receive(runner)) == [b"a"]
    assert isinstance(house.answer(runner, send_of(b"c")), Sent)


def test_a_disk_that_stays_full_is_probed_ever_more_rarely(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.disk.is_full = True
    house.ask(runner, send_of(b"a"))
    house.pass_s(60)

    assert 12 <= len(house.disk.transactions) <= 30


def test_a_disk_that_takes_the_probe_and_not_the_message_is_left_alone_longer_each_time(
    house: House,
) -> None:
    runner = house.runner()
    house.pass_s()
    unknowns = 0
    for _ in range(600):
        house.disk.commit_failures = deque(["before"] if runner.is_available else [])
        unknowns += unknown(house.answer(runner, send_of(b"too large")))
    assert 12 <= unknowns <= 30

    house.disk.commit_failures.clear()
    house.pass_s((RELOAD_MS_MAX + STEADY_MS) / 1000 + 0.1)
    house.disk.commit_failures.append("before")
    house.answer(runner, send_of(b"b"))
    house.pass_s(0.2)
    assert runner.is_available


def test_a_page_that_cannot_be_read_is_tried_ever_more_rarely(house: House) -> None:
    """A fragment loads well and fails at its first page: it must not spin."""
    house.answer(house.runner(), send_of(b"a"))
    runner = house.runner()
    house.disk.failing_reads.add("line")
    for _ in range(600):
        house.ask(runner, Receive(MAIN_LINE, 1, is_locking=True, token_seed=SEED))
        house.pass_s()

    assert 12 <= house.disk.reads.count("line") <= 30


def test_a_failed_read_needs_no_write_to_be_forgiven(house: House) -> None:
    """A disk that can only be read serves what is there until something must be written."""
    house.answer(house.runner(), send_of(b"a"))
    runner = house.runner()
    house.disk.failing_reads.add("line")
    house.answer(runner, Receive(MAIN_LINE, 1, is_locking=True, token_seed=SEED))
    house.disk.failing_reads.clear()
    house.disk.is_full = True
    house.pass_s(1)

    assert payloads_of(house.receive(runner)) == [b"a"]


def test_what_is_stored_can_be_browsed_while_nothing_can_be_written(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.disk.is_full = True
    house.answer(runner, send_of(b"b"))
    pages: list[Page | Unavailable] = []

    runner.browse(MAIN_LINE, start=0, count_max=10, bytes_max=1_000, then=pages.append)
    house.pass_s()

    assert not runner.is_available
    [page] = pages
    assert isinstance(page, Page) and [entry.payload for entry in page.entries] == [b"a"]


def test_a_fragment_stopped_while_it_probes_stays_stopped(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.disk.commit_failures.append("before")
    house.latency_s = 1.0
    house.ask(runner, send_of(b"a"))
    house.pass_s(5.5)
    assert len(house.disk.transactions) == 2 and not runner.is_available

    runner.stop()
    house.pass_s(60)

    assert (runner.state, runner.statistics()) == (UNAVAILABLE, None)


def test_a_decision_that_breaks_an_assertion_ends_in_a_reload_and_answers_everybody(
    house: House,
) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    [delivery] = house.receive(runner)
    no_such_settlement = 99

    before = house.ask(runner, send_of(b"b"))
    broken = house.ask(runner, Settle(no_such_settlement, [delivery.token]))
    after = house.ask(runner, send_of(b"c"))
    house.pass_s(1)

    assert [unknown(answer) for answer in before + broken + after] == [False, False, False]
    assert runner.is_available
    assert payloads_of(house.receive(runner)) == [b"a"]


def test_a_fragment_whose_records_cannot_be_read_says_so_and_answers_nothing(house: House) -> None:
    """D1, R42: they are damaged, or were written by a later version."""
    values = pack_integers([-3, 1])
    record = RecordChange(TRANSFERRED, bytes([MAIN_LINE]), values)
    runner = house.runner()
    house.disk.commit(
        [FragmentCommit(runner.fragment_id, [record], house.disk.load(runner.fragment_id).counters)]
    )

    answer = house.answer(runner, send_of(b"a"))

    assert isinstance(answer, Unavailable) and "does not know" in answer.message
    assert (runner.state, "records" in runner.reason) == (UNAVAILABLE, True)
