"""Clients that take little at a time, and large messages that come again: nobody else suffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, RELEASED, Modified
from shardbus.codec.errors import INTERNAL_ERROR
from shardbus.codec.types import Symbol, Value
from shardbus.core.message import Message
from shardbus.core.messages.command import Send, Sent
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import RECEIVE_AND_DELETE, Client, plain

LARGE = [b"%d" % number + b"." * 100_000 for number in range(20)]
FRAME_BYTES = 512
WINDOW = 400
"""Frames that the client takes at a time: fewer than two messages need."""


@pytest.fixture
def small_bench() -> Iterator[Bench]:
    """A gateway that keeps little for clients that do not take it."""
    bench = Bench(ConnectionConfig(buffered_bytes_max=400_000))
    yield bench
    bench.close()


def small_client(bench: Bench) -> Client:
    return bench.client(replace(plain(), max_frame_size=FRAME_BYTES, incoming_window=WINDOW))


def let_come_again(bench: Bench, name: str) -> None:
    """Deliver all messages once, so that memory has them no more."""
    client = bench.client()
    link = client.receiver(name, len(LARGE))
    bench.pass_s(1)
    client.settle(link, [each.delivery_id for each in client.received(link)], RELEASED)
    bench.pass_s()
    bench.leave(client)


def completed(bench: Bench, client: Client, link: Link) -> list[object]:
    """Everything that comes on a link."""
    for _ in range(50):
        unsettled = [each.delivery_id for each in client.received(link)]
        client.settle(link, unsettled, ACCEPTED)
        bench.pass_s()
    return [*client.bodies(link)]


def test_answers_come_beside_a_client_that_cannot_take_what_comes_again(
    small_bench: Bench,
) -> None:
    bench = small_bench
    bench.fill("q", *LARGE)
    let_come_again(bench, "q")
    small, other = small_client(bench), bench.client()
    link, sender = small.receiver("q"), other.sender("q")
    bench.pass_s()

    small.grant(link, 100)
    sent = other.send(sender, b"beside")
    small.grant(link, 99)
    bench.pass_s(1)

    assert other.outcomes(sender) == {sent[0]: ACCEPTED}
    assert completed(bench, small, link) == [*LARGE, b"beside"]
    assert not small.is_closed()
    assert bench.left("q") == []


def test_what_a_client_with_small_frames_was_not_sent_is_not_locked(small_bench: Bench) -> None:
    """R18."""
    bench = small_bench
    bench.fill("q", *LARGE)
    let_come_again(bench, "q")
    small = small_client(bench)
    link = small.receiver("q")
    bench.pass_s()
    small.transport.stall()

    small.grant(link, 100)
    bench.pass_s(1)

    assert bench.left("q") == LARGE[2:]
    small.transport.flow()
    bench.pass_s(1)
    assert small.bodies(link)[:2] == LARGE[:2]


def test_what_is_received_and_deleted_in_small_frames_is_not_lost(small_bench: Bench) -> None:
    bench = small_bench
    bench.fill("q", *LARGE)
    let_come_again(bench, "q")
    small = small_client(bench)

    link = small.receiver("q", 100, modes=RECEIVE_AND_DELETE)
    bench.pass_s(5)

    assert small.bodies(link) == LARGE


def test_a_message_that_cannot_be_sent_ends_its_connection_alone(bench: Bench) -> None:
    """The others that were taken with it are unlocked; its own lock ends by itself, and counts."""
    bench.fill("q", b"good")
    queue = bench.broker.runner(bench.namespace.queue("q"), 0)
    assert isinstance(bench.answer(queue, Send([Message(b"no message at all")])), Sent)
    bench.fill("q", b"later")
    victim, other = bench.client(), bench.client()
    link, sender = victim.receiver("q"), other.sender("many")
    bench.pass_s()

    victim.grant(link, 10)
    sent = other.send(sender, b"beside")
    bench.pass_s(1)

    assert other.outcomes(sender) == {sent[0]: ACCEPTED}
    assert victim.close_error().condition == INTERNAL_ERROR
    assert bench.left("q") == [b"later"]


def test_what_an_abandon_changes_is_not_repeated_to_a_client_with_small_frames(
    bench: Bench,
) -> None:
    """Its properties are longer than a frame that the client would take."""
    bench.fill("q", b"x")
    small = small_client(bench)
    link = small.receiver("q", 1)
    bench.pass_s()
    [delivery] = small.received(link)
    changes: dict[Value, Value] = {Symbol("colour"): "red " * 200}

    small.settle(link, [delivery.delivery_id], Modified(message_annotations=changes))
    bench.pass_s()

    assert small.outcomes(link) == {delivery.delivery_id: Modified()}
    assert max(sizes(small)) <= FRAME_BYTES
    [message] = bench.messages_of("q")
    assert message.application_properties == {"colour": "red " * 200}


def test_a_session_whose_attach_cannot_be_answered_is_let_go(bench: Bench) -> None:
    """The answer repeats names and session, which together are longer than a frame."""
    bench.create_sessions("s" * 100)
    small, other = small_client(bench), bench.client()
    link = small.session_receiver("s" * 100, "i" * 128, 1, name="n" * 250)
    bench.pass_s()
    again = other.session_receiver("s" * 100, "i" * 128, 1)
    bench.pass_s()

    assert small.detach_error(link).condition == "amqp:frame-size-too-small"
    assert max(sizes(small)) <= FRAME_BYTES
    assert again.is_attached


def sizes(client: Client) -> list[int]:
    """How long the frames are that the server wrote after the open."""
    written = client.transport.written
    found: list[int] = []
    while written:
        size = 8 if written[:4] == b"AMQP" else int.from_bytes(written[:4], "big")
        found.append(size)
        written = written[size:]
    return found
