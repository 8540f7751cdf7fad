"""A program of its own that asks a bus something with the Python SDK inside TLS; see test_trust.

Arguments: the client, a connection string, and the keyword arguments of the client as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TypedDict

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AioAdministrationClient,
)
from azure.servicebus.management import ServiceBusAdministrationClient

QUEUE = "q"


class Trust(TypedDict, total=False):
    """What may be said to a client in order to make it trust."""

    connection_verify: str


def ask_over_amqp(connection_string: str, words: Trust) -> None:
    with (
        ServiceBusClient.from_connection_string(
            connection_string, retry_total=0, **words
        ) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        receiver.peek_messages()


async def ask_over_amqp_aio(connection_string: str, words: Trust) -> None:
    async with (
        AioClient.from_connection_string(connection_string, retry_total=0, **words) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        await receiver.peek_messages()


def ask_over_http(connection_string: str, words: Trust) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        connection_string, retry_total=0, **words
    ) as client:
        client.get_queue(QUEUE)


async def ask_over_http_aio(connection_string: str, words: Trust) -> None:
    async with AioAdministrationClient.from_connection_string(
        connection_string, retry_total=0, **words
    ) as client:
        await client.get_queue(QUEUE)


def main(client: str, connection_string: str, words: Trust) -> None:
    if client == "amqp":
        ask_over_amqp(connection_string, words)
    elif client == "amqp-aio":
        asyncio.run(ask_over_amqp_aio(connection_string, words))
    elif client == "http":
        ask_over_http(connection_string, words)
    else:
        asyncio.run(ask_over_http_aio(connection_string, words))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
