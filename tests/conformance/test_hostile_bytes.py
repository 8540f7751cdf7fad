"""Bytes that no client would send: each ends its own connection and disturbs nobody."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest

from shardbus.amqp.outcomes import Accepted
from shardbus.app.cli.sas import Credential
from shardbus.message.sections import encode_data_message
from tests.conformance.conftest import Queue
from tests.support.amqp_client import Address, Ended, connected

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
ANSWER_MAX = 1_000_000
TIMEOUT_S = 20
SEEDS = range(20)


async def talk(address: Address, data: bytes) -> bytes:
    """Write, then read until the server hangs up."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(TIMEOUT_S):
            return await reader.read(ANSWER_MAX)
    finally:
        writer.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_garbage_is_answered_or_dropped_and_the_server_lives(
    address: Address, seed: int
) -> None:
    dice = random.Random(seed)
    garbage = dice.randbytes(dice.randrange(1, 3000))
    start = dice.choice([b"", SASL_HEADER, AMQP_HEADER, b"AMQP", b"GET ", b"\x16\x03\x01"])

    await talk(address, start + garbage)


@pytest.mark.parametrize(
    "header",
    [b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x02\x00\x00", b"AMQP\x07\x01\x00\x00"],
    ids=["0-9-1", "2.0", "unknown protocol"],
)
async def test_another_version_is_answered_with_ours(address: Address, header: bytes) -> None:
    answer = await talk(address, header)

    assert answer[:8] in (SASL_HEADER, AMQP_HEADER)


async def test_a_frame_longer_than_agreed_ends_the_connection(
    address: Address, credential: Credential, queue: Queue
) -> None:
    async with (
        connected(address, credential) as bystander,
        connected(address, credential) as client,
    ):
        sender = await bystander.sender(queue.name)
        await client.sender(queue.name)

        client.write_raw(struct.pack(">IBBH", 0x7FFF_FFFF, 2, 0, 0) + b"x" * 1000)
        async with asyncio.timeout(TIMEOUT_S):
            error = await client.ended

        assert error is not None
        assert error.condition in ("amqp:connection:framing-error", "amqp:decode-error")
        assert isinstance(await sender.send(encode_data_message(b"x")), Accepted)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">IBBH", 7, 2, 0, 0),
        struct.pack(">IBBH", 8, 1, 0, 0),
        struct.pack(">IBBH", 12, 9, 0, 0) + b"\x00\x53\x10\x45",
        struct.pack(">IBBH", 11, 2, 0, 0) + b"\x00\x53\xff",
        struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x14\x45",
        struct.pack(">IBBH", 12, 2, 0, 77) + b"\x00\x53\x12\x45",
        struct.pack(">IBBH", 17, 2, 0, 0) + b"\x00\x53\x13\xd0\xff\xff\xff\xff\x00",
        struct.pack(">IBBH", 108, 2, 0, 0) + b"\x00\x53\x12" + b"\xc0\xff\xff" * 32 + b"\x40",
    ],
    ids=[
        "shorter than its header",
        "header too short",
        "header beyond the frame",
        "performative is unknown",
        "transfer on no link",
        "attach on no session",
        "list longer than the frame",
        "lists in lists",
    ],
)
async def test_a_broken_frame_ends_the_connection_with_an_error(
    address: Address, credential: Credential, frame: bytes, queue: Queue
) -> None:
    async with (
        connected(address, credential) as bystander,
        connected(address, credential) as client,
    ):
        sender = await bystander.sender(queue.name)
        await client.sender(queue.name)

        client.write_raw(frame)
        async with asyncio.timeout(TIMEOUT_S):
            error = await client.ended

        assert error is not None
        assert error.condition.startswith("amqp:")
        assert isinstance(await sender.send(encode_data_message(b"x")), Accepted)


@pytest.mark.parametrize("seed", SEEDS)
async def test_flipped_bits_in_a_conversation_end_at_most_that_conversation(
    address: Address, credential: Credential, queue: Queue, seed: int
) -> None:
    """A peer that speaks well until it does not."""
    dice = random.Random(seed)
    async with (
        connected(address, credential) as bystander,
        connected(address, credential) as client,
    ):
        sender = await bystander.sender(queue.name)
        try:
            own = await client.sender(queue.name)
            for _ in range(20):
                client.write_raw(_damaged(dice))
                await own.send(encode_data_message(b"x"))
        except (Ended, TimeoutError):
            pass

        assert isinstance(await sender.send(encode_data_message(b"x")), Accepted)


def _damaged(dice: random.Random) -> bytes:
    body = bytearray(b"\x00\x53\x13\xc0\x0b\x0a\x43\x52\xff\x43\x52\xff\x43\x43\x52\x64\x40\x42")
    for _ in range(dice.randrange(1, 4)):
        body[dice.randrange(len(body))] = dice.randrange(256)
    return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + bytes(body)
