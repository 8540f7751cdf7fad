"""Entities: what a queue is told to be, and where its fragments live."""

from __future__ import annotations

import json
from typing import Final, final

from shardbus.core.access import AccessRule, rule_from_document
from shardbus.core.document import Fields
from shardbus.core.limits import STATE_BYTES_MAX
from shardbus.core.tier import INFINITE_MS, Tier

DOCUMENT_VERSION: Final = 1

QUEUE: Final = "queue"

ACTIVE_STATUS: Final = "Active"
DISABLED_STATUS: Final = "Disabled"
SEND_DISABLED_STATUS: Final = "SendDisabled"
RECEIVE_DISABLED_STATUS: Final = "ReceiveDisabled"

MEGABYTE: Final = 1024 * 1024

# Where messages may be this large, which is in Premium only, the state of a session may be too.
STATE_KB_PREMIUM: Final = 1024


@final
class QueueSpec:
    """Everything a queue can be told (reference 14), made with the defaults of Standard.

    Fill it in, then treat it as a value: an entity's spec is replaced, never changed.
    `size_mb` is the size of each fragment. `is_partitioned` is the creator's wish until
    `Tier.is_partitioned` has settled it.
    """

    def __init__(self) -> None:
        self.lock_ms = 60_000
        self.size_mb = 1024
        self.requires_duplicate_detection = False
        self.duplicate_window_ms = 600_000
        self.requires_session = False
        self.default_ttl_ms = INFINITE_MS
        self.dead_letters_on_expiration = False
        self.delivery_count_max = 10
        self.is_batched = True
        self.is_anonymous_accessible = False
        self.access_rules: list[AccessRule] = []
        self.status = ACTIVE_STATUS
        self.auto_delete_idle_ms = INFINITE_MS
        self.is_partitioned = False
        self.is_express = False
        self.forward_to = ""
        self.forward_dead_letters_to = ""
        self.user_metadata = ""
        self.message_kb_max = 256

    def copy(self) -> QueueSpec:
        return spec_from_document(self.to_document())

    def is_sendable(self) -> bool:
        return self.status in (ACTIVE_STATUS, RECEIVE_DISABLED_STATUS)

    def is_receivable(self) -> bool:
        return self.status in (ACTIVE_STATUS, SEND_DISABLED_STATUS)

    def message_bytes_max(self) -> int:
        return self.message_kb_max * 1024

    def fragment_bytes_max(self) -> int:
        return self.size_mb * MEGABYTE

    def state_bytes_max(self) -> int:
        """How large the state of a session may be (reference 17)."""
        is_premium = self.message_kb_max >= STATE_KB_PREMIUM
        return STATE_KB_PREMIUM * 1024 if is_premium else STATE_BYTES_MAX

    def to_document(self) -> dict[str, object]:
        return {
            "lock_ms": self.lock_ms,
            "size_mb": self.size_mb,
            "requires_duplicate_detection": self.requires_duplicate_detection,
            "duplicate_window_ms": self.duplicate_window_ms,
            "requires_session": self.requires_session,
            "default_ttl_ms": self.default_ttl_ms,
            "dead_letters_on_expiration": self.dead_letters_on_expiration,
            "delivery_count_max": self.delivery_count_max,
            "is_batched": self.is_batched,
            "is_anonymous_accessible": self.is_anonymous_accessible,
            "access_rules": [rule.to_document() for rule in self.access_rules],
            "status": self.status,
            "auto_delete_idle_ms": self.auto_delete_idle_ms,
            "is_partitioned": self.is_partitioned,
            "is_express": self.is_express,
            "forward_to": self.forward_to,
            "forward_dead_letters_to": self.forward_dead_letters_to,
            "user_metadata": self.user_metadata,
            "message_kb_max": self.message_kb_max,
        }


@final
class FragmentHome:
    """Which broker, by its index in the namespace, runs a fragment."""

    def __init__(self, number: int, broker_index: int) -> None:
        self.number = number
        self.broker_index = broker_index


@final
class Entity:
    """A queue of the namespace.

    `entity_id` is never used twice. Fragment `fragments[i]` owns the hashes from `hash_starts[i]`
    up to the next start (D5): the map is data so that repartitioning can split and merge.
    `accessed_at_ms` is 0 until somebody used the entity.
    """

    def __init__(self, entity_id: int, name: str, spec: QueueSpec, created_at_ms: int) -> None:
        self.entity_id = entity_id
        self.name = name
        self.kind = QUEUE
        self.spec = spec
        self.created_at_ms = created_at_ms
        self.updated_at_ms = created_at_ms
        self.accessed_at_ms = 0
        self.fragments: list[FragmentHome] = []
        self.hash_starts: list[int] = []

    def size_mb_max(self) -> int:
        """The maximum size of the whole entity: size times fragments (R7, R9)."""
        return self.spec.size_mb * len(self.fragments)

    def numbers_at(self, broker_index: int) -> list[int]:
        """The fragments that one broker runs, rising."""
        return [home.number for home in self.fragments if home.broker_index == broker_index]

    def updated(self, spec: QueueSpec, now_ms: int) -> Entity:
        """This entity with another spec; the rest of it is shared, not copied."""
        entity = Entity(self.entity_id, self.name, spec, self.created_at_ms)
        entity.updated_at_ms = now_ms
        entity.accessed_at_ms = self.accessed_at_ms
        entity.fragments = self.fragments
        entity.hash_starts = self.hash_starts
        return entity

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": DOCUMENT_VERSION,
                "entity_id": self.entity_id,
                "name": self.name,
                "kind": self.kind,
                "spec": self.spec.to_document(),
                "created_at_ms": self.created_at_ms,
                "updated_at_ms": self.updated_at_ms,
                "accessed_at_ms": self.accessed_at_ms,
                "fragments": [[home.number, home.broker_index] for home in self.fragments],
                "hash_starts": self.hash_starts,
            },
            separators=(",", ":"),
        )


def new_queue_spec(tier: Tier, *, is_partitioned: bool) -> QueueSpec:
    """The spec of a queue whose creator chose nothing (R5: `is_partitioned` is a setting)."""
    spec = QueueSpec()
    spec.is_partitioned = is_partitioned
    spec.message_kb_max = tier.message_kb_default
    spec.default_ttl_ms = tier.ttl_ms_max
    return spec


def spread_fragments(entity_id: int, count: int, brokers: int) -> list[FragmentHome]:
    """Fragments round robin over brokers, each entity starting at another one (R1)."""
    return [FragmentHome(number, (entity_id + number) % brokers) for number in range(count)]


def entity_from_json(text: str) -> Entity:
    """The entity that `to_json` wrote; ValueError when it is damaged or of another version."""
    value: object = json.loads(text)
    fields = Fields(value, "entity")
    version = fields.integer("version")
    if version != DOCUMENT_VERSION:
        raise ValueError(f"the entity has version {version}; this program reads {DOCUMENT_VERSION}")
    if fields.text("kind") != QUEUE:
        raise ValueError(f"the entity is a {fields.text('kind')}; this program knows queues")
    entity = Entity(
        fields.integer("entity_id"),
        fields.text("name"),
        spec_from_document(fields.value("spec")),
        fields.integer("created_at_ms"),
    )
    entity.updated_at_ms = fields.integer("updated_at_ms")
    entity.accessed_at_ms = fields.integer("accessed_at_ms")
    entity.hash_starts = fields.integers("hash_starts")
    entity.fragments = [_home_from_document(home) for home in fields.values("fragments")]
    if not entity.fragments or len(entity.hash_starts) != len(entity.fragments):
        raise ValueError("the entity's fragment map and its fragments do not match")
    return entity


def spec_from_document(value: object) -> QueueSpec:
    """The spec that `to_document` described; ValueError when it is none."""
    fields = Fields(value, "queue description")
    spec = QueueSpec()
    spec.lock_ms = fields.integer("lock_ms")
    spec.size_mb = fields.integer("size_mb")
    spec.requires_duplicate_detection = fields.boolean("requires_duplicate_detection")
    spec.duplicate_window_ms = fields.integer("duplicate_window_ms")
    spec.requires_session = fields.boolean("requires_session")
    spec.default_ttl_ms = fields.integer("default_ttl_ms")
    spec.dead_letters_on_expiration = fields.boolean("dead_letters_on_expiration")
    spec.delivery_count_max = fields.integer("delivery_count_max")
    spec.is_batched = fields.boolean("is_batched")
    spec.is_anonymous_accessible = fields.boolean("is_anonymous_accessible")
    spec.access_rules = [rule_from_document(rule) for rule in fields.values("access_rules")]
    spec.status = fields.text("status")
    spec.auto_delete_idle_ms = fields.integer("auto_delete_idle_ms")
    spec.is_partitioned = fields.boolean("is_partitioned")
    spec.is_express = fields.boolean("is_express")
    spec.forward_to = fields.text("forward_to")
    spec.forward_dead_letters_to = fields.text("forward_dead_letters_to")
    spec.user_metadata = fields.text("user_metadata")
    spec.message_kb_max = fields.integer("message_kb_max")
    return spec


def _home_from_document(value: object) -> FragmentHome:
    if isinstance(value, list) and len(value) == 2:
        number: object = value[0]
        broker_index: object = value[1]
        if isinstance(number, int) and isinstance(broker_index, int):
            return FragmentHome(number, broker_index)
    raise ValueError("a fragment of the entity is not a pair of integers")
