"""The fields of a management request, as liberal in types as SDKs are."""

from __future__ import annotations

from typing import Final, final

from shardbus.codec.types import Array, Timestamp, Uuid, Value, integer_of, text_of, value_of
from shardbus.core.errors import INVALID_ARGUMENT, MESSAGE_NOT_FOUND, Refused

TOKENS_MAX: Final = 5_000
NUMBERS_MAX: Final = 5_000
LONG_MAX: Final = (1 << 63) - 1


@final
class RequestFields:
    """The map of one request. An invalid field raises Refused with its name."""

    def __init__(self, operation: str, body: Value, link_name: str | None) -> None:
        self.operation = operation
        self.link_name = link_name
        self._values: dict[str, Value] = {}
        if not isinstance(body, dict):
            raise self.bad("body", "must be a map")
        for key, value in body.items():
            name = text_of(key)
            if name is None:
                raise self.bad("body", "must have texts as keys")
            self._values[name] = value

    def bad(self, name: str, reason: str) -> Refused:
        return Refused(INVALID_ARGUMENT, f"{self.operation}: '{name}' {reason}.")

    def value(self, name: str) -> Value:
        return self._values.get(name)

    def integer(self, name: str, *, least: int | None = None, default: int | None = None) -> int:
        """A whole number of any width; required if there is no default."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        number = integer_of(value)
        if number is None or isinstance(value, Timestamp):
            raise self.bad(name, "must be a whole number")
        if least is not None and number < least:
            raise self.bad(name, f"must be at least {least}")
        return number

    def moment_ms(self, name: str) -> int:
        moment_ms = integer_of(self._values.get(name))
        if moment_ms is None:
            raise self.bad(name, "must be a timestamp")
        return moment_ms

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.bad(name, "must be true or false")
        return value is True

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        text = text_of(value)
        if value is not None and text is None:
            raise self.bad(name, "must be a text")
        return text

    def binary(self, name: str) -> bytes | None:
        value = value_of(self._values.get(name))
        if value is not None and not isinstance(value, bytes):
            raise self.bad(name, "must be binary")
        return value

    def properties(self, name: str) -> dict[Value, Value] | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.bad(name, "must be a map")
        return value

    def within(self, name: str) -> RequestFields | None:
        """The fields of a nested map."""
        value = self.properties(name)
        return None if value is None else RequestFields(self.operation, value, self.link_name)

    def items(self, name: str, *, count_max: int) -> list[Value]:
        """The elements of an array or list, at least one."""
        value = self._values.get(name)
        items = value.values if isinstance(value, Array) else value
        if not isinstance(items, list) or not 0 < len(items) <= count_max:
            raise self.bad(name, f"must be an array of 1 to {count_max}")
        return items

    def tokens(self) -> list[bytes]:
        """Lock tokens as the delivery tags they came with: a Guid's bytes, not a UUID's."""
        return [self._tag(item) for item in self.items("lock-tokens", count_max=TOKENS_MAX)]

    def numbers(self, *, count_max: int = NUMBERS_MAX) -> list[int]:
        """Sequence numbers without duplicates."""
        name = "sequence-numbers"
        numbers: list[int] = []
        for item in self.items(name, count_max=count_max):
            number = integer_of(item)
            if number is None:
                raise self.bad(name, "must hold whole numbers")
            if not 0 < number <= LONG_MAX:
                raise Refused(MESSAGE_NOT_FOUND, f"No message has the sequence number {number}.")
            numbers.append(number)
        if len(set(numbers)) != len(numbers):
            raise self.bad(name, "must not name a message twice")
        return numbers

    def _tag(self, item: Value) -> bytes:
        network = item.value if isinstance(item, Uuid) else item
        if not isinstance(network, bytes) or len(network) != 16:
            raise self.bad("lock-tokens", "must hold uuids")
        return guid_swapped(network)


def guid_swapped(identifier: bytes) -> bytes:
    """The bytes of a UUID in a Guid's order, and the other way round."""
    return identifier[3::-1] + identifier[5:3:-1] + identifier[7:5:-1] + identifier[8:]
