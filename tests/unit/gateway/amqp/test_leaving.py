"""Connections that the gateway ends while their clients read nothing: they hold nothing."""

from __future__ import annotations

from shardbus.amqp.outcomes import AmqpError
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import RECEIVE_AND_DELETE

ERROR = AmqpError("amqp:connection:forced", "enough")


def test_a_connection_that_is_being_closed_takes_no_more_messages(bench: Bench) -> None:
    """R18."""
    client = bench.client()
    link = client.receiver("q", 10)
    bench.pass_s()
    client.transport.stall()
    bench.fill("q", b"unread")
    client.protocol.close(ERROR)

    bench.fill("q", b"one", b"two")

    assert bench.left("q") == [b"one", b"two"]
    assert client.bodies(link) == []


def test_nothing_is_deleted_for_a_connection_that_is_being_closed(bench: Bench) -> None:
    client = bench.client()
    client.receiver("q", 10, modes=RECEIVE_AND_DELETE)
    bench.pass_s()
    client.transport.stall()
    bench.fill("q", b"unread")
    client.protocol.close(ERROR)

    bench.fill("q", b"one", b"two")

    assert bench.left("q") == [b"one", b"two"]


def test_a_connection_that_is_being_closed_holds_no_session(bench: Bench) -> None:
    """R18, R26."""
    bench.create_sessions("s")
    bench.send_to("s", "a", b"unread")
    client = bench.client()
    client.transport.stall()
    client.session_receiver("s", "a")
    bench.pass_s()

    client.protocol.close(ERROR)
    bench.pass_s()

    other = bench.client()
    link = other.session_receiver("s", "a", 10)
    bench.pass_s(1)
    assert other.bodies(link) == [b"unread"]
