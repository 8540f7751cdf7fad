"""An answer that cannot be given is the trouble of whoever asked, and of nobody else (R18)."""

from __future__ import annotations

import pytest

from shardbus.broker.fragment.answers import Answer, Answers
from shardbus.core.errors import Unavailable
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import COMPLETE, Done, Received, Sent, Settle, Settled
from shardbus.core.transfers.command import ListTransfers
from tests.unit.broker.house import House, payloads_of, receive_of, send_of


def deaf(answer: Answer) -> None:
    raise RuntimeError("planted")


def test_those_behind_one_who_fails_are_answered(house: House) -> None:
    runner = house.runner()
    house.pass_s()

    before = house.ask(runner, send_of(b"a"))
    runner.submit(send_of(b"b"), deaf)
    after = house.ask(runner, send_of(b"c"))
    house.pass_s()

    assert isinstance(before[0], Sent) and isinstance(after[0], Sent)
    assert payloads_of(house.receive(runner)) == [b"a", b"b", b"c"]


def test_those_behind_one_who_fails_are_answered_when_nothing_was_stored(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.disk.commit_failures.append("before")

    before = house.ask(runner, send_of(b"a"))
    runner.submit(send_of(b"b"), deaf)
    after = house.ask(runner, send_of(b"c"))
    house.pass_s(1)

    assert isinstance(before[0], Unavailable) and isinstance(after[0], Unavailable)
    assert runner.is_available


def test_those_behind_one_who_fails_are_turned_away(house: House) -> None:
    runner = house.runner()
    runner.submit(send_of(b"a"), deaf)
    behind = house.ask(runner, send_of(b"b"))

    runner.stop()

    assert isinstance(behind[0], Unavailable)


def test_those_who_are_answered_while_removals_are_stored_hurt_nobody(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b", b"c"))
    [first] = house.receive(runner, 1)
    completed = house.ask(runner, Settle(COMPLETE, [first.token]))
    runner.submit(receive_of(1), deaf)
    together = house.ask(runner, receive_of(1))
    house.pass_s()

    assert isinstance(completed[0], Settled)
    assert isinstance(together[0], Received) and len(together[0].deliveries) == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_of_many_answers_the_one_that_fails_is_the_only_one_not_given(is_first: bool) -> None:
    answers = Answers()
    got: list[Answer] = []
    for reply_to in [deaf, got.append] if is_first else [got.append, deaf]:
        answers.add(reply_to, Done())

    answers.give()

    assert [type(answer) for answer in got] == [Done]


def test_a_fragment_goes_on_after_an_answer_that_failed(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    runner.submit(ListTransfers(MAIN_LINE), deaf)
    house.pass_s()

    assert isinstance(house.answer(runner, send_of(b"a")), Sent)
