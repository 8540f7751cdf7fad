"""Messages that rules can read, the rules there are, and which copies each of them is to give.

A payload is `mark:color;size;label`. What a rule gives is said here a second time, in Python, so
that the checker does not believe the rules of the bus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, NamedTuple

from shardbus.broker.fragment.publishing import FILTER_FAILED
from shardbus.core import message_fields
from shardbus.core.message import Entry
from shardbus.core.namespace.rule_spec import (
    FALSE_FILTER,
    TRUE_FILTER,
    FilterSpec,
    RuleSpec,
    TypedValue,
    correlation_filter,
    sql_filter,
)
from shardbus.core.properties import pack, unpack
from shardbus.message.rule_view import PayloadFormat
from shardbus.rules.action import Changes
from shardbus.rules.values import LONG, TEXT, Property, Value
from tests.simulation.sending import mark_of

COLORS: Final = ("red", "green", "blue")
LABELS: Final = ("news", "mail")
SIZE_MAX: Final = 9

PLAIN: Final = "plain"
FAILED: Final = "failed"


class Letter(NamedTuple):
    """What a payload says of its message."""

    mark: int
    color: str
    size: int
    label: str

    def payload(self) -> bytes:
        return f"{self.mark}:{self.color};{self.size};{self.label}".encode()


def new_letter(mark: int, chance: Random) -> Letter:
    return Letter(mark, chance.choice(COLORS), chance.randint(0, SIZE_MAX), chance.choice(LABELS))


def letter_of(payload: bytes) -> Letter:
    color, size, label = payload.partition(b":")[2].decode().split(";")
    return Letter(mark_of(payload), color, int(size), label)


class _View:
    def __init__(self, payload: bytes) -> None:
        self._letter = letter_of(payload)

    def system(self, number: int) -> Value:
        return self._letter.label if number == message_fields.LABEL else None

    def properties(self) -> dict[str, Property]:
        letter = self._letter
        return {
            "color": Property("color", TEXT, letter.color),
            "size": Property("size", LONG, letter.size),
        }


def _rewritten(payload: bytes, changes: Changes) -> bytes:
    letter = letter_of(payload)
    return letter._replace(label=str(changes.system[message_fields.LABEL])).payload()


def _packed(payload: bytes, changes: Changes) -> bytes:
    properties: dict[str, bytes] = {}
    for name, value in changes.properties.items():
        properties[name] = b"" if value is None else str(value.value).encode()
    return pack(properties)


FORMAT: Final = PayloadFormat(_View, _rewritten, _packed)


class Known(NamedTuple):
    """A rule, and what it is to do; `takes` raises ArithmeticError where the rule fails."""

    filter: FilterSpec
    takes: Callable[[Letter], bool]
    action: str = ""
    # What the action makes of label and `stamp`.
    label: str | None = None
    stamp: bytes | None = None

    def spec(self, name: str) -> RuleSpec:
        made = RuleSpec(name, self.filter, 0)
        made.action = self.action
        return made


RULES: Final = {
    "all": Known(FilterSpec(TRUE_FILTER), lambda letter: True),
    "none": Known(FilterSpec(FALSE_FILTER), lambda letter: False),
    "red": Known(
        correlation_filter({}, [TypedValue("color", "string", "red")]),
        lambda letter: letter.color == "red",
    ),
    "news": Known(correlation_filter({"Label": "news"}), lambda letter: letter.label == "news"),
    "blue-mail": Known(
        correlation_filter({"Label": "mail"}, [TypedValue("color", "string", "blue")]),
        lambda letter: letter.label == "mail" and letter.color == "blue",
    ),
    "big": Known(sql_filter("size > 4"), lambda letter: letter.size > 4),
    "even": Known(
        sql_filter("size % 2 = 0 AND NOT color = 'green'"),
        lambda letter: letter.size % 2 == 0 and letter.color != "green",
    ),
    "ratio": Known(sql_filter("90 / size >= 1"), lambda letter: 90 / letter.size >= 1),
    "stamp": Known(
        sql_filter("color = 'red'"),
        lambda letter: letter.color == "red",
        "SET stamp = 'x'",
        stamp=b"x",
    ),
    "relabel": Known(
        sql_filter("size < 4"), lambda letter: letter.size < 4, "SET sys.Label = 'old'", label="old"
    ),
}


def expected(letter: Letter, rules: Iterable[str]) -> Counter[str]:
    """The copies that a subscription with these rules is to get."""
    copies: Counter[str] = Counter()
    for name in rules:
        known = RULES[name]
        try:
            is_taken = known.takes(letter)
        except ArithmeticError:
            copies[FAILED] = 1
            continue
        if is_taken:
            copies[name if known.action else PLAIN] = 1
    return copies


def kind_of(entry: Entry, letter: Letter) -> str:
    """Which copy this is of a message; one that is wrong is none that is ever expected."""
    if entry.reason == FILTER_FAILED:
        return FAILED
    properties = unpack(entry.modified)
    kind = properties.pop("rulename", properties.pop("RuleName", b"")).decode()
    assert entry.payload is not None
    label, stamp = letter_of(entry.payload).label, properties.get("stamp")
    if not kind:
        return PLAIN if (label, stamp) == (letter.label, None) else "changed by nobody"
    known = RULES[kind]
    is_right = label == (known.label or letter.label) and stamp == known.stamp
    return kind if is_right else f"{kind}, done wrongly"
