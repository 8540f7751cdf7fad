"""Brokers are killed under load: nothing is stored twice, and nothing that was called busy."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from tests.chaos.load import until_empty
from tests.chaos.processes import BROKERS, ProcessServer, process_server
from tests.support.queues import create_queue

KILLS = 12
BETWEEN_S = 1.2
IN_FLIGHT = 24


@dataclass
class Told:
    """What senders heard of each message, by its body."""

    accepted: set[str] = field(default_factory=set)
    busy: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


async def send_on(sender: ServiceBusSender, name: str, told: Told, is_over: asyncio.Event) -> None:
    number = 0
    while not is_over.is_set():
        number += 1
        body = f"{name}-{number}"
        key = f"key-{number % 50}" if number % 3 == 0 else None
        try:
            await sender.send_messages(ServiceBusMessage(body, partition_key=key))
            told.accepted.add(body)
        except ServiceBusServerBusyError:
            told.busy.add(body)
        except (OperationTimeoutError, ServiceBusError):
            told.unknown.add(body)


async def kill_brokers(server: ProcessServer) -> None:
    for number in range(KILLS):
        await asyncio.sleep(BETWEEN_S)
        await asyncio.to_thread(server.kill_broker, number % BROKERS)
    await asyncio.sleep(5)


async def received(server: ProcessServer, queue: str) -> list[str]:
    bodies: list[str] = []
    async with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        while messages := await receiver.receive_messages(2_000, 3):
            bodies += [b"".join(message.body).decode() for message in messages]
    await until_empty(server, queue)
    return bodies


async def under_fire(server: ProcessServer, queue: str, retry_total: int) -> tuple[Told, list[str]]:
    """What became of what clients sent who try again so often by themselves."""
    told, is_over = Told(), asyncio.Event()
    async with asyncio.TaskGroup() as senders:
        for number in range(IN_FLIGHT):
            client = ServiceBusClient.from_connection_string(
                server.connection_string, retry_total=retry_total
            )
            senders.create_task(send_with(client, queue, f"s{number}", told, is_over))
        await kill_brokers(server)
        is_over.set()
    return told, await received(server, queue)


async def send_with(
    client: ServiceBusClient, queue: str, name: str, told: Told, is_over: asyncio.Event
) -> None:
    async with client, client.get_queue_sender(queue) as sender:
        await send_on(sender, name, told, is_over)


def doubled(bodies: list[str]) -> list[str]:
    return [body for body, count in Counter(bodies).items() if count > 1]


@pytest.mark.release
def test_a_killed_broker_doubles_nothing_and_busy_is_never_said_of_what_is_stored(
    tmp_path: Path,
) -> None:
    """R14, R15: by clients that try again themselves, and by others."""
    with process_server(tmp_path, restart_ms=200) as server:
        for retry_total in (0, 3):
            queue = f"q{retry_total}"
            create_queue(server, queue)
            told, bodies = asyncio.run(under_fire(server, queue, retry_total))

            stored = set(bodies)
            assert len(told.accepted) > 100
            assert doubled(bodies) == []
            assert told.busy & stored == set()
            assert told.accepted <= stored
            # Every broker was back long before the bus gave up asking.
            assert told.unknown == set()
