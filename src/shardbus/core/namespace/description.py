"""The rules for descriptions: ranges, combinations, and what an update may change."""

from __future__ import annotations

from typing import Final

from shardbus.core.errors import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refused
from shardbus.core.namespace.access import (
    KEY_CHARACTERS_MAX,
    KEY_NAME_CHARACTERS_MAX,
    RULES_MAX,
    AccessRule,
)
from shardbus.core.namespace.entity import (
    ACTIVE_STATUS,
    DISABLED_STATUS,
    RECEIVE_DISABLED_STATUS,
    SEND_DISABLED_STATUS,
    Entity,
    EntitySpec,
)
from shardbus.core.namespace.property import (
    DURATION,
    PROPERTIES,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    EntityProperty,
    properties_of,
)
from shardbus.core.namespace.tier import DAY_MS, INFINITE_MS, Tier

STATUSES: Final = (
    ACTIVE_STATUS,
    DISABLED_STATUS,
    SEND_DISABLED_STATUS,
    RECEIVE_DISABLED_STATUS,
)
# Messages are only sent to a topic and only received from a subscription, so each has only one of
# the half-disabled statuses.
STATUSES_OF: Final[dict[str, tuple[str, ...]]] = {
    QUEUE: STATUSES,
    TOPIC: (ACTIVE_STATUS, DISABLED_STATUS, SEND_DISABLED_STATUS),
    SUBSCRIPTION: (ACTIVE_STATUS, DISABLED_STATUS, RECEIVE_DISABLED_STATUS),
}
USER_METADATA_CHARACTERS_MAX: Final = 1024
MESSAGE_KB_PREMIUM_MIN: Final = 1024


def validate(kind: str, spec: EntitySpec, tier: Tier) -> None:
    """Refuse a description that breaks a rule of the tier, or uses a feature that is missing
    here.
    """
    if tier.is_basic and kind != QUEUE:
        raise _invalid("A basic namespace has no topics.")
    for each in properties_of(kind):
        if each.high:
            _within(each, each.integer(spec))
    _validate_ttl(spec, tier)
    if kind != TOPIC:
        _validate_delivery(spec, tier)
    if kind != SUBSCRIPTION:
        _validate_duplicates(spec, tier)
        _validate_size(spec, tier)
        validate_access_rules(spec.access_rules)
    _validate_words(spec, STATUSES_OF[kind])
    _refuse_not_implemented(spec)


def changed(old: EntitySpec, new: EntitySpec, kind: str = QUEUE) -> None:
    """Refuse an update that changes a property which is fixed at creation (R6)."""
    for each in PROPERTIES:
        if each.is_fixed and each.value(old) != each.value(new):
            raise _invalid(
                f"The value for the {each.element} property of an existing {kind.capitalize()} "
                "cannot be changed."
            )


def fragment_size_mb(entity: Entity, asked_mb: int, tier: Tier) -> int:
    """The size of each fragment that an update means by MaxSizeInMegabytes.

    An entity shows its whole size (R9), and clients send back what they were shown, so the shown
    number means no change. Any other number is a size of the tier, or such a size times the number
    of fragments.
    """
    count = entity.fragment_count()
    if asked_mb == entity.size_mb_max():
        return entity.spec.size_mb
    if asked_mb not in tier.sizes_mb and asked_mb % count == 0:
        return asked_mb // count
    return asked_mb


def _validate_ttl(spec: EntitySpec, tier: Tier) -> None:
    if spec.default_ttl_ms > tier.ttl_ms_max:
        raise _invalid(
            f"DefaultMessageTimeToLive is more than {tier.ttl_ms_max // DAY_MS} days, the "
            f"maximum of a {tier.name} namespace."
        )


def _validate_delivery(spec: EntitySpec, tier: Tier) -> None:
    if tier.is_basic and spec.requires_session:
        raise _invalid("A basic namespace has neither sessions nor duplicate detection.")
    if tier.is_basic and (spec.forward_to or spec.forward_dead_letters_to):
        raise _invalid("A basic namespace does not forward messages.")


def _validate_duplicates(spec: EntitySpec, tier: Tier) -> None:
    if tier.is_basic and spec.requires_duplicate_detection:
        raise _invalid("A basic namespace has neither sessions nor duplicate detection.")
    if tier.is_premium and spec.is_express:
        raise _invalid("EnableExpress is not offered in a premium namespace.")
    if spec.is_express and spec.requires_duplicate_detection:
        raise _invalid(
            "EnableExpress and RequiresDuplicateDetection exclude each other: choose one of them."
        )


def _validate_size(spec: EntitySpec, tier: Tier) -> None:
    if spec.size_mb not in tier.sizes_mb:
        sizes = ", ".join(str(size) for size in tier.sizes_mb)
        raise _invalid(
            f"MaxSizeInMegabytes is {spec.size_mb}; a {tier.name} namespace offers {sizes}."
        )
    if tier.is_premium:
        low, high = MESSAGE_KB_PREMIUM_MIN, tier.message_kb_max
        if not low <= spec.message_kb_max <= high:
            # SDKs look for these words, quotation marks included.
            raise _invalid(
                f"The value for 'MaxMessageSizeInKilobytes' must be between {low} and {high}; "
                f"it is {spec.message_kb_max}."
            )
    elif spec.message_kb_max != tier.message_kb_default:
        raise _invalid(
            f"MaxMessageSizeInKilobytes can be set in a premium namespace only; "
            f"here it is {tier.message_kb_default}."
        )


def _validate_words(spec: EntitySpec, statuses: tuple[str, ...]) -> None:
    if spec.status not in statuses:
        raise _invalid(f"Status is '{spec.status}'; it must be one of {', '.join(statuses)}.")
    if len(spec.user_metadata) > USER_METADATA_CHARACTERS_MAX:
        raise _invalid(f"UserMetadata has more than {USER_METADATA_CHARACTERS_MAX} characters.")


def validate_access_rules(rules: list[AccessRule]) -> None:
    if len(rules) > RULES_MAX:
        raise _invalid(f"AuthorizationRules has more than {RULES_MAX} rules.")
    names: set[str] = set()
    for rule in rules:
        if not rule.name or len(rule.name) > KEY_NAME_CHARACTERS_MAX:
            raise _invalid(
                "The KeyName of an authorization rule must have 1 to "
                f"{KEY_NAME_CHARACTERS_MAX} characters."
            )
        if rule.name in names:
            raise _invalid(f"AuthorizationRules has more than one rule named '{rule.name}'.")
        names.add(rule.name)
        _validate_access_rule(rule)


def _validate_access_rule(rule: AccessRule) -> None:
    if not rule.rights:
        raise _invalid(
            f"Authorization rule '{rule.name}' has no rights: give it Manage, Send or Listen."
        )
    if not rule.primary_key:
        raise _invalid(f"Authorization rule '{rule.name}' has no PrimaryKey: give it one.")
    if len(rule.primary_key) > KEY_CHARACTERS_MAX or len(rule.secondary_key) > KEY_CHARACTERS_MAX:
        raise _invalid(
            f"A key of authorization rule '{rule.name}' has more than "
            f"{KEY_CHARACTERS_MAX} characters."
        )


def _refuse_not_implemented(spec: EntitySpec) -> None:
    asked_for = [
        (spec.is_anonymous_accessible, "IsAnonymousAccessible"),
    ]
    names = [name for is_asked_for, name in asked_for if is_asked_for]
    if names:
        raise Refused(
            NOT_IMPLEMENTED, f"This version of the bus does not support {', '.join(names)} yet."
        )


def _within(each: EntityProperty, value: int) -> None:
    if each.low <= value <= each.high:
        return
    unit = " ms" if each.form == DURATION else ""
    if each.high == INFINITE_MS:
        raise _invalid(f"{each.element} is {value}{unit}; it must be at least {each.low}{unit}.")
    raise _invalid(
        f"{each.element} is {value}{unit}; it must be from {each.low} to {each.high}{unit}."
    )


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
