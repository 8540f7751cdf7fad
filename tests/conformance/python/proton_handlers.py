"""What Proton does without blocking: a container calls a handler for all that happens."""

from __future__ import annotations

from typing import Final

from proton import Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from shardbus.app.cli.sas import parse_connection_string
from tests.conformance.python.proton_world import (
    TIMEOUT_S,
    Requests,
    Scenario,
    Unsettled,
    connect,
    entity,
    on_both,
)
from tests.conformance.python.world import CONNECTION_STRING, same

MESSAGES: Final = 20
WINDOW: Final = 4


class Handed(MessagingHandler):
    """Sends as credit allows, and takes what its receivers are handed, until all have come."""

    def __init__(self, queue: str, *, receivers: int) -> None:
        super().__init__(prefetch=WINDOW)
        self._queue = queue
        self._receivers = receivers
        self._sent = 0
        self._accepted = 0
        self.bodies: list[int] = []
        self.failure = ""

    def on_start(self, event: Event) -> None:
        address = parse_connection_string(CONNECTION_STRING)
        assert address.credential is not None
        self._connection = event.container.connect(
            f"amqp://{address.host}:{address.port}",
            user=address.credential.key_name,
            password=address.credential.key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            reconnect=False,
        )
        event.container.create_sender(self._connection, self._queue)
        for number in range(self._receivers):
            event.container.create_receiver(
                self._connection, self._queue, name=f"receiver-{number}", options=Unsettled()
            )
        event.container.schedule(TIMEOUT_S, self)

    def on_sendable(self, event: Event) -> None:
        """Many are on their way before the first is answered."""
        assert event.sender is not None
        while event.sender.credit and self._sent < MESSAGES:
            event.sender.send(Message(body=self._sent))
            self._sent += 1

    def on_accepted(self, event: Event) -> None:
        self._accepted += 1
        self._close_at_end()

    def on_message(self, event: Event) -> None:
        assert event.message is not None
        self.bodies.append(int(str(event.message.body)))
        self._close_at_end()

    def _close_at_end(self) -> None:
        if len(self.bodies) == self._accepted == MESSAGES:
            self._connection.close()

    def on_connection_closed(self, event: Event) -> None:
        event.container.stop()

    def on_timer_task(self, event: Event) -> None:
        self.failure = f"{len(self.bodies)} of {self._accepted} after {TIMEOUT_S} s"
        event.container.stop()

    def on_transport_error(self, event: Event) -> None:
        assert event.transport is not None
        self.failure = str(event.transport.condition)
        event.container.stop()


def handed(kind: str, *, receivers: int) -> None:
    handler = Handed(entity(kind), receivers=receivers)
    Container(handler).run()
    same("failure", handler.failure, "")
    same("bodies", sorted(handler.bodies), list(range(MESSAGES)))
    connection = connect()
    Requests(connection, entity(kind)).wait_until_empty()
    connection.close()


def at_once(kind: str) -> None:
    handed(kind, receivers=2)


def push(kind: str) -> None:
    handed(kind, receivers=1)


HANDLERS: Final[dict[str, Scenario]] = {"async": on_both(at_once), "push": on_both(push)}
