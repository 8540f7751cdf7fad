"""Claims as streams: everything claimed, always the same, or an error with the reason."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple, final

import pyarrow as pa

from shardbus.core.document import Fields
from shardbus.gateway.flight.reading.states import StatePlaces
from shardbus.gateway.flight.reading.streaming import FragmentReader
from shardbus.gateway.flight.server.bus import BusApi, BusError, entity_path
from shardbus.stores.base.bulk import BulkAsk, OpenSource, Range
from shardbus.stores.base.store import FragmentId

log = logging.getLogger(__name__)


class ClaimAsk(NamedTuple):
    """Claims of a reader in one fragment, from the first to the last ordinal."""

    entity: str
    line: int
    fragment: int
    reader: str
    reader_id: str
    ordinals: tuple[int, int]


@final
class _Claim:
    def __init__(self, value: object) -> None:
        fields = Fields(value, "claim")
        self.ordinal = fields.integer("ordinal")
        self.runs: list[Range] = [_run(run) for run in fields.values("runs")]

    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.runs)


def claimed(
    bus: BusApi, stores: OpenSource, token: str, ask: ClaimAsk, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """The messages of claims. BusError when a claim is lost or completed, or becomes so while it is
    read.

    The bus is asked before this returns, so that a refused read takes no place.
    """
    found = _Claims(bus, token, ask, ask.ordinals)
    return _read(bus, stores, token, ask, columns, found)


def _read(
    bus: BusApi,
    stores: OpenSource,
    token: str,
    ask: ClaimAsk,
    columns: list[str],
    found: _Claims,
) -> Iterator[pa.RecordBatch]:
    fragment = FragmentId(found.entity_id, ask.fragment)
    with stores(found.broker) as source:
        reader = FragmentReader(source, fragment, columns, stores, found.places)
        for claim in found.claims:
            if not claim.runs:
                continue
            count = 0
            damaged: list[int] = []
            for batch, unread in reader.read(BulkAsk(ask.fragment, ask.line, claim.runs)):
                count += batch.num_rows
                damaged += unread
                if batch.num_rows:
                    yield batch
            if damaged:
                log.error("%s, %s: damaged messages %s of a claim", ask.entity, fragment, damaged)
                _set_aside(bus, token, ask, claim.ordinal)
            if count + len(damaged) != claim.count():
                # The lease may have ended, so that others have received some of these messages.
                _check(bus, token, ask, claim.ordinal, count)


@final
class _Claims:
    """Which messages claims have; the bus refuses completed or lost claims."""

    def __init__(self, bus: BusApi, token: str, ask: ClaimAsk, ordinals: tuple[int, int]) -> None:
        body = _asked(ask, ordinals)
        fields = Fields(bus.post(entity_path(ask.entity, "readers/runs"), token, body), "answer")
        self.entity_id = fields.integer("entity_id")
        self.broker = fields.text("broker")
        self.places = StatePlaces()
        self.places.read(fields.value("session_maps"), self.entity_id)
        self.claims = [_Claim(value) for value in fields.values("claims")]
        first, last = ordinals
        if [claim.ordinal for claim in self.claims] != list(range(first, last + 1)):
            # A claim that is missing in the answer would look empty.
            raise BusError(
                0,
                "unavailable",
                f"The bus did not describe all claims from {first} to {last}; try again.",
            )


def _check(bus: BusApi, token: str, ask: ClaimAsk, ordinal: int, count: int) -> None:
    """Check that the claim still has exactly these messages."""
    [claim] = _Claims(bus, token, ask, (ordinal, ordinal)).claims
    if claim.count() != count:
        raise BusError(
            0, "unavailable", f"Claim {ordinal} changed while it was read; read it again."
        )


def _set_aside(bus: BusApi, token: str, ask: ClaimAsk, ordinal: int) -> None:
    """Let the broker read the claim, so that it sets damaged messages aside: completing the claim
    would otherwise remove the evidence.
    """
    body = _asked(ask, (ordinal, ordinal))
    bus.post(entity_path(ask.entity, "readers/check"), token, body)


def _asked(ask: ClaimAsk, ordinals: tuple[int, int]) -> dict[str, object]:
    first, last = ordinals
    return {
        "reader": ask.reader,
        "reader_id": ask.reader_id,
        "fragment": ask.fragment,
        "first_ordinal": first,
        "last_ordinal": last,
    }


def _run(value: object) -> Range:
    if isinstance(value, list) and len(value) == 2:
        first, last = value
        if isinstance(first, int) and isinstance(last, int):
            return first, last
    raise ValueError("a run of a claim is not two numbers")
