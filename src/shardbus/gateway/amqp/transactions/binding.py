"""What a compatible transaction is bound to: one key and one fragment in every partitioned entity.

The service keeps a transaction in one partition, and refuses what would take it to another (R23,
R24). Messages sent by way of another entity have one ViaPartitionKey there. The partition of what
they settle in that entity need not be that of the key, and the destination's partition is free: no
message is ever stored on its way (decision 0128).
"""

from __future__ import annotations

from typing import final

from shardbus.broker.bus import EntityHandle
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.message import Message
from shardbus.core.namespace.entity import Entity
from shardbus.message.sections import scan_message


@final
class Binding:
    """What one transaction is bound to so far, by entity id."""

    def __init__(self) -> None:
        self._keys: dict[int, str] = {}
        self._fragments: dict[int, int] = {}

    def bind_key(self, handle: EntityHandle, key: str | None) -> None:
        """A message is sent with this key."""
        entity = handle.entity
        if key is None:
            raise Refused(
                NOT_ALLOWED,
                f"A message that is sent to the partitioned entity '{entity.name}' in a "
                "transaction must have a partition key: set its SessionId or PartitionKey.",
            )
        self._bind_key(entity, key)
        self._bind(entity, handle.router.index_of_key(key))

    def bind_fragment(self, handle: EntityHandle, index: int) -> None:
        """A message of this fragment is settled or cancelled, or a session state is set.

        Fragments of former maps do not count: clients do not know where their messages are.
        """
        if handle.router.is_partitioned and index >= handle.router.former_count:
            self._bind(handle.entity, index)

    def bind_way(self, way: EntityHandle, key: str) -> None:
        """A message is sent by way of an entity with this ViaPartitionKey."""
        if way.router.is_partitioned:
            self._bind_key(way.entity, key)

    def _bind_key(self, entity: Entity, key: str) -> None:
        first = self._keys.setdefault(entity.entity_id, key)
        if first != key:
            raise Refused(
                NOT_ALLOWED,
                f"All messages that are sent to the partitioned entity '{entity.name}' in one "
                f"transaction must have the same partition key, but there are '{first}' and "
                f"'{key}'.",
            )

    def _bind(self, entity: Entity, index: int) -> None:
        if self._fragments.setdefault(entity.entity_id, index) != index:
            raise Refused(
                NOT_ALLOWED,
                f"All that a transaction does in the partitioned entity '{entity.name}' must be in "
                "one partition: it settles, cancels or sends messages of different ones.",
            )


def via_key_of(message: Message) -> str | None:
    """The ViaPartitionKey of a message."""
    return scan_message(message.payload).via_partition_key
