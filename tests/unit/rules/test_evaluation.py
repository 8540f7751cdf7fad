"""What filters say about messages: logic, types, functions and errors."""

from decimal import Decimal

import pytest

from shardbus.core import message_fields
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.rules.errors import EvaluationError
from shardbus.rules.filter import SqlFilter
from shardbus.rules.scope import NewIds
from shardbus.rules.values import (
    BINARY,
    DOUBLE,
    INT,
    LONG,
    NULL,
    TEXT,
    TIMESTAMP,
    Duration,
    Guid,
    Moment,
    Property,
    Value,
    duration_of_ms,
    kind_of,
    moment_of_ms,
    ms_of,
)
from tests.unit.rules.messages import SEED, Sent, scope_of, sent, truth

T, F, U = "1 = 1", "1 = 0", "nothing = 1"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{T} AND {T}", True), (f"{T} AND {F}", False), (f"{T} AND {U}", None),
        (f"{F} AND {U}", False), (f"{U} AND {F}", False), (f"{U} AND {U}", None),
        (f"{T} OR {F}", True), (f"{F} OR {F}", False), (f"{F} OR {U}", None),
        (f"{U} OR {T}", True), (f"{T} OR {U}", True), (f"{U} OR {U}", None),
        (f"NOT {T}", False), (f"NOT {F}", True), (f"NOT {U}", None),
    ],
)  # fmt: skip
def test_logic_has_three_values(expression: str, expected: bool | None) -> None:
    assert truth(expression) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("count = 3", True),
        ("COUNT > 2 AND Count < 4", True),
        ("count >= 3.0", True),
        ("count <> 3", False),
        ("price = 9.5", True),
        ("price > 9", True),
        ("colour = 'red'", True),
        ("colour = 'Red'", False),
        ("colour < 'rfd' AND colour > 'rec'", True),
        ("colour = 3", None),
        ("colour <> 3", None),
        ("colour < 3", None),
        ("flag = TRUE", True),
        ("flag <> TRUE", False),
        ("flag < TRUE", None),
        ("flag = 1", None),
        ("flag", True),
        ("NOT flag", False),
        ("count", None),
        ("empty = NULL", None),
        ("empty <> NULL", None),
        ("absent = 1", None),
        ("absent <> 1", None),
        ("blob = blob", True),
        ("blob < blob", None),
        ("money > 1 AND money = 2", True),
        ("money > 1.5", None),
    ],
)
def test_comparisons_follow_the_types_of_both_sides(expression: str, expected: bool | None) -> None:
    message = sent(
        count=3, price=9.5, colour="red", flag=True, empty=None, blob=b"x", money=Decimal("2.00")
    )

    assert truth(expression, message) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7 / 2 = 3", True),
        ("-7 / 2 = -3", True),
        ("-7 % 2 = -1", True),
        ("7 % -2 = 1", True),
        ("7 / 2.0 = 3.5", True),
        ("-7.5 % 2 = -1.5", True),
        ("2 + 3 * 4 = 14", True),
        ("(2 + 3) * 4 = 20", True),
        ("'a' + 'b' = 'ab'", True),
        ("'a' + 1 + 2 = 'a12'", True),
        ("1 + 2 + 'a' = '3a'", True),
        ("'a' + TRUE = 'aTrue'", True),
        ("'a' + 1.5 = 'a1.5'", True),
        ("'a' - 'b' = 'a'", None),
        ("TRUE + 1 = 2", None),
        ("+'a' = 'a'", None),
        ("-TRUE = 1", None),
        ("nothing + 1 = 1", None),
        ("'a' + NULL = 'a'", None),
        ("1e308 * 10 > 1e308", True),
        ("9007199254740993 = 9007199254740992.0", True),
        ("9007199254740993 = 9007199254740992", False),
        ("-9223372036854775808 % -1 = 0", True),
        ("-9223372036854775807 - 1 = -9223372036854775808", True),
        ("9223372036854775806 + 1 = 9223372036854775807", True),
    ],
)
def test_arithmetic_is_that_of_the_original_platform(
    expression: str, expected: bool | None
) -> None:
    assert truth(expression) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "big + 1 > 0",
        "-small > 0",
        "small - 1 > 0",
        "big * 2 > 0",
        "small / -1 > 0",
        "1 / zero > 0",
        "1 % zero > 0",
        "1.0 / zero > 0",
        "1.5 % 0.0 > zero",
        "money / zero > 0",
        "huge * 2 > 0",
        "wide > 0 AND wide + 1 > 0",
    ],
)
def test_an_overflow_and_a_division_by_zero_have_no_result(expression: str) -> None:
    message = sent(
        big=2**63 - 1, small=-(2**63), zero=0, money=Decimal(1), huge=Decimal(2**96 - 1),
        wide=2**64 - 1,
    )  # fmt: skip

    with pytest.raises(EvaluationError):
        truth(expression, message)


def test_an_error_in_what_is_not_needed_does_not_matter() -> None:
    assert truth(f"{F} AND 1 / 0 = 1") is False
    assert truth(f"{T} OR 1 / 0 = 1") is True
    assert truth("2 IN (2, 1 / 0)") is True
    assert truth("nothing IN (1 / 0)") is None
    assert truth("n = 0 AND n = 1 AND 1 / n = 1", sent(n=0)) is False
    assert truth("n = 1 OR n = 0 OR 1 / n = 1", sent(n=0)) is True


@pytest.mark.parametrize("expression", [f"1 / n = 1 AND {F}", f"1 / n = 1 OR {T}"])
def test_an_error_that_comes_first_is_not_hidden_by_what_is_known_beforehand(
    expression: str,
) -> None:
    with pytest.raises(EvaluationError):
        truth(expression, sent(n=0))


def test_an_error_between_constants_shows_when_a_message_comes_and_not_before() -> None:
    check = SqlFilter("a = 1 OR 1 / 0 = 1").check

    with pytest.raises(EvaluationError, match="division by zero"):
        check.truth(scope_of(sent()))


def test_a_text_that_grows_too_long_has_no_result() -> None:
    message = sent(a="x" * 40_000)

    with pytest.raises(EvaluationError, match="more than 65536 characters"):
        truth("a + a = 'x'", message)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("there IS NULL", False),
        ("there IS NOT NULL", True),
        ("EXISTS(there)", True),
        ("empty IS NULL", True),
        ("EXISTS(empty)", True),
        ("absent IS NULL", True),
        ("EXISTS(absent)", False),
        ("EXISTS(sys.Label)", True),
        ("sys.Label IS NULL", False),
        ("EXISTS(sys.To)", False),
        ("sys.To IS NULL", True),
    ],
)
def test_absence_is_seen_by_exists_and_by_is_null(expression: str, expected: bool) -> None:
    message = sent({message_fields.LABEL: "x"}, there=1, empty=None)

    assert truth(expression, message) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n IN (1, 2, 3)", True),
        ("n IN (1, 3)", False),
        ("n NOT IN (1, 3)", True),
        ("n IN ('2', 2.0)", True),
        ("n IN (1, NULL)", False),
        ("n NOT IN (1, NULL)", True),
        ("n IN (absent, m)", True),
        ("absent IN (1)", None),
        ("absent NOT IN (1)", None),
        ("s IN ('a', 'b')", True),
        ("s IN (1, 2)", False),
    ],
)
def test_in_is_unknown_only_by_its_left_side(expression: str, expected: bool | None) -> None:
    assert truth(expression, sent(n=2, m=2, s="b")) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sys.Label = 'order'", True),
        ("SYS.label LIKE 'ord%'", True),
        ("Label = 'order'", None),
        ("user.Label = 'order'", None),
        ("sys.Size > 100", True),
        ("sys.To = 'x'", None),
        ("sys.TimeToLive > @minute", True),
        ("sys.EnqueuedTimeUtc + sys.TimeToLive > @later", True),
        ("sys.EnqueuedTimeUtc - @later < -@minute", True),
        ("@later - sys.EnqueuedTimeUtc = @minute + @minute", True),
    ],
)
def test_system_properties_and_times(expression: str, expected: bool | None) -> None:
    values: dict[int, Value] = {
        message_fields.LABEL: "order",
        message_fields.SIZE: 120,
        message_fields.TIME_TO_LIVE: duration_of_ms(150_000),
        message_fields.ENQUEUED_TIME: moment_of_ms(1_000_000),
    }
    parameters = [
        Property("minute", kind_of(duration_of_ms(0)), duration_of_ms(60_000)),
        Property("@Later", TIMESTAMP, moment_of_ms(1_120_000)),
    ]

    assert truth(expression, Sent(values), parameters) is expected


def test_a_moment_is_no_duration_and_no_number() -> None:
    message = sent(moment=Moment(5), duration=Duration(5))

    assert truth("moment = duration", message) is None
    assert truth("moment > 1", message) is None
    assert truth("moment + moment = moment", message) is None
    assert truth("duration * 2 = duration", message) is None
    assert ms_of(Moment(-1)) == -1


def test_property_looks_up_a_computed_name_without_regard_to_case() -> None:
    message = Sent({}, [Property("order id", LONG, 7), Property("key", TEXT, "Order")])

    assert truth("property('ORDER ID') = 7", message) is True
    assert truth("p(key + ' ' + 'id') = 7", message) is True
    assert truth("p(absent) = 7", message) is None
    assert truth("p(7) = 7", message) is None


def test_newid_gives_another_guid_each_time_and_the_same_again_for_the_same_seed() -> None:
    first, second = NewIds(SEED), NewIds(SEED)

    made = [first.next() for _ in range(100)]

    assert len(set(made)) == 100
    assert made == [second.next() for _ in range(100)]
    assert NewIds(bytes(16)).next() not in made
    assert all(str(each)[14] == "4" and str(each)[19] in "89ab" for each in made)
    assert truth("newid() = newid()") is False
    assert truth("newid() < newid()") is None


def test_a_guid_equals_a_guid_and_is_unlike_a_text() -> None:
    guid = Guid(bytes(range(16)))
    message = sent(id=guid, text=str(guid), other=Guid(bytes(16)))

    assert str(guid) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert truth("id = id AND id <> other", message) is True
    assert truth("id = text", message) is None


def test_parameters_are_found_with_or_without_their_sign_in_any_case() -> None:
    parameters = [Property("@City", TEXT, "Oslo"), Property("limit", INT, 5)]

    assert truth("a = @city AND n < @LIMIT", sent(a="Oslo", n=4), parameters) is True


@pytest.mark.parametrize(
    ("expression", "parameters", "what"),
    [
        ("a = @b", [], "line 1, column 5: the parameter @b has no value"),
        ("a = @b", [Property("b", LONG, 1), Property("@B", LONG, 2)], "@b is given twice"),
        ("a = 1", [Property("@", LONG, 1)], "A parameter has no name"),
        ("a = 1", [Property(f"p{n}", LONG, n) for n in range(129)], "has 129 parameters"),
        ("a LIKE 'x' ESCAPE ''", [], "column 3: ESCAPE must have one character, not 0"),
        (
            "a LIKE 'x' ESCAPE @e",
            [Property("e", TEXT, "ab")],
            "ESCAPE must have one character, not 2",
        ),
        ("a LIKE 'x!' ESCAPE '!'", [], "column 3: A LIKE pattern ends with its escape character"),
    ],
)
def test_what_cannot_be_compiled_is_refused(
    expression: str, parameters: list[Property], what: str
) -> None:
    with pytest.raises(Refused) as refusal:
        SqlFilter(expression, parameters)

    assert refusal.value.kind is INVALID_ARGUMENT
    assert what in refusal.value.message


def test_not_a_number_is_unequal_to_everything_itself_included() -> None:
    message = Sent({}, [Property("x", DOUBLE, float("nan"))])

    assert truth("x = x", message) is False
    assert truth("x <> x", message) is True
    assert truth("x < 1 OR x >= 1", message) is False


def test_of_two_properties_that_differ_by_case_the_last_one_counts() -> None:
    message = Sent({}, [Property("A", LONG, 1), Property("a", LONG, 2)])

    assert truth("A = 2", message) is True


def test_application_properties_are_read_once_and_only_if_a_filter_needs_them() -> None:
    message = sent({message_fields.LABEL: "x"}, a=1)
    scope = scope_of(message)

    SqlFilter("sys.Label = 'x'").check.truth(scope)
    assert message.readings == 0

    SqlFilter("a = 1 AND EXISTS(b)").check.truth(scope)
    SqlFilter("a = 2").check.truth(scope)
    assert message.readings == 1


def test_a_null_property_and_one_that_is_binary_have_their_kinds() -> None:
    assert kind_of(None) == NULL
    assert kind_of(b"") == BINARY
