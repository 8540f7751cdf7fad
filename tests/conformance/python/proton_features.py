"""Qpid Proton, a general AMQP 1.0 client, against a bus: one line of JSON for each feature.

    python -m tests.conformance.python.proton_features [NAME...]

The bus is named by variables, and the test has made the entities: plain AMQP cannot. What Proton
could do and no scenario tries is not told, so the table says that it was not run.
"""

from __future__ import annotations

import sys
from typing import Final

from proton import Message, symbol
from proton.reactor import AtMostOnce

from tests.conformance.python.proton_dialect import DIALECT
from tests.conformance.python.proton_handlers import HANDLERS
from tests.conformance.python.proton_world import (
    Scenario,
    connect,
    entity,
    on_both,
    one,
    receiver,
    send,
)
from tests.conformance.python.world import PREMIUM_STRING, TLS_STRING, same, tell

NO_CALL: Final = "plain AMQP has no such call"
NOT_OFFERED: Final = {
    "administration": NO_CALL,
    "batch": "Proton for Python cannot set the format of a message",
    "auto-renew": NO_CALL,
    "session-push": NO_CALL,
    "websocket": "Proton has no such call",
}


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
    **HANDLERS,
    **DIALECT,
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
    for name, reason in NOT_OFFERED.items():
        if not wanted or name in wanted:
            tell(name, "not offered", reason)


if __name__ == "__main__":
    main()
