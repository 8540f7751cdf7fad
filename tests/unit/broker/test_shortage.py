"""A store that is short of room: what would add to it is refused, everything else goes on."""

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.runner import AVAILABLE
from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    Purge,
    Purged,
    Settled,
)
from tests.unit.broker.house import House, payloads_of, send_of

WHY = "the disk is full: free some space"


def refusal(answer: Answer) -> str:
    assert isinstance(answer, Refused) and answer.kind is QUOTA_EXCEEDED
    return answer.message


def test_a_send_is_refused_for_certain_and_says_why(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.disk.kept.shortage = WHY

    assert refusal(house.answer(runner, send_of(b"b"))) == WHY
    assert (runner.state, runner.reason) == (AVAILABLE, WHY)
    assert payloads_of(house.receive(runner)) == [b"a"]


def test_what_is_there_is_received_and_settled_in_every_way(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b", b"c", b"d"))
    house.disk.kept.shortage = WHY

    for how in (COMPLETE, ABANDON, DEAD_LETTER, DEFER):
        delivery, *_ = house.receive(runner)
        answer = house.settle(runner, how, delivery)
        assert isinstance(answer, Settled) and answer.lost == [False]
        house.pass_s(60)

    counters = house.disk.kept.load(runner.fragment_id).counters
    assert counters.lines[MAIN_LINE].deferred == 1
    assert counters.lines[DEAD_LETTER_LINE].count == 1
    assert isinstance(house.answer(runner, Purge(MAIN_LINE, 10)), Purged)


def test_sends_are_taken_again_as_soon_as_there_is_room(house: House) -> None:
    runner = house.runner()
    house.disk.kept.shortage = WHY
    assert refusal(house.answer(runner, send_of(b"a")))

    house.disk.kept.shortage = ""
    house.answer(runner, send_of(b"b"))

    assert runner.reason == ""
    assert payloads_of(house.receive(runner)) == [b"b"]
