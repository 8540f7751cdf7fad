"""Hostile bytes: whatever a peer sends ends in well-formed output, bounded memory and no exception.

Seeds are fixed, so a failure is the same failure everywhere.
"""

import random
import tracemalloc
from collections.abc import Callable

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    DeliveriesReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    SaslInitReceived,
    SettlementsReceived,
)
from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, AmqpError, Modified, encode_state
from shardbus.amqp.performatives import Attach, Flow, Transfer, encode_disposition
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Int, Symbol, Uuid
from shardbus.codec.value import encode
from shardbus.message.sections import (
    Stamp,
    build_message,
    decode_message,
    encode_data_message,
    encode_delivery,
    scan_message,
    split_batch,
)
from tests.unit.amqp.frames_seen import seen

LIMITS = ConnectionConfig(
    container_id="server",
    max_frame_size=4_096,
    incoming_window=64,
    unsettled_max=64,
    links_max=20,
    buffered_bytes_max=20_000,
    max_message_size=8_000,
)
TAG = bytes(16)


class Owner:
    """A server's owner that does something with every event, as a gateway would."""

    def __init__(self) -> None:
        self.connection = Connection(LIMITS, True, 0)
        self.open_links: set[int] = set()
        self.ended = False

    def feed(self, data: bytes, now_ms: int) -> bytes:
        self.act(self.connection.receive(data, now_ms))
        self.connection.tick(now_ms)
        return self.connection.take_output()

    def act(self, events: list[Event]) -> None:
        for event in events:
            assert not self.ended
            match event:
                case SaslInitReceived():
                    self.act(self.connection.sasl_outcome(True))
                case LinkAttached(link):
                    self.open_links.add(id(link))
                    self.attach(link)
                case LinkDetached(link):
                    self.open_links.remove(id(link))
                case LinkFlowed(link):
                    self.pump(link)
                case DeliveriesReceived(link, deliveries):
                    link.settle([delivery.delivery_id for delivery in deliveries], ACCEPTED)
                case SettlementsReceived(link, ids, _, state, settled):
                    if not settled:
                        link.confirm(ids, state)
                case _:
                    self.ended = type(event).__name__ == "ConnectionClosed"

    def attach(self, link: Link) -> None:
        if len(link.name) % 11 == 7:
            link.refuse(AmqpError("amqp:not-found", "nowhere"))
            return
        self.act(link.accept())
        if not link.is_sender:
            link.grant(50)

    def pump(self, link: Link) -> None:
        for _ in range(min(link.sendable, 20)):
            link.send(TAG, b"x" * 5_000, len(link.name) % 2 == 0)
        if link.drain:
            link.drained()


def conversation() -> bytes:
    """What a well-behaved client writes, from the first header to the close."""
    recorder = Recorder()
    recorder.lane()
    return recorder.written


class Recorder:
    """A client that does a little of everything; `written` is all that it sent."""

    def __init__(self) -> None:
        self.written = b""

    def lane(self) -> None:
        client = Connection(ConnectionConfig(container_id="client", hostname="host"), False, 0)
        owner = Owner()
        client.open()
        self._exchange(client, owner)
        session = client.begin_session()
        sender = session.attach_sender("sender", target="queue", properties={"a": Int(5)})
        receiver = session.attach_receiver("receiver", source="queue", settle_modes=(0, 1))
        session.attach_receiver("nowhere", source="x")
        self._exchange(client, owner)
        receiver.grant(5)
        message = encode_data_message(b"x" * 100, message_id="id", partition_key="key")
        for number in range(4):
            repeated = message * (1 if number else 30)
            sender.send(TAG, repeated, number == 1, 0x80013700 if number > 2 else 0)
        self._exchange(client, owner)
        receiver.settle([0, 1, 2], ACCEPTED, settled=False)
        receiver.settle([4], ACCEPTED)
        receiver.grant(receiver.credit + 3, drain=True)
        self._exchange(client, owner)
        sender.detach()
        other = client.begin_session()
        other.attach_sender("again", target="queue")
        self._exchange(client, owner)
        other.end(AmqpError("amqp:internal-error", "text", {Symbol("key"): Uuid(TAG)}))
        self._exchange(client, owner)
        client.close()
        self._exchange(client, owner)

    def _exchange(self, client: Connection, owner: Owner) -> None:
        for _ in range(20):
            output = client.take_output()
            self.written += output
            client.receive(owner.feed(output, 0), 0)


CONVERSATION = conversation()


def mutate(original: bytes, chance: random.Random) -> bytes:
    """A few bytes flipped, cut out, doubled or replaced."""
    data = bytearray(original)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data))
        kind = chance.randrange(5)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at] = chance.choice((0, 1, 0x40, 0x45, 0x70, 0xC0, 0xD0, 0xF0, 0xFF))
        elif kind == 2:
            del data[at : at + chance.randint(1, 8)]
        elif kind == 3:
            data[at:at] = data[at : at + chance.randint(1, 64)]
        else:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(data)


def converse(data: bytes, chance: random.Random) -> Owner:
    """Feed a server in pieces; its output must be well-formed and follow from the input."""
    owner = Owner()
    output = b""
    now_ms = 0
    while data:
        size = chance.choice((1, 7, 100, 1_000, 100_000))
        output += owner.feed(data[:size], now_ms)
        data = data[size:]
        now_ms += 10
        assert owner.connection.buffered_bytes <= LIMITS.buffered_bytes_max
    seen(output)
    assert owner.ended == owner.connection.is_closed
    owner.act(owner.connection.transport_lost())
    assert owner.ended
    assert not owner.open_links
    assert owner.connection.buffered_bytes == 0
    return owner


def test_the_unmutated_conversation_is_long_and_clean() -> None:
    owner = converse(CONVERSATION, random.Random(0))

    assert len(CONVERSATION) > 4_000
    assert owner.connection.is_closed


@pytest.mark.parametrize("seed", range(8))
def test_mutated_conversations_never_escape(seed: int) -> None:
    chance = random.Random(seed)

    for _ in range(300):
        converse(mutate(CONVERSATION, chance), chance)


@pytest.mark.parametrize("seed", range(4))
def test_frames_in_another_order_never_escape(seed: int) -> None:
    chance = random.Random(seed)
    frames = _frames(CONVERSATION)

    for _ in range(200):
        opening = frames[:5]
        rest = frames[5:]
        chance.shuffle(rest)
        converse(b"".join(opening + rest + rest[: chance.randrange(len(rest))]), chance)


def _frames(data: bytes) -> list[bytes]:
    frames: list[bytes] = []
    while data:
        size = 8 if data[:4] == b"AMQP" else int.from_bytes(data[:4], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_never_escape(seed: int) -> None:
    chance = random.Random(seed)
    header = b"AMQP\x03\x01\x00\x00"

    for _ in range(300):
        noise = chance.randbytes(chance.randint(1, 300))
        converse(noise, chance)
        converse(header + noise, chance)


@pytest.mark.parametrize("seed", range(4))
def test_random_performatives_never_escape(seed: int) -> None:
    """Well-framed, on an open connection with a session, and otherwise anything."""
    chance = random.Random(seed)
    opening = b"".join(_frames(CONVERSATION)[:5])

    for _ in range(300):
        frames = [opening]
        for _ in range(chance.randint(1, 8)):
            fields = chance.randbytes(chance.randint(0, 40))
            code = chance.randint(0x10, 0x19)
            body = bytes((0, 0x53, code, 0xC0, len(fields) + 1, chance.randint(0, 12))) + fields
            channel = chance.choice((0, 0, 0, 1))
            head = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big")
            frames.append(head + body)
        converse(b"".join(frames), chance)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_messages_are_scanned_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    originals = [
        encode_data_message(b"x" * 50, message_id="id", session_id="s", partition_key="key"),
        build_message(
            body={"a": [1, 2, {"b": None}]},
            application_properties={"x": 1, "y": "text"},
            message_id=Uuid(TAG),
            reply_to="reply",
        ),
    ]
    accepted = 0
    for _ in range(1_500):
        payload = mutate(chance.choice(originals), chance)
        try:
            head = scan_message(payload)
        except DecodeError:
            continue
        accepted += 1
        stamp = Stamp(
            sequence_number=1, enqueued_time_ms=1, absolute_expiry_ms=chance.randint(-1, 1)
        )
        delivered = encode_delivery(payload, head, stamp, {"reason": encode("text")})
        again = scan_message(delivered)
        assert again.body_length == head.body_length
        assert again.message_id_raw
        assert head.message_id_raw in (b"", again.message_id_raw)
        for reading in (decode_message, split_batch):
            try:
                reading(payload)
            except DecodeError:
                continue
    assert accepted > 50


def partial_deliveries() -> bytes:
    """Twenty links, each with a delivery that goes on and on."""
    frames: list[bytes] = []
    for handle in range(3, 23):
        attach = Attach()
        attach.name = f"link{handle}"
        attach.handle = handle
        attach.initial_delivery_count = 0
        frames.append(amqp_frame(0, attach.encode()))
    transfer = Transfer()
    transfer.tag = TAG
    transfer.more = True
    for number in range(400):
        transfer.handle = 3 + number % 20
        transfer.delivery_id = number % 20
        frames.append(amqp_frame(0, transfer.encode() + bytes(3_000)))
    return b"".join(frames)


def endless_ranges() -> bytes:
    """Outcomes for every delivery there ever was, over and over."""
    state = encode_state(Modified())
    frames = [
        amqp_frame(0, encode_disposition(role, first, first - 1 & 0xFFFFFFFF, settled, state))
        for role in (True, False)
        for settled in (False, True)
        for first in (0, 1, 2**31)
    ]
    return b"".join(frames) * 1_000


def echoes() -> bytes:
    """Flows that ask for answers and open and shut the window."""
    flows: list[bytes] = []
    for window in (0, 1, 0xFFFFFFFF):
        flow = Flow()
        flow.next_incoming_id = 0
        flow.incoming_window = window
        flow.echo = True
        flows.append(amqp_frame(0, flow.encode()))
    return b"".join(flows) * 2_000


@pytest.mark.parametrize("attack", [partial_deliveries, endless_ranges, echoes])
def test_a_greedy_peer_costs_bounded_memory(attack: Callable[[], bytes]) -> None:
    opening = b"".join(_frames(CONVERSATION)[:9])
    hostile = attack()
    owner = Owner()
    owner.feed(opening, 0)
    assert owner.connection.is_open

    tracemalloc.start()
    for start in range(0, len(hostile), 65_536):
        owner.feed(hostile[start : start + 65_536], 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(hostile) > 150_000
    assert peak < 2_000_000
