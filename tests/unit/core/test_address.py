"""Names and addresses as the SDKs write them."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE
from shardbus.core.namespace.address import (
    ADDRESS_CHARACTERS_MAX,
    CBS,
    ENTITY,
    NAME_CHARACTERS_MAX,
    NAMESPACE,
    SUBSCRIPTION,
    audience_path,
    covers,
    owners,
    parse_address,
    validate_name,
)

MAIN, DEAD, TRANSFER = MAIN_LINE, DEAD_LETTER_LINE, TRANSFER_DEAD_LETTER_LINE

ADDRESSES = [
    ("orders", ENTITY, "orders", MAIN, False),
    ("/orders", ENTITY, "orders", MAIN, False),
    ("Orders/", ENTITY, "orders", MAIN, False),
    ("amqps://localhost:5672/Orders", ENTITY, "orders", MAIN, False),
    ("amqps://ns.servicebus.windows.net/eu%2Forders", ENTITY, "eu/orders", MAIN, False),
    ("orders/$DeadLetterQueue", ENTITY, "orders", DEAD, False),
    ("orders/$deadletterqueue/$management", ENTITY, "orders", DEAD, True),
    ("orders/$Transfer/$DeadLetterQueue", ENTITY, "orders", TRANSFER, False),
    ("orders/$management", ENTITY, "orders", MAIN, True),
    ("t/Subscriptions/S", SUBSCRIPTION, "t/subscriptions/s", MAIN, False),
    ("t/SUBSCRIPTIONS/s/$DeadLetterQueue", SUBSCRIPTION, "t/subscriptions/s", DEAD, False),
    ("$cbs", CBS, "", MAIN, False),
    ("amqps://localhost:5672/$CBS", CBS, "", MAIN, False),
    ("$management", NAMESPACE, "", MAIN, True),
    ("amqps://localhost", NAMESPACE, "", MAIN, False),
]


@pytest.mark.parametrize(("text", "kind", "entity", "line", "is_management"), ADDRESSES)
def test_every_form_of_an_address_means_its_node(
    text: str, kind: str, entity: str, line: int, is_management: bool
) -> None:
    address = parse_address(text)

    found = (address.kind, address.entity, address.line, address.is_management)
    assert found == (kind, entity, line, is_management)


def test_an_address_keeps_the_name_as_the_client_wrote_it() -> None:
    assert parse_address("amqps://host/Eu/Orders/$DeadLetterQueue").name == "Eu/Orders"


@pytest.mark.parametrize("text", ["$DeadLetterQueue", "x" * (ADDRESS_CHARACTERS_MAX + 1)])
def test_what_cannot_be_an_address_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_address(text)

    assert refusal.value.kind is INVALID_ARGUMENT


AUDIENCES = [
    ("sb://localhost:5672/Orders", "orders"),
    ("sb://localhost:5672/orders/$management", "orders"),
    ("amqp://host/t/Subscriptions/s/$DeadLetterQueue", "t/subscriptions/s"),
    ("https://localhost:5300", ""),
    ("sb://ns.servicebus.windows.net/", ""),
    ("https://localhost:5300/orders?api-version=2021-05&enrich=false", "orders"),
    ("localhost:5672", ""),
    ("localhost:5672/orders", "orders"),
    ("ns.servicebus.windows.net/orders", "orders"),
    ("orders.eu", "orders.eu"),
    ("http://host/eu%2forders", "eu/orders"),
]


@pytest.mark.parametrize(("text", "path"), AUDIENCES)
def test_an_audience_is_reduced_to_the_entity_it_covers(text: str, path: str) -> None:
    assert audience_path(text) == path


def test_a_scope_covers_whole_segments_only() -> None:
    assert covers("", "orders")
    assert covers("orders", "orders")
    assert covers("orders", "orders/eu")
    assert not covers("orders", "orders2")
    assert not covers("orders/eu", "orders")


def test_a_topic_owns_its_subscriptions_but_no_name_owns_a_longer_one() -> None:
    assert owners("t/subscriptions/s") == ["t/subscriptions/s", "t"]
    assert owners("a/b") == ["a/b"]
    assert owners("") == []


@pytest.mark.parametrize("name", ["q", "Orders.eu-1_x", "a/b/c", "q" * NAME_CHARACTERS_MAX])
def test_a_name_of_letters_digits_and_separators_is_allowed(name: str) -> None:
    validate_name(name)


FORBIDDEN = [
    ("", "cannot be empty"),
    ("q" * (NAME_CHARACTERS_MAX + 1), "at most 260"),
    ("a b", "contains ' '"),
    ("a?b", "contains '?'"),
    ("a@b", "contains '@'"),
    ("a#b", "contains '#'"),
    ("a*b", "contains '*'"),
    ("a\\b", "contains '\\'"),
    ("$cbs", "contains '$'"),
    ("größe", "contains 'ö'"),
    ("/a", "empty part"),
    ("a/", "empty part"),
    ("a//b", "empty part"),
    ("a/../b", "part '..'"),
    ("t/Subscriptions/s", "reserved for subscriptions"),
]


@pytest.mark.parametrize(("name", "reason"), FORBIDDEN)
def test_a_forbidden_name_is_refused_with_its_reason(name: str, reason: str) -> None:
    """A name with forbidden characters."""
    with pytest.raises(Refused) as refusal:
        validate_name(name)

    assert refusal.value.kind is INVALID_ARGUMENT
    assert reason in refusal.value.message
