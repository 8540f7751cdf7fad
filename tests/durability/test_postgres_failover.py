"""A bus over a primary with a synchronous standby: the standby is promoted under load."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.outcomes import Accepted
from shardbus.app.cli.sas import parse_connection_string
from shardbus.message.sections import encode_data_message
from tests.durability.test_kill import QUEUES, Ledger, receive, send_batches, send_singles
from tests.durability.test_postgres import _progress, check
from tests.support.amqp_client import Address, connected
from tests.support.postgres import PostgresServer
from tests.support.postgres_pair import either, primary_and_standby
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

SEED: Final = 20_261_118
WAIT_S: Final = 60.0
IN_STEP: Final = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


@pytest.mark.long
def test_what_was_accepted_survives_the_promotion_of_a_synchronous_standby(tmp_path: Path) -> None:
    """R41: clients see slow answers and no errors; nothing is lost, and nothing comes twice."""
    with (
        primary_and_standby() as (primary, standby),
        running_server(
            tmp_path / "data", "--store", either(primary, standby), "--brokers", "2"
        ) as server,
    ):
        for queue in QUEUES:
            partitioned = "true" if queue == "partitioned" else "false"
            create_queue(server, queue, EnablePartitioning=partitioned, MaxDeliveryCount="2000")
        ledgers = {queue: Ledger() for queue in QUEUES}

        asyncio.run(_loaded_over_a_promotion(server, primary, standby, ledgers))

        # What was still locked is free after it.
        server.restart()
        check(server, ledgers, 1)
        assert "has lost" not in server.output


async def _loaded_over_a_promotion(
    server: Server, primary: PostgresServer, standby: PostgresServer, ledgers: dict[str, Ledger]
) -> None:
    address = Address(server.host, server.amqp_port)
    credential = parse_connection_string(server.connection_string).credential
    dice = random.Random(SEED)

    async def work(queue: str, ledger: Ledger) -> None:
        async with connected(address, credential) as client:
            await asyncio.gather(
                send_singles(client, queue, ledger),
                send_batches(client, queue, ledger),
                receive(client, queue, ledger, dice),
            )

    async with asyncio.timeout(180), asyncio.TaskGroup() as works:
        tasks = [works.create_task(work(*each)) for each in ledgers.items()]
        await _progress(ledgers)
        # On this thread, with which the server would end.
        primary.stop(signal.SIGKILL)
        standby.execute("SELECT pg_promote(true, 60)")
        await _progress(ledgers)
        for task in tasks:
            task.cancel()


@pytest.mark.long
def test_a_primary_that_waits_for_a_standby_accepts_nothing_until_it_has_it(tmp_path: Path) -> None:
    """R41: it is not told as accepted what one machine alone has."""
    with (
        primary_and_standby() as (primary, standby),
        running_server(
            tmp_path / "data", "--store", either(primary, standby), "--brokers", "1"
        ) as server,
    ):
        create_queue(server, "orders", EnablePartitioning="false")
        standby.stop()

        async def scene() -> None:
            address = Address(server.host, server.amqp_port)
            credential = parse_connection_string(server.connection_string).credential
            async with connected(address, credential) as client:
                sender = await client.sender("orders")
                sending = asyncio.ensure_future(sender.send(encode_data_message(b"waits")))
                done, _ = await asyncio.wait([sending], timeout=3)
                assert not done

                standby.start()
                async with asyncio.timeout(WAIT_S):
                    assert isinstance(await sending, Accepted)

        asyncio.run(scene())
