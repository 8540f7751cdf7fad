"""Entities and access rules that tests make without a namespace."""

from __future__ import annotations

from shardbus.broker.access.auth import DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME
from shardbus.core.namespace.access import ALL_RIGHTS, AccessRule
from shardbus.core.namespace.entity import Entity, EntitySpec
from shardbus.core.namespace.property import TOPIC


def development_rule() -> AccessRule:
    """The rule that every client of the emulator knows."""
    return AccessRule(DEVELOPMENT_KEY_NAME, ALL_RIGHTS, DEVELOPMENT_KEY)


def new_topic(entity_id: int, name: str, spec: EntitySpec, now_ms: int) -> Entity:
    """A topic, not yet placed."""
    topic = Entity(entity_id, name, spec, now_ms)
    topic.kind = TOPIC
    return topic
