"""Rules in XML: the forms that clients send, and the letters that strict readers want (R30)."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.rule_spec import (
    CORRELATION_FILTER,
    SQL_FILTER,
    TRUE_FILTER,
    FilterSpec,
    RuleSpec,
    TypedValue,
    correlation_filter,
    sql_filter,
)
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.markup import parse
from shardbus.gateway.http.atom.rule_markup import read_rule, write_rule
from tests.support.refusals import refusal_of

XSI = "http://www.w3.org/2001/XMLSchema-instance"
XSD = "http://www.w3.org/2001/XMLSchema"


def read(inside: str, name: str = "r") -> RuleSpec:
    document = f'<RuleDescription xmlns="{CONNECT}" xmlns:i="{XSI}">{inside}</RuleDescription>'
    return read_rule(parse(document.encode()), name)


def value(text: str, type_name: str) -> TypedValue:
    found = read(
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
        f'<Value xmlns:d="{XSD}" i:type="d:{type_name}">{text}</Value>'
        "</KeyValueOfstringanyType></Properties></Filter>"
    )
    return found.filter.properties[0]


def test_a_rule_as_the_javascript_sdk_sends_it() -> None:
    found = read(
        f'<Filter p4:type="SqlFilter" xmlns:p4="{XSI}"><SqlExpression>a &gt; @b</SqlExpression>'
        "<Parameters><KeyValueOfstringanyType><Key>@b</Key>"
        f'<Value p4:type="l28:double" xmlns:l28="{XSD}">5</Value>'
        "</KeyValueOfstringanyType></Parameters></Filter>"
        f'<Action p4:type="EmptyRuleAction" xmlns:p4="{XSI}"/><Name>r</Name>'
    )

    assert (found.filter.kind, found.filter.expression) == (SQL_FILTER, "a > @b")
    assert found.filter.parameters[0].to_document() == ["@b", "double", "5.0"]
    assert found.action == ""


def test_a_rule_as_the_python_sdk_sends_it() -> None:
    found = read(
        '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression>'
        "<CompatibilityLevel>20</CompatibilityLevel>"
        "<RequiresPreprocessing>true</RequiresPreprocessing></Filter>"
        '<Action i:type="SqlRuleAction"><SqlExpression>SET a = 1</SqlExpression>'
        "<CompatibilityLevel>20</CompatibilityLevel><Parameters /></Action>"
    )

    assert found.filter.kind == TRUE_FILTER
    assert (found.action, found.action_parameters) == ("SET a = 1", [])


def test_fields_that_are_not_there_or_nil_are_not_compared() -> None:
    found = read(
        '<Filter i:type="CorrelationFilter"><Label>x</Label><To i:nil="true"/>'
        "<ReplyTo></ReplyTo></Filter>"
    )

    assert found.filter.kind == CORRELATION_FILTER
    assert found.filter.fields == {"Label": "x", "ReplyTo": ""}


def test_a_rule_without_a_filter_takes_everything_and_without_a_name_is_the_default() -> None:
    found = read("", "")

    assert (found.name, found.filter.kind) == ("$Default", TRUE_FILTER)
    assert read("<Name>own</Name>", "").name == "own"
    assert read("<Name>own</Name>", "path").name == "path"


VALUES = [
    ("7", "int", ["k", "int", "7"]),
    ("-7", "long", ["k", "long", "-7"]),
    ("7", "unsignedByte", ["k", "ubyte", "7"]),
    ("1", "boolean", ["k", "boolean", "true"]),
    ("True", "boolean", ["k", "boolean", "true"]),
    ("INF", "double", ["k", "double", "inf"]),
    ("2026-01-01T00:00:00Z", "dateTime", ["k", "timestamp", "17672256000000000"]),
    ("2026-01-01T00:00:00", "dateTime", ["k", "timestamp-unzoned", "17672256000000000"]),
    ("2026-01-01T02:00:00.5+02:00", "dateTime", ["k", "timestamp", "17672256005000000"]),
    ("2025-12-31T22:30:00-01:30", "dateTime", ["k", "timestamp", "17672256000000000"]),
    ("P1DT1S", "duration", ["k", "timespan", "864010000000"]),
    ("-PT0.0000001S", "duration", ["k", "timespan", "-1"]),
    ("00010203-0405-0607-0809-0a0b0c0d0e0f", "guid",
     ["k", "uuid", "000102030405060708090a0b0c0d0e0f"]),
    ("AP8=", "base64Binary", ["k", "binary", "00ff"]),
    (" x ", "string", ["k", "string", " x "]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "type_name", "expected"), VALUES)
def test_a_value_of_each_type_is_read(text: str, type_name: str, expected: list[str]) -> None:
    assert value(text, type_name).to_document() == expected


KEPT = [
    ("3", "long"),
    ("3", "int"),
    ("3", "short"),
    ("3", "unsignedInt"),
    ("3.0", "double"),
    ("true", "boolean"),
    ("2026-01-01T00:00:00.1234567Z", "dateTime"),
    ("2026-01-01T00:00:00.1234567", "dateTime"),
    ("2026-01-01T00:00:00", "dateTime"),
    ("P1DT2H3M4.5S", "duration"),
    ("x", "string"),
]


@pytest.mark.parametrize(("text", "type_name"), KEPT)
def test_a_value_comes_back_with_its_type_and_as_it_was_written(text: str, type_name: str) -> None:
    """A small long is no int, and a moment without a zone gets none."""
    typed = value(text, type_name)

    for rule in (
        RuleSpec("r", sql_filter("a = @k", [typed]), 0),
        RuleSpec("r", correlation_filter({}, [typed]), 0),
    ):
        assert f'i:type="d6p1:{type_name}" xmlns:d6p1="{XSD}">{text}</Value>' in write_rule(rule)


BAD = [
    ('<Filter i:type="Fish"/>', "'Fish'"),
    ("<Filter/>", "type ''"),
    ('<Filter i:type="SqlFilter"/>', "no SqlExpression"),
    ('<Action i:type="SqlRuleAction"/>', "no SqlExpression"),
    ('<Action i:type="Fish"/>', "'Fish'"),
    ('<Filter i:type="CorrelationFilter"><Properties><Fish/></Properties></Filter>', "not a Key"),
]


@pytest.mark.parametrize(("inside", "reason"), BAD)
def test_what_is_no_rule_is_refused_with_the_reason(inside: str, reason: str) -> None:
    with pytest.raises(Refused) as refusal:
        read(inside)

    assert refusal.value.kind is INVALID_ARGUMENT
    assert reason in refusal.value.message


@pytest.mark.parametrize(
    ("text", "type_name"),
    [
        ("x", "int"),
        ("2147483648", "int"),
        ("1.5", "long"),
        ("yes", "boolean"),
        ("2026-13-01T00:00:00Z", "dateTime"),
        ("2026-01-01", "dateTime"),
        ("P", "duration"),
        ("P1Y", "duration"),
        ("xyz", "guid"),
        ("%%", "base64Binary"),
        ("1", "fish"),
        ("x" * 32_769, "string"),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused_by_its_key(text: str, type_name: str) -> None:
    with refusal_of(INVALID_ARGUMENT, "'k'"):
        value(text, type_name)


def test_more_values_than_a_rule_may_have_are_refused() -> None:
    pair = "<KeyValueOfstringanyType><Key>k</Key><Value>v</Value></KeyValueOfstringanyType>"

    with refusal_of(INVALID_ARGUMENT, "128"):
        read(f'<Filter i:type="CorrelationFilter"><Properties>{pair * 129}</Properties></Filter>')


def test_what_is_written_has_the_letters_that_strict_readers_want() -> None:
    """The JavaScript SDK looks for `i:type` and cuts five characters."""
    rule = RuleSpec("r", correlation_filter({"To": "y"}, [TypedValue("n", "int", "7")]), 0)

    written = write_rule(rule)

    assert '<Filter i:type="CorrelationFilter"><To>y</To><Properties>' in written
    assert f'<Value i:type="d6p1:int" xmlns:d6p1="{XSD}">7</Value>' in written
    assert '<Action i:type="EmptyRuleAction"/>' in written
    assert "<Parameters" not in write_rule(RuleSpec("r", sql_filter("a = 1"), 0))
    assert "<SqlExpression>1=1</SqlExpression>" in write_rule(
        RuleSpec("r", FilterSpec(TRUE_FILTER), 0)
    )


def test_what_is_nil_is_not_there_however_that_is_spelled() -> None:
    for nil in ("true", "1"):
        found = read(f'<Filter i:nil="{nil}"/><Action i:nil="{nil}"/>')
        assert (found.filter.kind, found.action) == (TRUE_FILTER, "")
        with refusal_of(INVALID_ARGUMENT, "SqlExpression"):
            read(f'<Filter i:type="SqlFilter"><SqlExpression i:nil="{nil}"/></Filter>')
