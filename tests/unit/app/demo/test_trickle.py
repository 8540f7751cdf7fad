"""Who sends and receives in the demo, one turn at a time."""

import json
from datetime import UTC, datetime
from random import Random

import pytest

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.failures import ServerUnavailable
from shardbus.demo.orders import OrderBook
from shardbus.demo.tally import Counts
from shardbus.demo.trickle import OrderWorker, Sender, Subscriber, remove_dead_letters
from tests.unit.app.scripted_api import Script, refusal

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def _received(number: int, payment: str = "settled", street: str = "1 Mill Lane") -> Document:
    body = {"payment": payment, "address": {"street": street}}
    return {
        "message_id": f"order-{number}",
        "lock_token": f"t{number}",
        "body": json.dumps(body),
    }


def test_a_turn_without_orders_asks_nothing() -> None:
    script = Script({})

    assert Sender(script.api(), OrderBook(Random(1), "r"), lambda: NOW).step(0) == Counts()
    assert script.asked == []


def test_orders_are_sent_in_one_request() -> None:
    script = Script({"sent": 40})

    counts = Sender(script.api(), OrderBook(Random(1), "r"), lambda: NOW).step(40)

    assert script.lines() == ["POST entities/demo-orders/messages"]
    sent = script.asked[0][1]["messages"]
    assert isinstance(sent, list) and len(sent) == 40
    later = sum("scheduled_at" in str(each) for each in sent)
    assert counts == Counts(sent=40, scheduled=later)


def test_a_worker_tells_the_topic_completes_and_dead_letters_with_a_reason() -> None:
    messages = [
        _received(1),
        _received(2, payment="declined"),
        _received(3),
        _received(4, street=""),
    ]
    script = Script(
        {"messages": messages}, {"sent": 2}, {"settled": 2}, {"settled": 1}, {"settled": 1}
    )

    counts = OrderWorker(script.api(), "demo-events").step(7)

    assert script.lines() == [
        "POST entities/demo-orders/messages/receive",
        "POST entities/demo-events/messages",
        *["POST entities/demo-orders/messages/settle"] * 3,
    ]
    settled = [body for _, body in script.asked[2:]]
    assert settled[0] == {"action": "complete", "lock_tokens": ["t1", "t3"]}
    assert [(body["reason"], body["lock_tokens"]) for body in settled[1:]] == [
        ("PaymentDeclined", ["t2"]),
        ("AddressUnknown", ["t4"]),
    ]
    assert counts == Counts(received=4, completed=2, dead_lettered=2, published=2)


def test_without_a_topic_nobody_is_told() -> None:
    script = Script({"messages": [_received(1)]}, {"settled": 1})

    assert OrderWorker(script.api(), "").step(1) == Counts(received=1, completed=1)
    assert len(script.asked) == 2


def test_what_could_not_be_told_is_not_completed() -> None:
    script = Script({"messages": [_received(1)]}, refusal(503, "try again"))

    with pytest.raises(ServerUnavailable):
        OrderWorker(script.api(), "demo-events").step(1)
    assert len(script.asked) == 2


def test_a_subscriber_completes_what_it_got_and_nothing_when_nothing_came() -> None:
    script = Script({"messages": [_received(1)]}, {"settled": 1}, {"messages": []})
    subscriber = Subscriber(script.api(), "demo-events/Subscriptions/large")

    assert subscriber.step() == Counts(delivered=1)
    assert subscriber.step() == Counts()
    assert len(script.asked) == 3


def test_the_oldest_dead_letters_are_removed_some_at_a_time() -> None:
    script = Script({"messages": [_received(1), _received(2)]})

    assert remove_dead_letters(script.api(), 100_000) == 2
    assert script.asked == [
        (
            "POST entities/demo-orders/$DeadLetterQueue/messages/receive",
            {"count": 250, "mode": "receive_and_delete", "wait_ms": 0},
        )
    ]
