"""Connections and links on which nothing happens, in virtual time."""

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.frames import AMQP_HEADER, SASL_HEADER, sasl_frame
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED
from shardbus.amqp.sasl import SaslInit, encode_init
from shardbus.codec.types import Int
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import ROOT_KEY, Client, anonymous
from tests.unit.gateway.amqp.desk import Desk, status_of

ANONYMOUS_INIT = sasl_frame(encode_init(SaslInit("ANONYMOUS", b"", "localhost")))
STAGES = {
    "silent": b"",
    "a part of the header": b"AMQP",
    "after the header": SASL_HEADER,
    "inside a SASL frame": SASL_HEADER + ANONYMOUS_INIT[:10],
}


def raw(bench: Bench, said: bytes) -> Client:
    """A connection on which so much was said, and no more."""
    client = Client(bench.server.new_protocol(), anonymous(), bench.loop)
    client.is_beating = False
    bench.loop.call_soon(client.transport.connect, client.protocol)
    if said:
        bench.loop.call_soon(client.transport.feed, said)
    bench.pass_s()
    return client


@pytest.mark.parametrize("said", STAGES.values(), ids=STAGES.keys())
def test_a_client_that_stops_before_it_opened_is_dropped_after_20_seconds(
    bench: Bench, said: bytes
) -> None:
    client = raw(bench, said)
    bench.pass_s(19)
    assert not client.transport.is_closing()

    bench.pass_s(1.5)

    assert client.transport.is_closing()
    assert bench.server.connections == 0


def test_a_client_that_sends_byte_by_byte_is_dropped_after_20_seconds_all_the_same(
    bench: Bench,
) -> None:
    """The length of a frame, a byte of it every quarter of a second."""
    client = raw(bench, SASL_HEADER + ANONYMOUS_INIT + AMQP_HEADER + b"\x00\x00\x10\x00\x02\x00")
    for _ in range(76):
        client.transport.feed(b"\x00")
        bench.pass_s(0.25)
    assert not client.transport.is_closing()

    for _ in range(6):
        client.transport.feed(b"\x00")
        bench.pass_s(0.25)

    assert client.transport.is_closing()
    assert bench.server.connections == 0


def test_a_client_that_opens_and_shows_no_token_is_told_after_20_seconds(bench: Bench) -> None:
    client = bench.client(anonymous())
    client.receiver("$cbs", 10)
    bench.pass_s(19)
    assert client.connection.is_open

    bench.pass_s(1.5)

    error = client.close_error()
    assert error.condition == "amqp:connection:forced"
    assert error.description.startswith("The client put no token within 20000 milliseconds.")


def test_a_token_that_is_refused_is_no_token(bench: Bench) -> None:
    client = bench.client(anonymous())
    requests = client.sender("$cbs", "requests")
    client.receiver("$cbs", 10, name="responses")
    bench.pass_s()
    _put(bench, client, requests, "not a token")
    bench.pass_s(20.5)

    assert client.close_error().condition == "amqp:connection:forced"


def test_a_client_that_shows_a_token_stays(bench: Bench) -> None:
    client = bench.client(anonymous())
    requests = client.sender("$cbs", "requests")
    client.receiver("$cbs", 10, name="responses")
    bench.pass_s(15)
    _put(bench, client, requests, bench.token())
    bench.pass_s(300)

    assert client.connection.is_open


def _put(bench: Bench, client: Client, requests: Link, token: str) -> None:
    properties = {
        "operation": "put-token",
        "type": "servicebus.windows.net:sastoken",
        "name": "sb://shardbus/",
    }
    client.ask(requests, token, properties)
    bench.pass_s()


def test_a_sender_without_traffic_is_detached_after_ten_minutes_and_the_connection_stays(
    bench: Bench,
) -> None:
    client = bench.client()
    link = client.sender("q", "idle-sender")
    bench.pass_s(595)
    assert link.is_attached

    bench.pass_s(130)

    error = client.detach_error(link)
    assert error.condition == "amqp:link:detach-forced"
    assert error.description.startswith(
        "The link 'idle-sender' is force detached by the broker due to errors occurred in publisher"
    )
    assert "AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00." in error.description
    assert client.connection.is_open


def test_a_receiver_without_credit_is_detached_after_ten_minutes(bench: Bench) -> None:
    client = bench.client()
    link = client.receiver("q")
    bench.pass_s(730)

    assert "AmqpMessageConsumer.IdleTimerExpired" in client.detach_error(link).description


def test_one_message_in_ten_minutes_is_enough(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    for _ in range(6):
        client.send(link, b"x")
        bench.pass_s(500)

    assert link.is_attached


def test_a_receiver_that_waits_or_holds_a_message_is_not_idle(bench: Bench) -> None:
    bench.fill("q", b"held")
    client = bench.client()
    holding = client.receiver("q", 1, name="holding")
    bench.pass_s()
    waiting = client.receiver("many", 1, name="waiting")
    bench.pass_s(1300)

    assert waiting.is_attached
    assert holding.is_attached
    [held] = client.received(holding)
    client.settle(holding, [held.delivery_id], ACCEPTED)
    bench.pass_s(730)
    assert not holding.is_attached


def test_links_that_carry_requests_are_never_idle(bench: Bench) -> None:
    """The Python SDK renews its token on a link that it may not have used for an hour."""
    client = bench.client()
    links = [
        client.sender("$cbs", "cbs requests"),
        client.receiver("$cbs", 10, name="cbs responses"),
        client.sender("q/$management", "requests"),
        client.receiver("q/$management", name="responses"),
    ]
    bench.pass_s(2000)

    assert [link.is_attached for link in links] == [True] * 4


@pytest.mark.parametrize("key", ["associated-link-name", "com.microsoft:associated-link-name"])
def test_requests_keep_the_link_that_they_are_made_for(bench: Bench, key: str) -> None:
    """Who only peeks, or only schedules, has a link on which nothing moves."""
    client = bench.client()
    named, other = client.sender("q", "named"), client.receiver("q", name="other")
    desk = Desk(bench, client, "q")
    for _ in range(6):
        desk.ask_raw(
            {"from-sequence-number": 1, "message-count": 1},
            {"operation": "com.microsoft:peek-message", key: "named"},
        )
        bench.pass_s(300)

    assert (named.is_attached, other.is_attached) == (True, False)
    bench.pass_s(730)
    assert not named.is_attached


def test_requests_for_a_link_that_is_over_are_answered(bench: Bench) -> None:
    client = bench.client()
    named = client.sender("q", "named")
    desk = Desk(bench, client, "q")
    named.detach()
    client.flush()
    bench.pass_s()

    answer = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": 1}, named)

    assert status_of(answer) == Int(204)


def test_a_client_that_bears_no_silence_at_all_is_refused(bench: Bench) -> None:
    """Heartbeats for a patience of a millisecond would be all we do."""
    config = ConnectionConfig(sasl_mechanism="PLAIN", sasl_response=ROOT_KEY, idle_timeout_ms=1)

    client = bench.client(config)

    error = client.close_error()
    assert error.condition == "amqp:not-allowed"
    assert "500 milliseconds" in error.description
