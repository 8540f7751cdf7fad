"""Offsets as Spark keeps them: JSON whose text must not change while nothing new has come.

Browsing counts in sequence numbers: `next` is the first that was not read. Consuming counts in
claims: `claims` is the ordinal of the last that was read. Both by fragment, in numeric order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardbus_spark.errors import DataLoss, ShardbusError

VERSION: Final = 1

Offset = dict[str, object]


def positions(offset: Mapping[str, object], name: str) -> dict[int, int]:
    """The numbers by fragment under a name; nothing where there are none."""
    found = offset.get(name, {})
    if not isinstance(found, dict):
        raise ShardbusError(f"the checkpoint holds an offset that is none of ours: {offset}")
    return {int(fragment): int(number) for fragment, number in found.items()}


def in_order(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(fragment): numbers[fragment] for fragment in sorted(numbers)}


def check_same(offset: Mapping[str, object], entity: str, incarnation: str) -> None:
    """DataLoss when a checkpoint is about an entity that is not there any more."""
    if offset.get("v") != VERSION or offset.get("entity") != entity:
        raise ShardbusError(
            f"the checkpoint is about {offset.get('entity')!r} (version {offset.get('v')}), the "
            f"query about {entity!r}: use another checkpointLocation"
        )
    if offset.get("inc") != incarnation:
        raise DataLoss(
            f"{entity} was deleted and made again since the checkpoint was written: its messages "
            "are others. Use another checkpointLocation to begin anew"
        )
