"""Entities as data: the JSON round trip, where fragments live, what a status allows."""

import json

import pytest

from shardbus.core.namespace.access import ALL_RIGHTS, LISTEN, MANAGE, SEND, AccessRule, right_named
from shardbus.core.namespace.entity import (
    ACTIVE_STATUS,
    DISABLED_STATUS,
    RECEIVE_DISABLED_STATUS,
    SEND_DISABLED_STATUS,
    Entity,
    EntitySpec,
    entity_from_json,
    new_queue_spec,
    spread_fragments,
)
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.tier import BASIC, DAY_MS, PREMIUM, tier_named


def unusual_spec() -> EntitySpec:
    """Every field differs from its default, so that a forgotten one shows."""
    spec = EntitySpec()
    spec.lock_ms = 30_000
    spec.size_mb = 5120
    spec.requires_duplicate_detection = True
    spec.duplicate_window_ms = 30_000
    spec.requires_session = True
    spec.default_ttl_ms = 5000
    spec.dead_letters_on_expiration = True
    spec.delivery_count_max = 3
    spec.is_batched = False
    spec.is_anonymous_accessible = True
    spec.access_rules = [AccessRule("listen", LISTEN, "one", "two")]
    spec.status = DISABLED_STATUS
    spec.auto_delete_idle_ms = 300_000
    spec.is_partitioned = True
    spec.is_express = True
    spec.forward_to = "next"
    spec.forward_dead_letters_to = "graveyard"
    spec.user_metadata = "größe"
    spec.message_kb_max = 2048
    spec.dead_letters_on_filter_errors = False
    spec.supports_ordering = False
    spec.is_subscription_partitioned = True
    spec.filters_before_publishing = True
    spec.lifecycle = True
    spec.forward_to_written = "sb://host/next"
    spec.forward_dead_letters_to_written = "sb://host/graveyard"
    return spec


def entity(spec: EntitySpec, fragments: int = 16) -> Entity:
    made = Entity(7, "Eu/Orders", spec, 1000)
    made.fragments = spread_fragments(7, fragments, 4)
    made.hash_starts = even_hash_starts(fragments)
    return made


def test_every_field_of_an_entity_survives_json() -> None:
    original = entity(unusual_spec())
    original.updated_at_ms = 2000
    original.accessed_at_ms = 3000
    default = EntitySpec().to_document()

    read = entity_from_json(original.to_json())

    assert read.to_json() == original.to_json()
    assert all(value != default[name] for name, value in read.spec.to_document().items())


def test_a_copied_spec_can_be_changed_without_the_original() -> None:
    original = unusual_spec()

    copy = original.copy()
    copy.lock_ms = 5000
    copy.access_rules[0].name = "other"

    assert original.lock_ms == 30_000
    assert original.access_rules[0].name == "listen"


DAMAGE = [
    ("version", 2),
    ("kind", "topic"),
    ("name", 3),
    ("entity_id", "7"),
    ("entity_id", True),
    ("spec", None),
    ("fragments", [[0]]),
    ("fragments", []),
    ("fragments", [["0", 1]] * 16),
    ("hash_starts", [0]),
    ("hash_starts", ["0"] * 16),
]


@pytest.mark.parametrize(("name", "value"), DAMAGE)
def test_a_damaged_or_later_document_is_noticed(name: str, value: object) -> None:
    document: dict[str, object] = json.loads(entity(EntitySpec()).to_json())
    document[name] = value

    with pytest.raises(ValueError, match=r"entity|description"):
        entity_from_json(json.dumps(document))


def test_a_document_without_a_field_is_noticed_by_name() -> None:
    document: dict[str, object] = json.loads(entity(EntitySpec()).to_json())
    del document["name"]

    with pytest.raises(ValueError, match="'name'"):
        entity_from_json(json.dumps(document))


def test_fragments_are_spread_evenly_over_the_brokers() -> None:
    """R1."""
    homes = spread_fragments(7, 16, 4)

    assert [home.number for home in homes] == list(range(16))
    for broker_index in range(4):
        assert len([home for home in homes if home.broker_index == broker_index]) == 4


def test_conventional_queues_start_at_different_brokers() -> None:
    """R1: one broker and one store each, not always the same."""
    assert {spread_fragments(number, 1, 4)[0].broker_index for number in range(4)} == {0, 1, 2, 3}


def test_the_maximum_size_is_size_times_fragments() -> None:
    """R7, R9: 5 GB gives 80 GB."""
    assert entity(unusual_spec(), 16).size_mb_max() == 80 * 1024


def test_a_broker_is_told_its_own_fragments_only() -> None:
    made = entity(EntitySpec(), 16)

    numbers = [made.numbers_at(broker_index) for broker_index in range(4)]

    assert sorted(number for part in numbers for number in part) == list(range(16))
    assert numbers[3] == [0, 4, 8, 12]


@pytest.mark.parametrize(
    ("status", "is_sendable", "is_receivable"),
    [
        (ACTIVE_STATUS, True, True),
        (DISABLED_STATUS, False, False),
        (SEND_DISABLED_STATUS, False, True),
        (RECEIVE_DISABLED_STATUS, True, False),
    ],
)
def test_the_status_says_who_may_use_a_queue(
    status: str, is_sendable: bool, is_receivable: bool
) -> None:
    spec = EntitySpec()
    spec.status = status

    assert (spec.is_sendable(), spec.is_receivable()) == (is_sendable, is_receivable)


def test_defaults_follow_the_tier() -> None:
    assert new_queue_spec(tier_named(BASIC), is_partitioned=True).default_ttl_ms == 14 * DAY_MS
    assert new_queue_spec(tier_named(PREMIUM), is_partitioned=False).message_kb_max == 1024


def test_manage_implies_listen_and_send() -> None:
    """R34."""
    assert AccessRule("root", MANAGE, "key").rights == ALL_RIGHTS
    assert AccessRule("send", SEND, "key").rights == SEND


def test_an_unknown_right_is_noticed() -> None:
    with pytest.raises(ValueError, match="'Owner'"):
        right_named("Owner")
