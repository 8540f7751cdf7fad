"""Every bound of the rule language, one constant each."""

from typing import Final

EXPRESSION_CHARACTERS_MAX: Final = 1024
STATEMENTS_MAX: Final = 32
# Levels of a tree. Whatever walks a tree recurses, and Python allows about a thousand calls.
DEPTH_MAX: Final = 100
PARAMETERS_MAX: Final = 128

RULE_NAME_CHARACTERS_MAX: Final = 50
SQL_RULES_MAX: Final = 2_000
CORRELATION_RULES_MAX: Final = 100_000
# Each rule with an action makes its own copy of every message that it matches, and every receiver
# may add rules. These are the bounds for a subscription, and for all subscriptions of a topic.
ACTION_RULES_MAX: Final = 100
TOPIC_ACTION_RULES_MAX: Final = 1_000
# Copies with changed application properties share the payload of their message. Copies with changed
# system properties do not: the bound is for their bytes together, assuming the largest message that
# the topic allows. A few are possible at any message size.
REWRITTEN_BYTES_MAX: Final = 256 * 1024 * 1024
REWRITING_RULES_LEAST: Final = 4
# Fields that one correlation filter may compare; this bounds the depth of the index.
CORRELATION_FIELDS_MAX: Final = 128
# Rules that a node of the index compares one by one before it sorts further ones by another field.
INDEX_LOOSE_MAX: Final = 4

# How long `+` may make a text: a property of this size does not fit in a message either.
TEXT_CHARACTERS_MAX: Final = 65_536

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1
