"""Any text at all: it is parsed or refused, in a number of steps that stays in bounds."""

import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.rules.action import SqlAction
from shardbus.rules.filter import SqlFilter
from shardbus.rules.parser import parse_action, parse_filter
from tests.model.rules.shape import shape
from tests.support.render import render_action, render_filter

PIECES = [
    "a", "b", "sys", "user", ".", "Label", "Size", "[x y]", '"q"', "[", '"', "@p", "@", "'t'", "''",
    "'", "1", "0", "9223372036854775808", "1.5", "2e3", "1e", "(", ")", "((", "))", ",", ";", "+",
    "-", "*", "/", "%", "=", "<>", "!=", "<", "<=", ">", "!", "AND", "or", "Not", "IN", "LIKE",
    "ESCAPE", "IS", "NULL", "TRUE", "FALSE", "EXISTS", "newid", "property", "p", "SET", "REMOVE",
    "\n", "\t", "é", "\ud800", "\U0001f600", "\x00", "_", "$", "--", "/*",
]  # fmt: skip
GOOD = [
    "a = 1 AND (b + 1) * -2 >= 3.5 OR NOT sys.Label LIKE 'x%' ESCAPE '!'",
    "a IN (1, 'b', @p, newid()) AND EXISTS(b) AND property('c' + d) IS NULL",
    "[a b] IS NOT NULL AND (a NOT IN (1) OR a NOT LIKE b) AND flag",
    "SET a = 1; SET sys.Label = 'x' + b REMOVE c, REMOVE [d]",
]
# Function calls for a character. Twice as much as the worst of what is tried here.
CALLS_PER_CHARACTER = 60
CALLS_MIN = 200


def tried(text: str) -> None:
    """Parses, compiles and renders a text as a filter and as an action."""
    try:
        condition = parse_filter(text)
        assert shape(parse_filter(render_filter(condition))) == shape(condition)
        SqlFilter(text)
    except Refused as refusal:
        assert refusal.kind is INVALID_ARGUMENT
    try:
        statements = parse_action(text)
        assert shape(parse_action(render_action(statements))) == shape(statements)
        SqlAction(text)
    except Refused as refusal:
        assert refusal.kind is INVALID_ARGUMENT


@pytest.mark.parametrize("seed", range(4))
def test_pieces_of_the_language_in_any_order_are_parsed_or_refused(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(500):
        pieces = dice.choices(PIECES, k=dice.randrange(1, 40))

        tried(dice.choice(["", " "]).join(pieces)[:600])


@pytest.mark.parametrize("good", GOOD)
def test_a_good_expression_with_a_few_letters_changed_is_parsed_or_refused(good: str) -> None:
    dice = random.Random(good)
    for _ in range(300):
        letters = list(good)
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(letters))
            letters[at : at + dice.randrange(3)] = dice.choice(PIECES)

        tried("".join(letters))


HOSTILE: list[Callable[[int], str]] = [
    lambda n: "(" * n,
    lambda n: "(" * (n // 2) + "a" + ")" * (n // 2),
    lambda n: "(a=1 AND " * (n // 10),
    lambda n: "NOT " * (n // 4),
    lambda n: "- " * (n // 2),
    lambda n: "-(" * (n // 2),
    lambda n: "a=1 OR " * (n // 7) + "a=1",
    lambda n: "a=1 AND b=1 OR " * (n // 15) + "a=1",
    lambda n: "a IN (" + "1," * (n // 2) + "1)",
    lambda n: "a IN (" * (n // 6),
    lambda n: "p(" * (n // 2),
    lambda n: "((a)+(" * (n // 6),
    lambda n: "'" * n,
    lambda n: "[" * n,
    lambda n: "]" * n,
    lambda n: "''" * (n // 2) + "'",
    lambda n: " " * n,
    lambda n: "1" * n,
    lambda n: "a LIKE " * (n // 7),
    lambda n: "SET a=1 " * (n // 8),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_expression_takes_steps_in_proportion_to_its_length(number: int) -> None:
    """Counts calls, which needs no clock; compiled code makes none that can be seen."""
    for length in (100, 400, 1024):
        text = HOSTILE[number](length)[:1024]

        assert _calls(text) <= CALLS_MIN + CALLS_PER_CHARACTER * len(text)


def _calls(text: str) -> int:
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        tried_once(text)
    finally:
        sys.setprofile(before)
    return count


def tried_once(text: str) -> None:
    for parse in (SqlFilter, SqlAction):
        try:
            parse(text)
        except Refused:
            continue
