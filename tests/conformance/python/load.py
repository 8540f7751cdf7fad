"""Sends numbers and completes them with one client, until standard input ends; then waits for what
was accepted.

    python -m tests.conformance.python.load NAME QUEUE

A send whose answer was lost may have been stored, so it is repeated, and one number may come twice.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.conformance.python.world import CONNECTION_STRING, tell

DRAINING_S: Final = 90.0
PAUSE_S: Final = 0.2


class Load:
    """A sender in a thread of its own, a receiver, and the accounts of both."""

    def __init__(self, client: ServiceBusClient, queue: str) -> None:
        self._sender = client.get_queue_sender(queue)
        self._receiver = client.get_queue_receiver(queue)
        self._accepted = 0
        self._is_over = threading.Event()
        self._numbers: set[int] = set()
        self._completed: set[int] = set()
        self._returned = 0

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        sending = threading.Thread(target=self._send_until_over, daemon=True)
        sending.start()
        deadline, is_empty = float("inf"), False
        while sending.is_alive() or len(self._numbers) < self._accepted or not is_empty:
            if not sending.is_alive() and deadline == float("inf"):
                deadline = time.monotonic() + DRAINING_S
            lost = self._accepted - len(self._numbers)
            assert time.monotonic() < deadline, f"{lost} of {self._accepted} accepted are lost"
            try:
                is_empty = self._receive_some() == 0
            except ServiceBusError:
                is_empty = False
                time.sleep(PAUSE_S)
        assert self._returned == 0, f"{self._returned} completed messages returned"

    def _listen(self) -> None:
        sys.stdin.read()
        self._is_over.set()

    def _send_until_over(self) -> None:
        while not self._is_over.wait(0.02):
            try:
                self._sender.send_messages(ServiceBusMessage(str(self._accepted)))
                self._accepted += 1
            except ServiceBusError:
                time.sleep(PAUSE_S)

    def _receive_some(self) -> int:
        found = self._receiver.receive_messages(20, max_wait_time=1)
        for message in found:
            number = message.sequence_number or 0
            self._numbers.add(int(str(message)))
            self._returned += number in self._completed
            self._receiver.complete_message(message)
            self._completed.add(number)
        return len(found)


def main() -> None:
    name, queue = sys.argv[1:]
    client = ServiceBusClient.from_connection_string(
        CONNECTION_STRING, retry_total=2, retry_backoff_factor=0.2, retry_backoff_max=1
    )
    try:
        with client:
            Load(client, queue).run()
    except Exception as failure:  # noqa: BLE001 - whatever the SDK raises is the result
        tell(name, "failed", repr(failure))
    else:
        told = "nothing accepted was lost, nothing completed returned, one client throughout"
        tell(name, "passed", told)


if __name__ == "__main__":
    main()
