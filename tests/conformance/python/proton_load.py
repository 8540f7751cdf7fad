"""Sends numbers and completes them over one connection of Proton, until standard input ends; then
waits for what was accepted. Proton makes the connection and its links again by itself.

    python -m tests.conformance.python.proton_load NAME QUEUE

A send whose answer was lost may have been stored, so it is repeated: with the id it had, and the
queue detects duplicates.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Final

from proton import Delivery, Event, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container, LinkOption

from shardbus.app.cli.sas import parse_connection_string
from tests.conformance.python.world import CONNECTION_STRING, tell

DRAINING_S: Final = 90.0
ANSWER_S: Final = 10.0
QUIET_S: Final = 1.0
PAUSE_S: Final = 0.02
LOST_S: Final = 0.2


class Answered(LinkOption):
    """Mode "second": the bus answers an outcome, and only then it is certain."""

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND


class Load(MessagingHandler):
    """A sender, a receiver, and the accounts of both."""

    def __init__(self, queue: str) -> None:
        super().__init__(prefetch=20, auto_accept=False, auto_settle=False)
        self.failure = ""
        self._queue = queue
        self._accepted = 0
        self._sent: Delivery | None = None
        self._sent_s = 0.0
        self._is_over = threading.Event()
        self._numbers: set[int] = set()
        self._ids: dict[Delivery, str] = {}
        self._completed: set[str] = set()
        self._returned = 0
        self._deadline_s = float("inf")
        self._last_s = time.monotonic()

    def on_start(self, event: Event) -> None:
        address = parse_connection_string(CONNECTION_STRING)
        assert address.credential is not None
        connection = event.container.connect(
            f"amqp://{address.host}:{address.port}",
            user=address.credential.key_name,
            password=address.credential.key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            reconnect=Backoff(initial=0.1, max_delay=0.5),
        )
        self._connection = connection
        self._sender = event.container.create_sender(connection, self._queue)
        event.container.create_receiver(connection, self._queue, options=Answered())
        threading.Thread(target=self._listen, daemon=True).start()
        event.container.schedule(PAUSE_S, self)

    def _listen(self) -> None:
        sys.stdin.read()
        self._is_over.set()

    def on_timer_task(self, event: Event) -> None:
        """Sends the next number; and again the one that was not answered."""
        now_s = time.monotonic()
        if self._is_over.is_set() and self._is_ended(now_s):
            self._connection.close()
            event.container.stop()
            return
        if self._sent is not None and now_s > self._sent_s + ANSWER_S:
            self._sent = None
        if self._sent is None and not self._is_over.is_set() and self._sender.credit:
            number = self._accepted
            sent = self._sender.send(Message(body=number, id=str(number)))
            assert isinstance(sent, Delivery)
            self._sent, self._sent_s = sent, now_s
        event.container.schedule(PAUSE_S, self)

    def _is_ended(self, now_s: float) -> bool:
        self._deadline_s = min(self._deadline_s, now_s + DRAINING_S)
        lost = self._accepted - len(self._numbers)
        if now_s > self._deadline_s:
            self.failure = f"{lost} of {self._accepted} accepted are lost"
        elif self._returned:
            self.failure = f"{self._returned} completed messages returned"
        elif not self._completed:
            self.failure = "no message was completed"
        is_quiet = now_s > self._last_s + QUIET_S
        return bool(self.failure) or (self._sent is None and lost <= 0 and is_quiet)

    def on_accepted(self, event: Event) -> None:
        if event.delivery == self._sent:
            self._sent = None
            self._accepted += 1

    def on_rejected(self, event: Event) -> None:
        if event.delivery == self._sent:
            self._sent = None

    on_released = on_rejected

    def on_disconnected(self, event: Event) -> None:
        self._sent = None
        self._ids.clear()

    def on_message(self, event: Event) -> None:
        assert event.message is not None
        number, name = int(str(event.message.body)), str(event.message.id)
        self._last_s = time.monotonic()
        self._numbers.add(number)
        self._returned += name in self._completed
        assert event.delivery is not None
        self._ids[event.delivery] = name
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Event) -> None:
        delivery = event.delivery
        assert delivery is not None
        name = self._ids.pop(delivery, None)
        if name is not None and delivery.remote_state == Delivery.ACCEPTED:
            self._completed.add(name)
        delivery.settle()


def main() -> None:
    name, queue = sys.argv[1:]
    load = Load(queue)
    try:
        Container(load).run()
    except Exception as failure:  # noqa: BLE001 - whatever the client raises is the result
        load.failure = repr(failure)
    if load.failure:
        tell(name, "failed", load.failure)
    else:
        told = "nothing accepted was lost, nothing completed returned, one client throughout"
        tell(name, "passed", told)


if __name__ == "__main__":
    main()
