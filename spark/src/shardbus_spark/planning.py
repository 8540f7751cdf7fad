"""Which Spark partition reads which pieces of fragments (P1).

A task costs about 20 ms, and 16 tasks on two cores have eight times the latency of two, so
fragments are packed into few partitions, about as many as there are cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from shardbus_spark.address import Address

# Many tasks are worthwhile for large reads; the lane has 64 places for streams.
PARTITION_ROWS: Final = 500_000
PARTITIONS_MAX: Final = 48
CORES_MAX: Final = 16
# A smaller piece is not worth a partition of its own.
PIECE_ROWS_MIN: Final = 20_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one fragment that is read at once: a ticket, and about how many rows."""

    ticket: str
    rows: int
    key: tuple[int, int]


@dataclass
class Share(InputPartition):
    """What one task reads, in this order, and the address that it reads from."""

    tickets: list[str]
    address: Address

    def __init__(self, tickets: list[str], address: Address) -> None:
        super().__init__(None)
        self.tickets = tickets
        self.address = address


def partitions_for(rows: int, asked: int) -> int:
    """How many partitions read that many rows: the requested number, else one for each core of the
    driver, or for each half million of rows if that is more.
    """
    return asked or max(min(_cores(), CORES_MAX), min(rows // PARTITION_ROWS, PARTITIONS_MAX))


def _cores() -> int:
    # Containers often have fewer cores than the machine.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shares(pieces: Sequence[Piece], partitions: int, address: Address) -> list[Share]:
    """Pieces distributed over at most `partitions` partitions, the largest first to the emptiest.

    The same pieces always give the same shares. `address` is one for tasks, without a key.
    """
    count = min(max(partitions, 1), len(pieces))
    bins: list[list[Piece]] = [[] for _ in range(count)]
    loads = [0] * count
    for piece in sorted(pieces, key=lambda piece: (-piece.rows, piece.key)):
        emptiest = loads.index(min(loads))
        bins[emptiest].append(piece)
        loads[emptiest] += max(piece.rows, 1)
    return [
        Share([piece.ticket for piece in sorted(bin_, key=lambda piece: piece.key)], address)
        for bin_ in bins
    ]
