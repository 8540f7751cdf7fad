"""Shared access rules: who may listen, send and manage."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.document import Fields

LISTEN: Final = 1
SEND: Final = 2
MANAGE: Final = 4
ALL_RIGHTS: Final = LISTEN | SEND | MANAGE

RULES_MAX: Final = 12
KEY_NAME_CHARACTERS_MAX: Final = 256
KEY_CHARACTERS_MAX: Final = 256

_NAMES: Final = (("Manage", MANAGE), ("Send", SEND), ("Listen", LISTEN))


@final
class AccessRule:
    """A named pair of keys and what a holder of either may do."""

    def __init__(self, name: str, rights: int, primary_key: str, secondary_key: str = "") -> None:
        self.name = name
        # Manage "requires/implies both others" (Service Bus documentation of claims).
        self.rights = ALL_RIGHTS if rights & MANAGE else rights
        self.primary_key = primary_key
        self.secondary_key = secondary_key
        self.created_at_ms = 0
        self.modified_at_ms = 0

    def valid_keys(self) -> list[str]:
        """The keys that validate; an empty key never does."""
        return [key for key in (self.primary_key, self.secondary_key) if key]

    def is_same_as(self, other: AccessRule) -> bool:
        """Whether the other rule gives the same rights for the same keys."""
        return (
            self.rights == other.rights
            and self.primary_key == other.primary_key
            and self.secondary_key == other.secondary_key
        )

    def to_document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "rights": right_names(self.rights),
            "primary_key": self.primary_key,
            "secondary_key": self.secondary_key,
            "created_at_ms": self.created_at_ms,
            "modified_at_ms": self.modified_at_ms,
        }


def rule_from_document(value: object) -> AccessRule:
    """Read a rule that `to_document` wrote; ValueError when the document is not a rule."""
    fields = Fields(value, "access rule")
    rights = 0
    for name in fields.values("rights"):
        rights |= right_named(str(name))
    rule = AccessRule(
        fields.text("name"), rights, fields.text("primary_key"), fields.text("secondary_key")
    )
    rule.created_at_ms = fields.integer("created_at_ms")
    rule.modified_at_ms = fields.integer("modified_at_ms")
    return rule


def right_names(rights: int) -> list[str]:
    return [name for name, bit in _NAMES if rights & bit]


def right_named(name: str) -> int:
    """The bit of `Listen`, `Send` or `Manage`; ValueError for any other word."""
    for known, bit in _NAMES:
        if name == known:
            return bit
    raise ValueError(f"'{name}' is not a right; rights are Manage, Send and Listen")
