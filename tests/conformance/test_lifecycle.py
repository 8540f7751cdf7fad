"""The lifecycle records of a real bus: every event that the SDK causes, as a table (P8)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from tests.support.flight_client import token_for
from tests.support.queues import create_queue, delete_queue
from tests.support.server import Server, running_server

SOON_S = 10.0

Table = dict[str, list[object]]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two brokers in processes of their own."""
    data_dir = tmp_path_factory.mktemp("lifecycle") / "data"
    with running_server(data_dir, "--brokers", "2") as server:
        yield server
        assert "Traceback" not in server.output


@pytest.fixture
def sdk(recording: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(recording.connection_string) as client:
        yield client


def page(server: Server, path: str) -> dict[str, object]:
    url = f"http://{server.host}:{server.http_port}/api/v1/entities/{path}"
    with urlopen(Request(url, headers={"Authorization": token_for(server)})) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def table(server: Server, entity: str, rows: int = 1_000) -> Table:
    """All records of an entity, page by page."""
    return table_after(server, entity, "0.0", rows)[0]


def table_after(server: Server, entity: str, after: str, rows: int = 1_000) -> tuple[Table, str]:
    """The records behind a position, page by page; and the position at their end."""
    found: Table = {}
    is_end = False
    while not is_end:
        shown = page(server, f"{entity}/lifecycle?after={after}&rows={rows}")
        columns, after, is_end = shown["columns"], str(shown["next"]), bool(shown["is_end"])
        assert isinstance(columns, dict)
        for name, values in columns.items():
            found.setdefault(name, []).extend(values)
    return found, after


def events(server: Server, entity: str, *wanted: str) -> Table:
    """The records, as soon as all these events are among them."""
    deadline_s = time.monotonic() + SOON_S
    while True:
        found = table(server, entity)
        missing = set(wanted) - {str(event) for event in found["event"]}
        if not missing:
            return found
        assert time.monotonic() < deadline_s, missing
        time.sleep(0.1)


def test_every_event_of_a_message_is_a_row(recording: Server, sdk: ServiceBusClient) -> None:
    """P8"""
    create_queue(recording, "orders", Lifecycle="true", EnablePartitioning="false")
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(f"{each}", subject="s") for each in range(5)])
        later = datetime.now(UTC) + timedelta(hours=1)
        [number] = sender.schedule_messages(ServiceBusMessage("later"), later)
        sender.cancel_scheduled_messages(number)
    with sdk.get_queue_receiver("orders") as receiver:
        one, two, three, four = receiver.receive_messages(4, max_wait_time=5)
        receiver.complete_message(one)
        receiver.abandon_message(two)
        receiver.defer_message(three)
        receiver.dead_letter_message(four, reason="poison")
    receiver = sdk.get_queue_receiver(
        "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )
    with receiver:
        while receiver.receive_messages(5, max_wait_time=1):
            pass

    found = events(recording, "orders", "receive")

    counts = Counter(str(event) for event in found["event"])
    assert counts["enqueue"] == 5 and counts["schedule"] == counts["cancel"] == 1
    assert counts["complete"] == counts["abandon"] == counts["defer"] == counts["dead_letter"] == 1
    assert counts["receive"] == 2 and counts["lock"] >= 4
    row = found["event"].index("complete")
    assert found["sequence_number"][row] == one.sequence_number
    assert str(found["receiver"][row]).startswith("SBReceiver")
    age_ms, held_ms = found["age_ms"][row], found["held_ms"][row]
    assert isinstance(age_ms, int) and isinstance(held_ms, int) and 0 <= held_ms <= age_ms
    assert found["detail"][found["event"].index("dead_letter")] == "poison"


def test_dropped_duplicates_expiry_and_forwarding_are_rows(
    recording: Server, sdk: ServiceBusClient
) -> None:
    """P8"""
    create_queue(recording, "target", Lifecycle="true")
    create_queue(recording, "passing", Lifecycle="true", ForwardTo="target")
    create_queue(recording, "once", Lifecycle="true", RequiresDuplicateDetection="true")
    create_queue(recording, "short", Lifecycle="true")
    for name, count in (("passing", 1), ("once", 2), ("short", 1)):
        with sdk.get_queue_sender(name) as sender:
            for _ in range(count):
                life = timedelta(seconds=1) if name == "short" else None
                message = ServiceBusMessage("x", message_id="same", time_to_live=life)
                sender.send_messages(message)

    passed = Counter(events(recording, "passing", "enqueue", "forward")["event"])
    received = Counter(events(recording, "target", "enqueue")["event"])
    once = Counter(events(recording, "once", "duplicate")["event"])
    short = Counter(events(recording, "short", "expire")["event"])

    assert passed["enqueue"] == passed["forward"] == received["enqueue"] == 1
    assert once["enqueue"] == once["duplicate"] == 1
    assert short["enqueue"] == short["expire"] == 1


def test_the_keys_of_messages_are_recorded_in_their_fragments(
    recording: Server, sdk: ServiceBusClient
) -> None:
    """P8"""
    create_queue(recording, "keyed", Lifecycle="true")
    with sdk.get_queue_sender("keyed") as sender:
        for each in range(12):
            sender.send_messages(ServiceBusMessage(b"x", partition_key=f"key-{each % 3}"))

    found = events(recording, "keyed", "enqueue")

    homes: dict[object, set[object]] = {}
    rows = zip(found["event"], found["key"], found["fragment"], strict=True)
    for event, key, fragment in rows:
        if event == "enqueue":
            homes.setdefault(key, set()).add(fragment)
    assert set(homes) == {"key-0", "key-1", "key-2"}
    assert all(len(fragments) == 1 for fragments in homes.values())
    assert table(recording, "keyed", rows=1) == found


def test_a_report_is_made_of_a_running_bus(
    recording: Server, sdk: ServiceBusClient, tmp_path: Path
) -> None:
    """P8"""
    create_queue(recording, "reported", Lifecycle="true")
    with sdk.get_queue_sender("reported") as sender:
        for each in range(20):
            key = "hot" if each % 2 else f"key-{each}"
            sender.send_messages(ServiceBusMessage(b"x", partition_key=key))
    with sdk.get_queue_receiver("reported") as receiver:
        for message in receiver.receive_messages(20, max_wait_time=5):
            receiver.complete_message(message)
    events(recording, "reported", "complete")

    page = tmp_path / "page.html"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "shardbus", "report", "reported", "--json"),
            *("--html", str(page), "--connection-string", recording.connection_string),
        ],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["keys"][0]["key"] == "hot" and found["keys"][0]["enqueued"] == 10
    assert found["time_to_settle_ms"]["count"] == found["events"]["complete"] >= 1
    assert "<h2>Hot keys</h2>" in page.read_text()


def test_nothing_is_recorded_unless_the_entity_asks_for_it(
    recording: Server, sdk: ServiceBusClient
) -> None:
    create_queue(recording, "quiet")
    with sdk.get_queue_sender("quiet") as sender:
        sender.send_messages(ServiceBusMessage(b"x"))

    shown = page(recording, "quiet/lifecycle")

    assert shown["rows"] == 0 and shown["is_on"] is False and shown["is_end"] is True


def test_records_survive_a_kill(tmp_path_factory: pytest.TempPathFactory) -> None:
    """P8: a message that was accepted has its row."""
    data_dir = tmp_path_factory.mktemp("killed") / "data"
    with running_server(data_dir) as server:
        create_queue(server, "orders", Lifecycle="true", EnablePartitioning="false")
        sdk = ServiceBusClient.from_connection_string(server.connection_string)
        with sdk, sdk.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(b"x") for _ in range(50)])
        server.kill()
        server.start()
        counts = Counter(table(server, "orders")["event"])
        assert counts["enqueue"] == 50
        loads = Counter(events(server, "orders", "load")["event"])["load"]
        assert loads >= 1


def test_a_program_that_keeps_the_position_reads_each_row_of_each_fragment_once(
    recording: Server, sdk: ServiceBusClient
) -> None:
    """P8: rows that fragments store later follow, wherever the last page ended."""
    create_queue(recording, "kept", Lifecycle="true", EnablePartitioning="true")
    texts = [f"key-{number}" for number in range(20)]
    found: list[object] = []
    fragments: set[object] = set()
    after = "0.0"
    for _ in range(2):
        with sdk.get_queue_sender("kept") as sender:
            for text in texts:
                sender.send_messages(ServiceBusMessage(text, partition_key=text))
        rows, after = table_after(recording, "kept", after, rows=7)
        pairs = zip(rows["event"], rows["key"], strict=True)
        found += [key for event, key in pairs if event == "enqueue"]
        fragments.update(rows["fragment"])
    assert Counter(found) == dict.fromkeys(texts, 2)
    assert len(fragments) > 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nobody/lifecycle", 404),
        ("bad/lifecycle?after=x", 400),
        ("bad/lifecycle?after=0.0-x", 400),
        ("bad/lifecycle?rows=0", 400),
        ("bad/lifecycle?after=9.0", 400),
        ("bad/$DeadLetterQueue/lifecycle", 400),
    ],
)
def test_a_wrong_question_is_refused(recording: Server, path: str, status: int) -> None:
    create_queue(recording, "bad", EnablePartitioning="false")
    try:
        with pytest.raises(HTTPError) as refusal:
            page(recording, path)
    finally:
        delete_queue(recording, "bad")

    assert refusal.value.code == status
    refusal.value.close()
