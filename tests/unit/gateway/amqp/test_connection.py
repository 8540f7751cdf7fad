"""A connection as a whole: its time, its end, and clients that misbehave."""

import asyncio
import gc

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.frames import amqp_frame
from shardbus.gateway.amqp.connection.protocol import UNREAD_BYTES_MAX
from shardbus.gateway.amqp.links.inbound import Inbound
from shardbus.gateway.amqp.links.outbound import Outbound
from shardbus.gateway.amqp.management.requests import RequestLink
from shardbus.gateway.amqp.management.responses import ResponseLink
from tests.unit.amqp.frames_seen import error_of, seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import ROOT_KEY, Client, anonymous

SASL_HEADER = b"AMQP\x03\x01\x00\x00"


def raw(bench: Bench) -> Client:
    """A connection on which nothing was said yet."""
    client = Client(bench.server.new_protocol(), anonymous(), bench.loop)
    client.is_beating = False
    bench.loop.call_soon(client.transport.connect, client.protocol)
    bench.pass_s()
    return client


def test_a_connection_without_a_link_is_closed_after_a_minute(bench: Bench) -> None:
    client = bench.client()
    bench.pass_s(59.5)
    assert not client.is_closed()

    bench.pass_s(1)

    error = client.close_error()
    assert error.condition == "amqp:connection:forced"
    assert "more than the allowed 60000 milliseconds" in error.description
    assert bench.server.connections == 0


def test_a_connection_whose_links_are_gone_is_closed_after_five_minutes(bench: Bench) -> None:
    client = bench.client()
    link = client.receiver("q")
    bench.pass_s(100)
    link.detach()
    client.flush()
    bench.pass_s(299.5)
    assert not client.is_closed()

    bench.pass_s(1)

    error = client.close_error()
    assert error.condition == "amqp:connection:forced"
    assert "more than the allowed 300000 milliseconds" in error.description


def test_a_connection_with_a_link_that_waits_stays(bench: Bench) -> None:
    client = bench.client()
    link = client.receiver("q", 1)
    bench.pass_s(3600)

    assert link.is_attached


def test_a_silent_client_is_told_and_dropped(bench: Bench) -> None:
    client = bench.client()
    client.receiver("q")
    bench.pass_s()
    client.is_beating = False
    bench.pass_s(440)
    assert not client.is_closed()

    bench.pass_s(75)

    assert client.close_error().condition == "amqp:resource-limit-exceeded"
    assert bench.server.connections == 0


def test_a_client_gets_heartbeats_twice_as_often_as_it_asks(bench: Bench) -> None:
    config = ConnectionConfig(
        sasl_mechanism="PLAIN", sasl_response=ROOT_KEY, idle_timeout_ms=10_000
    )
    client = bench.client(config)
    client.receiver("q")
    bench.pass_s(101)

    assert 19 <= len(client.frames("heartbeat")) <= 21
    assert not client.is_closed()


def test_one_connection_too_many_is_told_why_and_the_others_go_on(
    request: pytest.FixtureRequest,
) -> None:
    bench = Bench(connections_max=2)
    request.addfinalizer(bench.close)
    clients = [bench.client() for _ in range(3)]

    error = clients[2].close_error()

    assert error.condition == "amqp:resource-limit-exceeded"
    assert error.description.startswith("ConnectionsQuotaExceeded")
    assert [client.connection.is_open for client in clients] == [True, True, False]
    assert bench.server.connections == 2
    clients[0].transport.close()
    bench.pass_s()
    assert bench.client().connection.is_open


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 100,
        b"\xff" * 100,
        SASL_HEADER + b"\xff\xff\xff\xff\x02\x01\x00\x00",
        SASL_HEADER + b"\x00\x00\x00\x08\x02\x01\x00\x00",
        b"AMQP\x00\x00\x09\x01",
    ],
)
def test_garbage_ends_its_connection_and_no_other(bench: Bench, garbage: bytes) -> None:
    good, bad = bench.client(), raw(bench)
    bad.transport.feed(garbage)
    bench.pass_s()

    assert bad.transport.is_closed
    assert good.connection.is_open
    assert bench.server.connections == 1


def test_garbage_in_an_open_connection_is_answered_with_a_close(bench: Bench) -> None:
    client = bench.client()
    client.receiver("q", 10)
    bench.pass_s()
    client.transport.feed(amqp_frame(9, b"\x00\x53\x14\x45"))
    bench.pass_s()

    assert client.close_error().condition.startswith("amqp:")
    assert client.transport.is_closed
    bench.fill("q", b"not for the one that left")
    assert bench.left("q") == [b"not for the one that left"]


def test_shutting_down_says_goodbye_to_everyone(bench: Bench) -> None:
    clients = [bench.client() for _ in range(3)]
    silent = raw(bench)
    bench.loop.call_soon(bench.server.close)
    bench.pass_s()

    conditions = {client.close_error().condition for client in clients}
    assert conditions == {"amqp:connection:forced"}
    assert silent.transport.is_closed
    assert bench.server.connections == 0


def test_a_client_that_does_not_read_the_goodbye_is_cut_off(bench: Bench) -> None:
    client = bench.client()
    bench.pass_s()
    client.transport.stall()
    bench.loop.call_soon(bench.server.close)
    bench.pass_s(5)
    assert bench.server.connections == 1

    bench.pass_s(6)

    assert bench.server.connections == 0
    assert client.transport.is_aborted


def test_a_client_that_closes_is_answered_and_forgotten(bench: Bench) -> None:
    client = bench.client()
    client.receiver("q", 1)
    bench.pass_s()
    client.connection.close()
    client.flush()
    bench.pass_s()

    assert [frame.field(0) for frame in client.frames("close")] == [None]
    assert bench.server.connections == 0


def test_a_client_that_asks_and_never_reads_is_not_read_for_ever(bench: Bench) -> None:
    bench.fill("q", *[b"x" * 60_000] * 4)
    client = bench.client()
    requests = client.sender("q/$management", "requests")
    client.receiver("q/$management", 1000, name="responses")
    bench.pass_s()
    client.transport.stall()

    for _ in range(80):
        body = {"from-sequence-number": 1, "message-count": 10}
        client.ask(requests, body, {"operation": "com.microsoft:peek-message"})
        bench.pass_s(0.01)

    assert not client.is_read()
    assert client.transport.get_write_buffer_size() < UNREAD_BYTES_MAX + 500_000
    unread = client.transport.waiting_bytes()
    client.transport.flow()
    bench.pass_s(1)
    assert unread > 0
    assert client.is_read()
    assert client.transport.waiting_bytes() == 0


def test_requests_under_way_end_with_their_connection(bench: Bench) -> None:
    client = bench.client()
    requests = client.sender("q/$management", "requests")
    client.receiver("q/$management", 10, name="responses")
    bench.pass_s()
    bench.latency_s = 10
    body = {"from-sequence-number": 1, "message-count": 1}
    client.ask(requests, body, {"operation": "com.microsoft:peek-message"})
    bench.pass_s(1)
    client.transport.close()
    bench.pass_s(1)

    assert bench.server.connections == 0
    assert asyncio.all_tasks(bench.loop) == set()
    bench.pass_s(60)


def servants() -> list[object]:
    """Everything in this process that answers a link."""
    gc.collect()
    kinds = (Inbound, Outbound, RequestLink, ResponseLink)
    return [one for one in gc.get_objects() if isinstance(one, kinds)]


def test_links_that_are_over_are_forgotten(bench: Bench) -> None:
    before = len(servants())
    client = bench.client()
    links = [
        client.sender("q", "sender"),
        client.receiver("q", 10),
        client.sender("q/$management", "requests"),
        client.receiver("q/$management", 10, name="responses"),
    ]
    bench.pass_s()
    during = len(servants())

    for link in links:
        link.detach()
    client.flush()
    bench.pass_s()

    assert during - before == 4
    assert len(servants()) == before


def test_a_refusal_carries_all_three_fields_of_an_error(bench: Bench) -> None:
    client = bench.client()
    bench.loop.call_soon(bench.server.close)
    bench.pass_s()

    [close] = [frame for frame in seen(client.transport.written) if frame.name == "close"]
    assert error_of(close) == "amqp:connection:forced"
