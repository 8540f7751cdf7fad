"""Credits per second: what is refused, what waits, and what is only counted."""

from collections.abc import Iterator

import pytest

from shardbus.amqp.outcomes import ACCEPTED, DeliveryState, Rejected
from shardbus.codec.types import Int, Symbol
from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.gateway.amqp.connection.throttle import THROTTLED_TEXT, Throttle
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk, condition_of, status_of

PEEK = {"from-sequence-number": 1, "message-count": 1}


@pytest.fixture
def slow() -> Iterator[Bench]:
    """A gateway that gives 10 credits a second."""
    bench = Bench(credits_per_s=10)
    yield bench
    bench.close()


def is_busy(state: DeliveryState | None) -> bool:
    if not isinstance(state, Rejected) or state.error is None:
        return False
    assert state.error.condition == "com.microsoft:server-busy"
    assert state.error.description.startswith(THROTTLED_TEXT)
    return True


def test_messages_beyond_the_credits_are_rejected_and_later_ones_are_not(slow: Bench) -> None:
    client = slow.client()
    link = client.sender("q")
    slow.pass_s(2)

    first = client.send(link, *[b"x"] * 15)
    slow.pass_s(1)
    second = client.send(link, *[b"y"] * 3)
    slow.pass_s()

    outcomes = client.outcomes(link)
    assert [outcomes[ident] == ACCEPTED for ident in first] == [True] * 10 + [False] * 5
    assert all(is_busy(outcomes[ident]) for ident in first[10:])
    assert [outcomes[ident] for ident in second] == [ACCEPTED] * 3


def test_a_batch_costs_what_its_messages_cost(slow: Bench) -> None:
    client = slow.client()
    link = client.sender("q")
    slow.pass_s(2)
    batch = encode_batch([encode_data_message(b"x")] * 8)

    ids = [
        *client.send_raw(link, batch, message_format=BATCH_FORMAT),
        *client.send_raw(link, batch, message_format=BATCH_FORMAT),
    ]
    slow.pass_s()

    outcomes = client.outcomes(link)
    assert outcomes[ids[0]] == ACCEPTED
    assert is_busy(outcomes[ids[1]])


def test_all_connections_share_the_credits(slow: Bench) -> None:
    clients = [slow.client() for _ in range(2)]
    links = [client.sender("q") for client in clients]
    slow.pass_s(2)

    for client, link in zip(clients, links, strict=True):
        client.send(link, *[b"x"] * 10)
    slow.pass_s()

    told = [
        state
        for client, link in zip(clients, links, strict=True)
        for state in client.outcomes(link).values()
    ]
    assert told.count(ACCEPTED) == 10
    assert sum(map(is_busy, told)) == 10


def test_a_request_beyond_the_credits_is_answered_with_server_busy(slow: Bench) -> None:
    desk = Desk(slow, slow.client(), "q")
    slow.pass_s(2)
    sender = desk.client.sender("q", "sender")
    slow.pass_s(1)
    desk.client.send(sender, *[b"x"] * 10)

    busy = desk.ask("peek-message", PEEK)
    slow.pass_s(1)
    served = desk.ask("peek-message", PEEK)

    assert status_of(busy) == Int(503)
    assert condition_of(busy) == Symbol("com.microsoft:server-busy")
    assert status_of(served) == Int(200)


def test_a_request_about_no_message_costs_ten(slow: Bench) -> None:
    slow.create_sessions("sq")
    desk = Desk(slow, slow.client(), "sq")
    slow.pass_s(2)
    body = {"last-updated-time": 253_402_300_800_000, "skip": 0, "top": 10}

    statuses = [status_of(desk.ask("get-message-sessions", body)) for _ in range(2)]

    assert statuses == [Int(204), Int(503)]


def test_receivers_are_not_refused_but_wait(slow: Bench) -> None:
    sender = slow.client()
    link = sender.sender("q")
    slow.pass_s()
    for _ in range(3):
        slow.pass_s(2)
        sender.send(link, *[b"x"] * 10)
    slow.pass_s(2)
    assert list(sender.outcomes(link).values()) == [ACCEPTED] * 30

    client = slow.client()
    receiver = client.receiver("q", 1000)
    slow.pass_s(0.5)
    early = len(client.received(receiver))
    slow.pass_s(3)

    assert 10 <= early <= 16
    assert len(client.received(receiver)) == 30
    assert not client.is_closed()


def test_settling_is_counted_but_never_refused(slow: Bench) -> None:
    client = slow.client()
    sender = client.sender("q")
    receiver = client.receiver("q", 10)
    slow.pass_s(2)
    client.send(sender, *[b"x"] * 5)
    slow.pass_s(2)
    ids = [delivery.delivery_id for delivery in client.received(receiver)]
    client.send(sender, *[b"y"] * 10)
    slow.pass_s(0.01)

    client.settle(receiver, ids, ACCEPTED)
    slow.pass_s(0.1)

    assert [client.outcomes(receiver)[ident] for ident in ids] == [ACCEPTED] * 5


def test_without_the_setting_nothing_is_throttled(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    client.send(link, *[b"x"] * 2000)
    bench.pass_s()

    assert set(client.outcomes(link).values()) == {ACCEPTED}


def test_the_bucket_fills_by_the_millisecond_and_never_overflows(bench: Bench) -> None:
    throttle = Throttle(1000, bench.clock, bench.loop)
    throttle.take(1000)
    with pytest.raises(Refused) as refusal:
        throttle.take(1)
    assert refusal.value.kind is SERVER_BUSY

    bench.pass_s(0.005)
    throttle.take(5)
    with pytest.raises(Refused):
        throttle.take(1)

    bench.pass_s(3600)
    throttle.take(1000)
    with pytest.raises(Refused):
        throttle.take(1)


def test_what_costs_more_than_a_second_brings_needs_a_full_bucket(bench: Bench) -> None:
    throttle = Throttle(10, bench.clock, bench.loop)
    throttle.take(1)
    with pytest.raises(Refused):
        throttle.take(25)

    bench.pass_s(0.1)
    throttle.take(25)
    bench.pass_s(1.5)
    with pytest.raises(Refused):
        throttle.take(1)
    bench.pass_s(0.1)
    throttle.take(1)


def test_a_debt_is_forgotten_after_two_seconds_at_most(bench: Bench) -> None:
    throttle = Throttle(10, bench.clock, bench.loop)
    throttle.charge(1_000_000)
    bench.pass_s(2)

    throttle.take(10)
