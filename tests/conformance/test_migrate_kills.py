"""A namespace with messages of every kind moves through kills: nothing is lost or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.conformance.test_migrate import BOTH_WAYS, DEADLINE_S, Bus, Ends, lines_of, words
from tests.support.server import Server, running_server

pytestmark = pytest.mark.release

KILLS: Final = 5
COUNT: Final = 60
SESSIONS: Final = 4
LOCK: Final = ("--lock-duration", "5s")
LINES: Final = (
    "orders",
    "orders/$DeadLetterQueue",
    "talks",
    "news/Subscriptions/all",
    "news/Subscriptions/odd",
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    with (
        running_server(tmp_path_factory.mktemp("one")) as one,
        running_server(tmp_path_factory.mktemp("two")) as two,
    ):
        yield one, two


@pytest.fixture
def ends(request: pytest.FixtureRequest, servers: tuple[Server, Server]) -> Ends:
    one, two = (Bus(server) for server in servers)
    return (two, one) if getattr(request, "param", "") else (one, two)


def fill(source: Bus) -> None:
    """Dead letters, active and scheduled messages, sessions with states, and two subscriptions."""
    text = "".join(f"{number}\n" for number in range(COUNT))
    source.run("queue", "create", "orders", *LOCK)
    source.run("send", "orders", "--lines", text=text.replace("\n", " dead\n"))
    source.run("receive", "orders", "--all", "--dead-letter-reason", "broken")
    source.run("send", "orders", "--lines", text=text)
    source.run("queue", "create", "talks", "--sessions", *LOCK)
    source.run("topic", "create", "news")
    source.run("subscription", "create", "news", "all", *LOCK)
    source.run("subscription", "create", "news", "odd", "--sql", "odd = TRUE", *LOCK)
    due = datetime.now(UTC) + timedelta(hours=1)
    with ServiceBusClient.from_connection_string(source.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.schedule_messages(
                [ServiceBusMessage(f"{number} later") for number in range(COUNT)], due
            )
        with client.get_queue_sender("talks") as sender:
            for number in range(COUNT):
                session = f"s{number % SESSIONS}"
                sender.send_messages(ServiceBusMessage(f"{number:03}", session_id=session))
        with client.get_topic_sender("news") as sender:
            for number in range(COUNT):
                message = ServiceBusMessage(f"{number}")
                message.application_properties = {"odd": number % 2 == 1}
                sender.send_messages(message)
        for number in range(SESSIONS):
            with client.get_queue_receiver("talks", session_id=f"s{number}") as receiver:
                receiver.session.set_state(f"state {number}")


def bodies(bus: Bus) -> dict[str, Counter[str]]:
    return {line: Counter(bus.bodies(line)) for line in LINES}


def clear(bus: Bus) -> None:
    for kind, name in (("queue", "orders"), ("queue", "talks"), ("topic", "news")):
        bus.run(kind, "delete", name, "--yes")


@BOTH_WAYS
def test_messages_of_every_kind_survive_kills(ends: Ends, tmp_path: Path) -> None:
    source, target = ends
    fill(source)
    before = bodies(source)
    journal = tmp_path / "j"
    command = [
        sys.executable, "-m", "shardbus", *words(ends, journal, "--drain", "--dead-letters"),
    ]  # fmt: skip
    chance = random.Random(7)

    for _ in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_s, enough = time.monotonic() + DEADLINE_S, lines_of(journal) + chance.randint(1, 25)
        while process.poll() is None and lines_of(journal) < enough:
            assert time.monotonic() < until_s
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, timeout=4 * DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr

    assert bodies(target) == before
    assert not any(bodies(source).values())
    with ServiceBusClient.from_connection_string(target.connection_string) as client:
        for session in range(SESSIONS):
            with client.get_queue_receiver("talks", session_id=f"s{session}") as receiver:
                assert bytes(receiver.session.get_state() or b"") == f"state {session}".encode()
                received = receiver.receive_messages(COUNT, max_wait_time=10)
                texts = [str(message) for message in received]
                assert texts == sorted(texts)
    for bus in ends:
        clear(bus)
