"""Sample orders, and what becomes of them."""

import json
from datetime import UTC, datetime
from random import Random

from shardbus.app.cli.api_client import Document
from shardbus.demo.orders import UNREADABLE, OrderBook, event_of, fault_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _orders(count: int, seed: str = "1") -> list[Document]:
    book = OrderBook(Random(seed), "run")
    return [book.next(NOW) for _ in range(count)]


def test_the_same_dice_give_the_same_orders() -> None:
    assert _orders(50) == _orders(50)
    assert _orders(50) != _orders(50, "2")


def test_orders_have_what_rules_and_fragments_go_by() -> None:
    orders = _orders(1_000)

    assert len({order["message_id"] for order in orders}) == 1_000
    assert len({order["partition_key"] for order in orders}) > 100
    for order in orders:
        properties = order["properties"]
        assert isinstance(properties, dict)
        assert set(properties) == {"region", "total", "kind"}
        assert json.loads(str(order["body"]))["total"] == properties["total"]
        assert len(str(order["body"])) < 1_024


def test_a_few_orders_are_for_later_and_a_few_cannot_be_handled() -> None:
    orders = _orders(2_000)

    later = [order["scheduled_at"] for order in orders if "scheduled_at" in order]
    reasons = [fault.reason for order in orders if (fault := fault_of(order)) is not None]
    assert 40 <= len(later) <= 160
    assert all("2026-01-02T03:04:10Z" <= str(moment) <= "2026-01-02T03:04:35Z" for moment in later)
    assert 15 <= len(reasons) <= 80
    assert set(reasons) == {"PaymentDeclined", "AddressUnknown"}


def test_what_is_no_order_is_a_fault_and_no_failure() -> None:
    for body in (None, "", "{", "[1]", "[" * 100_000):
        assert fault_of({"body": body}) is UNREADABLE


def test_the_event_of_an_order_keeps_what_the_rules_go_by() -> None:
    order = _orders(1)[0]

    event = event_of({**order, "lock_token": "t", "sequence_number": 7})

    kept = ("partition_key", "content_type", "properties", "body")
    assert {name: event[name] for name in kept} == {name: order[name] for name in kept}
    assert (event["message_id"], event["subject"]) == ("event-run-1", "order-handled")
    assert len(event) == len(kept) + 2
