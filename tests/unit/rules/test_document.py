"""Rules as they are written down, and back (R30): nothing of what a client gave is lost."""

import json
from decimal import Decimal

import pytest

from shardbus.core import message_fields
from shardbus.core.errors import INVALID_ARGUMENT
from shardbus.core.namespace.rule_spec import (
    FALSE_FILTER,
    TRUE_FILTER,
    FilterSpec,
    RuleSpec,
    TypedValue,
    correlation_filter,
    default_rule,
    rule_spec_from_document,
    sql_filter,
)
from shardbus.rules.document import property_of, rule_of, typed_value
from shardbus.rules.filter import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from shardbus.rules.values import (
    BINARY,
    BOOLEAN,
    BYTE,
    CHAR,
    DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    KIND_NAMES,
    LONG,
    NULL,
    OFFSET_TIMESTAMP,
    SHORT,
    SYMBOL,
    TEXT,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    UNZONED_TIMESTAMP,
    URI,
    USHORT,
    UUID,
    Duration,
    Guid,
    Moment,
    Property,
    Value,
)
from tests.support.refusals import refusal_of

VALUES: list[tuple[int, Value]] = [
    (NULL, None),
    (BOOLEAN, True),
    (BOOLEAN, False),
    (UBYTE, 255),
    (USHORT, 65_535),
    (UINT, (1 << 32) - 1),
    (ULONG, (1 << 64) - 1),
    (BYTE, -128),
    (SHORT, -32_768),
    (INT, -(1 << 31)),
    (LONG, -(1 << 63)),
    (FLOAT, 0.5),
    (DOUBLE, 1e300),
    (DOUBLE, float("-inf")),
    (DECIMAL, Decimal("1.10")),
    (CHAR, "ß"),
    (TEXT, ""),
    (TEXT, "a\n'b'\ud800"),
    (SYMBOL, "s"),
    (URI, "http://x/y"),
    (TIMESTAMP, Moment(-5)),
    (OFFSET_TIMESTAMP, Moment(1 << 50)),
    (DURATION, Duration(-7)),
    (UUID, Guid(bytes(range(16)))),
    (BINARY, b"\x00\xff"),
    (UNZONED_TIMESTAMP, Moment(5)),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_of_every_kind_is_written_down_and_read_back(kind: int, value: Value) -> None:
    original = Property("Name", kind, value)

    written = typed_value(original)

    assert property_of(written) == original
    assert json.loads(json.dumps(written.to_document())) == written.to_document()


def test_every_kind_is_among_the_examples() -> None:
    assert {kind for kind, _ in VALUES} == set(range(len(KIND_NAMES)))


WRONG = [
    TypedValue("n", "fish", "1"),
    TypedValue("n", "int", "x"),
    TypedValue("n", "int", str(1 << 31)),
    TypedValue("n", "ubyte", "-1"),
    TypedValue("n", "boolean", "yes"),
    TypedValue("n", "double", ""),
    TypedValue("n", "decimal", "1,5"),
    TypedValue("n", "uuid", "00"),
    TypedValue("n", "binary", "zz"),
    TypedValue("n", "timestamp", "now"),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_value_of_its_kind_is_refused_by_name(wrong: TypedValue) -> None:
    with refusal_of(INVALID_ARGUMENT, "'n'") as refusal:
        property_of(wrong)

    assert refusal.value.kind is INVALID_ARGUMENT


def test_a_rule_of_each_kind_is_made() -> None:
    sql = RuleSpec("sql", sql_filter("a > @low", [TypedValue("low", "int", "5")]), 7)
    sql.action = "SET b = @word"
    sql.action_parameters = [TypedValue("@word", "string", "x")]
    same = correlation_filter({"Label": "x", "To": "y"}, [TypedValue("n", "long", "7")])

    made = rule_of(sql)
    compared = rule_of(RuleSpec("same", same, 7)).filter

    assert isinstance(made.filter, SqlFilter)
    assert made.filter.parameters == [Property("low", INT, 5)]
    assert made.action is not None
    assert made.action.parameters == [Property("@word", TEXT, "x")]
    assert isinstance(compared, CorrelationFilter)
    assert compared.fields == {message_fields.LABEL: "x", message_fields.TO: "y"}
    assert compared.properties == [Property("n", LONG, 7)]
    assert isinstance(rule_of(default_rule(7)).filter, TrueFilter)
    assert isinstance(rule_of(RuleSpec("no", FilterSpec(FALSE_FILTER), 7)).filter, FalseFilter)


def whole_rule() -> RuleSpec:
    rule = RuleSpec("Näme", sql_filter("a = @b", [TypedValue("b", "double", "0.5")]), 7)
    rule.action = "REMOVE c"
    rule.action_parameters = [TypedValue("d", "binary", "ff")]
    return rule


@pytest.mark.parametrize(
    "rule",
    [
        whole_rule(),
        RuleSpec("t", FilterSpec(TRUE_FILTER), 1),
        RuleSpec("c", correlation_filter({"To": ""}, [TypedValue("n", "null", "")]), 2),
    ],
)
def test_a_rule_survives_json(rule: RuleSpec) -> None:
    document: object = json.loads(json.dumps(rule.to_document()))

    assert rule_spec_from_document(document).to_document() == rule.to_document()


DAMAGE: list[tuple[str, object]] = [
    ("name", 3),
    ("filter", {"kind": "fish"}),
    ("filter", {"kind": "sql", "expression": "a = 1"}),
    ("filter", {"kind": "correlation", "fields": {"To": 1}, "properties": []}),
    ("filter", {"kind": "correlation", "fields": [], "properties": []}),
    ("action", None),
    ("action_parameters", [["a", "int"]]),
    ("action_parameters", [["a", "int", 5]]),
]


@pytest.mark.parametrize(("name", "value"), DAMAGE)
def test_a_damaged_rule_is_noticed(name: str, value: object) -> None:
    document = {**whole_rule().to_document(), name: value}

    with pytest.raises(ValueError, match=r"rule|filter"):
        rule_spec_from_document(document)
