"""An application as it is written for the cloud: it knows a connection string and nothing of us."""

from __future__ import annotations

import asyncio
import os
import sys

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AioAdministrationClient,
)
from azure.servicebus.management import ServiceBusAdministrationClient

CONNECTION_STRING = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = "q"


def work() -> list[str]:
    with ServiceBusAdministrationClient.from_connection_string(CONNECTION_STRING) as management:
        if QUEUE not in [queue.name for queue in management.list_queues()]:
            management.create_queue(QUEUE)
    with ServiceBusClient.from_connection_string(CONNECTION_STRING, retry_total=0) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        with client.get_queue_receiver(QUEUE) as receiver:
            messages = receiver.receive_messages(1, 30)
            for message in messages:
                receiver.complete_message(message)
            return [str(message) for message in messages]


async def work_aio() -> list[str]:
    async with AioAdministrationClient.from_connection_string(CONNECTION_STRING) as management:
        await management.get_queue(QUEUE)
    async with (
        AioClient.from_connection_string(CONNECTION_STRING, retry_total=0) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        messages = await receiver.receive_messages(1, 30)
        for message in messages:
            await receiver.complete_message(message)
        return [str(message) for message in messages]


if __name__ == "__main__":
    sys.stdout.write(" ".join(sorted([*work(), *asyncio.run(work_aio())])) + "\n")
