"""A full queue refuses, loses nothing, and takes messages again when there is room (R9).

The smallest size that any tier offers is a gigabyte, so this one really fills a gigabyte.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.message import encode_data_message
from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState, Rejected
from shardbus.app.sas import parse_connection_string
from tests.support.amqp_client import Address, connected
from tests.support.queues import create_queue, describe_queue
from tests.support.server import Server, running_server

SIZE_BYTES: Final = 1024**3
MESSAGE: Final = encode_data_message(b"x" * 260_000)
WINDOW: Final = 50


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Gone at once: pytest keeps the directories of its last runs, and this one is large."""
    yield tmp_path / "data"
    shutil.rmtree(tmp_path / "data")


async def fill(server: Server) -> int:
    """Send until the queue refuses; how many messages it took."""
    credential = parse_connection_string(server.connection_string).credential
    outcomes: list[DeliveryState | None] = []
    async with connected(Address(server.host, server.amqp_port), credential) as client:
        sender = await client.sender("full")
        other = await client.sender("other")
        wanted = SIZE_BYTES // len(MESSAGE) + 2 * WINDOW
        await sender.send_all(
            (MESSAGE for _ in range(wanted)), lambda _, state: outcomes.append(state), 0, WINDOW
        )
        accepted = sum(isinstance(state, Accepted) for state in outcomes)
        refused = [state for state in outcomes if isinstance(state, Rejected)]

        assert accepted + len(refused) == wanted
        assert {_condition(state) for state in refused} == {"amqp:resource-limit-exceeded"}
        assert isinstance(await other.send(MESSAGE), Accepted)

        receiver = await client.receiver("full", credit=1)
        [delivery] = await receiver.take_many(1)
        await receiver.settle([delivery], ACCEPTED)
        assert isinstance(await sender.send(MESSAGE), Accepted)
        assert isinstance(await sender.send(MESSAGE), Rejected)
    return accepted


def test_a_full_queue_refuses_and_loses_nothing(data_dir: Path) -> None:
    """R9."""
    with running_server(data_dir) as server:
        for name in ("full", "other"):
            create_queue(server, name, EnablePartitioning="false", MaxSizeInMegabytes="1024")

        accepted = asyncio.run(fill(server))

        found = describe_queue(server, "full")
        assert found.message_count == accepted
        # The message that reaches the limit is still taken.
        assert abs(SIZE_BYTES - found.size_bytes) <= len(MESSAGE)
        server.restart()
        assert describe_queue(server, "full").message_count == accepted


def _condition(state: Rejected) -> str:
    assert state.error is not None
    return state.error.condition
