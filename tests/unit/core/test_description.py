"""What a queue's description may say, and what an update may change (R6, R7, R35)."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refused
from shardbus.core.namespace.access import LISTEN, AccessRule
from shardbus.core.namespace.description import changed, fragment_size_mb, validate
from shardbus.core.namespace.entity import Entity, EntitySpec, new_queue_spec, spread_fragments
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.property import QUEUE
from shardbus.core.namespace.tier import BASIC, DAY_MS, OLDER, PREMIUM, STANDARD, Tier, tier_named
from tests.support.refusals import refusal_of


def edited(tier: Tier, name: str, value: object) -> EntitySpec:
    spec = new_queue_spec(tier, is_partitioned=True)
    assert hasattr(spec, name)
    setattr(spec, name, value)
    return spec


@pytest.mark.parametrize("name", [BASIC, STANDARD, PREMIUM])
def test_the_defaults_of_every_tier_are_valid(name: str) -> None:
    tier = tier_named(name)

    validate(QUEUE, new_queue_spec(tier, is_partitioned=True), tier)


REFUSED = [
    (STANDARD, "lock_ms", 4999, "LockDuration"),
    (STANDARD, "lock_ms", 300_001, "LockDuration"),
    (STANDARD, "size_mb", 1000, "MaxSizeInMegabytes"),
    (STANDARD, "size_mb", 10240, "MaxSizeInMegabytes"),
    (PREMIUM, "size_mb", 6144, "MaxSizeInMegabytes"),
    (STANDARD, "delivery_count_max", 0, "MaxDeliveryCount"),
    (STANDARD, "delivery_count_max", 2001, "MaxDeliveryCount"),
    (STANDARD, "default_ttl_ms", 999, "DefaultMessageTimeToLive"),
    (BASIC, "default_ttl_ms", 15 * DAY_MS, "DefaultMessageTimeToLive"),
    (STANDARD, "duplicate_window_ms", 19_999, "DuplicateDetectionHistoryTimeWindow"),
    (STANDARD, "duplicate_window_ms", 7 * DAY_MS + 1, "DuplicateDetectionHistoryTimeWindow"),
    (STANDARD, "auto_delete_idle_ms", 299_999, "AutoDeleteOnIdle"),
    (STANDARD, "message_kb_max", 1024, "MaxMessageSizeInKilobytes"),
    (PREMIUM, "message_kb_max", 102_401, "MaxMessageSizeInKilobytes"),
    (STANDARD, "status", "Renaming", "Status"),
    (STANDARD, "user_metadata", "x" * 1025, "UserMetadata"),
    (PREMIUM, "is_express", True, "EnableExpress"),
    (BASIC, "requires_session", True, "neither sessions nor duplicate detection"),
    (BASIC, "requires_duplicate_detection", True, "neither sessions nor duplicate detection"),
    (BASIC, "forward_to", "next", "does not forward"),
]


@pytest.mark.parametrize(("tier_name", "name", "value", "reason"), REFUSED)
def test_a_value_outside_its_range_is_refused_by_name(
    tier_name: str, name: str, value: object, reason: str
) -> None:
    """R7, R35."""
    tier = tier_named(tier_name)

    with pytest.raises(Refused) as refusal:
        validate(QUEUE, edited(tier, name, value), tier)

    assert refusal.value.kind is INVALID_ARGUMENT
    assert reason in refusal.value.message


ALLOWED = [
    (STANDARD, "lock_ms", 5000),
    (STANDARD, "lock_ms", 300_000),
    (STANDARD, "size_mb", 5120),
    (PREMIUM, "size_mb", 81920),
    (PREMIUM, "message_kb_max", 102_400),
    (STANDARD, "delivery_count_max", 1),
    (STANDARD, "default_ttl_ms", 1000),
    (BASIC, "default_ttl_ms", 14 * DAY_MS),
    (STANDARD, "is_express", True),
    (STANDARD, "user_metadata", "x" * 1024),
    (STANDARD, "requires_session", True),
    (STANDARD, "requires_duplicate_detection", True),
    (STANDARD, "duplicate_window_ms", 20_000),
    (STANDARD, "duplicate_window_ms", 7 * DAY_MS),
    (STANDARD, "auto_delete_idle_ms", 300_000),
]


@pytest.mark.parametrize(("tier_name", "name", "value"), ALLOWED)
def test_the_ends_of_a_range_are_allowed(tier_name: str, name: str, value: object) -> None:
    tier = tier_named(tier_name)

    validate(QUEUE, edited(tier, name, value), tier)


LATER = [
    ("is_anonymous_accessible", True, "IsAnonymousAccessible"),
]


@pytest.mark.parametrize(("name", "value", "property_name"), LATER)
def test_what_the_bus_cannot_honour_yet_is_refused_and_not_ignored(
    name: str, value: object, property_name: str
) -> None:
    tier = tier_named(STANDARD)

    with pytest.raises(Refused) as refusal:
        validate(QUEUE, edited(tier, name, value), tier)

    assert refusal.value.kind is NOT_IMPLEMENTED
    assert property_name in refusal.value.message


RULES = [
    ([AccessRule(f"r{number}", LISTEN, "key") for number in range(13)], "12"),
    ([AccessRule("", LISTEN, "key")], "KeyName"),
    ([AccessRule("a", LISTEN, "key"), AccessRule("a", LISTEN, "key")], "'a'"),
    ([AccessRule("a", 0, "key")], "'a'"),
    ([AccessRule("a", LISTEN, "")], "PrimaryKey"),
    ([AccessRule("a", LISTEN, "x" * 257)], "256"),
]


@pytest.mark.parametrize(("rules", "named"), RULES)
def test_access_rules_are_checked(rules: list[AccessRule], named: str) -> None:
    tier = tier_named(STANDARD)

    with refusal_of(INVALID_ARGUMENT, named):
        validate(QUEUE, edited(tier, "access_rules", rules), tier)


@pytest.mark.parametrize(
    ("name", "property_name"),
    [
        ("is_partitioned", "EnablePartitioning"),
        ("requires_session", "RequiresSession"),
        ("requires_duplicate_detection", "RequiresDuplicateDetection"),
    ],
)
def test_what_is_fixed_at_creation_cannot_be_changed(name: str, property_name: str) -> None:
    """R6."""
    new = EntitySpec()
    setattr(new, name, True)

    with pytest.raises(Refused) as refusal:
        changed(EntitySpec(), new)

    assert refusal.value.message == (
        f"The value for the {property_name} property of an existing Queue cannot be changed."
    )


def test_everything_else_can_be_changed() -> None:
    new = EntitySpec()
    new.lock_ms = 5000
    new.size_mb = 5120
    new.delivery_count_max = 1

    changed(EntitySpec(), new)


def partitioned(size_mb: int, fragments: int) -> Entity:
    spec = EntitySpec()
    spec.size_mb = size_mb
    entity = Entity(1, "q", spec, 0)
    entity.fragments = spread_fragments(1, fragments, 1)
    entity.hash_starts = even_hash_starts(fragments)
    return entity


@pytest.mark.parametrize(
    ("tier", "size_mb", "asked_mb", "meant_mb"),
    [
        (tier_named(STANDARD), 1024, 16384, 1024),
        (tier_named(STANDARD), 1024, 2048, 2048),
        (tier_named(STANDARD), 1024, 32768, 2048),
        (tier_named(PREMIUM, OLDER), 1024, 2048, 1024),
        (tier_named(PREMIUM, OLDER), 1024, 4096, 4096),
    ],
)
def test_an_update_may_send_back_the_size_it_was_shown(
    tier: Tier, size_mb: int, asked_mb: int, meant_mb: int
) -> None:
    """R9: the whole size is shown, and SDKs send whole descriptions back."""
    entity = partitioned(size_mb, tier.fragments_when_partitioned)

    assert fragment_size_mb(entity, asked_mb, tier) == meant_mb
