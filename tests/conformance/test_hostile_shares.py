"""What all clients share: memory and turns. Whoever takes much of them leaves enough to others."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState, Released
from shardbus.amqp.performatives import Transfer
from shardbus.app.cli.entities.atom import SUBSCRIPTION, TOPIC
from shardbus.app.cli.entities.rule_atom import SQL, AtomRule
from shardbus.message.sections import build_message, encode_batch, encode_data_message
from tests.conformance.rest import connect
from tests.support.amqp_client import AmqpClient, Sender, connected
from tests.support.hostile import (
    TIMEOUT_S,
    address_of,
    credential_of,
    honest_client,
    is_healthy,
)
from tests.support.narrow import ROOM_BYTES
from tests.support.queues import create_queue, management
from tests.support.server import Server, running_server

NARROW: Final = (
    sys.executable,
    str(Path(__file__).parents[1] / "support" / "narrow.py"),
    "serve",
)
MB: Final = 1024 * 1024
LARGE: Final = encode_data_message(bytes(240_000))
HOLDERS: Final = 150
DEAF: Final = 100
FILTERS: Final = 100
PIECES: Final = 16
PIECE: Final = 2_000


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("narrow") / "data"
    with running_server(data_dir, "--log-level", "warning", command=NARROW) as server:
        create_queue(server, "honest")
        yield server
        assert server.is_running
        assert "Traceback" not in server.output


@contextmanager
def peak_grows_at_most(server: Server, megabytes: int) -> Iterator[None]:
    """What the block costs the server at its worst moment."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5", encoding="ascii")
    before_kb = _status_kb(server, "VmRSS")
    yield
    grown_mb = (_status_kb(server, "VmHWM") - before_kb) / 1024
    assert grown_mb <= megabytes, f"the server grew by {grown_mb:.0f} MB"


def _status_kb(server: Server, name: str) -> int:
    text = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1])


def _expect_accepted(_: int, outcome: DeliveryState | None) -> None:
    assert isinstance(outcome, Accepted)


async def _fill(server: Server, queue: str, count: int) -> None:
    create_queue(server, queue)
    async with connected(address_of(server), credential_of(server)) as client:
        sender = await client.sender(queue)
        await sender.send_all([LARGE] * count, _expect_accepted)


async def test_a_hundred_megabytes_that_come_back_are_read_a_piece_at_a_time(
    narrow: Server,
) -> None:
    count = 400
    await _fill(narrow, "back", count)
    async with honest_client(narrow) as honest, AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connected(address_of(narrow), credential_of(narrow)))
            for _ in range(4)
        ]
        receivers = [await client.receiver("back") for client in clients]
        with peak_grows_at_most(narrow, 70):
            for _ in range(2):
                receivers[0].grant(count)
                taken = await receivers[0].take_many(count)
                await receivers[0].settle(taken, Released())
            for receiver in receivers:
                receiver.grant(count)
            got = 0
            while got < count:
                for receiver in receivers:
                    if waiting := receiver.take_waiting():
                        got += len(waiting)
                        await receiver.settle(waiting, ACCEPTED)
                await honest.works()


async def test_messages_that_are_half_sent_on_many_connections(narrow: Server) -> None:
    """More than there is room for: those end that only hold, and who sends gets through."""
    async with honest_client(narrow) as honest, AsyncExitStack() as stack:
        clients: list[AmqpClient] = []
        with peak_grows_at_most(narrow, ROOM_BYTES // MB + 60):
            for number in range(HOLDERS):
                client = await stack.enter_async_context(
                    connected(address_of(narrow), credential_of(narrow))
                )
                clients.append(client)
                for _ in range(4):
                    _send_half(client, await client.sender("honest"))
                if number % 10 == 0:
                    await honest.works()
            async with connected(address_of(narrow), credential_of(narrow)) as client:
                sender = await client.sender("honest")
                assert isinstance(await sender.send(LARGE), Accepted)
                receiver = await client.receiver("honest", credit=1)
                await receiver.settle(await receiver.take_many(1), ACCEPTED)
        ended = [client for client in clients if client.ended.done()]
        assert len(ended) >= HOLDERS // 2
        error = await ended[0].ended
        assert error is not None and error.condition == "amqp:connection:forced"
        assert not clients[-1].ended.done()


def _send_half(client: AmqpClient, sender: Sender) -> None:
    transfer = Transfer()
    transfer.handle = sender.link.handle
    transfer.delivery_id = sender.link.handle
    transfer.tag = b"half"
    transfer.more = True
    frame = amqp_frame(sender.link.session.channel, transfer.encode() + bytes(60_000))
    client.write_raw(frame * 4)


async def test_output_that_many_connections_do_not_read(narrow: Server) -> None:
    """More than there is room for: those end that read nothing, and who reads gets everything."""
    sessions = 5
    await _fill(narrow, "unread", DEAF * sessions)
    async with honest_client(narrow) as honest, AsyncExitStack() as stack:
        with peak_grows_at_most(narrow, ROOM_BYTES // MB + 30):
            for _ in range(DEAF):
                # What a socket takes is not the bus's; so little is taken that it has the rest.
                client = await stack.enter_async_context(
                    connected(address_of(narrow), credential_of(narrow), incoming_window=1)
                )
                receivers = []
                for _ in range(sessions):
                    client.new_session()
                    receivers.append(await client.receiver("unread"))
                client.stop_reading()
                for receiver in receivers:
                    receiver.grant(1)
                await honest.exchanges()
        async with connected(address_of(narrow), credential_of(narrow)) as reading:
            sender = await reading.sender("honest")
            await sender.send_all([LARGE] * 20, _expect_accepted)
            receiver = await reading.receiver("honest", credit=20)
            await receiver.settle(await receiver.take_many(20), ACCEPTED)


async def test_others_are_answered_while_a_large_stage_is_published(
    narrow: Server, request: pytest.FixtureRequest
) -> None:
    """Of the turns that a publication takes, others have one each."""
    manager = management(narrow)
    manager.create(TOPIC, "news", {})
    for number in range(FILTERS):
        rule = AtomRule("r", SQL, f"number = {number}")
        manager.create(SUBSCRIPTION, f"news/Subscriptions/s{number}", {}, rule)
    api = connect(narrow, credential_of(narrow))
    request.addfinalizer(api.connection.close)
    messages = [
        build_message(body="x", application_properties={"number": number % FILTERS})
        for number in range(PIECE)
    ]
    body = encode_batch(messages)
    for piece in range(PIECES):
        path = f"/api/v1/entities/news/stages/one?piece={piece}"
        assert (await api.later("PUT", path, body)).status == 200
    chosen = [{"stage": "one", "count": PIECES * PIECE}]
    asked = json.dumps({"producer": "p", "batch": 1, "stages": chosen}).encode()
    async with honest_client(narrow) as honest, asyncio.timeout(TIMEOUT_S):
        publishing = asyncio.create_task(
            api.later("POST", "/api/v1/entities/news/stages/publish", asked)
        )
        answered = 0
        while not publishing.done():
            assert await is_healthy(narrow)
            answered += 1
        await honest.works()
        answer = await publishing

    assert answer.status == 200, answer.body
    # Had it been decided in one turn: one before it, and one that waited for all of it.
    assert answered > 2
    assert json.loads(answer.body)["count"] == PIECES * PIECE
