"""What the scenarios of Proton share: connections, links, and requests to `$management`."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from proton import UNDESCRIBED, Array, Data, Delivery, Link, Message, SSLDomain, symbol, timestamp
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver

from shardbus.app.cli.sas import parse_connection_string
from tests.conformance.python.world import CONNECTION_STRING, same

TIMEOUT_S: Final = 20
PREFIX: Final = os.environ["SHARDBUS_PREFIX"]

OnKind = Callable[[str], None]
Scenario = Callable[[], str]

_numbers = itertools.count(1)


class Unsettled(LinkOption):
    """Asks for deliveries that the receiver settles, as the Service Bus SDKs do."""

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST


def entity(kind: str) -> str:
    return f"{PREFIX}-{kind}"


def connect(text: str = CONNECTION_STRING, scheme: str = "amqp") -> BlockingConnection:
    """A connection that shows the key of a connection string itself."""
    address = parse_connection_string(text)
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(os.environ["SHARDBUS_CA_FILE"])
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    assert address.credential is not None
    return BlockingConnection(
        f"{scheme}://{address.host}:{address.port}",
        timeout=TIMEOUT_S,
        user=address.credential.key_name,
        password=address.credential.key,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        ssl_domain=domain if scheme == "amqps" else None,
    )


def on_both(scenario: OnKind) -> Scenario:
    def run() -> str:
        for kind in ("conventional", "partitioned"):
            scenario(kind)
        return "conventional and partitioned"

    return run


def send(connection: BlockingConnection, address: str, *messages: Message) -> None:
    sender = connection.create_sender(address)
    for message in messages:
        same("outcome", sender.send(message).remote_state, Delivery.ACCEPTED)
    sender.close()  # type: ignore[no-untyped-call]  # it has no types


def receiver(connection: BlockingConnection, address: str, credit: int = 1) -> BlockingReceiver:
    return connection.create_receiver(address, credit=credit, options=Unsettled())


def one(link: BlockingReceiver) -> Message:
    return link.receive(timeout=TIMEOUT_S)


class AnswersTo(LinkOption):
    """Names the receiver of answers, as requests name it in their reply-to."""

    def __init__(self, name: str) -> None:
        self._name = name

    def apply(self, link: Link) -> None:
        link.target.address = self._name
        link.snd_settle_mode = Link.SND_SETTLED


class Requests:
    """Asks the node `$management` of an entity, as any AMQP client can."""

    def __init__(self, connection: BlockingConnection, name: str) -> None:
        self._name = f"answers-{next(_numbers)}"
        node = f"{name}/$management"
        self._sender = connection.create_sender(node)
        self._answers = connection.create_receiver(
            node, credit=10, name=self._name, options=AnswersTo(self._name)
        )

    def ask(self, operation: str, body: Mapping[str, object], link: str = "") -> dict[str, object]:
        """The body of the answer, which must be a success; `link` holds the session meant.

        Its bytes are those of the client's memory: they last until the next request.
        """
        properties = {"operation": f"com.microsoft:{operation}"}
        request = Message(
            body=dict(body),
            id=str(next(_numbers)),
            reply_to=self._name,
            properties=properties | ({"associated-link-name": link} if link else {}),
        )
        self._sender.send(request)
        self._answer = answer = self._answers.receive(timeout=TIMEOUT_S)
        same("correlation", answer.correlation_id, request.id)
        told: object = answer.properties
        assert isinstance(told, dict) and told["statusCode"] in (200, 204), told
        found: object = answer.body
        return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}

    def peek(self, start: int, count: int) -> list[Message]:
        asked = {"from-sequence-number": start, "message-count": count}
        return messages_in(self.ask("peek-message", asked))

    def wait_until_empty(self) -> None:
        """Nothing tells a receiver that its outcome has arrived."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while left := self.peek(0, 10):
            assert time.monotonic() < deadline_s, f"messages left: {left}"
            time.sleep(0.05)


def messages_in(answer: dict[str, object]) -> list[Message]:
    listed = answer.get("messages", [])
    assert isinstance(listed, list)
    found = []
    for each in listed:
        message = Message()
        message.decode(bytes(each["message"]))
        found.append(message)
    return found


def annotation(message: Message, name: str) -> object:
    told: dict[object, object] = dict(message.annotations or {})
    return told[symbol(name)]


def number_of(message: Message) -> int:
    number = annotation(message, "x-opt-sequence-number")
    assert isinstance(number, int)
    return number


def token_of(message: Message) -> uuid.UUID:
    told: dict[object, object] = dict(message.instructions or {})
    token = told[symbol("x-opt-lock-token")]
    assert isinstance(token, uuid.UUID)
    return token


def longs(*numbers: int) -> Array:
    return array(Data.LONG, *numbers)


def array(kind: int, *elements: int | uuid.UUID) -> Array:
    return Array(UNDESCRIBED, kind, *elements)  # type: ignore[arg-type]  # a constant of its own


def moment(seconds: float) -> timestamp:
    return timestamp(int(seconds * 1000))
