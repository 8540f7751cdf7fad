"""How many copies of a message the rules of a topic may make (docs/adr/0038-bounded-copies.md).

A rule without an action adds no copy of its own, and plain copies share one payload. Each rule with
an action makes another one, and an action that sets a system property makes another payload too.
Whoever adds the rule that would be too much is told, not whoever publishes.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.namespace.entity import Entity, QueueSpec
from shardbus.core.namespace.rule_spec import RuleSpec
from shardbus.rules.limits import (
    ACTION_RULES_MAX,
    REWRITING_RULES_LEAST,
    REWRITTEN_BYTES_MAX,
    TOPIC_ACTION_RULES_MAX,
)


def check_copies(
    topic: Entity,
    subscriptions: Sequence[Entity],
    changed: Entity | None,
    rules: Sequence[RuleSpec],
) -> None:
    """Refuse these rules for a subscription, `changed` or a new one, if they make too many copies.

    What is beyond a bound already, because it is older than the bound, may stay, but not grow.
    """
    former = [] if changed is None else changed.rules
    known = [rule for each in subscriptions for rule in each.rules]
    added = _acting(rules) - _acting(former)
    if added > 0 and _acting(rules) > ACTION_RULES_MAX:
        raise Refused(
            QUOTA_EXCEEDED,
            f"A subscription has at most {ACTION_RULES_MAX} rules with actions: each of them makes "
            "another copy of the messages that it matches. Delete some, or use filters alone.",
        )
    if added > 0 and _acting(known) + added > TOPIC_ACTION_RULES_MAX:
        raise Refused(
            QUOTA_EXCEEDED,
            f"The subscriptions of '{topic.name}' have at most {TOPIC_ACTION_RULES_MAX} rules with "
            "actions together: each of them makes another copy of the messages that it matches.",
        )
    rewriting = _rewriting(rules) - _rewriting(former)
    if rewriting > 0:
        _check_rewriting(topic, topic.spec, _rewriting(known) + rewriting)


def check_message_size(topic: Entity, spec: QueueSpec, subscriptions: Sequence[Entity]) -> None:
    """Refuse larger messages if there are too many rules that make other payloads of them."""
    if spec.message_kb_max > topic.spec.message_kb_max:
        known = [rule for each in subscriptions for rule in each.rules]
        _check_rewriting(topic, spec, _rewriting(known))


def _check_rewriting(topic: Entity, spec: QueueSpec, count: int) -> None:
    size_bytes = spec.message_bytes_max()
    most = max(REWRITTEN_BYTES_MAX // size_bytes, REWRITING_RULES_LEAST)
    if count > most:
        raise Refused(
            QUOTA_EXCEEDED,
            f"'{topic.name}' takes messages of {size_bytes} bytes, so that its subscriptions have "
            f"at most {most} rules together that set system properties, not {count}: each of them "
            "makes a payload of its own. Set application properties instead.",
        )


def _acting(rules: Sequence[RuleSpec]) -> int:
    return sum(1 for rule in rules if rule.action)


def _rewriting(rules: Sequence[RuleSpec]) -> int:
    """How many may set a system property, none of which has a name without these letters."""
    return sum(1 for rule in rules if "sys" in rule.action.lower())
