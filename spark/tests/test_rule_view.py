"""The typed properties that the connector reads from a message are those that the bus sees (P5)."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.core import message_fields
from shardbus.message.rule_view import RuleView
from shardbus.rules.document import typed_value
from shardbus.rules.system import ALL
from shardbus.rules.values import KIND_NAMES, Property, kind_of
from shardbus_spark.errors import OptionError
from shardbus_spark.rules.decimals import sort_key
from shardbus_spark.rules.message import Typed, checked_view, view_of
from tests.support.any_message import generated

IN_MESSAGE = (
    message_fields.VIA_PARTITION_KEY,
    message_fields.TIME_TO_LIVE,
    message_fields.SCHEDULED_ENQUEUE_TIME,
    message_fields.FORCE_PERSISTENCE,
)


def typed(each: Property) -> Typed:
    stored = typed_value(each)
    is_decimal = stored.kind == "decimal" and isinstance(each.value, Decimal)
    if each.value is None:
        return Typed("null", "")
    return Typed(stored.kind, sort_key(Decimal(stored.text)) if is_decimal else stored.text)


def test_properties_of_every_kind_of_message_have_the_types_that_the_bus_sees() -> None:
    """P5"""
    kinds: set[str] = set()
    for payload in generated(400):
        expected = {name: typed(each) for name, each in RuleView(payload).properties().items()}

        assert view_of(payload).properties == expected

        kinds.update(each.kind for each in expected.values())
    assert len(kinds) > len(KIND_NAMES) // 2


def test_system_properties_without_a_column_are_read_from_the_message() -> None:
    """P5"""
    found: set[str] = set()
    for payload in generated(400):
        view = RuleView(payload)
        expected = {}
        for number in IN_MESSAGE:
            value = view.system(number)
            if value is not None:
                expected[ALL[number].name] = typed(Property("", kind_of(value), value))

        assert view_of(payload).system == expected

        found.update(expected)
    assert len(found) >= 3


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(-100, 100, places=3))
def test_texts_of_decimals_are_ordered_like_the_numbers(left: Decimal, right: Decimal) -> None:
    for one, other in ((left, right), (right, left), (left, left), (left, -left)):
        if abs(one.adjusted()) > 9_000 or abs(other.adjusted()) > 9_000:
            continue
        assert (sort_key(one) < sort_key(other)) == (one < other)
        assert (sort_key(one) == sort_key(other)) == (one == other)


@pytest.mark.parametrize(
    "damaged", [b"x", b"\x00\x53", b"\x00\x53\x74\xc1\xff\x02\xa1\x01", b"\x00"]
)
def test_bytes_that_are_not_a_message_are_an_error_that_says_so(damaged: bytes) -> None:
    with pytest.raises(OptionError, match="amqp"):
        checked_view(damaged)
