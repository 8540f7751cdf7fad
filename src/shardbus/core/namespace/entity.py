"""Entities: the description of a queue, topic or subscription, and where its fragments live."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
# For entities that were repartitioned: programs that know one map only must not misread them.
MAPPED_DOCUMENT_VERSION: Final = 3

SUBSCRIPTIONS_SEGMENT: Final = "/Subscriptions/"

ACTIVE_STATUS: Final = "Active"
DISABLED_STATUS: Final = "Disabled"
SEND_DISABLED_STATUS: Final = "SendDisabled"
RECEIVE_DISABLED_STATUS: Final = "ReceiveDisabled"

MEGABYTE: Final = 1024 * 1024

# In Premium, where messages may be this large, a session state may be as large.
STATE_KB_PREMIUM: Final = 1024


@final
class EntitySpec:
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
        self.lifecycle = False

    def copy(self) -> EntitySpec:
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

    An `entity_id` is never used twice. The first `former_count` of the `fragments` are those of
    earlier maps: they accept no messages and keep those that they have. Of the present ones,
    `fragments[former_count + i]` owns the hashes from `hash_starts[i]` up to the next start. So the
    map is data: repartitioning adds fragments at the end and makes the present ones former ones.
    While it prepares that, `coming` has the new fragments and `coming_starts` their map.
    `former_starts` has the hash starts of the earlier maps, the oldest first.
    `map_number` counts the maps that were ever begun, and `numbers_used` is above the numbers of
    all their fragments: also those of a map that was given up are not used again, because a command
    that removes them may come late. `accessed_at_ms` is 0 until the entity is used.

    A subscription is named `<topic>/Subscriptions/<subscription>`; it has the fragment map of the
    topic `topic_id`, and its `rules` in the order in which they were added. For other entities
    these are 0 and empty. The map is a fact of the topic: that in the record of a subscription is a
    copy, which may be outdated, and counts only as long as there is no topic (`with_topic_maps`).
    """

    def __init__(self, entity_id: int, name: str, spec: EntitySpec, created_at_ms: int) -> None:
        self.entity_id = entity_id
        self.name = name
        self.kind = QUEUE
        self.spec = spec
        self.created_at_ms = created_at_ms
        self.updated_at_ms = created_at_ms
        self.accessed_at_ms = 0
        self.fragments: list[FragmentHome] = []
        self.hash_starts: list[int] = []
        self.map_number = 0
        self.former_count = 0
        self.former_starts: list[list[int]] = []
        self.numbers_used = 0
        self.coming: list[FragmentHome] = []
        self.coming_starts: list[int] = []
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
        return self.spec.size_mb * self.fragment_count()

    def fragment_count(self) -> int:
        """How many fragments accept messages."""
        return len(self.hash_starts)

    def former(self) -> list[FragmentHome]:
        return self.fragments[: self.former_count]

    def present(self) -> list[FragmentHome]:
        """The fragments that accept messages."""
        return self.fragments[self.former_count :]

    def every_home(self) -> list[FragmentHome]:
        """All fragments, with those that are prepared for the next map."""
        return self.fragments + self.coming

    def is_former(self, number: int) -> bool:
        return any(home.number == number for home in self.former())

    def map_at(self, start: int) -> list[int]:
        """The hash starts of the map whose first fragment is `fragments[start]`; empty if it is not
        known that a map begins there.
        """
        maps = [*self.former_starts, self.hash_starts]
        first = len(self.fragments)
        for starts in reversed(maps):
            first -= len(starts)
            if first == start:
                return starts
        return []

    def spread_numbers(self) -> set[int]:
        """The fragments that do not have all keys of their map, but share them with others."""
        spread = {home.number for home in self.coming} if len(self.coming) > 1 else set()
        for numbers in self._maps():
            if len(numbers) > 1:
                spread |= set(numbers)
        return spread

    def earlier_numbers(self, number: int) -> list[int]:
        """The fragments of the maps before that of this one, the oldest first."""
        earlier: list[int] = []
        for numbers in self._maps():
            if number in numbers:
                return earlier
            earlier += numbers
        return []

    def _maps(self) -> list[list[int]]:
        """The numbers of the fragments of each map, the oldest first. Of the oldest maps perhaps
        only the fragments are known, which count as one.
        """
        counts = [len(starts) for starts in self.former_starts]
        maps: list[list[int]] = []
        first = 0
        for count in (self.former_count - sum(counts), *counts, len(self.hash_starts)):
            maps.append([home.number for home in self.fragments[first : first + count]])
            first += count
        return maps

    def is_coming(self, number: int) -> bool:
        """Whether a fragment is prepared for the next map; it may not exist yet."""
        return any(home.number == number for home in self.coming)

    def numbers_at(self, broker_index: int) -> list[int]:
        """All fragments that one broker has, in ascending order."""
        return [home.number for home in self.every_home() if home.broker_index == broker_index]

    def next_number(self) -> int:
        """The lowest number that no fragment of this entity ever had."""
        return max(self.numbers_used, 1 + max(home.number for home in self.every_home()))

    def preparing(self, coming: list[FragmentHome], starts: list[int], now_ms: int) -> Entity:
        """This entity with the fragments of its next map, which accept nothing yet."""
        entity = self._changed(self.spec, self.rules, self._later_ms(now_ms))
        entity.map_number = self.map_number + 1
        entity.coming = coming
        entity.coming_starts = starts
        entity.numbers_used = entity.next_number()
        return entity

    def without_coming(self, now_ms: int) -> Entity:
        """This entity with its present map; the next one was given up."""
        entity = self._changed(self.spec, self.rules, self._later_ms(now_ms))
        entity.coming = []
        entity.coming_starts = []
        return entity

    def switched(self, spec: EntitySpec, now_ms: int) -> Entity:
        """This entity with the map that it was prepared for."""
        entity = self._changed(spec, self.rules, self._later_ms(now_ms))
        entity.former_count = len(self.fragments)
        entity.former_starts = [*self.former_starts, self.hash_starts]
        entity.fragments = self.fragments + self.coming
        entity.hash_starts = self.coming_starts
        entity.coming = []
        entity.coming_starts = []
        return entity

    def updated(self, spec: EntitySpec, now_ms: int) -> Entity:
        """This entity with another spec; the rest of it is shared, not copied."""
        return self._changed(spec, self.rules, self._later_ms(now_ms))

    def with_rules(self, rules: list[RuleSpec], now_ms: int) -> Entity:
        """This subscription with other rules; the rest of it is shared, not copied."""
        return self._changed(self.spec, rules, self._later_ms(now_ms))

    def with_map_of(self, topic: Entity) -> Entity:
        """This subscription with the present map of its topic; itself if it has that already."""
        is_same = self.fragments is topic.fragments and self.coming is topic.coming
        is_same = is_same and self.hash_starts is topic.hash_starts
        if is_same and self.spec.is_partitioned == topic.spec.is_partitioned:
            return self
        spec = self.spec
        if spec.is_partitioned != topic.spec.is_partitioned:
            spec = spec.copy()
            spec.is_partitioned = topic.spec.is_partitioned
        entity = self._changed(spec, self.rules, self.updated_at_ms)
        entity.take_map(topic)
        return entity

    def take_map(self, other: Entity) -> None:
        """Share the map of another entity."""
        self.fragments = other.fragments
        self.hash_starts = other.hash_starts
        self.map_number = other.map_number
        self.former_count = other.former_count
        self.former_starts = other.former_starts
        self.numbers_used = other.numbers_used
        self.coming = other.coming
        self.coming_starts = other.coming_starts

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
        if self.map_number:
            document["version"] = MAPPED_DOCUMENT_VERSION
            document["map_number"] = self.map_number
            document["former_count"] = self.former_count
            document["former_starts"] = self.former_starts
            document["numbers_used"] = self.numbers_used
            document["coming"] = [[home.number, home.broker_index] for home in self.coming]
            document["coming_starts"] = self.coming_starts
        return json.dumps(document, separators=(",", ":"))

    def _changed(self, spec: EntitySpec, rules: list[RuleSpec], at_ms: int) -> Entity:
        entity = Entity(self.entity_id, self.name, spec, self.created_at_ms)
        entity.kind = self.kind
        entity.updated_at_ms = at_ms
        entity.accessed_at_ms = self.accessed_at_ms
        entity.take_map(self)
        entity.topic_id = self.topic_id
        entity.rules = rules
        return entity


def new_queue_spec(tier: Tier, *, is_partitioned: bool) -> EntitySpec:
    """The spec of a queue whose creator chose nothing; `is_partitioned` is a setting (R5)."""
    spec = EntitySpec()
    spec.is_partitioned = is_partitioned
    spec.message_kb_max = tier.message_kb_default
    spec.default_ttl_ms = tier.ttl_ms_max
    spec.supports_ordering = not is_partitioned
    return spec


def new_subscription(
    entity_id: int, topic: Entity, name: str, spec: EntitySpec, now_ms: int
) -> Entity:
    """A subscription without rules, on the fragments of its topic: they commit together."""
    subscription = Entity(entity_id, subscription_path(topic.name, name), spec, now_ms)
    subscription.kind = SUBSCRIPTION
    subscription.topic_id = topic.entity_id
    subscription.take_map(topic)
    return subscription


def with_topic_maps(entities: Iterable[Entity], others: Sequence[Entity] = ()) -> list[Entity]:
    """The entities of a catalogue, each subscription with the map of its topic.

    A topic is looked for in `others` too. A subscription without one keeps the map of its record.
    """
    found = list(entities)
    topics = {each.entity_id: each for each in (*others, *found) if each.is_topic()}
    return [
        each.with_map_of(topics[each.topic_id]) if each.topic_id in topics else each
        for each in found
    ]


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
    kind = _checked_kind(
        fields.text("kind"), fields.integer("version"), is_mapped=fields.has("map_number")
    )
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
    if fields.has("map_number"):
        entity.map_number = fields.integer("map_number")
        entity.former_count = fields.integer("former_count")
        if fields.has("former_starts"):
            entity.former_starts = [_starts(each) for each in fields.values("former_starts")]
        if fields.has("numbers_used"):
            entity.numbers_used = fields.integer("numbers_used")
        entity.coming = [_home_from_document(home) for home in fields.values("coming")]
        entity.coming_starts = fields.integers("coming_starts")
    _check_whole(entity)
    return entity


def spec_from_document(value: object) -> EntitySpec:
    """Read a spec that `to_document` wrote; ValueError when the document is not a spec."""
    fields = Fields(value, "description")
    spec = EntitySpec()
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


def _checked_kind(kind: str, version: int, *, is_mapped: bool) -> str:
    if kind not in (QUEUE, TOPIC, SUBSCRIPTION):
        raise ValueError(
            f"the entity is a {kind}; this program knows queues, topics and subscriptions"
        )
    expected = DOCUMENT_VERSION if kind == QUEUE else TOPIC_DOCUMENT_VERSION
    expected = MAPPED_DOCUMENT_VERSION if is_mapped else expected
    if version != expected:
        raise ValueError(
            f"the entity is a {kind} of version {version}; this program reads {expected}"
        )
    return kind


def _check_whole(entity: Entity) -> None:
    present = len(entity.fragments) - entity.former_count
    is_map = len(entity.hash_starts) == present and entity.former_count >= 0 and present > 0
    known = sum([len(starts) for starts in entity.former_starts])
    is_map = is_map and known <= entity.former_count and [] not in entity.former_starts
    if not is_map or len(entity.coming) != len(entity.coming_starts):
        raise ValueError("the entity's fragment map and its fragments do not match")
    is_subscription = SUBSCRIPTIONS_SEGMENT in entity.name and entity.topic_id != 0
    if is_subscription != (entity.kind == SUBSCRIPTION):
        raise ValueError(f"the {entity.kind} and its topic do not match")


def _starts(value: object) -> list[int]:
    starts: list[int] = []
    if isinstance(value, list):
        for each in value:
            if isinstance(each, int):
                starts.append(each)
        if len(starts) == len(value):
            return starts
    raise ValueError("a former map of the entity is not a list of integers")


def _home_from_document(value: object) -> FragmentHome:
    if isinstance(value, list) and len(value) == 2:
        number: object = value[0]
        broker_index: object = value[1]
        if isinstance(number, int) and isinstance(broker_index, int):
            return FragmentHome(number, broker_index)
    raise ValueError("a fragment of the entity is not a pair of integers")
