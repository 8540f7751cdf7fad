"""Every bound of the rule language, one constant each."""

from typing import Final

EXPRESSION_CHARACTERS_MAX: Final = 1024
STATEMENTS_MAX: Final = 32
# Levels of a tree. Everything that walks a tree recurses, and Python allows about a thousand calls.
DEPTH_MAX: Final = 100
PARAMETERS_MAX: Final = 128

RULE_NAME_CHARACTERS_MAX: Final = 50
SQL_RULES_MAX: Final = 2_000
CORRELATION_RULES_MAX: Final = 100_000
# Each rule with an action makes a copy of its own of every message that it matches, and whoever may
# receive may add rules: so many of a subscription, and of a topic in all its subscriptions.
ACTION_RULES_MAX: Final = 100
TOPIC_ACTION_RULES_MAX: Final = 1_000
# Copies with other application properties share the payload of their message. Those with other
# system properties do not: together they may have so many bytes of the largest message that the
# topic takes. A few are possible however large that is.
REWRITTEN_BYTES_MAX: Final = 256 * 1024 * 1024
REWRITING_RULES_LEAST: Final = 4
# Fields that one correlation filter compares; the index goes as deep as this.
CORRELATION_FIELDS_MAX: Final = 128
# Rules that a node of the index compares one by one before it sorts the next by another field.
INDEX_LOOSE_MAX: Final = 4

# What `+` may make of texts: a property of this size does not fit in a message's head either.
TEXT_CHARACTERS_MAX: Final = 65_536

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1
