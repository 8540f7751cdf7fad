"""Reading the lifecycle records of fragments."""

from __future__ import annotations

from collections.abc import Sequence

from shardbus.broker.operations.asking import ask_all, to_port
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.lifecycle.command import LifecycleRead, ReadLifecycle
from shardbus.core.lifecycle.telling import SPAN_MAX


async def read_blocks(port: FragmentPort, after: int, span: int = SPAN_MAX) -> LifecycleRead:
    """The blocks with the `span` numbers above `after`; Refused or Unavailable is raised."""
    [read] = await _reads([port], after, span)
    if isinstance(read, Refused | Unavailable):
        raise read
    return read


async def block_range(port: FragmentPort) -> LifecycleRead:
    """The numbers of a fragment's blocks, without the blocks; Refused or Unavailable is raised."""
    return await read_blocks(port, 0, 0)


async def block_ranges(
    ports: Sequence[FragmentPort],
) -> list[LifecycleRead | Refused | Unavailable]:
    """The numbers of each fragment's blocks, all fragments being asked at once."""
    return await _reads(ports, 0, 0)


async def _reads(
    ports: Sequence[FragmentPort], after: int, span: int
) -> list[LifecycleRead | Refused | Unavailable]:
    command = ReadLifecycle(after, span)
    reads: list[LifecycleRead | Refused | Unavailable] = []
    for answer in await ask_all([to_port(port, command) for port in ports]):
        assert isinstance(answer, LifecycleRead | Refused | Unavailable)
        reads.append(answer)
    return reads
