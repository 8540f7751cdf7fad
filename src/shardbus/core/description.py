"""The rules a description must keep: ranges, combinations, what an update may change."""

from __future__ import annotations

from typing import Final

from shardbus.core.access import KEY_CHARACTERS_MAX, KEY_NAME_CHARACTERS_MAX, RULES_MAX, AccessRule
from shardbus.core.entity import (
    ACTIVE_STATUS,
    DISABLED_STATUS,
    QUEUE,
    RECEIVE_DISABLED_STATUS,
    SEND_DISABLED_STATUS,
    SUBSCRIPTION,
    TOPIC,
    Entity,
    QueueSpec,
)
from shardbus.core.errors import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refused
from shardbus.core.limits import LOCK_MS_MAX, LOCK_MS_MIN
from shardbus.core.tier import DAY_MS, INFINITE_MS, Tier

STATUSES: Final = (
    ACTIVE_STATUS,
    DISABLED_STATUS,
    SEND_DISABLED_STATUS,
    RECEIVE_DISABLED_STATUS,
)
# Of the half-disabled ones a topic, which is only sent to, and a subscription, which is only
# received from, have one each.
TOPIC_STATUSES: Final = (ACTIVE_STATUS, DISABLED_STATUS, SEND_DISABLED_STATUS)
SUBSCRIPTION_STATUSES: Final = (ACTIVE_STATUS, DISABLED_STATUS, RECEIVE_DISABLED_STATUS)
DELIVERY_COUNT_MAX: Final = 2000
TTL_MS_MIN: Final = 1000
DUPLICATE_WINDOW_MS_MIN: Final = 20_000
DUPLICATE_WINDOW_MS_MAX: Final = 7 * DAY_MS
AUTO_DELETE_IDLE_MS_MIN: Final = 300_000
USER_METADATA_CHARACTERS_MAX: Final = 1024
MESSAGE_KB_PREMIUM_MIN: Final = 1024


def validate(spec: QueueSpec, tier: Tier) -> None:
    """Refuse a queue that breaks a rule of the tier, or asks for what is not there yet."""
    _validate_times(spec, tier)
    _validate_delivery(spec, tier)
    _validate_duplicates(spec, tier)
    _validate_size(spec, tier)
    _validate_words(spec, STATUSES)
    validate_access_rules(spec.access_rules)
    _refuse_not_implemented(spec)


def validate_topic(spec: QueueSpec, tier: Tier) -> None:
    """Refuse a topic that breaks a rule of the tier, or asks for what is not there yet."""
    _refuse_basic(tier)
    _validate_times(spec, tier)
    _validate_duplicates(spec, tier)
    _validate_size(spec, tier)
    _validate_words(spec, TOPIC_STATUSES)
    validate_access_rules(spec.access_rules)
    _refuse_not_implemented(spec)


def validate_subscription(spec: QueueSpec, tier: Tier) -> None:
    """Refuse a subscription that breaks a rule of the tier, or asks for what is not there yet."""
    _refuse_basic(tier)
    _validate_times(spec, tier)
    _validate_delivery(spec, tier)
    _validate_words(spec, SUBSCRIPTION_STATUSES)
    _refuse_not_implemented(spec)


def validate_kind(kind: str, spec: QueueSpec, tier: Tier) -> None:
    """Refuse what `validate`, `validate_topic` or `validate_subscription` does."""
    if kind == TOPIC:
        validate_topic(spec, tier)
    elif kind == SUBSCRIPTION:
        validate_subscription(spec, tier)
    else:
        validate(spec, tier)


def changed(old: QueueSpec, new: QueueSpec, kind: str = QUEUE) -> None:
    """Refuse an update that changes what is fixed at creation (R6)."""
    if old.is_partitioned != new.is_partitioned:
        raise _immutable("EnablePartitioning", kind)
    if old.requires_session != new.requires_session:
        raise _immutable("RequiresSession", kind)
    if old.requires_duplicate_detection != new.requires_duplicate_detection:
        raise _immutable("RequiresDuplicateDetection", kind)
    if old.is_subscription_partitioned != new.is_subscription_partitioned:
        raise _immutable("EnableSubscriptionPartitioning", kind)


def fragment_size_mb(entity: Entity, asked_mb: int, tier: Tier) -> int:
    """The size of each fragment that an update means by MaxSizeInMegabytes.

    An entity shows its whole size (R9) and clients send back what they were shown, so the shown
    number means no change. Otherwise it is a size of the tier, or such a size times fragments.
    """
    count = len(entity.fragments)
    if asked_mb == entity.size_mb_max():
        return entity.spec.size_mb
    if asked_mb not in tier.sizes_mb and asked_mb % count == 0:
        return asked_mb // count
    return asked_mb


def _validate_times(spec: QueueSpec, tier: Tier) -> None:
    _within("DefaultMessageTimeToLive", spec.default_ttl_ms, TTL_MS_MIN, INFINITE_MS)
    _within("AutoDeleteOnIdle", spec.auto_delete_idle_ms, AUTO_DELETE_IDLE_MS_MIN, INFINITE_MS)
    if spec.default_ttl_ms > tier.ttl_ms_max:
        raise _invalid(
            f"DefaultMessageTimeToLive is more than the {tier.ttl_ms_max // DAY_MS} days "
            f"that a {tier.name} namespace offers."
        )


def _validate_delivery(spec: QueueSpec, tier: Tier) -> None:
    _within("LockDuration", spec.lock_ms, LOCK_MS_MIN, LOCK_MS_MAX)
    _within("MaxDeliveryCount", spec.delivery_count_max, 1, DELIVERY_COUNT_MAX)
    if tier.is_basic and spec.requires_session:
        raise _invalid("A basic namespace has neither sessions nor duplicate detection.")
    if tier.is_basic and (spec.forward_to or spec.forward_dead_letters_to):
        raise _invalid("A basic namespace does not forward messages.")


def _validate_duplicates(spec: QueueSpec, tier: Tier) -> None:
    _within(
        "DuplicateDetectionHistoryTimeWindow",
        spec.duplicate_window_ms,
        DUPLICATE_WINDOW_MS_MIN,
        DUPLICATE_WINDOW_MS_MAX,
    )
    if tier.is_basic and spec.requires_duplicate_detection:
        raise _invalid("A basic namespace has neither sessions nor duplicate detection.")
    if tier.is_premium and spec.is_express:
        raise _invalid("EnableExpress is not offered in a premium namespace.")
    if spec.is_express and spec.requires_duplicate_detection:
        raise _invalid("EnableExpress and RequiresDuplicateDetection exclude each other.")


def _validate_size(spec: QueueSpec, tier: Tier) -> None:
    if spec.size_mb not in tier.sizes_mb:
        sizes = ", ".join(str(size) for size in tier.sizes_mb)
        raise _invalid(
            f"MaxSizeInMegabytes is {spec.size_mb}; a {tier.name} namespace offers {sizes}."
        )
    if tier.is_premium:
        low, high = MESSAGE_KB_PREMIUM_MIN, tier.message_kb_max
        if not low <= spec.message_kb_max <= high:
            # The words that clients look for, quotation marks included.
            raise _invalid(
                f"The value for 'MaxMessageSizeInKilobytes' must be between {low} and {high}; "
                f"it is {spec.message_kb_max}."
            )
    elif spec.message_kb_max != tier.message_kb_default:
        raise _invalid(
            f"MaxMessageSizeInKilobytes can be set in a premium namespace only; "
            f"here it is {tier.message_kb_default}."
        )


def _validate_words(spec: QueueSpec, statuses: tuple[str, ...]) -> None:
    if spec.status not in statuses:
        raise _invalid(f"Status is '{spec.status}'; it can be set to {', '.join(statuses)}.")
    if len(spec.user_metadata) > USER_METADATA_CHARACTERS_MAX:
        raise _invalid(f"UserMetadata has more than {USER_METADATA_CHARACTERS_MAX} characters.")


def _refuse_basic(tier: Tier) -> None:
    if tier.is_basic:
        raise _invalid("A basic namespace has no topics.")


def validate_access_rules(rules: list[AccessRule]) -> None:
    if len(rules) > RULES_MAX:
        raise _invalid(f"AuthorizationRules has more than {RULES_MAX} rules.")
    names: set[str] = set()
    for rule in rules:
        if not rule.name or len(rule.name) > KEY_NAME_CHARACTERS_MAX:
            raise _invalid(
                f"An authorization rule's KeyName has 1 to {KEY_NAME_CHARACTERS_MAX} characters."
            )
        if rule.name in names:
            raise _invalid(f"AuthorizationRules has more than one rule named '{rule.name}'.")
        names.add(rule.name)
        _validate_access_rule(rule)


def _validate_access_rule(rule: AccessRule) -> None:
    if not rule.rights:
        raise _invalid(f"Authorization rule '{rule.name}' gives no right.")
    if not rule.primary_key:
        raise _invalid(f"Authorization rule '{rule.name}' has no PrimaryKey.")
    if len(rule.primary_key) > KEY_CHARACTERS_MAX or len(rule.secondary_key) > KEY_CHARACTERS_MAX:
        raise _invalid(
            f"A key of authorization rule '{rule.name}' has more than "
            f"{KEY_CHARACTERS_MAX} characters."
        )


def _refuse_not_implemented(spec: QueueSpec) -> None:
    asked_for = [
        (spec.is_anonymous_accessible, "IsAnonymousAccessible"),
    ]
    names = [name for is_asked_for, name in asked_for if is_asked_for]
    if names:
        raise Refused(
            NOT_IMPLEMENTED, f"This version of the bus does not offer {', '.join(names)} yet."
        )


def _within(name: str, value: int, low: int, high: int) -> None:
    if low <= value <= high:
        return
    unit = "" if name.startswith("Max") else " ms"
    if high == INFINITE_MS:
        raise _invalid(f"{name} is {value}{unit}; it must be at least {low}{unit}.")
    raise _invalid(f"{name} is {value}{unit}; it must be from {low} to {high}{unit}.")


def _immutable(name: str, kind: str) -> Refused:
    return _invalid(
        f"The value for the {name} property of an existing {kind.capitalize()} cannot be changed."
    )


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
