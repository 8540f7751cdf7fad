"""SQL actions: what they change."""

import pytest

from shardbus.core import message_fields
from shardbus.core.errors import INVALID_ARGUMENT
from shardbus.rules.action import Changes, SqlAction
from shardbus.rules.errors import EvaluationError
from shardbus.rules.values import (
    DOUBLE,
    DURATION,
    INT,
    LONG,
    NULL,
    SHORT,
    TEXT,
    UUID,
    Duration,
    Property,
)
from tests.support.refusals import refusal_of
from tests.unit.rules.messages import Sent, scope_of, sent


def changes(expression: str, message: Sent, parameters: list[Property] | None = None) -> Changes:
    return SqlAction(expression, parameters).run(scope_of(message))


def test_set_makes_a_property_and_replaces_one_under_the_name_it_has() -> None:
    found = changes("SET new = 1; SET COLOUR = 'blue'", sent(Colour="red", other=2))

    assert found.properties == {
        "new": Property("new", LONG, 1),
        "colour": Property("Colour", TEXT, "blue"),
    }
    assert found.system == {}


def test_remove_takes_a_property_away_in_whatever_spelling() -> None:
    message = Sent({}, [Property("A", LONG, 1), Property("b", LONG, 2), Property("a", LONG, 3)])

    found = changes("REMOVE a; REMOVE absent", message)

    assert found.properties == {"a": None}
    assert found.applied(message.listed) == [Property("b", LONG, 2)]


def test_what_is_set_comes_after_what_stayed() -> None:
    message = sent(a=1, b=2)

    found = changes("SET a = 5; SET c = 6", message)

    assert found.applied(message.listed) == [
        Property("b", LONG, 2),
        Property("a", LONG, 5),
        Property("c", LONG, 6),
    ]


def test_later_statements_see_what_earlier_ones_did_and_the_message_stays_as_it_was() -> None:
    message = sent({message_fields.LABEL: "x"}, a=1)
    scope = scope_of(message)

    found = SqlAction(
        "SET a = a + 1; SET b = a * 10; REMOVE a; SET c = a; SET sys.Label = sys.Label + b; "
        "SET d = sys.Label"
    ).run(scope)

    assert found.properties["b"] == Property("b", LONG, 20)
    assert found.properties["a"] is None
    assert found.properties["c"] == Property("c", NULL, None)
    assert found.properties["d"] == Property("d", TEXT, "x20")
    assert found.system == {message_fields.LABEL: "x20"}
    assert scope.value("a") == 1
    assert scope.system(message_fields.LABEL) == "x"


def test_a_value_is_converted_to_the_kind_of_the_property_it_replaces_if_it_can_be() -> None:
    message = Sent({}, [Property("n", INT, 1), Property("m", INT, 1), Property("s", TEXT, "x")])

    found = changes("SET n = 2.0; SET m = 2.5; SET s = 7", message)

    assert found.properties == {
        "n": Property("n", INT, 2),
        "m": Property("m", DOUBLE, 2.5),
        "s": Property("s", TEXT, "7"),
    }


def test_a_copy_of_a_property_or_parameter_keeps_its_kind() -> None:
    message = Sent({}, [Property("n", SHORT, 1)])

    found = changes("SET a = n; SET b = @p; SET c = n + 0", message, [Property("p", INT, 5)])

    assert found.properties == {
        "a": Property("a", SHORT, 1),
        "b": Property("b", INT, 5),
        "c": Property("c", LONG, 1),
    }


def test_unknown_sets_a_null() -> None:
    found = changes("SET a = absent + 1; SET sys.Label = NULL", sent(a=1))

    assert found.properties == {"a": Property("a", NULL, None)}
    assert found.system == {message_fields.LABEL: None}


def test_system_properties_take_values_of_their_own_type() -> None:
    found = changes(
        "SET sys.MessageId = 5; SET sys.TimeToLive = @ttl + @ttl; SET id = newid()",
        sent(),
        [Property("ttl", DURATION, Duration(10))],
    )

    assert found.system == {
        message_fields.MESSAGE_ID: "5",
        message_fields.TIME_TO_LIVE: Duration(20),
    }
    made = found.properties["id"]
    assert made is not None
    assert made.kind == UUID


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("SET sys.TimeToLive = 5", "sys.TimeToLive cannot be set to a value of type long"),
        ("SET sys.ScheduledEnqueueTimeUtc = 'now'", "to a value of type string"),
        ("SET a = 1 / 0", "division by zero"),
    ],
)
def test_an_action_without_a_result_fails_as_a_whole(expression: str, what: str) -> None:
    with pytest.raises(EvaluationError, match=what):
        changes("SET b = 1; " + expression, sent())


def test_an_action_with_a_parameter_that_has_no_value_is_refused() -> None:
    with refusal_of(INVALID_ARGUMENT, "column 9", "@x"):
        SqlAction("SET a = @x")
