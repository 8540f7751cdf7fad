"""Qpid Proton, a general AMQP 1.0 client, against a bus: one line of JSON for each feature.

    python -m tests.conformance.python.proton_features [NAME...]

The bus is named by variables, and the test has made the entities: plain AMQP cannot. What Proton
could do and no scenario tries is not told, so the table says that it was not run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from proton import Delivery, Link, Message, SSLDomain, symbol
from proton.reactor import AtMostOnce, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver

from shardbus.app.cli.sas import parse_connection_string
from tests.conformance.python.world import CONNECTION_STRING, PREMIUM_STRING, TLS_STRING, same, tell

TIMEOUT_S: Final = 20
PREFIX: Final = os.environ["SHARDBUS_PREFIX"]
NO_CALL: Final = "plain AMQP has no such call"
NOT_OFFERED: Final = (
    *("administration", "batch", "schedule", "deferred", "session-accept", "session-next"),
    *("session-state", "session-renew", "session-list", "peek", "renew", "auto-renew"),
    *("session-push", "rule-manager"),
)

OnKind = Callable[[str], None]
Scenario = Callable[[], str]


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


def send_one(kind: str) -> None:
    connection = connect()
    sent = Message(body="hello", id="id-1", subject="subject", properties={"number": 7})
    send(connection, entity(kind), sent)
    link = receiver(connection, entity(kind))
    found = one(link)
    link.accept()
    same("message", (found.body, found.id, found.subject), ("hello", "id-1", "subject"))
    connection.close()


def keyed() -> str:
    connection = connect()
    for number in range(12):
        message = Message(body=f"{number % 3} {number}")
        message.annotations = {symbol("x-opt-partition-key"): str(number % 3)}
        send(connection, entity("partitioned"), message)
    link = receiver(connection, entity("partitioned"))
    last: dict[str, int] = {}
    for _ in range(12):
        key, _, told = str(one(link).body).partition(" ")
        link.accept()
        assert last.get(key, -1) < int(told), f"{told} of {key} comes after {last[key]}"
        last[key] = int(told)
    connection.close()
    return "one order for each key"


def receive(kind: str) -> None:
    connection = connect()
    send(connection, entity(kind), Message(body="locked"))
    link = receiver(connection, entity(kind))
    same("body", one(link).body, "locked")
    link.accept()
    link.close()  # type: ignore[no-untyped-call]  # it has no types
    send(connection, entity(kind), Message(body="deleted"))
    deleting = connection.create_receiver(entity(kind), credit=1, options=AtMostOnce())
    same("body", one(deleting).body, "deleted")
    connection.close()


def settle(kind: str) -> None:
    """Released and modified messages come again; accepted and rejected ones do not."""
    connection = connect()
    send(connection, entity(kind), Message(body="x"))
    link = receiver(connection, entity(kind))
    one(link)
    link.release(delivered=False)
    same("delivery count", one(link).delivery_count, 0)
    link.release(delivered=True)
    same("delivery count", one(link).delivery_count, 1)
    link.accept()
    connection.close()


def dead_letters(kind: str) -> None:
    connection = connect()
    send(connection, entity(kind), Message(body="bad"))
    link = receiver(connection, entity(kind))
    one(link)
    link.reject()
    dead = receiver(connection, f"{entity(kind)}/$DeadLetterQueue")
    same("body", one(dead).body, "bad")
    dead.accept()
    connection.close()


def prefetch(kind: str) -> None:
    connection = connect()
    send(connection, entity(kind), *(Message(body=number) for number in range(20)))
    link = receiver(connection, entity(kind), credit=20)
    found = set()
    for _ in range(20):
        found.add(str(one(link).body))
        link.accept()
    same("bodies", found, {str(number) for number in range(20)})
    connection.close()


def rules() -> str:
    connection = connect()
    colours = ("red", "blue", "red")
    told = [Message(body=colour, properties={"colour": colour}) for colour in colours]
    send(connection, entity("topic"), *told)
    link = receiver(connection, f"{entity('topic')}/Subscriptions/red")
    for _ in range(2):
        same("body", one(link).body, "red")
        link.accept()
    connection.close()
    return "what a rule of the subscription selects"


def large() -> str:
    connection = connect(PREMIUM_STRING)
    body = bytes(10 << 20)
    send(connection, entity("large"), Message(body=body))
    link = receiver(connection, entity("large"))
    found = one(link).body
    link.accept()
    assert isinstance(found, bytes | memoryview)
    same("bytes", len(found), len(body))
    connection.close()
    return "10 MiB in Premium"


def tls() -> str:
    connection = connect(TLS_STRING, "amqps")
    send(connection, entity("results"), Message(body="x"))
    link = receiver(connection, entity("results"))
    same("body", one(link).body, "x")
    link.accept()
    connection.close()
    return "amqps, with the name of the certificate checked"


FEATURES: Final[dict[str, Scenario]] = {
    "send": on_both(send_one),
    "keyed": keyed,
    "receive": on_both(receive),
    "settle": on_both(settle),
    "dead-letters": on_both(dead_letters),
    "prefetch": on_both(prefetch),
    "rules": rules,
    "large": large,
    "tls": tls,
}


def main() -> None:
    wanted = sys.argv[1:]
    for name, scenario in FEATURES.items():
        if wanted and name not in wanted:
            continue
        try:
            detail = scenario()
        except Exception as failure:  # noqa: BLE001 - whatever the client raises is the result
            tell(name, "failed", repr(failure))
        else:
            tell(name, "passed", detail)
    for name in (*NOT_OFFERED, "websocket"):
        if not wanted or name in wanted:
            tell(name, "not offered", "Proton has no such call" if name == "websocket" else NO_CALL)


if __name__ == "__main__":
    main()
