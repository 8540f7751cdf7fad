"""What an evaluation can use: a message's properties, and a source of new ids."""

from __future__ import annotations

import hashlib
from typing import Final, Protocol, final

from shardbus.rules.values import Guid, Property, Value

SEED_BYTES: Final = 16


class RuleMessage(Protocol):
    """A message as rules see it; neither answer changes while the message is matched."""

    def system(self, number: int) -> Value:
        """The system property of this number (see `system`), None while it is not set."""

    def properties(self) -> dict[str, Property]:
        """All application properties by folded name (see `by_name`); callers must not change the
        dict.

        Called at most once, and only if a rule needs it, so that it may decode them then.
        """


@final
class NewIds:
    """Guids derived from 16 random bytes: the same seed gives the same ids in the same order.

    So an evaluation needs no source of randomness and can be repeated.
    """

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._count = 0

    def next(self) -> Guid:
        """A new id, of version 4 and variant 1 (RFC 4122)."""
        counter = self._count.to_bytes(8, "big")
        self._count += 1
        made = bytearray(hashlib.blake2b(self._seed + counter, digest_size=16).digest())
        made[6] = made[6] & 0x0F | 0x40
        made[8] = made[8] & 0x3F | 0x80
        return Guid(bytes(made))


@final
class Scope:
    """One message during its evaluations; lookups are cached."""

    def __init__(self, message: RuleMessage, new_ids: NewIds) -> None:
        self.new_ids = new_ids
        self._message = message
        self._properties: dict[str, Property] | None = None
        self._system: dict[int, Value] = {}

    def system(self, number: int) -> Value:
        known = self._system
        if number in known:
            return known[number]
        value = self._message.system(number)
        known[number] = value
        return value

    def properties(self) -> dict[str, Property]:
        """By folded name."""
        found = self._properties
        if found is None:
            found = self._message.properties()
            self._properties = found
        return found

    def value(self, name: str) -> Value:
        """The value of an application property by folded name, None without one."""
        found = self.properties().get(name)
        return None if found is None else found.value

    def copy(self) -> Scope:
        """The same message with its own copy of the properties, for an action to change."""
        other = Scope(self._message, self.new_ids)
        other._properties = dict(self.properties())
        other._system = dict(self._system)
        return other

    def set_system(self, number: int, value: Value) -> None:
        self._system[number] = value
