"""Every bound of the rule language, one constant each (reference 13.4)."""

from typing import Final

EXPRESSION_CHARACTERS_MAX: Final = 1024
STATEMENTS_MAX: Final = 32
# Levels of a tree. Everything that walks a tree recurses, and Python allows about a thousand calls.
DEPTH_MAX: Final = 100
PARAMETERS_MAX: Final = 128

RULE_NAME_CHARACTERS_MAX: Final = 50
SQL_RULES_MAX: Final = 2_000
CORRELATION_RULES_MAX: Final = 100_000
# Fields that one correlation filter compares; the index goes as deep as this.
CORRELATION_FIELDS_MAX: Final = 128
# Rules that a node of the index compares one by one before it sorts the next by another field.
INDEX_LOOSE_MAX: Final = 4

# What `+` may make of texts: a property of this size does not fit in a message's head either.
TEXT_CHARACTERS_MAX: Final = 65_536

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1
