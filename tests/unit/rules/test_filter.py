"""Correlation filters and rules: what is refused, and what they compare."""

from decimal import Decimal

import pytest

from shardbus.core import message_fields
from shardbus.core.errors import INVALID_ARGUMENT
from shardbus.rules.filter import CorrelationFilter, Rule, TrueFilter
from shardbus.rules.values import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    NULL,
    TEXT,
    Moment,
    Property,
    Value,
    kind_of,
)
from tests.support.refusals import refusal_of
from tests.unit.rules.messages import Sent, scope_of, sent


def matches(
    message: Sent, fields: dict[int, str] | None = None, properties: list[Property] | None = None
) -> bool:
    found = CorrelationFilter(fields or {}, properties or [])
    return all(condition.holds(scope_of(message)) for condition in found.conditions)


def test_every_field_must_be_equal_to_the_letter() -> None:
    message = sent({message_fields.LABEL: "Order", message_fields.CORRELATION_ID: "7"}, region="eu")
    region = Property("REGION", TEXT, "eu")

    assert matches(message, {message_fields.LABEL: "Order"})
    assert matches(
        message, {message_fields.LABEL: "Order", message_fields.CORRELATION_ID: "7"}, [region]
    )
    assert not matches(message, {message_fields.LABEL: "order"})
    assert not matches(
        message, {message_fields.LABEL: "Order", message_fields.CORRELATION_ID: "8"}, [region]
    )
    assert not matches(message, {message_fields.LABEL: "Order"}, [Property("region", TEXT, "EU")])


def test_an_empty_text_is_compared_and_what_is_missing_matches_nothing() -> None:
    assert matches(sent({message_fields.TO: ""}), {message_fields.TO: ""})
    assert not matches(sent(), {message_fields.TO: ""})
    assert not matches(sent(), None, [Property("a", TEXT, "")])
    assert not matches(sent(a=None), None, [Property("a", TEXT, "")])


@pytest.mark.parametrize(
    ("wanted", "found", "is_match"),
    [
        (5, 5.0, True),
        (5.0, Decimal(5), True),
        (5, "5", False),
        (1, True, False),
        (True, True, True),
        (False, 0, False),
        (0.1, Decimal("0.1"), False),
        (b"x", b"x", True),
        (b"x", "x", False),
        (Moment(5), Moment(5), True),
        (Moment(5), 5, False),
    ],
)
def test_numbers_are_equal_in_value_and_other_types_only_to_themselves(
    wanted: Value, found: Value, is_match: bool
) -> None:
    assert matches(sent(a=found), None, [Property("a", kind_of(wanted), wanted)]) is is_match


@pytest.mark.parametrize(
    ("fields", "properties", "named"),
    [
        ({}, [], "128"),
        ({}, [Property(f"p{n}", LONG, n) for n in range(129)], "129"),
        ({}, [Property("a", NULL, None)], "'a'"),
        ({}, [Property("a", DOUBLE, float("nan"))], "'a'"),
        ({}, [Property("a", INT, 1), Property("A", INT, 1)], "property"),
        ({message_fields.SIZE: "1"}, [], "sys.Size"),
    ],
)
def test_a_filter_that_compares_nothing_or_nonsense_is_refused(
    fields: dict[int, str], properties: list[Property], named: str
) -> None:
    with refusal_of(INVALID_ARGUMENT, named):
        CorrelationFilter(fields, properties)


def test_a_rule_has_a_name_of_at_most_50_characters() -> None:
    assert Rule("x" * 50, TrueFilter()).name == "x" * 50

    for name in ["", "x" * 51]:
        with refusal_of(INVALID_ARGUMENT, "1", "50"):
            Rule(name, TrueFilter())


def test_a_boolean_kind_is_kept_apart() -> None:
    assert kind_of(True) == BOOLEAN
