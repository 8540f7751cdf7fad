"""A broker process hangs: it is there, and does nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from shardbus.amqp.outcomes import Accepted
from shardbus.app.cli.sas import parse_connection_string
from shardbus.message.sections import encode_data_message
from tests.chaos.processes import BROKERS, ProcessServer, process_server
from tests.support.amqp_client import Address, connected
from tests.support.health import health
from tests.support.queues import create_queue
from tests.support.waiting import wait_until

QUEUE: Final = "orders"
HUNG: Final = 2
SILENT_MS: Final = 2_000
SENDS: Final = 64


def test_a_broker_that_hangs_is_replaced(tmp_path: Path) -> None:
    """R3, R15: nobody has to notice it, and nobody who is well is touched."""
    options = ("--broker-silent-ms", str(SILENT_MS))
    with process_server(tmp_path / "data", *options) as server:
        create_queue(server, QUEUE, EnablePartitioning="true")
        asyncio.run(send_to_all(server))
        before = server.broker_pids()

        server.pause_broker(HUNG)
        wait_until(lambda: bool(health(server)))
        wait_until(lambda: server.broker_pid(HUNG) != before[HUNG])
        wait_until(lambda: not health(server))

        assert f"broker-{HUNG} was silent for {SILENT_MS} ms" in server.output
        asyncio.run(send_to_all(server))
        after = server.broker_pids()
        others = [index for index in range(BROKERS) if index != HUNG]
        assert [after[index] for index in others] == [before[index] for index in others]


async def send_to_all(server: ProcessServer) -> None:
    """With so many keys that every fragment has some."""
    credential = parse_connection_string(server.connection_string).credential
    async with connected(Address(server.host, server.amqp_port), credential) as client:
        sender = await client.sender(QUEUE)
        for number in range(SENDS):
            message = encode_data_message(b"message", partition_key=f"key-{number}")
            assert isinstance(await sender.send(message), Accepted)
