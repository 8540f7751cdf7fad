"""Entities: the description of a queue, topic or subscription, and where its fragments live."""

from __future__ import annotations

import json
from typing import Final, final

from shardbus.core.document import Fields
from shardbus.core.limits import STATE_BYTES_MAX
from shardbus.core.namespace.access import AccessRule, rule_from_document
from shardbus.core.namespace.property import (
    DURATION,
    FLAG,
    MEGABYTES,
    NUMBER,
    PROPERTIES,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    EntityProperty,
)
from shardbus.core.namespace.rule_spec import RuleSpec, rule_spec_from_document
from shardbus.core.namespace.tier import INFINITE_MS, Tier

DOCUMENT_VERSION: Final = 1
# For topics and subscriptions: programs that know only queues must not misread them.
TOPIC_DOCUMENT_VERSION: Final = 2

SUBSCRIPTIONS_SEGMENT: Final = "/Subscriptions/"

ACTIVE_STATUS: Final = "Active"
DISABLED_STATUS: Final = "Disabled"
SEND_DISABLED_STATUS: Final = "SendDisabled"
RECEIVE_DISABLED_STATUS: Final = "ReceiveDisabled"

MEGABYTE: Final = 1024 * 1024

# In Premium, where messages may be this large, a session state may be as large.
STATE_KB_PREMIUM: Final = 1024


@final
class QueueSpec:
    """The whole description of an entity, made with the defaults of Standard.

    Fill it in, then treat it as a value: an entity's spec is replaced, never changed. The table
    `property.PROPERTIES` describes each property and says which kinds of entities use it; a
    subscription has its size, partitioning and message size from its topic. `size_mb` is the size
    of each fragment. `is_partitioned` is the creator's wish until `Tier.is_partitioned` has
    decided. `forward_to` is a path, and `forward_to_written` the URI that named it, if it was a
    URI; the same holds for dead letters.
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
        self.forward_to_written = ""
        self.forward_dead_letters_to_written = ""
        self.user_metadata = ""
        self.message_kb_max = 256
        self.dead_letters_on_filter_errors = True
        self.supports_ordering = True
        self.is_subscription_partitioned = False
        self.filters_before_publishing = False

    def copy(self) -> QueueSpec:
        return spec_from_document(self.to_document())

    def forwards(self) -> bool:
        """Whether messages are forwarded. Entities with sessions forward only their dead
        letters.
        """
        return bool(self.forward_to) and not self.requires_session

    def is_sendable(self) -> bool:
        return self.status in (ACTIVE_STATUS, RECEIVE_DISABLED_STATUS)

    def is_receivable(self) -> bool:
        return self.status in (ACTIVE_STATUS, SEND_DISABLED_STATUS)

    def message_bytes_max(self) -> int:
        return self.message_kb_max * 1024

    def fragment_bytes_max(self) -> int:
        return self.size_mb * MEGABYTE

    def state_bytes_max(self) -> int:
        """How large the state of a session may be."""
        is_premium = self.message_kb_max >= STATE_KB_PREMIUM
        return STATE_KB_PREMIUM * 1024 if is_premium else STATE_BYTES_MAX

    def to_document(self) -> dict[str, object]:
        document: dict[str, object] = {each.name: each.value(self) for each in PROPERTIES}
        document["access_rules"] = [rule.to_document() for rule in self.access_rules]
        document["forward_to_written"] = self.forward_to_written
        document["forward_dead_letters_to_written"] = self.forward_dead_letters_to_written
        return document


@final
class FragmentHome:
    """Which broker, by its index in the namespace, runs a fragment."""

    def __init__(self, number: int, broker_index: int) -> None:
        self.number = number
        self.broker_index = broker_index


@final
class Entity:
    """A queue, topic or subscription of the namespace.

    An `entity_id` is never used twice. Fragment `fragments[i]` owns the hashes from
    `hash_starts[i]` up to the next start. The map is data, so that repartitioning can split and
    merge ranges. `accessed_at_ms` is 0 until the entity is used.

    A subscription is named `<topic>/Subscriptions/<subscription>`; it has the fragment map of the
    topic `topic_id`, and its `rules` in the order in which they were added. For other entities
    these are 0 and empty.
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
        self.topic_id = 0
        self.rules: list[RuleSpec] = []

    def is_topic(self) -> bool:
        return self.kind == TOPIC

    def is_subscription(self) -> bool:
        return self.kind == SUBSCRIPTION

    def topic_name(self) -> str:
        """The name of a subscription's topic; the own name of any other entity."""
        return self.name.partition(SUBSCRIPTIONS_SEGMENT)[0] if self.topic_id else self.name

    def short_name(self) -> str:
        """The name of a subscription within its topic; the own name of any other entity."""
        return self.name.partition(SUBSCRIPTIONS_SEGMENT)[2] if self.topic_id else self.name

    def rule(self, name: str) -> RuleSpec | None:
        """The rule of this name, compared without regard to case."""
        key = name.lower()
        for rule in self.rules:
            if rule.name.lower() == key:
                return rule
        return None

    def size_mb_max(self) -> int:
        """The maximum size of the whole entity: size times fragments (R7, R9)."""
        return self.spec.size_mb * len(self.fragments)

    def numbers_at(self, broker_index: int) -> list[int]:
        """The fragments that one broker runs, in ascending order."""
        return [home.number for home in self.fragments if home.broker_index == broker_index]

    def updated(self, spec: QueueSpec, now_ms: int) -> Entity:
        """This entity with another spec; the rest of it is shared, not copied."""
        return self._changed(spec, self.rules, self._later_ms(now_ms))

    def with_rules(self, rules: list[RuleSpec], now_ms: int) -> Entity:
        """This subscription with other rules; the rest of it is shared, not copied."""
        return self._changed(self.spec, rules, self._later_ms(now_ms))

    def without_rules(self) -> Entity:
        """The same description without its rules."""
        return self._changed(self.spec, [], self.updated_at_ms)

    def _later_ms(self, now_ms: int) -> int:
        """A moment after the last update: brokers compare two descriptions by it, even if the clock
        was set.
        """
        return max(now_ms, self.updated_at_ms + 1)

    def to_json(self) -> str:
        document: dict[str, object] = {
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
        }
        if self.kind != QUEUE:
            document["version"] = TOPIC_DOCUMENT_VERSION
            document["topic_id"] = self.topic_id
            document["rules"] = [rule.to_document() for rule in self.rules]
        return json.dumps(document, separators=(",", ":"))

    def _changed(self, spec: QueueSpec, rules: list[RuleSpec], at_ms: int) -> Entity:
        entity = Entity(self.entity_id, self.name, spec, self.created_at_ms)
        entity.kind = self.kind
        entity.updated_at_ms = at_ms
        entity.accessed_at_ms = self.accessed_at_ms
        entity.fragments = self.fragments
        entity.hash_starts = self.hash_starts
        entity.topic_id = self.topic_id
        entity.rules = rules
        return entity


def new_queue_spec(tier: Tier, *, is_partitioned: bool) -> QueueSpec:
    """The spec of a queue whose creator chose nothing; `is_partitioned` is a setting (R5)."""
    spec = QueueSpec()
    spec.is_partitioned = is_partitioned
    spec.message_kb_max = tier.message_kb_default
    spec.default_ttl_ms = tier.ttl_ms_max
    spec.supports_ordering = not is_partitioned
    return spec


def new_topic(entity_id: int, name: str, spec: QueueSpec, now_ms: int) -> Entity:
    """A topic, not yet placed."""
    topic = Entity(entity_id, name, spec, now_ms)
    topic.kind = TOPIC
    return topic


def new_subscription(
    entity_id: int, topic: Entity, name: str, spec: QueueSpec, now_ms: int
) -> Entity:
    """A subscription without rules, on the fragments of its topic: they commit together."""
    subscription = Entity(entity_id, subscription_path(topic.name, name), spec, now_ms)
    subscription.kind = SUBSCRIPTION
    subscription.topic_id = topic.entity_id
    subscription.fragments = topic.fragments
    subscription.hash_starts = topic.hash_starts
    return subscription


def subscription_path(topic: str, name: str) -> str:
    """The name of a subscription in the namespace."""
    return f"{topic}{SUBSCRIPTIONS_SEGMENT}{name}"


def spread_fragments(entity_id: int, count: int, brokers: int) -> list[FragmentHome]:
    """Distribute fragments round robin over the brokers; each entity starts at another broker
    (R1).
    """
    return [FragmentHome(number, (entity_id + number) % brokers) for number in range(count)]


def entity_from_json(text: str) -> Entity:
    """Read an entity that `to_json` wrote; ValueError when it is damaged or of another version."""
    value: object = json.loads(text)
    fields = Fields(value, "entity")
    kind = _checked_kind(fields.text("kind"), fields.integer("version"))
    is_queue = kind == QUEUE
    entity = Entity(
        fields.integer("entity_id"),
        fields.text("name"),
        spec_from_document(fields.value("spec")),
        fields.integer("created_at_ms"),
    )
    entity.kind = kind
    entity.updated_at_ms = fields.integer("updated_at_ms")
    entity.accessed_at_ms = fields.integer("accessed_at_ms")
    entity.hash_starts = fields.integers("hash_starts")
    entity.fragments = [_home_from_document(home) for home in fields.values("fragments")]
    if not is_queue:
        entity.topic_id = fields.integer("topic_id")
        entity.rules = [rule_spec_from_document(rule) for rule in fields.values("rules")]
    _check_whole(entity)
    return entity


def spec_from_document(value: object) -> QueueSpec:
    """Read a spec that `to_document` wrote; ValueError when the document is not a spec."""
    fields = Fields(value, "description")
    spec = QueueSpec()
    for each in PROPERTIES:
        if fields.has(each.name) or not each.is_late:
            each.put(spec, _recorded(each, fields))
    spec.access_rules = [rule_from_document(rule) for rule in fields.values("access_rules")]
    spec.forward_to_written = fields.text_or("forward_to_written", "")
    spec.forward_dead_letters_to_written = fields.text_or("forward_dead_letters_to_written", "")
    return spec


def _recorded(each: EntityProperty, fields: Fields) -> int | str:
    if each.form == FLAG:
        return fields.boolean(each.name)
    if each.form in (NUMBER, MEGABYTES, DURATION):
        return fields.integer(each.name)
    return fields.text(each.name)


def _checked_kind(kind: str, version: int) -> str:
    if kind not in (QUEUE, TOPIC, SUBSCRIPTION):
        raise ValueError(
            f"the entity is a {kind}; this program knows queues, topics and subscriptions"
        )
    expected = DOCUMENT_VERSION if kind == QUEUE else TOPIC_DOCUMENT_VERSION
    if version != expected:
        raise ValueError(
            f"the entity is a {kind} of version {version}; this program reads {expected}"
        )
    return kind


def _check_whole(entity: Entity) -> None:
    if not entity.fragments or len(entity.hash_starts) != len(entity.fragments):
        raise ValueError("the entity's fragment map and its fragments do not match")
    is_subscription = SUBSCRIPTIONS_SEGMENT in entity.name and entity.topic_id != 0
    if is_subscription != (entity.kind == SUBSCRIPTION):
        raise ValueError(f"the {entity.kind} and its topic do not match")


def _home_from_document(value: object) -> FragmentHome:
    if isinstance(value, list) and len(value) == 2:
        number: object = value[0]
        broker_index: object = value[1]
        if isinstance(number, int) and isinstance(broker_index, int):
            return FragmentHome(number, broker_index)
    raise ValueError("a fragment of the entity is not a pair of integers")
