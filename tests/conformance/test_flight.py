"""The bulk lane of a real process: what SDKs sent as tables, claims beside receivers (P1, P2)."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen
from uuid import UUID

import pyarrow.flight as flight
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.management import ServiceBusAdministrationClient

from shardbus.app.cli.sas import Credential
from shardbus.gateway.flight.reading.schema import COLUMNS
from tests.support.flight_client import (
    FlightClient,
    Reader,
    flight_client,
    number,
    parts,
    token_for,
)
from tests.support.ports import free_port
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

RUNS_AS = re.compile(r"flight runs as process (\d+)")
KEY = "a-key-of-our-own-for-all-the-world-to-guess"

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def flying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("flight") / "data"
    with running_server(data_dir, "--flight-port", str(free_port()), "--brokers", "2") as server:
        yield server
        assert "Traceback" not in server.output


@pytest.fixture
def client(flying: Server) -> Iterator[FlightClient]:
    with flight_client(flying) as client:
        yield client


@pytest.fixture
def sdk(flying: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(flying.connection_string) as client:
        yield client


@pytest.fixture
def queue(flying: Server) -> str:
    """A partitioned queue that no other test uses."""
    name = f"queue-{next(_numbers)}"
    create_queue(flying, name)
    return name


def send(sdk: ServiceBusClient, queue: str, *bodies: str) -> None:
    with sdk.get_queue_sender(queue) as sender:
        batch = sender.create_message_batch()
        for body in bodies:
            batch.add_message(ServiceBusMessage(body))
        sender.send_messages(batch)


def send_each(sdk: ServiceBusClient, queue: str, count: int) -> set[bytes]:
    """Messages one by one, spread over all fragments; their bodies."""
    with sdk.get_queue_sender(queue) as sender:
        for at in range(count):
            sender.send_messages(ServiceBusMessage(f"{at}"))
    return {f"{at}".encode() for at in range(count)}


def bodies(rows: list[dict[str, object]]) -> set[object]:
    return {row["body"] for row in rows}


def health(server: Server) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(server.host, server.http_port, timeout=20)
    connection.request("GET", "/health")
    response = connection.getresponse()
    document: dict[str, object] = json.loads(response.read())
    connection.close()
    return response.status, document


def full_message(at: datetime, identifier: UUID) -> ServiceBusMessage:
    """One of which everything is set that the SDK has a name for."""
    return ServiceBusMessage(
        "grüße",
        message_id="m-1",
        session_id="s-1",
        partition_key="s-1",
        correlation_id="c-1",
        subject="subject",
        content_type="text/plain",
        to="somebody",
        reply_to="me",
        reply_to_session_id="s-2",
        time_to_live=timedelta(hours=1),
        application_properties={
            "text": "ü",
            "number": 7,
            "fraction": 0.5,
            "yes": True,
            "at": at,  # type: ignore[dict-item]  # the SDK sends moments, and does not say so
            "id": identifier,
        },
    )


FULL_ROW: dict[str, object] = {
    "scheduled_time": None,
    "state": "active",
    "delivery_count": 0,
    "message_id": "m-1",
    "session_id": "s-1",
    "partition_key": "s-1",
    "correlation_id": "c-1",
    "subject": "subject",
    "content_type": "text/plain",
    "to": "somebody",
    "reply_to": "me",
    "reply_to_session_id": "s-2",
    "time_to_live_ms": 3_600_000,
    "dead_letter_reason": None,
    "dead_letter_description": None,
    "dead_letter_source": None,
    "annotations": [],
    "body": "grüße".encode(),
    "body_kind": "data",
}


def test_all_that_an_sdk_can_say_is_in_the_columns(
    client: FlightClient, sdk: ServiceBusClient, queue: str
) -> None:
    """P1."""
    at = datetime.now(UTC).replace(microsecond=5_000)
    identifier = UUID(int=7)
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages(full_message(at, identifier))

    [row] = client.rows(queue, columns=[*COLUMNS, "properties_json"])
    [plain] = client.rows(queue)
    [narrow] = client.rows(queue, columns=["body", "sequence_number"])

    enqueued, expires = row.pop("enqueued_time"), row.pop("expires_time")
    assert isinstance(enqueued, datetime) and isinstance(expires, datetime)
    assert expires - enqueued == timedelta(hours=1)
    properties, as_json = row.pop("properties"), json.loads(str(row.pop("properties_json")))
    assert isinstance(properties, list)
    assert dict(properties) == {
        "text": "ü",
        "number": "7",
        "fraction": "0.5",
        "yes": "true",
        "at": at.isoformat(timespec="microseconds"),
        "id": str(identifier),
    }
    assert (as_json["number"], as_json["yes"], as_json["fraction"]) == (7, True, 0.5)
    sequence_number = row.pop("sequence_number")
    assert isinstance(sequence_number, int)
    assert row.pop("fragment") == sequence_number >> 48
    assert row == FULL_ROW
    assert list(plain) == list(COLUMNS)
    assert narrow == {"body": "grüße".encode(), "sequence_number": sequence_number}


def test_every_state_is_shown_to_who_asks_for_it(
    client: FlightClient, sdk: ServiceBusClient, queue: str
) -> None:
    """P1."""
    send(sdk, queue, "deferred")
    with sdk.get_queue_receiver(queue, max_wait_time=20) as receiver:
        receiver.defer_message(receiver.receive_messages()[0])
    at = datetime.now(UTC) + timedelta(hours=1)
    with sdk.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("scheduled"), at)
    send(sdk, queue, "active")

    everything = client.rows(queue, states=["active", "deferred", "scheduled"])

    assert bodies(client.rows(queue)) == {b"active"}
    assert bodies(client.rows(queue, states=["deferred"])) == {b"deferred"}
    assert {(row["body"], row["state"]) for row in everything} == {
        (b"active", "active"),
        (b"deferred", "deferred"),
        (b"scheduled", "scheduled"),
    }
    [scheduled] = [row for row in everything if row["state"] == "scheduled"]
    shown = scheduled["scheduled_time"]
    assert isinstance(shown, datetime)
    assert abs(shown - at) < timedelta(milliseconds=2)


def test_dead_letters_show_why_and_can_be_claimed(
    client: FlightClient, sdk: ServiceBusClient, queue: str
) -> None:
    """P1, P2."""
    send(sdk, queue, "bad")
    with sdk.get_queue_receiver(queue, max_wait_time=20) as receiver:
        [message] = receiver.receive_messages()
        receiver.dead_letter_message(message, reason="unreadable", error_description="no JSON")
    dead = f"{queue}/$DeadLetterQueue"

    [row] = client.rows(dead)
    reader = Reader(client, dead, "undertaker")
    reader.open()
    claimed = reader.claim()
    table = reader.read(claimed)
    reader.complete(claimed)

    assert (row["body"], row["dead_letter_reason"]) == (b"bad", "unreadable")
    assert row["dead_letter_description"] == "no JSON"
    assert row["properties"] == [
        ("DeadLetterReason", "unreadable"),
        ("DeadLetterErrorDescription", "no JSON"),
    ]
    assert table["body"].to_pylist() == [b"bad"]
    assert client.rows(dead) == client.rows(queue) == []


def test_a_subscription_is_read_like_a_queue(
    flying: Server, client: FlightClient, sdk: ServiceBusClient
) -> None:
    """P1."""
    with ServiceBusAdministrationClient.from_connection_string(
        flying.connection_string, connection_verify=str(flying.ca_file), retry_total=0
    ) as administration:
        administration.create_topic("news")
        administration.create_subscription("news", "all")
    with sdk.get_topic_sender("news") as sender:
        sender.send_messages([ServiceBusMessage(f"{at}") for at in range(5)])

    rows = client.rows("news/Subscriptions/all")

    assert bodies(rows) == {f"{at}".encode() for at in range(5)}
    with pytest.raises(flight.FlightError, match=r"^not-allowed: .*news"):
        client.info("news")


def test_readers_and_receivers_share_a_queue_and_get_each_message_once(
    client: FlightClient, sdk: ServiceBusClient, queue: str
) -> None:
    """P2."""
    sent = send_each(sdk, queue, 120)
    readers = [Reader(client, queue, name) for name in ("one", "two")]
    for reader in readers:
        reader.open()
    seen: list[object] = []
    deleting = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with sdk.get_queue_receiver(queue, receive_mode=deleting, max_wait_time=20) as receiver:
        for reader in readers * 2:
            claimed = reader.claim(count_max=1)
            seen += reader.read(claimed)["body"].to_pylist()
            reader.complete(claimed)
            taken = receiver.receive_messages(max_message_count=10)
            seen += [b"".join(message.body) for message in taken]
    rest = readers[0].claim()
    seen += readers[0].read(rest)["body"].to_pylist()
    readers[0].complete(rest)

    assert sorted(map(str, seen)) == sorted(map(str, sent))
    assert client.rows(queue) == []
    assert sum(number(part, "waiting") for part in client.fragments(queue)) == 0


def test_metrics_tell_how_far_a_reader_is_behind_in_each_fragment(
    flying: Server, client: FlightClient, sdk: ServiceBusClient, queue: str
) -> None:
    """P2: over both brokers, and through claims and completions."""
    send_each(sdk, queue, 64)
    reader = Reader(client, queue, "nightly")
    reader.open()
    waiting = {number(part): number(part, "waiting") for part in client.fragments(queue)}
    before = _lags(flying, queue)
    claimed = reader.claim(count_max=1)
    held = _lags(flying, queue)
    reader.complete(claimed)
    after = _lags(flying, queue)

    assert set(claimed) == {part for part, count in waiting.items() if count}
    rest = {part: max(count - 1, 0) for part, count in waiting.items()}
    assert before == (waiting, dict.fromkeys(waiting, 0))
    assert held == (rest, {part: int(part in claimed) for part in waiting})
    assert after == (rest, dict.fromkeys(waiting, 0))


def _lags(server: Server, queue: str) -> tuple[dict[int, int], dict[int, int]]:
    """What the reader `nightly` has not claimed, and not completed, by fragment."""
    # The numbers of a scrape are kept for a second.
    time.sleep(1.1)
    with urlopen(f"http://{server.host}:{server.http_port}/metrics") as response:
        text = response.read().decode()
    labels = f'entity="{queue}",reader="nightly",mode="consume",fragment="([0-9]+)"'
    lag, claimed = (
        re.findall(f"^shardbus_reader_{name}_messages{{{labels}}} ([0-9]+)$", text, re.MULTILINE)
        for name in ("lag", "claimed")
    )
    return {int(f): int(n) for f, n in lag}, {int(f): int(n) for f, n in claimed}


def test_a_claim_is_read_identically_after_a_crash(
    flying: Server, client: FlightClient, sdk: ServiceBusClient, queue: str
) -> None:
    """P2."""
    sent = send_each(sdk, queue, 60)
    reader = Reader(client, queue, "patient")
    reader.open()
    claimed = reader.claim()
    before = reader.read(claimed, list(COLUMNS))
    sdk.close()

    flying.kill()
    flying.start()

    with flight_client(flying) as again:
        same = Reader(again, queue, "patient")
        opened = same.open()
        after = same.read(claimed, list(COLUMNS))
        same.complete(claimed)
        with pytest.raises(flight.FlightError, match=r"^claim-completed: "):
            same.read(claimed)

        assert before.equals(after)
        assert set(before["body"].to_pylist()) == sent
        claims = [parts(one, "claims") for one in parts(opened, "fragments")]
        assert sum(number(claim, "count") for part in claims for claim in part) == 60
        assert again.rows(queue) == []


def test_one_owner_at_a_time_drives_a_reader(client: FlightClient, queue: str) -> None:
    """P2."""
    Reader(client, queue, "r", "first").open()

    with pytest.raises(flight.FlightServerError, match=r"^reader-in-use: "):
        Reader(client, queue, "r", "second").open()
    with pytest.raises(flight.FlightServerError, match=r"^reader-not-found: "):
        client.act("keep", queue, reader="nobody", owner="me")
    listed = parts(client.act("list", queue), "readers")
    client.act("drop", queue, reader="r")

    assert [one["reader"] for one in listed] == ["r"]
    assert client.act("list", queue)["readers"] == []


def test_who_may_not_is_told_so(flying: Server, client: FlightClient, queue: str) -> None:
    """P2, R34."""
    other = f"{queue}-other"
    create_queue(flying, other)
    keys: dict[str, Credential] = {}
    connection = http.client.HTTPConnection(flying.host, flying.http_port, timeout=20)
    for name, right in (("ear", "Listen"), ("mouth", "Send")):
        path = f"/api/v1/entities/{queue}/access-rules/{name}"
        body, headers = json.dumps({"rights": [right]}), {"Authorization": token_for(flying)}
        connection.request("PUT", path, body, headers)
        keys[name] = Credential(name, json.loads(connection.getresponse().read())["primary_key"])
    connection.close()
    listener = client.showing(token_for(flying, keys["ear"], path=queue))
    sender = client.showing(token_for(flying, keys["mouth"], path=queue))
    forged = client.showing(token_for(flying, Credential("ear", "guess"), path=queue))
    late = client.showing(token_for(flying, valid_s=-10))

    Reader(listener, queue, "r").open()
    assert listener.rows(queue) == []
    for refused in (
        lambda: listener.act("drop", queue, reader="r"),
        lambda: listener.rows(other),
        lambda: sender.rows(queue),
        lambda: Reader(sender, queue, "s").open(),
        lambda: forged.rows(queue),
        lambda: late.rows(queue),
        lambda: client.showing("").rows(queue),
        lambda: client.showing("nonsense").rows(queue),
    ):
        with pytest.raises(flight.FlightUnauthenticatedError, match=r"^unauthorized: "):
            refused()
    with pytest.raises(flight.FlightServerError, match=r"^not-found: "):
        client.rows("no-such-queue")


def test_a_client_that_goes_away_in_the_middle_harms_nobody(
    flying: Server, client: FlightClient, sdk: ServiceBusClient, queue: str
) -> None:
    """P1."""
    with sdk.get_queue_sender(queue) as sender:
        for _ in range(60):
            sender.send_messages(ServiceBusMessage(b"x" * 250_000, partition_key="k"))
    [full] = [part for part in client.fragments(queue) if part["waiting"]]
    ticket = {"entity": queue, "fragment": full["number"], "from": full["first"]}
    for _ in range(3):
        with flight_client(flying) as leaving:
            leaving.stream(**ticket, to=full["next"], columns=["body"]).read_chunk()

    assert client.read(queue, columns=["body"]).num_rows == 60
    assert "Traceback" not in flying.output


def test_a_process_that_was_killed_comes_back(flying: Server, queue: str) -> None:
    """P1."""
    os.kill(int(RUNS_AS.findall(flying.output)[-1]), signal.SIGKILL)

    with flight.connect(flying.flight_url) as connection:
        while len(RUNS_AS.findall(flying.output)) < 2:
            connection.wait_for_available(timeout=1)
        connection.wait_for_available(timeout=30)
        assert FlightClient(connection, token_for(flying)).rows(queue) == []


def test_brokers_in_processes_of_their_own_are_read_too(tmp_path: Path) -> None:
    """P1, P2."""
    options = ("--flight-port", str(free_port()), "--brokers", "2", "--broker-processes")
    with running_server(tmp_path / "data", *options) as server:
        create_queue(server, "q")
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as sdk,
            flight_client(server) as client,
        ):
            sent = send_each(sdk, "q", 20)
            assert bodies(client.rows("q")) == sent
            reader = Reader(client, "q", "r")
            reader.open()
            claimed = reader.claim()
            assert set(reader.read(claimed)["body"].to_pylist()) == sent
            reader.complete(claimed)
            assert client.rows("q") == []


def test_beyond_loopback_the_lane_speaks_tls(tmp_path: Path) -> None:
    """P1."""
    port = free_port()
    options = ("--host", "0.0.0.0", "--sas-key", KEY, "--flight-port", str(port))
    with running_server(tmp_path / "data", *options, "--brokers", "1") as server:
        assert server.flight_url == f"grpc+tls://0.0.0.0:{port}"
        create_queue(server, "q")
        url, certificate = f"grpc+tls://localhost:{port}", server.ca_file.read_bytes()
        with flight_client(server, url=url, certificate=certificate) as client:
            assert client.rows("q") == []
        with (
            flight_client(server, url=f"grpc://localhost:{port}") as plain,
            pytest.raises(flight.FlightUnavailableError),
        ):
            plain.rows("q")


def test_a_port_that_is_taken_is_told_and_the_rest_is_served(tmp_path: Path) -> None:
    """P1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--flight-port", str(port), "--brokers", "1")
        with running_server(tmp_path / "data", *options) as server:
            status, document = health(server)
            create_queue(server, "q")

    assert (status, document["status"]) == (200, "degraded")
    assert f"the bulk lane cannot listen on port {port}" in str(document["message"])
    assert "in use" in str(document["message"])
