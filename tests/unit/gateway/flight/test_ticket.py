"""Commands and tickets of the bulk lane: what is understood, and what is refused with a reason."""

import json

import pytest

from shardbus.core.errors import INVALID_ARGUMENT
from shardbus.core.message import ACTIVE, SCHEDULED
from shardbus.gateway.flight.reading.schema import COLUMNS
from shardbus.gateway.flight.server.ticket import COMMAND, TICKET, TICKET_BYTES_MAX, ReadRequest
from tests.support.refusals import refusal_of


def wish(what: str = TICKET, **members: object) -> ReadRequest:
    return ReadRequest(json.dumps({"entity": "q", **members}).encode(), what)


def test_what_a_wish_does_not_say_has_its_default() -> None:
    """P1."""
    plain = wish(COMMAND)

    assert plain.entity == "q"
    assert plain.columns == list(COLUMNS)
    assert plain.states == (ACTIVE,)
    assert plain.numbers_by_fragment("from") == {}


def test_a_wish_says_what_is_wanted() -> None:
    """P1."""
    asked = wish(
        columns=["body", "properties_json"],
        states=["scheduled", "active", "scheduled"],
        fragment=3,
        reader="r",
        ordinals=[2, 5],
    )

    assert asked.columns == ["body", "properties_json"]
    assert asked.states == (SCHEDULED, ACTIVE)
    assert (asked.number("fragment"), asked.reader, asked.ordinals) == (3, "r", (2, 5))
    assert wish(COMMAND, **{"from": {"0": 1, "15": 7}}).numbers_by_fragment("from") == {0: 1, 15: 7}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON"),
        (b"[" * 10_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"entity": 5}', "must have 'entity', a text"),
        (b'{"entity": ""}', "must have 'entity', a text"),
        (
            b'{"entity": "q", "colums": []}',
            "has a member 'colums'; members are entity, table",
        ),
        (b'{"entity": "q", "columns": []}', "must name at least one column"),
        (b'{"entity": "q", "columns": ["body", "body"]}', "each only once"),
        (
            b'{"entity": "q", "columns": ["bod"]}',
            "no column 'bod'; the columns are amqp, annotations, body",
        ),
        (b'{"entity": "q", "columns": "body"}', "must be a list of texts"),
        (b'{"entity": "q", "states": []}', "has no state; states are active"),
        (b'{"entity": "q", "states": ["dead"]}', "has the state 'dead'; states are active"),
        (b" " * (TICKET_BYTES_MAX + 1), "more than 65536 bytes"),
    ],
)
def test_what_cannot_be_understood_is_refused(text: bytes, reason: str) -> None:
    with refusal_of(INVALID_ARGUMENT) as refused:
        ReadRequest(text, TICKET)
    assert reason in refused.value.message


@pytest.mark.parametrize("number", [None, -1, True, "1", 1.5])
def test_a_fragment_is_a_number(number: object) -> None:
    with refusal_of(INVALID_ARGUMENT, "'fragment'"):
        wish(fragment=number).number("fragment")


@pytest.mark.parametrize("ordinals", [None, [1], [2, 1], [0, 1], [True, 1], ["1", "2"], [1, 2, 3]])
def test_ordinals_are_the_first_and_the_last(ordinals: object) -> None:
    with refusal_of(INVALID_ARGUMENT, "'ordinals'"):
        _ = wish(ordinals=ordinals).ordinals


@pytest.mark.parametrize(
    "value", [[], {"a": 1}, {"\N{SUPERSCRIPT TWO}": 1}, {"1": "1"}, {"1": -1}, {"1": True}]
)
def test_starts_are_numbers_by_fragment(value: object) -> None:
    with refusal_of(INVALID_ARGUMENT, "'from'"):
        wish(COMMAND, **{"from": value}).numbers_by_fragment("from")


def test_a_command_names_no_claims() -> None:
    """P2: it would be answered with everything, claimed or not."""
    with refusal_of(INVALID_ARGUMENT, "'reader'"):
        wish(COMMAND, reader="r")
