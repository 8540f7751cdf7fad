"""Topics and subscriptions as data: documents, names, and what their descriptions may say."""

import json

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refused
from shardbus.core.namespace.address import validate_rule_name, validate_subscription_name
from shardbus.core.namespace.description import (
    changed,
    validate,
)
from shardbus.core.namespace.entity import (
    DISABLED_STATUS,
    RECEIVE_DISABLED_STATUS,
    SEND_DISABLED_STATUS,
    Entity,
    EntitySpec,
    FragmentHome,
    entity_from_json,
    new_queue_spec,
    new_subscription,
    spread_fragments,
)
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.property import PROPERTIES, SUBSCRIPTION, TOPIC
from shardbus.core.namespace.rule_spec import default_rule
from shardbus.core.namespace.tier import BASIC, PREMIUM, STANDARD, tier_named
from tests.support.entities import new_topic
from tests.support.refusals import refusal_of


def a_topic() -> Entity:
    topic = new_topic(7, "Eu/News", EntitySpec(), 1000)
    topic.fragments = spread_fragments(7, 16, 4)
    topic.hash_starts = even_hash_starts(16)
    return topic


def a_subscription() -> Entity:
    spec = EntitySpec()
    spec.dead_letters_on_filter_errors = False
    spec.supports_ordering = False
    spec.is_subscription_partitioned = True
    spec.filters_before_publishing = True
    made = new_subscription(8, a_topic(), "Sport", spec, 2000)
    made.rules = [default_rule(2000)]
    return made


@pytest.mark.parametrize("entity", [a_topic(), a_subscription()])
def test_every_field_survives_json(entity: Entity) -> None:
    assert entity_from_json(entity.to_json()).to_json() == entity.to_json()


def test_what_only_topics_and_subscriptions_have_is_in_their_documents() -> None:
    read = entity_from_json(a_subscription().to_json())

    assert read.kind == SUBSCRIPTION
    assert read.topic_id == 7
    assert [rule.name for rule in read.rules] == ["$Default"]
    assert not read.spec.dead_letters_on_filter_errors
    assert not read.spec.supports_ordering
    assert read.spec.is_subscription_partitioned
    assert read.spec.filters_before_publishing


def test_the_document_of_a_queue_from_before_there_were_topics_is_read() -> None:
    queue = Entity(7, "q", EntitySpec(), 1)
    queue.fragments, queue.hash_starts = [FragmentHome(0, 0)], [0]
    document: dict[str, object] = json.loads(queue.to_json())
    spec = document["spec"]
    assert isinstance(spec, dict)
    for each in PROPERTIES:
        if each.is_late:
            del spec[each.name]

    read = entity_from_json(json.dumps(document))

    assert document["version"] == 1
    assert read.to_json() == queue.to_json()


def test_a_copied_spec_keeps_what_topics_have() -> None:
    copy = a_subscription().spec.copy()

    assert not copy.dead_letters_on_filter_errors
    assert copy.is_subscription_partitioned


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        (a_topic(), "version", 1),
        (a_topic(), "kind", "subscription"),
        (a_topic(), "topic_id", "7"),
        (a_topic(), "rules", None),
        (a_subscription(), "kind", "topic"),
        (a_subscription(), "topic_id", 0),
        (a_subscription(), "name", "Sport"),
        (a_subscription(), "rules", [{"name": "r"}]),
    ],
)
def test_a_damaged_document_is_noticed(entity: Entity, name: str, value: object) -> None:
    document: dict[str, object] = json.loads(entity.to_json())
    document[name] = value

    with pytest.raises(ValueError, match=r"entity|topic|subscription|rule"):
        entity_from_json(json.dumps(document))


def test_a_changed_entity_keeps_its_kind_its_topic_and_its_rules() -> None:
    original = a_subscription()

    updated = original.updated(EntitySpec(), 3000)
    ruled = updated.with_rules([], 4000)

    assert (updated.kind, updated.topic_id, updated.rules) == (SUBSCRIPTION, 7, original.rules)
    assert (ruled.spec, ruled.rules, ruled.updated_at_ms) == (updated.spec, [], 4000)


def test_a_change_is_newer_although_the_clock_was_set_back() -> None:
    """Brokers go by it when gateways tell them one after the other."""
    original = a_subscription()
    newer = original.updated(EntitySpec(), 9_000_000)

    newest = newer.with_rules([], 5_000)

    assert newest.updated_at_ms > newer.updated_at_ms
    assert newest.without_rules().updated_at_ms == newest.updated_at_ms


def test_a_rule_is_found_in_any_case() -> None:
    subscription = a_subscription()

    assert subscription.rule("$DEFAULT") is subscription.rules[0]
    assert subscription.rule("other") is None


@pytest.mark.parametrize("tier_name", [STANDARD, PREMIUM])
@pytest.mark.parametrize("kind", [TOPIC, SUBSCRIPTION])
def test_the_defaults_are_valid(tier_name: str, kind: str) -> None:
    tier = tier_named(tier_name)

    validate(kind, new_queue_spec(tier, is_partitioned=True), tier)


REFUSED = [
    (TOPIC, "size_mb", 1000, "MaxSizeInMegabytes"),
    (TOPIC, "duplicate_window_ms", 19_999, "DuplicateDetectionHistoryTimeWindow"),
    (TOPIC, "default_ttl_ms", 999, "DefaultMessageTimeToLive"),
    (TOPIC, "auto_delete_idle_ms", 299_999, "AutoDeleteOnIdle"),
    (TOPIC, "message_kb_max", 1024, "MaxMessageSizeInKilobytes"),
    (TOPIC, "status", RECEIVE_DISABLED_STATUS, "Status"),
    (SUBSCRIPTION, "lock_ms", 4999, "LockDuration"),
    (SUBSCRIPTION, "delivery_count_max", 0, "MaxDeliveryCount"),
    (SUBSCRIPTION, "default_ttl_ms", 999, "DefaultMessageTimeToLive"),
    (SUBSCRIPTION, "auto_delete_idle_ms", 299_999, "AutoDeleteOnIdle"),
    (SUBSCRIPTION, "status", SEND_DISABLED_STATUS, "Status"),
    (SUBSCRIPTION, "user_metadata", "x" * 1025, "UserMetadata"),
]


@pytest.mark.parametrize(("kind", "name", "value", "reason"), REFUSED)
def test_a_value_outside_its_range_is_refused_by_name(
    kind: str, name: str, value: object, reason: str
) -> None:
    """R7, R35."""
    tier = tier_named(STANDARD)
    spec = new_queue_spec(tier, is_partitioned=True)
    setattr(spec, name, value)

    with pytest.raises(Refused) as refusal:
        validate(kind, spec, tier)

    assert refusal.value.kind is INVALID_ARGUMENT
    assert reason in refusal.value.message


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (TOPIC, "lock_ms", 1),
        (TOPIC, "status", SEND_DISABLED_STATUS),
        (SUBSCRIPTION, "size_mb", 1),
        (SUBSCRIPTION, "status", RECEIVE_DISABLED_STATUS),
        (SUBSCRIPTION, "status", DISABLED_STATUS),
    ],
)
def test_what_an_entity_does_not_heed_or_may_be_is_not_refused(
    kind: str, name: str, value: object
) -> None:
    tier = tier_named(STANDARD)
    spec = new_queue_spec(tier, is_partitioned=True)
    setattr(spec, name, value)

    validate(kind, spec, tier)


def test_a_basic_namespace_has_neither_topics_nor_subscriptions() -> None:
    tier = tier_named(BASIC)
    spec = new_queue_spec(tier, is_partitioned=True)

    with refusal_of(INVALID_ARGUMENT):
        validate(TOPIC, spec, tier)
    with refusal_of(INVALID_ARGUMENT):
        validate(SUBSCRIPTION, spec, tier)


def test_what_is_not_there_yet_is_said_to_be_missing() -> None:
    tier = tier_named(STANDARD)
    spec = new_queue_spec(tier, is_partitioned=True)
    spec.is_anonymous_accessible = True

    with pytest.raises(Refused) as refusal:
        validate(TOPIC, spec, tier)

    assert refusal.value.kind is NOT_IMPLEMENTED


@pytest.mark.parametrize(
    ("kind", "name", "element"),
    [
        (TOPIC, "requires_duplicate_detection", "RequiresDuplicateDetection"),
        (TOPIC, "is_partitioned", "EnablePartitioning"),
        (TOPIC, "is_subscription_partitioned", "EnableSubscriptionPartitioning"),
        (SUBSCRIPTION, "requires_session", "RequiresSession"),
    ],
)
def test_what_is_fixed_at_creation_is_refused_in_the_words_of_its_kind(
    kind: str, name: str, element: str
) -> None:
    """R6."""
    new = EntitySpec()
    setattr(new, name, True)

    with pytest.raises(Refused) as refusal:
        changed(EntitySpec(), new, kind)

    assert refusal.value.message == (
        f"The value for the {element} property of an existing {kind.capitalize()} "
        "cannot be changed."
    )


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 50])
def test_a_subscription_may_be_called_so(name: str) -> None:
    validate_subscription_name(name)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 51, ".", "..", "a b", "subscriptions", "ä"])
def test_a_subscription_may_not_be_called_so(name: str) -> None:
    with pytest.raises(Refused) as refusal:
        validate_subscription_name(name)

    assert refusal.value.kind is INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["$Default", "a b", "größer als", "x" * 50])
def test_a_rule_may_be_called_so(name: str) -> None:
    validate_rule_name(name)


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "a?b", "a#b", "x" * 51, ".", "..", "a\nb"])
def test_a_rule_may_not_be_called_so(name: str) -> None:
    with pytest.raises(Refused) as refusal:
        validate_rule_name(name)

    assert refusal.value.kind is INVALID_ARGUMENT
