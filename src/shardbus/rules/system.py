"""The fields of messages that rules know: `sys.` names, their kinds, and which can be set."""

from __future__ import annotations

from typing import Final, final

from shardbus.core import message_fields
from shardbus.core.message_fields import FIELDS
from shardbus.rules.values import BOOLEAN, DURATION, LONG, TEXT, TIMESTAMP

_KINDS: Final[dict[str, int]] = {
    message_fields.FLAG: BOOLEAN,
    message_fields.SMALL_NUMBER: LONG,
    message_fields.NUMBER: LONG,
    message_fields.WORD: LONG,
    message_fields.DURATION: DURATION,
    message_fields.MOMENT: TIMESTAMP,
}


@final
class SystemProperty:
    """A name after `sys.`; `kind` says what it holds when it is set."""

    def __init__(self, number: int, name: str, kind: int, is_settable: bool) -> None:
        self.number = number
        self.name = name
        self.kind = kind
        self.is_settable = is_settable


def _number(property: SystemProperty) -> int:
    return property.number


ALL: Final = sorted(
    (
        SystemProperty(each.number, each.dialect, _KINDS.get(each.form, TEXT), each.is_sent)
        for each in FIELDS
        if each.number >= 0
    ),
    key=_number,
)
"""By their numbers."""
_BY_NAME: Final[dict[str, SystemProperty]] = {each.name.lower(): each for each in ALL}

assert [each.number for each in ALL] == list(range(len(ALL)))


def find(name: str) -> SystemProperty | None:
    """The system property of this name, in any case."""
    return _BY_NAME.get(name.lower())
