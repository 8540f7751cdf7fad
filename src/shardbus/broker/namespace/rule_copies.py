"""How many copies of a message the rules of a topic may make (docs/adr/0038-bounded-copies.md).

A rule without an action adds no copy of its own, and plain copies share one payload. Each rule with
an action makes another copy, and an action that sets a system property makes another payload too.
The limit is enforced when a rule is added, not when a message is published.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.namespace.entity import Entity, EntitySpec
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
    """Refuse these rules for a subscription (`changed` or a new one) if they make too many copies.

    What already exceeds a newer bound may stay, but not grow.
    """
    former = [] if changed is None else changed.rules
    known = [rule for each in subscriptions for rule in each.rules]
    added = _acting(rules) - _acting(former)
    if added > 0 and _acting(rules) > ACTION_RULES_MAX:
        raise Refused(
            QUOTA_EXCEEDED,
            f"A subscription may have at most {ACTION_RULES_MAX} rules with actions, because "
            "each of them makes another copy of the messages that it matches. Delete some, "
            "or use filters without actions.",
        )
    if added > 0 and _acting(known) + added > TOPIC_ACTION_RULES_MAX:
        raise Refused(
            QUOTA_EXCEEDED,
            f"The subscriptions of '{topic.name}' may have at most {TOPIC_ACTION_RULES_MAX} "
            "rules with actions together, because each of them makes another copy of the "
            "messages that it matches. Delete some, or use filters without actions.",
        )
    rewriting = _rewriting(rules) - _rewriting(former)
    if rewriting > 0:
        _check_rewriting(topic, topic.spec, _rewriting(known) + rewriting)


def check_message_size(topic: Entity, spec: EntitySpec, subscriptions: Sequence[Entity]) -> None:
    """Refuse a larger message size if too many rules make payloads of their own."""
    if spec.message_kb_max > topic.spec.message_kb_max:
        known = [rule for each in subscriptions for rule in each.rules]
        _check_rewriting(topic, spec, _rewriting(known))


def _check_rewriting(topic: Entity, spec: EntitySpec, count: int) -> None:
    size_bytes = spec.message_bytes_max()
    most = max(REWRITTEN_BYTES_MAX // size_bytes, REWRITING_RULES_LEAST)
    if count > most:
        raise Refused(
            QUOTA_EXCEEDED,
            f"'{topic.name}' allows messages of {size_bytes} bytes, so its subscriptions may "
            f"have at most {most} rules together that set system properties, not {count}: "
            "each of them makes a payload of its own. Set application properties instead.",
        )


def _acting(rules: Sequence[RuleSpec]) -> int:
    return sum(1 for rule in rules if rule.action)


def _rewriting(rules: Sequence[RuleSpec]) -> int:
    """How many rules may set a system property: their actions contain the scope `sys`."""
    return sum(1 for rule in rules if "sys" in rule.action.lower())
