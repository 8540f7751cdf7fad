"""What the bus says of an entity, read with care."""

from __future__ import annotations

from dataclasses import dataclass

from shardbus_spark.client import Client
from shardbus_spark.errors import ShardbusError


@dataclass(frozen=True, slots=True)
class FragmentState:
    """How far a fragment goes: messages have numbers from `first` on and below `next`."""

    number: int
    first: int
    next: int
    waiting: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EntityState:
    """`incarnation` is another one when the entity was deleted and made again."""

    incarnation: str
    requires_session: bool
    fragments: tuple[FragmentState, ...]


def describe(client: Client, entity: str) -> EntityState:
    """The entity as it is now; ShardbusError when the answer cannot be read."""
    answer = client.describe(entity)
    try:
        fragments = answer["fragments"]
        assert isinstance(fragments, list)
        return EntityState(
            incarnation=str(answer["incarnation"]),
            requires_session=bool(answer["requires_session"]),
            fragments=tuple(
                FragmentState(
                    int(part["number"]),
                    int(part["first"]),
                    int(part["next"]),
                    int(part["waiting"]),
                    int(part["size_bytes"]),
                )
                for part in sorted(fragments, key=lambda part: int(part["number"]))
            ),
        )
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise ShardbusError(f"the bus describes {entity} in words we do not know") from error
