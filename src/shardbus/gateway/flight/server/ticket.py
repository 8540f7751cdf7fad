"""The commands and tickets of the bulk lane: JSON objects, strictly checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.message import ACTIVE, DEFERRED, DELAYED, SCHEDULED
from shardbus.gateway.flight.reading.schema import columns_named, record_columns_named

TICKET_BYTES_MAX: Final = 64 * 1024
_STATES: Final = {
    "active": ACTIVE,
    "deferred": DEFERRED,
    "scheduled": SCHEDULED,
    "delayed": DELAYED,
}
MESSAGES: Final = "messages"
LIFECYCLE: Final = "lifecycle"
TABLES: Final = (MESSAGES, LIFECYCLE)
_OF_MESSAGES: Final = ("states", "reader", "ordinals", "reader_id")
COMMAND: Final = "command"
TICKET: Final = "ticket"
_KNOWN: Final = {
    COMMAND: ("entity", "table", "columns", "states", "from", "to"),
    TICKET: (
        "entity",
        "table",
        "columns",
        "states",
        "from",
        "to",
        "fragment",
        "incarnation",
        "reader",
        "ordinals",
        "reader_id",
    ),
}
FRAGMENT_DIGITS_MAX: Final = 5


@final
class ReadRequest:
    """A command or a ticket. Unknown members and invalid values are refused."""

    def __init__(self, text: bytes, what: str) -> None:
        self._what = what
        self._members = read_object(text, what, TICKET_BYTES_MAX)
        for name in self._members:
            if name not in _KNOWN[what]:
                known = ", ".join(_KNOWN[what])
                raise self._wrong(f"has a member '{name[:100]}'; members are {known}")
        self.entity = self._text("entity")
        self.table = self._chosen_table()
        names = self._texts("columns")
        self.columns = record_columns_named(names) if self.is_of_records else columns_named(names)
        self.state_names = self._chosen_states()
        self.states = tuple(_STATES[name] for name in self.state_names)

    @property
    def is_of_records(self) -> bool:
        """Whether it asks for lifecycle records, and not for messages."""
        return self.table == LIFECYCLE

    def number(self, name: str) -> int:
        value = self._members.get(name)
        if isinstance(value, int) and _is_number(value) and value >= 0:
            return value
        raise self._wrong(f"must have '{name}', a number")

    def numbers_by_fragment(self, name: str) -> dict[int, int]:
        """A JSON object whose names are fragments; empty when it is left out."""
        value = self._members.get(name, {})
        numbers: dict[int, int] = {}
        if isinstance(value, dict):
            for fragment, number in value.items():
                if _is_fragment(fragment) and _is_number(number) and number >= 0:
                    numbers[int(fragment)] = number
        if not isinstance(value, dict) or len(numbers) != len(value):
            raise self._wrong(f"has '{name}', which must be an object of numbers by fragment")
        return numbers

    @property
    def reader(self) -> str | None:
        return self._text("reader") if "reader" in self._members else None

    @property
    def incarnation(self) -> str:
        """The incarnation of the entity; empty for any."""
        return self._text("incarnation") if "incarnation" in self._members else ""

    @property
    def reader_id(self) -> str:
        """The id of the reader; empty for any."""
        return self._text("reader_id") if self._members.get("reader_id") else ""

    @property
    def ordinals(self) -> tuple[int, int]:
        """The first and the last claim."""
        value = self._members.get("ordinals")
        if isinstance(value, list) and len(value) == 2 and all(_is_number(v) for v in value):
            first, last = value
            if 1 <= first <= last:
                return first, last
        raise self._wrong("must have 'ordinals', the first and the last claim")

    def _text(self, name: str) -> str:
        value = self._members.get(name)
        if isinstance(value, str) and value:
            return value
        raise self._wrong(f"must have '{name}', a text")

    def _texts(self, name: str) -> Sequence[str] | None:
        value = self._members.get(name)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return [str(item) for item in value]
        raise self._wrong(f"has '{name}', which must be a list of texts")

    def _chosen_table(self) -> str:
        table = checked_table(self._members.get("table", MESSAGES))
        if table == LIFECYCLE:
            for name in _OF_MESSAGES:
                if name in self._members:
                    raise self._wrong(f"has '{name}', which lifecycle records do not have")
        return table

    def _chosen_states(self) -> list[str]:
        names = self._texts("states")
        if names is None:
            return ["active"]
        if not names:
            raise self._wrong(f"has no state; states are {', '.join(_STATES)}")
        for name in names:
            if name not in _STATES:
                raise self._wrong(f"has the state '{name[:100]}'; states are {', '.join(_STATES)}")
        return list(dict.fromkeys(names))

    def _wrong(self, text: str) -> Refused:
        return Refused(INVALID_ARGUMENT, f"The {self._what} {text}.")


def checked_table(name: object) -> str:
    """The name of a table of an entity; Refused for any other."""
    if not isinstance(name, str) or name not in TABLES:
        raise Refused(
            INVALID_ARGUMENT, f"There is no such table; 'table' must be {' or '.join(TABLES)}."
        )
    return name


def read_object(text: bytes, what: str, bytes_max: int) -> dict[str, object]:
    """A JSON object of bounded size."""
    if len(text) > bytes_max:
        raise Refused(INVALID_ARGUMENT, f"The {what} has more than {bytes_max} bytes.")
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(INVALID_ARGUMENT, f"The {what} is not JSON.") from error
    if not isinstance(value, dict):
        raise Refused(INVALID_ARGUMENT, f"The {what} is not a JSON object.")
    return value


def _is_fragment(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= FRAGMENT_DIGITS_MAX


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
