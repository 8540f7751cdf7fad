"""Receives that need not wait for the disk: locks are memory, and what is being removed is gone."""

from shardbus.core.errors import Unavailable
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import COMPLETE, RELEASE, Receive, Received, Settle, Settled
from tests.unit.broker.house import SEED, House, payloads_of, send_of

LONG_S = 10.0


def receive(count_max: int = 1, *, is_locking: bool = True) -> Receive:
    return Receive(MAIN_LINE, count_max, is_locking=is_locking, token_seed=SEED)


def test_a_locking_receive_is_answered_while_a_removal_is_being_stored(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b"))
    [delivery] = house.receive(runner, 1)
    house.latency_s = LONG_S

    completed = house.ask(runner, Settle(COMPLETE, [delivery.token]))
    house.pass_s()
    received = house.ask(runner, receive())
    house.pass_s()

    assert completed == []
    [answer] = received
    assert isinstance(answer, Received)
    assert payloads_of(answer.deliveries) == [b"b"]
    house.pass_s(2 * LONG_S)
    assert isinstance(completed[0], Settled)


def test_a_receive_decided_together_with_a_removal_does_not_wait_for_it(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b"))
    [delivery] = house.receive(runner, 1)
    house.latency_s = LONG_S

    completed = house.ask(runner, Settle(COMPLETE, [delivery.token]))
    received = house.ask(runner, receive())
    house.pass_s()

    assert completed == []
    assert isinstance(received[0], Received)


def test_a_receive_waits_while_something_is_being_added(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.latency_s = LONG_S

    house.ask(runner, send_of(b"b"))
    house.pass_s()
    received = house.ask(runner, receive())
    house.pass_s()

    assert received == []


def test_receive_and_delete_waits_until_its_own_removal_is_stored(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b"))
    [delivery] = house.receive(runner, 1)
    house.latency_s = LONG_S

    house.ask(runner, Settle(COMPLETE, [delivery.token]))
    house.pass_s()
    received = house.ask(runner, receive(is_locking=False))
    house.pass_s()

    assert received == []


def test_what_is_received_and_deleted_is_handed_out_after_it_is_deleted(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.latency_s = LONG_S

    received = house.ask(runner, receive(is_locking=False))
    house.pass_s()
    assert received == []

    house.pass_s(2 * LONG_S)
    assert isinstance(received[0], Received)


def test_a_receive_does_not_overtake_what_puts_messages_back(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b", b"c"))
    first, second = house.receive(runner, 2)
    house.latency_s = LONG_S

    house.ask(runner, Settle(COMPLETE, [second.token]))
    house.pass_s()
    house.ask(runner, Settle(RELEASE, [first.token]))
    received = house.ask(runner, receive())
    house.pass_s(6 * LONG_S)

    [answer] = received
    assert isinstance(answer, Received)
    assert payloads_of(answer.deliveries) == [b"a"]


def test_an_expired_message_in_front_sends_the_receive_the_long_way(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.answer(runner, send_of(b"b", ttl_ms=1_000))
    house.answer(runner, send_of(b"c"))
    [delivery] = house.receive(runner, 1)
    house.latency_s = LONG_S

    house.ask(runner, Settle(COMPLETE, [delivery.token]))
    house.pass_s(2)
    received = house.ask(runner, receive(2))
    house.pass_s()
    assert received == []

    house.pass_s(6 * LONG_S)
    [answer] = received
    assert isinstance(answer, Received)
    assert payloads_of(answer.deliveries) == [b"c"]


def test_locks_given_beside_a_removal_that_failed_are_lost_like_all_others(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b"))
    [delivery] = house.receive(runner, 1)
    house.disk.commit_failures.append("before")

    completed = house.ask(runner, Settle(COMPLETE, [delivery.token]))
    received = house.ask(runner, receive())
    house.pass_s(1)

    [failure], [answer] = completed, received
    assert isinstance(failure, Unavailable) and failure.is_unknown
    assert isinstance(answer, Received)
    settled = house.settle(runner, COMPLETE, *answer.deliveries)
    assert isinstance(settled, Settled) and settled.lost == [True]
    assert payloads_of(house.receive(runner)) == [b"a", b"b"]
