"""A general AMQP 1.0 client, Qpid Proton, with SASL PLAIN."""

from __future__ import annotations

import pytest
from proton import ConnectionException, Delivery, Link, Message, symbol
from proton.reactor import AtMostOnce, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, SendException

from shardbus.app.cli.sas import Credential
from tests.conformance.conftest import Queue
from tests.support.amqp_client import Address

TIMEOUT_S = 30
SMALL_FRAME = 4_096


@pytest.fixture
def connect(address: Address, credential: Credential) -> Connect:
    return Connect(address, credential)


class Connect:
    """Opens connections with SASL PLAIN, as the settings of a general client would."""

    def __init__(self, address: Address, credential: Credential) -> None:
        self._address = address
        self._credential = credential

    def __call__(
        self, key: str | None = None, max_frame_size: int | None = None
    ) -> BlockingConnection:
        return BlockingConnection(
            f"amqp://{self._address.host}:{self._address.port}",
            timeout=TIMEOUT_S,
            user=self._credential.key_name,
            password=self._credential.key if key is None else key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            max_frame_size=max_frame_size,
        )


class Unsettled(LinkOption):
    """Asks for deliveries that the receiver settles second, as the Service Bus SDKs do."""

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST


def drain(receiver: BlockingReceiver) -> list[Message]:
    """The messages that are there now: ask for ten, and wait until the bus says that was all."""
    fetcher = receiver.fetcher
    assert fetcher is not None
    receiver.link.drain(10)
    receiver.connection.wait(lambda: receiver.link.credit == 0, timeout=TIMEOUT_S)
    return [fetcher.pop() for _ in range(fetcher.has_message)]


def test_a_message_is_sent_and_received_and_gone(connect: Connect, queue: Queue) -> None:
    """R32, R34: PLAIN opens the whole namespace that the key opens."""
    connection = connect()
    sender = connection.create_sender(queue.name)
    sent = Message(
        body="hello", id="id-1", subject="subject", properties={"number": 7, "text": "x"}
    )

    assert sender.send(sent).remote_state == Delivery.ACCEPTED
    receiver = connection.create_receiver(queue.name, credit=1, options=Unsettled())
    received = receiver.receive(timeout=TIMEOUT_S)
    receiver.accept()

    properties: object = received.properties
    annotations: object = received.annotations
    assert (received.body, received.id, received.subject) == ("hello", "id-1", "subject")
    assert properties == {"number": 7, "text": "x"}
    assert isinstance(annotations, dict)
    assert symbol("x-opt-sequence-number") in annotations
    assert drain(receiver) == []
    connection.close()


def test_a_drain_ends_with_no_credit_and_brings_what_there_is(
    connect: Connect, queue: Queue
) -> None:
    connection = connect()
    receiver = connection.create_receiver(queue.name, credit=0, options=Unsettled())
    assert drain(receiver) == []
    sender = connection.create_sender(queue.name)
    for number in range(3):
        sender.send(Message(body=number))

    messages = drain(receiver)

    assert sorted(str(message.body) for message in messages) == ["0", "1", "2"]
    connection.close()


def test_a_message_of_many_frames_goes_both_ways(connect: Connect, queue: Queue) -> None:
    """The smaller of both frame sizes rules: 200 KB in frames of 4 KB."""
    connection = connect(max_frame_size=SMALL_FRAME)
    body = bytes(range(256)) * 800
    sender = connection.create_sender(queue.name)

    sender.send(Message(body=body))
    receiver = connection.create_receiver(queue.name, credit=1, options=Unsettled())
    received = receiver.receive(timeout=TIMEOUT_S)
    receiver.accept()

    assert isinstance(received.body, bytes | memoryview)
    assert bytes(received.body) == body
    connection.close()


def test_a_released_message_comes_back_uncounted(connect: Connect, queue: Queue) -> None:
    connection = connect()
    connection.create_sender(queue.name).send(Message(body="x"))
    receiver = connection.create_receiver(queue.name, credit=1, options=Unsettled())

    receiver.receive(timeout=TIMEOUT_S)
    receiver.release(delivered=False)
    again = receiver.receive(timeout=TIMEOUT_S)

    assert again.delivery_count == 0
    receiver.accept()
    connection.close()


def test_settled_messages_are_gone_when_they_are_sent(connect: Connect, queue: Queue) -> None:
    connection = connect()
    connection.create_sender(queue.name).send(Message(body="x"))
    deleting = connection.create_receiver(queue.name, credit=1, options=AtMostOnce())

    assert deleting.receive(timeout=TIMEOUT_S).body == "x"

    receiver = connection.create_receiver(
        queue.name, credit=0, options=Unsettled(), name="second receiver"
    )
    assert drain(receiver) == []
    connection.close()


def test_a_rejected_message_is_a_dead_letter(connect: Connect, queue: Queue) -> None:
    connection = connect()
    connection.create_sender(queue.name).send(Message(body="bad"))
    receiver = connection.create_receiver(queue.name, credit=1, options=Unsettled())
    receiver.receive(timeout=TIMEOUT_S)
    receiver.reject()

    dead = connection.create_receiver(
        f"{queue.name}/$DeadLetterQueue", credit=1, options=Unsettled()
    )
    assert dead.receive(timeout=TIMEOUT_S).body == "bad"
    dead.accept()
    connection.close()


def test_a_conflict_of_keys_is_a_rejected_delivery(connect: Connect, queue: Queue) -> None:
    """R12."""
    connection = connect()
    sender = connection.create_sender(queue.name)
    conflicting = Message(body="x", group_id="one")
    conflicting.annotations = {symbol("x-opt-partition-key"): "other"}

    with pytest.raises(SendException) as refusal:
        sender.send(conflicting)

    assert refusal.value.state == Delivery.REJECTED
    connection.close()


def test_a_wrong_key_opens_nothing(connect: Connect) -> None:
    """R34."""
    with pytest.raises(ConnectionException):
        connect(key="wrong").close()
