"""A long queue costs disk, not memory, and does not delay the start (D3).

`SHARDBUS_BACKLOG=2000000` runs it at the size that is promised; the default keeps the suite short.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState
from shardbus.app.cli.sas import Credential, parse_connection_string
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message
from tests.support.amqp_client import Address, connected
from tests.support.queues import create_queue, describe_queue
from tests.support.server import Server, running_server

log = logging.getLogger(__name__)

WAITING: Final = int(os.environ.get("SHARDBUS_BACKLOG", "200000"))
FIRST: Final = 10_000
BATCH: Final = 100
BODY: Final = b"x" * 1024
GROWTH_KB_MAX: Final = 150 * 1024
# Reading two hundred megabytes would take longer, also on a machine that others use.
START_S_MAX: Final = 20.0
QUEUE: Final = "long"


async def send(server: Server, count: int) -> None:
    payload = encode_batch([encode_data_message(BODY)] * BATCH)
    outcomes: Counter[bool] = Counter()

    def then(_: int, state: DeliveryState | None) -> None:
        outcomes[isinstance(state, Accepted)] += 1

    async with connected(_address(server), _credential(server)) as client:
        sender = await client.sender(QUEUE)
        await sender.send_all((payload for _ in range(count // BATCH)), then, BATCH_FORMAT, 20)
    assert outcomes == {True: count // BATCH}


async def receive(server: Server, count: int) -> None:
    async with connected(_address(server), _credential(server)) as client:
        receiver = await client.receiver(QUEUE, credit=count)
        deliveries = await receiver.take_many(count)
        states = await receiver.settle(deliveries, ACCEPTED)
        assert all(isinstance(state, Accepted) for state in states)


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Gone at once: pytest keeps the directories of its last runs, and these are gigabytes."""
    yield tmp_path / "data"
    shutil.rmtree(tmp_path / "data")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "conventional"])
def test_waiting_messages_cost_no_memory_and_no_start_up_time(
    data_dir: Path, is_partitioned: bool
) -> None:
    flag = "true" if is_partitioned else "false"
    with running_server(data_dir) as server:
        create_queue(server, QUEUE, EnablePartitioning=flag, MaxSizeInMegabytes="5120")
        asyncio.run(send(server, FIRST))
        asyncio.run(receive(server, 100))
        few_kb = server.memory_kb()
        asyncio.run(send(server, WAITING - FIRST + 100))
        asyncio.run(receive(server, 100))
        many_kb = server.memory_kb()
        server.restart()
        started_kb = server.memory_kb()
        asyncio.run(receive(server, 100))
        left = describe_queue(server, QUEUE).message_count

        figures = {
            "waiting": WAITING,
            "few_kb": few_kb,
            "many_kb": many_kb,
            "started_kb": started_kb,
            "start_s": round(server.start_s, 2),
        }
        log.info("%s", figures)
        assert left == WAITING - 200
        assert many_kb - few_kb < GROWTH_KB_MAX, figures
        assert started_kb - few_kb < GROWTH_KB_MAX, figures
        assert server.start_s < START_S_MAX, figures


def _address(server: Server) -> Address:
    return Address(server.host, server.amqp_port)


def _credential(server: Server) -> Credential:
    return parse_connection_string(server.connection_string).credential
