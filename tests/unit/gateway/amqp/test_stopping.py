"""A gateway that stops: what it has read is answered, and nothing more is read."""

import asyncio

from shardbus.amqp.outcomes import ACCEPTED
from shardbus.codec.types import Int
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client, plain


def seconds(bench: Bench) -> float:
    """How long a stop takes, after what was sent has been read."""

    async def stop() -> None:
        await asyncio.sleep(0)
        await bench.server.stop()

    began_s = bench.loop.time()
    bench.run(stop())
    return bench.loop.time() - began_s


def test_a_send_is_answered_before_the_close_even_if_its_answer_has_just_come(
    bench: Bench,
) -> None:
    """R42: the server may look between the answer of the store and the turn that writes it."""
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    async def close_at_once() -> None:
        client.send(link, b"one")
        for is_answering in (True, False):
            while client.protocol.is_answering is not is_answering:  # noqa: ASYNC110 - as the server
                await asyncio.sleep(0.0001)
        bench.server.close()

    bench.run(close_at_once())
    bench.pass_s(1)

    assert list(client.outcomes(link).values()) == [ACCEPTED]


def test_a_stop_waits_until_a_client_has_read_its_answers(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    client.transport.stall()
    for _ in range(20):
        client.send(link, b"one")
    bench.loop.call_later(3, client.transport.flow)

    assert 3 <= seconds(bench) < 4

    assert list(client.outcomes(link).values()) == [ACCEPTED] * 20
    assert client.close_error().condition == "amqp:connection:forced"


def test_a_client_that_reads_nothing_holds_a_stop_for_five_seconds(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    link = client.sender("q")
    bench.pass_s()
    client.transport.stall()
    client.send(link, b"one")

    assert 5 <= seconds(bench) < 6

    assert client.transport.is_aborted
    assert other.close_error().condition == "amqp:connection:forced"


def test_a_stop_answers_settlements_and_requests(bench: Bench) -> None:
    bench.fill("q", b"one", b"two")
    client = bench.client()
    receiver, node = client.receiver("q", 2), client.sender("q/$management", "node")
    answers = client.receiver("q/$management", 9, name="answers", target="me")
    bench.pass_s()
    client.settle(receiver, [each.delivery_id for each in client.received(receiver)], ACCEPTED)
    peek = {"operation": "com.microsoft:peek-message"}
    body = {"from-sequence-number": 1, "message-count": Int(9)}
    client.ask(node, body, peek, reply_to="me")

    assert seconds(bench) < 1

    assert list(client.outcomes(receiver).values()) == [ACCEPTED] * 2
    assert len(client.answers(answers)) == 1


def test_what_comes_after_the_beginning_of_a_stop_is_not_done_and_dropped(bench: Bench) -> None:
    """Closing with unread input resets the connection, and the client could lose its answers."""
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    async def stop() -> None:
        client.send(link, b"before")
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(bench.server.stop())
        await asyncio.sleep(0)
        client.send(link, b"after")
        await stopping

    bench.run(stop())

    assert list(client.outcomes(link).values()) == [ACCEPTED]
    assert client.transport.has_written_eof
    assert client.transport.waiting_bytes() == 0


def test_a_connection_that_begins_during_a_stop_is_not_read(bench: Bench) -> None:
    old, late = bench.client(), Client(bench.server.new_protocol(), plain(), bench.loop)
    link = old.sender("q")
    bench.pass_s()
    old.transport.stall()
    old.send(link, b"one")
    bench.loop.call_later(1, late.connect)

    assert 5 <= seconds(bench) < 6

    assert late.transport.written == b""
    assert late.transport.is_closed
