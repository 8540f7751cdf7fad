"""What happened over AMQP, as the metrics tell it."""

from collections.abc import Iterator

import pytest

from shardbus.amqp.outcomes import ACCEPTED, DeliveryState, Modified, Rejected, Released
from shardbus.gateway.amqp.transactions.open import LIFETIME_MS
from shardbus.gateway.readings import (
    AMQP_MESSAGES,
    AMQP_REFUSED,
    AMQP_REQUESTS,
    LINKS,
    THROTTLED,
    TOKENS_REFUSED,
    TRANSACTIONS,
)
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import anonymous, plain
from tests.unit.gateway.amqp.test_cbs import Counter
from tests.unit.gateway.amqp.transacting import Transacting


@pytest.fixture
def slow() -> Iterator[Bench]:
    """A gateway that gives 10 credits a second."""
    bench = Bench(credits_per_s=10)
    yield bench
    bench.close()


def read(bench: Bench, name: str) -> dict[str, float]:
    """The numbers of one name by the labels they have, without those that are 0."""
    return {
        " ".join(reading.labels.values()): reading.value
        for reading in bench.server.readings()
        if reading.name == name and reading.value
    }


def test_messages_are_counted_not_transfers(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("many")
    bench.pass_s()

    client.send(link, b"a", b"b")
    client.send(link, b"c", is_settled=True)
    batch = encode_batch([encode_data_message(b"x")] * 5)
    client.send_raw(link, batch, message_format=BATCH_FORMAT)
    bench.pass_s()

    assert read(bench, AMQP_MESSAGES) == {"sent": 8}
    assert read(bench, AMQP_REFUSED) == {}


@pytest.mark.parametrize(
    ("outcome", "action"),
    [
        (ACCEPTED, "completed"),
        (Released(), "released"),
        (Modified(True, False, None), "abandoned"),
        (Modified(True, True, None), "deferred"),
        (Rejected(None), "dead_lettered"),
    ],
)
@pytest.mark.parametrize("is_settled", [True, False])
def test_settlements_are_counted_by_outcome(
    bench: Bench, outcome: DeliveryState, action: str, is_settled: bool
) -> None:
    bench.fill("q", b"1", b"2", b"3")
    client = bench.client()
    link = client.receiver("q", 3)
    bench.pass_s()
    ids = [delivery.delivery_id for delivery in client.received(link)]

    client.settle(link, ids[:2], outcome, is_settled=is_settled)
    bench.pass_s()

    assert read(bench, AMQP_MESSAGES) == {"sent": 3, "delivered": 3, action: 2}


def test_a_lock_that_was_lost_is_a_refusal(bench: Bench) -> None:
    bench.fill("q", b"1")
    client = bench.client()
    link = client.receiver("q", 1)
    bench.pass_s()
    [delivery] = client.received(link)
    bench.pass_s(90)

    client.settle(link, [delivery.delivery_id], ACCEPTED)
    bench.pass_s()

    assert read(bench, AMQP_REFUSED) == {"message-lock-lost": 1}
    assert "completed" not in read(bench, AMQP_MESSAGES)


def test_what_is_received_and_deleted_is_delivered(bench: Bench) -> None:
    bench.fill("q", b"1", b"2")

    bench.messages_of("q")

    assert read(bench, AMQP_MESSAGES) == {"sent": 2, "delivered": 2}


def test_refused_messages_are_counted_by_reason(slow: Bench) -> None:
    client = slow.client()
    link = client.sender("q")
    slow.pass_s(2)

    client.send(link, *[b"x"] * 15)
    slow.pass_s()

    assert read(slow, AMQP_MESSAGES) == {"sent": 10}
    assert read(slow, AMQP_REFUSED) == {"server-busy": 5}
    assert read(slow, THROTTLED) == {"amqp": 5}


def test_links_are_told_by_what_they_are_for(bench: Bench) -> None:
    client = bench.client()
    links = [client.sender("q"), client.receiver("q", name="r"), client.sender("$cbs", "c")]
    bench.pass_s()

    assert read(bench, LINKS) == {"sender": 1, "receiver": 1, "other": 1}
    links[0].detach()
    client.flush()
    bench.pass_s()
    assert read(bench, LINKS) == {"receiver": 1, "other": 1}
    bench.leave(client)
    assert read(bench, LINKS) == {}


def test_refused_tokens_and_keys_are_counted(bench: Bench) -> None:
    """R34."""
    counter = Counter(bench, bench.client(anonymous()))

    counter.put(bench.token())
    counter.put(bench.token(key="wrong"))
    counter.put("no token")
    bench.pass_s(5)
    bench.client(plain(b"\0RootManageSharedAccessKey\0wrong"))
    bench.pass_s(5)

    assert read(bench, AMQP_REQUESTS) == {"$cbs 202": 1, "$cbs 400": 1, "$cbs 401": 1}
    assert read(bench, TOKENS_REFUSED) == {"amqp": 3}


def test_transactions_are_counted_by_their_end_with_what_they_did(bench: Bench) -> None:
    """R22."""
    bench.fill("q", b"1")
    user = Transacting(bench)
    link, [delivery] = user.receive("q")
    first, second = user.declare(), user.declare()
    user.declare()
    user.send(first, "q")
    user.settle(first, link, delivery, ACCEPTED)
    user.send(second, "q")
    before = read(bench, AMQP_MESSAGES)

    user.commit(first)
    user.roll_back(second)
    bench.pass_s(LIFETIME_MS / 1000 + 1)

    assert before == {"sent": 1, "delivered": 1}
    assert read(bench, TRANSACTIONS) == {"committed": 1, "rolled_back": 2}
    after = read(bench, AMQP_MESSAGES)
    assert (after["sent"], after["completed"]) == (2, 1)


def test_a_commit_that_is_refused_has_failed(bench: Bench) -> None:
    bench.fill("q", b"1")
    user = Transacting(bench)
    link, [delivery] = user.receive("q")
    transaction_id = user.declare()
    user.settle(transaction_id, link, delivery, ACCEPTED)
    bench.pass_s(90)

    user.commit(transaction_id)

    assert read(bench, TRANSACTIONS) == {"failed": 1}
