"""Offsets as Spark stores them: JSON whose text must not change while nothing new has come.

Browsing counts in sequence numbers: `next` is the first that was not read; `blocks` is the same for
lifecycle records. Consuming counts in
claims: `claims` is the ordinal of the last that was read, and `reader_ids` identifies the reader,
in case it is dropped and created again. All by fragment, in numeric order.

Spark asks for the initial offset several times and does not store it until the first batch is done.
So that a repeated first batch begins at the same place, its end contains that place, as `first`;
`initial` marks such an offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from shardbus_spark.errors import DataLoss, ShardbusError

VERSION: Final = 1
NUMBERS: Final = "next"
BLOCKS: Final = "blocks"
CLAIMS: Final = "claims"
READER: Final = "reader"
READER_IDS: Final = "reader_ids"

Offset = dict[str, object]
T = TypeVar("T")


def positions(offset: Mapping[str, object], name: str) -> dict[int, int]:
    """The numbers by fragment under a name; empty where there are none."""
    found = offset.get(name, {})
    try:
        if isinstance(found, dict):
            return {int(fragment): int(number) for fragment, number in found.items()}
    except (TypeError, ValueError):
        pass
    raise ShardbusError(
        f"the checkpoint has an offset that this source did not write: {offset}. Use another "
        "checkpointLocation"
    )


def texts(offset: Mapping[str, object], name: str) -> dict[int, str]:
    """The same for texts."""
    found = offset.get(name, {})
    if not isinstance(found, dict):
        raise ShardbusError(
            f"the checkpoint has an offset that this source did not write: {offset}. Use another "
            "checkpointLocation"
        )
    return {int(fragment): str(text) for fragment, text in found.items()}


def in_order(numbers: Mapping[int, T]) -> dict[str, T]:
    return {str(fragment): numbers[fragment] for fragment in sorted(numbers)}


def initial(offset: Offset) -> Offset:
    return {**offset, "initial": True}


def following(offset: Offset, start: Offset, name: str) -> Offset:
    """The end of a batch that begins at `start`."""
    return {**offset, "first": start[name]} if start.get("initial") else offset


def begin(start: Offset, end: Offset, name: str) -> dict[int, int]:
    """Where the batch between two offsets begins."""
    if start.get("initial") and "first" in end:
        return positions(end, "first")
    return positions(start, name)


def check_same(offset: Mapping[str, object], expected: Mapping[str, object], name: str) -> None:
    """Refuse a checkpoint that does not belong to the query.

    DataLoss when its entity no longer exists.
    """
    entity = expected["entity"]
    if offset.get("v") != VERSION or offset.get("entity") != entity:
        raise ShardbusError(
            f"the checkpoint is for {offset.get('entity')!r} (version {offset.get('v')}), but "
            f"the query reads {entity!r}: use another checkpointLocation"
        )
    if name not in offset:
        raise ShardbusError(
            "the checkpoint is that of a query with another mode or table: use another "
            "checkpointLocation, or the original mode and table"
        )
    if offset.get(READER) != expected.get(READER):
        raise ShardbusError(
            f"the checkpoint was created with readerName {offset.get(READER)!r}, but the "
            f"query has {expected.get(READER)!r}: use that name, or another checkpointLocation"
        )
    if offset.get("inc") != expected["inc"]:
        raise DataLoss(
            f"{entity} was deleted and created again since the checkpoint was written, and "
            "has other messages. Use another checkpointLocation to start again"
        )
