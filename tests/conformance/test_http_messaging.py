"""HTTP messaging against a real process: as curl would ask, and together with the SDK (R33)."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from shardbus.app.cli.sas import Credential
from tests.conformance.conftest import Queue, Queues
from tests.conformance.rest import Rest, each_rest, token_for
from tests.conformance.sdk import DEAD_LETTERS, WAIT_S, AioSdk, texts
from tests.conformance.variants import Each
from tests.support.server import Server

SOON_S = 2.0
"""Long for what should come at once, short for what waits 30 seconds."""


@pytest.fixture
def token(server: Server, credential: Credential) -> str:
    return token_for(server, credential)


@pytest.fixture
def rest(server: Server, credential: Credential) -> Iterator[Each[Rest]]:
    with each_rest(server, credential) as made:
        yield made


@pytest.fixture
def sdk(server: Server) -> AioSdk:
    """One of the two: what crosses over does not depend on which."""
    return AioSdk(server.connection_string)


def test_a_message_is_sent_locked_renewed_unlocked_and_completed(rest: Rest, queue: Queue) -> None:
    """R33."""
    headers = {
        "Content-Type": "text/plain",
        "BrokerProperties": '{"Label": "M1", "MessageId": "id 1"}',
        "Priority": '"High"',
    }
    assert rest.ask("POST", f"/{queue.name}/messages", b"hello", headers).status == 201

    locked = rest.ask("POST", f"/{queue.name}/messages/head?timeout=20")
    renewed = rest.ask("POST", locked.path())
    unlocked = rest.ask("PUT", locked.path())
    again = rest.ask("POST", f"/{queue.name}/messages/head?timeout=20")
    completed = rest.ask("DELETE", again.path())

    assert (locked.status, locked.body) == (201, b"hello")
    assert locked.headers["Content-Type"] == "text/plain"
    assert locked.headers["Priority"] == '"High"'
    assert (locked.broker()["Label"], locked.broker()["MessageId"]) == ("M1", "id 1")
    assert [renewed.status, unlocked.status, completed.status] == [200, 200, 200]
    assert (locked.broker()["DeliveryCount"], again.broker()["DeliveryCount"]) == (1, 2)
    assert rest.ask("DELETE", again.path()).status == 404
    assert rest.ask("DELETE", f"/{queue.name}/messages/head?timeout=0").status == 204


def test_a_batch_is_received_and_deleted(rest: Rest, queue: Queue) -> None:
    """R33."""
    batch = [{"Body": text, "UserProperties": {"n": n}} for n, text in enumerate("abc")]
    headers = {"Content-Type": "application/vnd.microsoft.servicebus.json"}

    sent = rest.ask("POST", f"/{queue.name}/messages", json.dumps(batch).encode(), headers)

    assert sent.status == 201
    received = [rest.ask("DELETE", f"/{queue.name}/messages/head?timeout=20") for _ in batch]
    assert [answer.status for answer in received] == [200] * 3
    assert [(answer.body, answer.headers["n"]) for answer in received] == [
        (b"a", "0"),
        (b"b", "1"),
        (b"c", "2"),
    ]


async def test_the_sdk_receives_what_http_sent(rest: Rest, queue: Queue, sdk: AioSdk) -> None:
    """R33."""
    headers = {
        "Content-Type": "application/json",
        "BrokerProperties": json.dumps(
            {"Label": "l", "CorrelationId": "c", "TimeToLive": 3600, "PartitionKey": "k"}
        ),
        "Count": "3",
        "Yes": "true",
        "Text": '"\\u00fc"',
    }
    sent = await asyncio.to_thread(
        rest.ask, "POST", f"/{queue.name}/messages", b'{"a": 1}', headers
    )
    assert sent.status == 201

    async with sdk.receiver(queue.name) as receiver:
        [message] = await receiver.receive()
        await receiver.complete(message)

    assert texts([message]) == ['{"a": 1}']
    assert (message.subject, message.correlation_id) == ("l", "c")
    assert (message.content_type, message.partition_key) == ("application/json", "k")
    assert message.application_properties == {b"Count": 3, b"Yes": True, b"Text": b"\xc3\xbc"}
    assert message.message_id


async def test_http_receives_what_the_sdk_sent(rest: Rest, queue: Queue, sdk: AioSdk) -> None:
    """R33: every kind of body."""
    async with sdk.sender(queue.name) as sender:
        await sender.send(
            ServiceBusMessage(
                b"data",
                subject="s",
                content_type="image/png",
                application_properties={"n": 5, "t": "x"},
                partition_key="k",
            )
        )
        for annotated in (
            AmqpAnnotatedMessage(value_body="text", annotations={"x-opt-partition-key": "k"}),
            AmqpAnnotatedMessage(
                sequence_body=[[1, "two"]], annotations={"x-opt-partition-key": "k"}
            ),
        ):
            await sender.send(annotated)
    head = f"/{queue.name}/messages/head?timeout=20"

    data, value, sequence = [await rest.later("DELETE", head) for _ in range(3)]

    assert (data.body, data.headers["Content-Type"]) == (b"data", "image/png")
    assert (data.headers["n"], data.headers["t"]) == ("5", '"x"')
    assert (data.broker()["Label"], data.broker()["PartitionKey"]) == ("s", "k")
    assert (value.body, value.headers["Content-Type"]) == (b"text", "text/plain; charset=utf-8")
    assert json.loads(sequence.body) == [1, "two"]


async def test_dead_letters_cross_over(rest: Rest, queue: Queue, sdk: AioSdk) -> None:
    sent = await rest.later("POST", f"/{queue.name}/messages", b"bad")
    async with sdk.receiver(queue.name) as receiver:
        [message] = await receiver.receive()
        await receiver.dead_letter(message, "why", "because")

    letter = await rest.later("POST", f"/{queue.name}/$deadletterqueue/messages/head?timeout=20")

    assert (sent.status, letter.status, letter.body) == (201, 201, b"bad")
    assert letter.headers["DeadLetterReason"] == '"why"'
    assert letter.headers["DeadLetterErrorDescription"] == '"because"'
    assert (await rest.later("DELETE", letter.path())).status == 200
    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        assert await receiver.receive(wait_s=0.5) == []


async def test_a_send_wakes_a_receive_that_waits(rest: Rest, queue: Queue, sdk: AioSdk) -> None:
    """R19."""
    head = f"/{queue.name}/messages/head?timeout=30"
    async with sdk.sender(queue.name) as sender:
        waiting = asyncio.create_task(rest.later("DELETE", head))
        await asyncio.sleep(1)
        started = time.monotonic()
        await sender.send(ServiceBusMessage("news"))
        answer = await waiting

    assert answer.body == b"news"
    assert time.monotonic() - started < SOON_S


def test_a_kept_connection_serves_a_hundred_requests(rest: Rest, queue: Queue) -> None:
    """R33."""
    sockets: set[int] = set()
    for number in range(50):
        body = str(number).encode()
        sent = rest.ask("POST", f"/{queue.name}/messages", body)
        answer = rest.ask("DELETE", f"/{queue.name}/messages/head?timeout=20")
        assert (sent.status, answer.status, answer.body) == (201, 200, body)
        assert rest.connection.sock is not None
        sockets.add(rest.connection.sock.getsockname()[1])

    assert len(sockets) == 1


@pytest.mark.parametrize("is_polite", [True, False], ids=["closes", "resets"])
def test_a_client_that_vanishes_while_it_waits_leaves_nothing_locked(
    server: Server, token: str, rest: Rest, queue: Queue, is_polite: bool
) -> None:
    """R18: ten of them, and the next receive gets the message uncounted."""
    connections = _connections(rest)
    for _ in range(10):
        vanishing = socket.create_connection((server.host, server.http_port))
        vanishing.sendall(
            f"POST /{queue.name}/messages/head?timeout=50 HTTP/1.1\r\nHost: h\r\n"
            f"Authorization: {token}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        assert rest.ask("GET", "/health").status == 200
        if not is_polite:
            vanishing.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        vanishing.close()
    _until(rest, connections)
    rest.ask("POST", f"/{queue.name}/messages", b"mine")

    locked = rest.ask("POST", f"/{queue.name}/messages/head?timeout={SOON_S}")

    assert (locked.status, locked.body) == (201, b"mine")
    assert locked.broker()["DeliveryCount"] == 1


def _connections(rest: Rest) -> int:
    # The numbers of a scrape are kept for a second.
    time.sleep(1.1)
    text = rest.ask("GET", "/metrics").body.decode()
    found = re.search(r'^shardbus_connections\{protocol="http"\} (\d+)$', text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def _until(rest: Rest, connections: int) -> None:
    """Wait until the server has noticed that the others have gone."""
    deadline = time.monotonic() + WAIT_S
    while _connections(rest) > connections:
        assert time.monotonic() < deadline, "clients that have gone are still counted"


def test_a_queue_with_sessions_is_not_received_over_http(
    rest: Rest, queues: Queues, is_partitioned: bool
) -> None:
    queue = queues.make(is_partitioned, requires_session=True)

    sent = rest.ask(
        "POST", f"/{queue.name}/messages", b"x", {"BrokerProperties": '{"SessionId": "s"}'}
    )
    refused = rest.ask("POST", f"/{queue.name}/messages/head?timeout=1")

    assert (sent.status, refused.status) == (201, 400)
    assert queue.name.encode() in refused.body


def test_the_one_port_speaks_https_too(server: Server, token: str, queue: Queue) -> None:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    connection = http.client.HTTPSConnection(
        "localhost", server.amqp_port, timeout=60, context=context
    )
    rest = Rest(connection, token)

    assert rest.ask("POST", f"/{queue.name}/messages", b"x").status == 201
    locked = rest.ask("POST", f"/{queue.name}/messages/head?timeout=20")

    assert locked.headers["Location"].startswith(f"https://localhost:{server.amqp_port}/")
    assert rest.ask("DELETE", locked.path()).status == 200
    connection.close()


def test_what_is_wrong_is_refused_with_its_status(rest: Rest, partitioned_queue: Queue) -> None:
    path = f"/{partitioned_queue.name}/messages"

    assert rest.ask("POST", path, b"x", {"BrokerProperties": "{"}).status == 400
    assert rest.ask("POST", path, b"x", {"Authorization": "SharedAccessSignature x"}).status == 401
    assert rest.ask("POST", path, bytes(300_000)).status == 403
    assert rest.ask("POST", "/no-such-queue/messages", b"x").status == 410
    assert rest.ask("POST", path, b"x").status == 201


def test_metrics_and_the_api_tell_what_is_there(rest: Rest, queue: Queue) -> None:
    """R29; on the loopback metrics are open."""
    for _ in range(3):
        rest.ask("POST", f"/{queue.name}/messages", b"x")
    time.sleep(1.1)  # The numbers of a scrape are kept for a second.

    metrics = rest.ask("GET", "/metrics", headers={"Authorization": ""})
    shown = rest.ask("GET", f"/api/v1/queues/{queue.name}")
    fragments = rest.ask("GET", f"/api/v1/entities/{queue.name}/fragments")
    described = rest.ask("GET", "/api/v1/openapi.json", headers={"Authorization": ""})
    refused = rest.ask("GET", "/api/v1/queues", headers={"Authorization": ""})

    lines = metrics.body.decode().splitlines()
    assert f'shardbus_messages{{entity="{queue.name}",state="active"}} 3' in lines
    assert f'shardbus_messages_sent_total{{entity="{queue.name}"}} 3' in lines
    assert json.loads(shown.body)["runtime"]["active"] == 3
    parts = json.loads(fragments.body)["fragments"]
    assert len(parts) == queue.fragment_count
    assert sum(part["active"] for part in parts) == 3
    assert json.loads(described.body)["openapi"] == "3.1.0"
    assert (refused.status, json.loads(refused.body)["error"]["code"]) == (401, "unauthorized")
