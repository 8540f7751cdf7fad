"""A running server whose machine's wall clock is set: what lasts does not notice, moments do."""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardbus.app.cli.sas import parse_connection_string
from tests.conformance.rest import BATCH_TYPE, Answer, Rest
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

LOCK_S: Final = 8
WAIT_S: Final = 60.0
HOUR_S: Final = 3_600


class Machine:
    """A server and the clock on its wall."""

    def __init__(self, server: Server, clock: Path) -> None:
        self._clock = clock
        create_queue(server, "q", LockDuration=f"PT{LOCK_S}S")
        authority = f"{server.host}:{server.http_port}"
        credential = parse_connection_string(server.connection_string).credential
        # A token ends at a moment, which the clock is not set to here.
        token = credential.token_for(
            f"http://{authority}/", expires_at_s=int(time.time()) + 24 * HOUR_S
        )
        self.rest = Rest(http.client.HTTPConnection(authority, timeout=2 * WAIT_S), token)

    def set_clock(self, ahead_s: int) -> None:
        # A file that is replaced is never half-written.
        new = self._clock.with_suffix(".new")
        new.write_text(str(ahead_s), encoding="ascii")
        new.replace(self._clock)

    def send(self, **broker_properties: object) -> None:
        body = json.dumps([{"Body": "x", "BrokerProperties": broker_properties}]).encode()
        answer = self.rest.ask("POST", "/q/messages", body, {"Content-Type": BATCH_TYPE})
        assert answer.status == 201, answer.body

    def receive(self, wait_s: float) -> Answer:
        """The next message, locked; status 204 when there is none in time."""
        return self.rest.ask("POST", f"/q/messages/head?timeout={int(wait_s)}")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    clock = tmp_path / "ahead"
    clock.write_text("0", encoding="ascii")
    command = (sys.executable, "-m", "tests.support.set_clock", str(clock), "serve")
    with running_server(tmp_path / "data", command=command) as server:
        made = Machine(server, clock)
        yield made
        made.rest.connection.close()


def test_a_lock_is_not_lost_when_the_clock_is_set_forward(machine: Machine) -> None:
    """D14."""
    machine.send()
    locked = machine.receive(10)
    assert locked.status == 201

    machine.set_clock(600)
    time.sleep(1)

    assert machine.rest.ask("POST", locked.path()).status == 200
    assert machine.rest.ask("DELETE", locked.path()).status == 200
    assert machine.receive(1).status == 204


def test_a_message_of_a_dead_receiver_comes_back_although_the_clock_is_set_back(
    machine: Machine,
) -> None:
    """D14."""
    machine.send()
    assert machine.receive(10).status == 201

    machine.set_clock(-HOUR_S)
    again = machine.receive(WAIT_S - 5)

    assert again.status == 201
    assert again.broker()["DeliveryCount"] == 2


def test_a_scheduled_message_comes_soon_after_the_clock_was_set_to_its_moment(
    machine: Machine,
) -> None:
    """D14: nobody asks for it when the clock is set; the alarm alone can notice."""
    moment = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + HOUR_S / 2))
    machine.send(ScheduledEnqueueTimeUtc=moment)
    assert machine.receive(1).status == 204

    machine.set_clock(HOUR_S)

    assert machine.receive(WAIT_S - 5).status == 201
