"""Lifecycle records in columns, as the API shows them and reports read them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from shardbus.core.lifecycle.rows import EVENTS, Rows
from shardbus.gateway.http.document import told

_Numbers = list[int | None]


class LifecycleColumns(Struct, kw_only=True):
    """One list for each column, all of the same length."""

    fragment: list[int]
    block: Annotated[list[int], told("The number of the commit's block, ascending by fragment.")]
    event: list[str]
    at_ms: Annotated[list[int], told("Milliseconds since 1970, by the clock of the bus.")]
    sequence_number: Annotated[_Numbers, told("Null for duplicates, and for rows of no message.")]
    age_ms: Annotated[_Numbers, told("Time since the message was enqueued.")]
    held_ms: Annotated[_Numbers, told("Time since the message was locked.")]
    delivery_count: Annotated[_Numbers, told("Deliveries that failed so far.")]
    size_bytes: _Numbers
    key: Annotated[list[str], told("The session id or partition key; empty if not known.")]
    receiver: Annotated[list[str], told("The receiver that held the lock.")]
    detail: Annotated[list[str], told("The reason of a dead letter.")]


def empty_columns() -> LifecycleColumns:
    return LifecycleColumns(
        fragment=[],
        block=[],
        event=[],
        at_ms=[],
        sequence_number=[],
        age_ms=[],
        held_ms=[],
        delivery_count=[],
        size_bytes=[],
        key=[],
        receiver=[],
        detail=[],
    )


def add_rows(columns: LifecycleColumns, fragment: int, block: int, rows: Rows) -> None:
    """Add the rows of a block to the columns of a page."""
    count = len(rows)
    columns.fragment += [fragment] * count
    columns.block += [block] * count
    columns.event += [EVENTS[event] for event in rows.events]
    columns.at_ms += rows.at_ms
    columns.sequence_number += [number or None for number in rows.numbers]
    columns.age_ms += _known(rows.ages_ms)
    columns.held_ms += _known(rows.held_ms)
    columns.delivery_count += _known(rows.deliveries)
    columns.size_bytes += _known(rows.sizes_bytes)
    columns.key += [rows.texts[position] for position in rows.keys]
    columns.receiver += [rows.receiver(row) for row in range(count)]
    columns.detail += [rows.detail(row) for row in range(count)]


def _known(values: list[int]) -> _Numbers:
    return [None if value < 0 else value for value in values]
