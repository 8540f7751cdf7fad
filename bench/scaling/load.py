"""Senders that keep many messages under way, and how many of them were accepted in a time."""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

from bench.scaling.cluster import QUEUES, Cluster
from bench.scaling.governor import cpu_s, held
from shardbus.amqp.outcomes import Accepted, DeliveryState
from shardbus.app.cli.sas import parse_connection_string
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message
from tests.support.amqp_client import Address, connected

# For each broker, so that each has as much to do at once, whatever their number is.
SENDERS: Final = 8
WINDOW: Final = 2
# In batches, which cost the one gateway less: it is not held, and must not be the bound.
BATCH: Final = 20
PAYLOAD: Final = encode_batch([encode_data_message(b"x" * 1000)] * BATCH)
# Unheld at first: to load fragments and to connect takes seconds of a small share.
WARM_UP_S: Final = 4.0
SETTLE_S: Final = 2.0


class Rate(NamedTuple):
    """`failed` sends had no answer; `shares` are what each broker used of a processor."""

    brokers: int
    messages_s: float
    failed: int
    shares: list[float]


class _Counter:
    def __init__(self) -> None:
        self.accepted = 0
        self.failed = 0
        self.is_ending = False

    def note(self, _: int, state: DeliveryState | None) -> None:
        """A broker that is stopped for long is out for a moment, which is no reason to end."""
        if isinstance(state, Accepted):
            self.accepted += BATCH
        else:
            self.failed += BATCH


def measured(cluster: Cluster, share: float, seconds: float) -> Rate:
    """What all brokers together accept, each held to this share of a processor."""
    return asyncio.run(_measured(cluster, share, seconds))


async def _measured(cluster: Cluster, share: float, seconds: float) -> Rate:
    counter = _Counter()
    pids = cluster.pids
    async with asyncio.TaskGroup() as tasks:
        for number in range(SENDERS * len(pids)):
            tasks.create_task(_send(cluster, QUEUES[number % len(QUEUES)], counter))
        await asyncio.sleep(WARM_UP_S)
        with held(pids, share):
            await asyncio.sleep(SETTLE_S)
            used_s = [cpu_s(pid) for pid in pids]
            started_s, before = time.monotonic(), counter.accepted
            await asyncio.sleep(seconds)
            took_s = time.monotonic() - started_s
            accepted = counter.accepted - before
            shares = [
                (cpu_s(pid) - was_s) / took_s for pid, was_s in zip(pids, used_s, strict=True)
            ]
        counter.is_ending = True
    return Rate(len(shares), accepted / took_s, counter.failed, shares)


async def _send(cluster: Cluster, queue: str, counter: _Counter) -> None:
    gateway = cluster.gateway
    credential = parse_connection_string(gateway.connection_string).credential
    async with connected(Address(gateway.host, gateway.amqp_port), credential) as client:
        sender = await client.sender(queue)
        while not counter.is_ending:
            await sender.send_all([PAYLOAD] * WINDOW, counter.note, BATCH_FORMAT)
