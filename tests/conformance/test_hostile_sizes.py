"""Too much of everything: refused at a limit, and others notice nothing."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final

import pytest

from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.outcomes import Accepted, Declared, DeliveryState, Rejected
from shardbus.amqp.performatives import Attach, Begin, Transfer
from shardbus.amqp.termini import Coordinator, Source, encode_terminus
from shardbus.gateway.admission.amqp import STRANGER_BYTES_MAX
from shardbus.message.sections import build_message, encode_data_message
from tests.support.amqp_client import AmqpClient, Ended, Sender, connected
from tests.support.hostile import (
    TIMEOUT_S,
    Honest,
    address_of,
    answer_after_open,
    answer_to,
    credential_of,
    honest_client,
    memory_grows_at_most,
)
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

GIGABYTE: Final = 2**30
MEGABYTE: Final = bytes(2**20)
POST: Final = "POST /honest/messages HTTP/1.1\r\nHost: localhost\r\n"
DECLARE: Final = b"\x00\x53\x77\x00\x53\x31\x45"
_CBS: Final = Source()
_CBS.address = "$cbs"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("large") / "data"
    with running_server(data_dir, "--log-level", "warning") as server:
        for name in ("honest", "full"):
            create_queue(server, name)
        yield server
        assert server.is_running
        assert "Traceback" not in server.output


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"GET /", *[MEGABYTE.replace(b"\0", b"a")] * 8], 431),
        ([b"GET / HTTP/1.1\r\nX-Long: ", *[MEGABYTE.replace(b"\0", b"a")] * 8], 431),
        ([b"GET / HTTP/1.1\r\n", b"X-Line: x\r\n" * 100_000, b"\r\n"], 431),
        ([f"{POST}Content-Length: {GIGABYTE}\r\n\r\n".encode(), *[MEGABYTE] * 1024], 413),
        (
            [
                f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode(),
                *[b"100000\r\n" + MEGABYTE + b"\r\n"] * 1024,
            ],
            413,
        ),
        ([f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode(), b"1;" + b"x" * 2**20], 431),
    ],
    ids=[
        "a long target",
        "a long header",
        "100,000 headers",
        "a body of 1 GB",
        "1 GB in chunks",
        "a long chunk header",
    ],
)
async def test_requests_beyond_a_limit_are_refused_without_reading_on(
    large: Server, pieces: list[bytes], status: int
) -> None:
    """The client sees why, although it had not finished; then the connection ends."""
    address = address_of(large)
    async with honest_client(large) as honest:
        with memory_grows_at_most(large, 30):
            refused, _ = await asyncio.gather(answer_to(address, *pieces[:4]), honest.works())
            await answer_to(address, *pieces)
            await honest.works()

    assert status_of(refused) == status


@pytest.mark.parametrize("is_known", [False, True], ids=["stranger", "with a key"])
async def test_a_gigantic_frame_ends_its_connection(large: Server, is_known: bool) -> None:
    async with honest_client(large) as honest, _client(large, is_known) as client:
        with memory_grows_at_most(large, 20):
            client.write_raw(struct.pack(">IBBH", 0x7FFF_FFFF, 2, 0, 0) + MEGABYTE)
            error = await _end_of(client)
            await honest.works()

    assert error.startswith("amqp:connection:")


async def test_a_stranger_that_talks_on_is_hung_up_on(large: Server) -> None:
    """At the last byte, so that its error is not lost behind bytes that nobody reads."""
    heartbeats = bytes.fromhex("0000000802000000") * (STRANGER_BYTES_MAX // 8)
    async with honest_client(large) as honest:
        with memory_grows_at_most(large, 20):
            answer = await answer_after_open(large, [heartbeats], is_known=False)
            await answer_after_open(large, [heartbeats] * 100, is_known=False)
            await honest.works()

    assert b"bytes before it put a token" in answer


@pytest.mark.parametrize(("is_known", "count"), [(False, 9), (True, 5_001)])
async def test_sessions_without_end(large: Server, is_known: bool, count: int) -> None:
    frames = b"".join(_begin(channel) for channel in range(count))
    async with honest_client(large) as honest:
        with memory_grows_at_most(large, 80):
            answer = await _answer(large, honest, frames, is_known=is_known)

    assert b"amqp:resource-limit-exceeded" in answer or b"channel 5000 is out of range" in answer


@pytest.mark.parametrize(("is_known", "count"), [(False, 129), (True, 10_001)])
async def test_links_without_end(large: Server, is_known: bool, count: int) -> None:
    frames = b"".join(
        (_begin(number // 256) if number % 256 == 0 else b"") + _attach(number)
        for number in range(count)
    )
    async with honest_client(large) as honest:
        with memory_grows_at_most(large, 120):
            answer = await _answer(large, honest, frames, is_known=is_known)

    assert b"amqp:resource-limit-exceeded" in answer or b"handle 256 is out of range" in answer


def _begin(channel: int) -> bytes:
    begin = Begin()
    begin.incoming_window = begin.outgoing_window = 1
    return amqp_frame(channel, begin.encode())


def _attach(number: int) -> bytes:
    """One of the 256 links that each session may have."""
    attach = Attach()
    attach.name = f"link-{number}"
    attach.handle = number % 256
    attach.is_receiver = True
    attach.source = encode_terminus(_CBS)
    return amqp_frame(number // 256, attach.encode())


async def _answer(server: Server, honest: Honest, frames: bytes, *, is_known: bool) -> bytes:
    answering = answer_after_open(server, [frames], is_known=is_known)
    answer, _ = await asyncio.gather(answering, honest.works())
    return answer


async def test_a_message_that_never_ends(large: Server) -> None:
    """It ends its link at the largest size, and in frames without bytes it costs nothing."""
    async with honest_client(large) as honest, _client(large, True) as client:
        empty, endless = await client.sender("honest"), await client.sender("honest")
        with memory_grows_at_most(large, 20):
            _transfer(client, empty, b"", 20_000)
            await honest.works()
            _transfer(client, endless, bytes(8_192), 200)
            with pytest.raises(Ended) as ended:
                while True:
                    await endless.change()
            await honest.works()

    assert ended.value.condition == "amqp:link:message-size-exceeded"


def _transfer(client: AmqpClient, sender: Sender, payload: bytes, count: int) -> None:
    transfer = Transfer()
    transfer.handle = sender.link.handle
    transfer.delivery_id = sender.link.handle
    transfer.tag = b"tag"
    transfer.more = True
    client.write_raw(amqp_frame(sender.link.session.channel, transfer.encode() + payload) * count)


async def test_credit_without_end_and_nobody_who_reads(large: Server) -> None:
    """A client that asks for everything and reads nothing is sent what its socket takes."""
    async with honest_client(large) as honest, _client(large, True) as client:
        sender = await client.sender("full")
        # Twice what windows, locks and sockets together may hold for one client.
        payload = encode_data_message(bytes(200_000))
        await sender.send_all([payload] * 1_000, _expect_accepted)
        async with connected(address_of(large), credential_of(large)) as deaf:
            receivers = [await deaf.receiver("full") for _ in range(20)]
            with memory_grows_at_most(large, 100):
                deaf.stop_reading()
                for receiver in receivers:
                    receiver.grant(0xFFFF_FFFF)
                for _ in range(20):
                    await honest.works()


def _expect_accepted(_: int, outcome: DeliveryState | None) -> None:
    assert isinstance(outcome, Accepted)


async def test_values_that_are_nested_deep_are_refused(large: Server) -> None:
    nested = b"\x40"
    for _ in range(60_000):
        nested = b"\xd0" + struct.pack(">II", len(nested) + 4, 1) + nested
        if len(nested) > 200_000:
            break
    annotations = b"\x00\x53\x72\xd1" + struct.pack(">II", len(nested) + 8, 2) + b"\xa3\x02ab"
    message = annotations + nested + encode_data_message(b"x")
    async with honest_client(large) as honest, _client(large, True) as client:
        sender = await client.sender("honest")
        with memory_grows_at_most(large, 20):
            assert isinstance(await sender.send(message), Rejected)
            await honest.works()


async def test_transactions_without_end(large: Server) -> None:
    """A connection has a hundred open at once; the rest are told so."""
    async with honest_client(large) as honest, _client(large, True) as client:
        link = client.session.attach_sender("coordinator", target=Coordinator(), snd_settle_mode=0)
        coordinator = Sender(client, link)
        outcomes = []
        with memory_grows_at_most(large, 20):
            await coordinator.send_all(
                [DECLARE] * 1_000, lambda _, outcome: outcomes.append(outcome)
            )
            await honest.works()

    assert [isinstance(outcome, Declared) for outcome in outcomes] == [True] * 100 + [False] * 900


async def test_requests_without_end_and_nobody_who_reads_the_answers(large: Server) -> None:
    """A connection has so many under way, and no more; others do not wait for them."""
    properties = {"operation": "com.microsoft:peek-message"}
    request = build_message(
        body={"from-sequence-number": 1, "message-count": 1}, application_properties=properties
    )
    async with honest_client(large) as honest, _client(large, True) as client:
        asking = await client.sender("honest/$management")
        with memory_grows_at_most(large, 30):
            for round_number in range(20):
                for number in range(min(asking.link.sendable, 100)):
                    asking.link.send(struct.pack(">II", round_number, number), request, True)
                client.flush()
                await honest.works()


async def test_a_flood_of_tokens_that_are_wrong(large: Server) -> None:
    async with honest_client(large) as honest, asyncio.TaskGroup() as tasks:
        with memory_grows_at_most(large, 30):
            for _ in range(5):
                tasks.create_task(_guess(large))
            for _ in range(10):
                await honest.works()
                await honest.dials()


async def _guess(server: Server) -> None:
    token = "SharedAccessSignature sr=sb%3A%2F%2Flocalhost&sig=bm90aGluZw%3D%3D&se=4000000000&skn=x"
    properties = {"operation": "put-token", "type": "x", "name": "sb://localhost/honest"}
    request = build_message(body=token, application_properties=properties)
    async with connected(address_of(server)) as client:
        guessing = await client.sender("$cbs")
        for number in range(100):
            guessing.link.send(number.to_bytes(4, "big"), request, True)
        client.flush()
        await _end_of(client)


def _client(server: Server, is_known: bool) -> AbstractAsyncContextManager[AmqpClient]:
    return connected(address_of(server), credential_of(server) if is_known else None)


async def _end_of(client: AmqpClient) -> str:
    """The condition with which the server ends a connection, "" when it says none."""
    async with asyncio.timeout(TIMEOUT_S):
        error = await client.ended
    return error.condition if error is not None else ""
