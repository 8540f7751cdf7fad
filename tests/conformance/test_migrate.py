"""A namespace moves to another with its messages, through the official SDK."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from click.testing import CliRunner, Result

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.main import main
from shardbus.app.cli.messages.browsing import browse
from shardbus.app.cli.sas import Credential
from shardbus.app.migrate import line_move as moving
from shardbus.app.migrate.outgoing import ORIGIN
from tests.support.server import Server, running_server

DEADLINE_S: Final = 120.0
KILLS: Final = 6
BACK: Final = "back"
BOTH_WAYS: Final = pytest.mark.parametrize(
    "ends", ["there", pytest.param(BACK, marks=pytest.mark.long)], indirect=True
)


class Bus:
    """One of the two namespaces."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection_string = server.connection_string
        self._endpoint = f"http://{server.host}:{server.http_port}"

    def run(self, *words: str, text: str = "") -> Result:
        there = [*words, "--endpoint", self._endpoint]
        done = CliRunner().invoke(main, there, input=text, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done

    def api(self) -> ApiClient:
        return ClientAccess(self._endpoint, Credential()).api()

    def messages(self, path: str) -> list[Document]:
        return [each for page in browse(self.api(), path, count=None) for each in page]

    def bodies(self, path: str) -> list[str]:
        return [str(message.get("body")) for message in self.messages(path)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    with (
        running_server(tmp_path_factory.mktemp("one")) as one,
        running_server(tmp_path_factory.mktemp("two")) as two,
    ):
        yield one, two


Ends = tuple[Bus, Bus]


@pytest.fixture
def ends(
    request: pytest.FixtureRequest,
    servers: tuple[Server, Server],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Ends]:
    """The source and the target, or the other way round; empty afterwards."""
    monkeypatch.setattr(moving, "WAIT_S", 1.0)
    one, two = (Bus(server) for server in servers)
    yield (two, one) if getattr(request, "param", "") == BACK else (one, two)
    for bus in (one, two):
        for kind in ("queue", "topic"):
            for each in json.loads(bus.run(kind, "list", "--json").stdout):
                bus.run(kind, "delete", each["name"], "--yes")


def words(ends: Ends, journal: Path, *more: str) -> list[str]:
    source, target = ends
    both = ["--from", source.connection_string, "--to", target.connection_string]
    return ["migrate", *both, "--journal", str(journal), *more]


def migrate(ends: Ends, journal: Path, *more: str) -> list[Document]:
    line = words(ends, journal, *more, "--json")
    done = CliRunner().invoke(main, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lines: list[Document] = json.loads(done.stdout)["lines"]
    return lines


def plain(message: Document) -> Document:
    """What its sender had set."""
    properties = message.get("properties")
    kept = dict(properties) if isinstance(properties, dict) else {}
    kept.pop(ORIGIN, None)
    names = ("body", "message_id", "subject", "session_id", "partition_key", "scheduled_at")
    return {**{name: message.get(name) for name in names}, "properties": kept}


@BOTH_WAYS
@pytest.mark.parametrize(
    "partitioning", ["--partitioning", pytest.param("--no-partitioning", marks=pytest.mark.long)]
)
def test_a_queue_moves_with_typed_properties_schedules_and_dead_letters(
    ends: Ends, tmp_path: Path, partitioning: str
) -> None:
    source, target = ends
    source.run("queue", "create", "orders", partitioning, "--lock-duration", "30s")
    message = ServiceBusMessage(
        b"\x00typed",
        message_id="m-1",
        subject="s",
        partition_key="k",
        application_properties={
            "text": "t",
            "octets": b"text?",
            "whole": 7,
            "real": 0.5,
            "flag": True,
            "id": UUID(int=5),
            "at": datetime(2026, 1, 2, tzinfo=UTC),  # type: ignore[dict-item]  # the SDK takes it
        },
    )
    with (
        ServiceBusClient.from_connection_string(source.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(message)
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    source.run("send", "orders", "bad")
    source.run("receive", "orders", "--all", "--dead-letter-reason", "broken")
    with (
        ServiceBusClient.from_connection_string(source.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(message)
    before = sorted(map(plain, source.messages("orders")), key=str)
    dead_before = source.messages("orders/$DeadLetterQueue")

    moved = migrate(ends, tmp_path / "j", "--drain", "--dead-letters")
    again = migrate(ends, tmp_path / "j", "--drain", "--dead-letters")

    assert sorted(map(plain, target.messages("orders")), key=str) == before
    dead = target.messages("orders/$DeadLetterQueue")
    assert sorted(str(each["body"]) if "body" in each else "" for each in dead) == sorted(
        str(each["body"]) if "body" in each else "" for each in dead_before
    )
    assert {each["dead_letter_reason"] for each in dead} == {"broken"}
    assert source.messages("orders") == source.messages("orders/$DeadLetterQueue") == []
    assert [line["sent"] for line in moved] == [2, 1]
    assert [line["sent"] for line in again] == [0, 0]
    shown = json.loads(target.run("queue", "show", "orders", "--json").stdout)
    assert shown["partitioned"] is (partitioning == "--partitioning")
    assert shown["properties"]["LockDuration"] == "PT30S"


@pytest.mark.long
def test_sessions_move_in_order_with_their_states(ends: Ends, tmp_path: Path) -> None:
    """R26."""
    source, target = ends
    source.run("queue", "create", "talks", "--sessions")
    for number in range(30):
        source.run("send", "talks", f"{number:02}", "--session", f"s{number % 3}")
    with (
        ServiceBusClient.from_connection_string(source.connection_string) as client,
        client.get_queue_receiver("talks", session_id="s1") as receiver,
    ):
        receiver.session.set_state("halfway")

    migrate(ends, tmp_path / "j", "--drain")

    for session in range(3):
        expected = [f"{number:02}" for number in range(30) if number % 3 == session]
        assert target.run(
            "receive", "talks", "--all", "--session", f"s{session}"
        ).stdout.split() == (expected)
    with (
        ServiceBusClient.from_connection_string(target.connection_string) as client,
        client.get_queue_receiver("talks", session_id="s1") as receiver,
    ):
        assert bytes(receiver.session.get_state() or b"") == b"halfway"


@BOTH_WAYS
def test_each_subscription_gets_its_own_messages_and_then_its_rules(
    ends: Ends, tmp_path: Path
) -> None:
    """R30."""
    source, target = ends
    source.run("topic", "create", "news")
    source.run("subscription", "create", "news", "all")
    source.run("subscription", "create", "news", "europe", "--sql", "region = 'eu'")
    source.run("send", "news", "one", "--property", "region=eu")
    source.run("send", "news", "two", "--property", "region=us")
    # Its copy in the other subscription stays.
    source.run("receive", "news", "--subscription", "all", "--all")
    source.run("send", "news", "three", "--property", "region=eu")

    migrate(ends, tmp_path / "j", "--drain")
    target.run("send", "news", "four", "--property", "region=us")

    assert sorted(target.bodies("news/Subscriptions/all")) == ["four", "three"]
    assert sorted(target.bodies("news/Subscriptions/europe")) == ["one", "three"]
    for name in ("all", "europe"):
        there, here = (
            json.loads(bus.run("rule", "list", "news", name, "--json").stdout) for bus in ends
        )
        assert [each["filter"] for each in here] == [each["filter"] for each in there]


def test_a_copy_leaves_the_source_and_a_second_one_brings_what_is_new(
    ends: Ends, tmp_path: Path
) -> None:
    source, target = ends
    source.run("queue", "create", "orders")
    source.run("send", "orders", "old", "--count", "250")
    read_by_sdk = decode_payload_of_sdk()
    migrate(ends, tmp_path / "j")
    assert decode_payload_of_sdk() is read_by_sdk, "the SDK of this process reads as before"
    source.run("send", "orders", "new")
    migrate(ends, tmp_path / "j")

    assert Counter(target.bodies("orders")) == {"old": 250, "new": 1}
    assert len(source.bodies("orders")) == 251


def decode_payload_of_sdk() -> object:
    return vars(import_module("azure.servicebus._pyamqp.receiver"))["decode_payload"]


def lines_of(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@pytest.mark.long
def test_a_migration_that_is_killed_again_and_again_loses_and_doubles_nothing(
    ends: Ends, tmp_path: Path
) -> None:
    source, target = ends
    source.run("queue", "create", "orders", "--lock-duration", "10s")
    lines = [f"{number}" for number in range(1500)]
    source.run("send", "orders", "--lines", text="\n".join(lines) + "\n")
    journal = tmp_path / "j"
    command = [sys.executable, "-m", "shardbus", *words(ends, journal, "--drain")]

    for kill in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_s = time.monotonic() + DEADLINE_S
        # Each batch is two lines: it is killed between them, or after them.
        while process.poll() is None and lines_of(journal) < 3 * kill + 1:
            assert time.monotonic() < until_s
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    # It waits for the locks of the killed ones.
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)

    assert done.returncode == 0, done.stderr
    assert Counter(target.bodies("orders")) == Counter(lines)
    assert source.bodies("orders") == []


def test_entities_without_messages_are_imported(ends: Ends) -> None:
    source, target = ends
    source.run("queue", "create", "orders", "--no-partitioning", "--max-delivery-count", "3")
    source.run("topic", "create", "news")
    source.run("subscription", "create", "news", "europe", "--sql", "region = 'eu'")

    target.run("import", "--from", source.connection_string, "--entities", "news")
    target.run("import", "--from", source.connection_string)

    for form in (["queue", "show", "orders"], ["rule", "list", "news", "europe"]):
        there, here = (json.loads(bus.run(*form, "--json").stdout) for bus in ends)
        for each in (there, here):
            document = each if isinstance(each, dict) else each[0]
            for name in ("created_at", "size_bytes"):
                document.pop(name, None)
            for name in ("CreatedAt", "UpdatedAt", "AccessedAt"):
                document.get("properties", {}).pop(name, None)
        assert there == here


# What must not be taken for done.


def test_a_journal_knows_an_entity_that_was_created_again(ends: Ends, tmp_path: Path) -> None:
    """Numbers begin again with an entity: its messages are not those of the journal."""
    source, target = ends
    journal = tmp_path / "j"
    source.run("queue", "create", "orders")
    source.run("send", "orders", "old", "--partition-key", "k")
    migrate(ends, journal, "--drain")
    source.run("queue", "delete", "orders", "--yes")
    source.run("queue", "create", "orders")
    source.run("send", "orders", "new", "--partition-key", "k")

    migrate(ends, journal, "--drain")

    assert sorted(target.bodies("orders")) == ["new", "old"]


@pytest.mark.long
def test_a_target_that_was_deleted_gets_everything_again(ends: Ends, tmp_path: Path) -> None:
    """A trial, its clean-up, and then the move itself, which must not remove what is nowhere."""
    source, target = ends
    journal = tmp_path / "j"
    source.run("queue", "create", "orders")
    source.run("topic", "create", "news")
    source.run("subscription", "create", "news", "all")
    source.run("send", "orders", "order", "--count", "3")
    source.run("send", "news", "told")
    migrate(ends, journal)
    target.run("queue", "delete", "orders", "--yes")
    target.run("topic", "delete", "news", "--yes")

    migrate(ends, journal, "--drain")

    assert target.bodies("orders") == ["order"] * 3
    assert target.bodies("news/Subscriptions/all") == ["told"]
    assert source.bodies("orders") == source.bodies("news/Subscriptions/all") == []


def test_a_topic_with_duplicate_detection_moves_to_every_subscription(
    ends: Ends, tmp_path: Path
) -> None:
    """Each of them has the message, with the same id, and none of them is a duplicate."""
    source, target = ends
    source.run("topic", "create", "news", "--duplicate-detection")
    for name in ("one", "two"):
        source.run("subscription", "create", "news", name)
    source.run("send", "news", "told", "--message-id", "m-1")

    migrate(ends, tmp_path / "j", "--drain")

    for name in ("one", "two"):
        [message] = target.messages(f"news/Subscriptions/{name}")
        assert (message["body"], message["message_id"]) == ("told", "m-1")


def test_messages_that_a_target_would_drop_as_duplicates_stay(ends: Ends, tmp_path: Path) -> None:
    source, target = ends
    source.run("queue", "create", "orders")
    target.run("queue", "create", "orders", "--duplicate-detection")
    for body in ("first", "second"):
        source.run("send", "orders", body, "--message-id", "m-1")

    done = CliRunner().invoke(main, words(ends, tmp_path / "j", "--drain"))

    assert sorted(target.bodies("orders") + source.bodies("orders")) == ["first", "second"]
    assert done.exit_code != 0
    assert "m-1" in done.stderr and "duplicate" in done.stderr


def test_messages_that_wait_on_the_target_are_not_worn_out_by_dead_letters(
    ends: Ends, tmp_path: Path
) -> None:
    """Dead letters pass the line of the target, and a message there must not be delivered."""
    source, target = ends
    for bus in ends:
        bus.run("queue", "create", "orders", "--max-delivery-count", "2")
    target.run("send", "orders", "waits")
    for key in ("a", "b", "c"):
        source.run("send", "orders", "bad", "--partition-key", key)
    source.run("receive", "orders", "--all", "--dead-letter-reason", "broken")

    done = CliRunner().invoke(main, words(ends, tmp_path / "j", "--drain", "--dead-letters"))

    assert target.bodies("orders") == ["waits"]
    assert target.bodies("orders/$DeadLetterQueue") == []
    assert done.exit_code != 0 and "orders" in done.stderr and "empty" in done.stderr


def test_messages_that_came_after_their_topic_was_moved_are_told(
    ends: Ends, tmp_path: Path
) -> None:
    source, _ = ends
    source.run("topic", "create", "news")
    source.run("subscription", "create", "news", "all")
    migrate(ends, tmp_path / "j")
    source.run("send", "news", "late")

    done = CliRunner().invoke(main, words(ends, tmp_path / "j", "--drain"))

    assert source.bodies("news/Subscriptions/all") == ["late"]
    assert "1 message" in done.stdout and "news/Subscriptions/all" in done.stdout


def test_messages_keep_the_rest_of_their_time_to_live(ends: Ends, tmp_path: Path) -> None:
    """R35: beyond the 49.7 days of a header too. That of a scheduled message has not begun."""
    source, target = ends
    source.run("queue", "create", "orders", "--no-partitioning")
    for body, *more in (("long", "100d"), ("short", "2h"), ("later", "30s", "--at", "+1h")):
        source.run("send", "orders", body, "--ttl", *more)
    before = {str(each["body"]): each for each in source.messages("orders")}
    time.sleep(1.5)

    migrate(ends, tmp_path / "j")

    after = {str(each["body"]): each for each in target.messages("orders")}
    assert after["later"]["time_to_live_ms"] == before["later"]["time_to_live_ms"] == 30_000
    for body in ("long", "short"):
        moments = [
            datetime.fromisoformat(str(each[body]["expires_at"])) for each in (before, after)
        ]
        assert abs(moments[1] - moments[0]) < timedelta(seconds=2)


def test_a_scheduled_message_that_the_target_has_is_cancelled_until_it_is_due(
    ends: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed before it cancelled: when the message is due, it has another number."""
    source, target = ends
    source.run("queue", "create", "orders")
    source.run("send", "orders", "later", "--at", "+1h")
    migrate(ends, tmp_path / "j")
    monkeypatch.setattr(moving, "SOON", timedelta(hours=2))

    [moved] = migrate(ends, tmp_path / "j", "--drain")

    assert (moved["known"], moved["removed"]) == (1, 1)
    assert (source.bodies("orders"), target.bodies("orders")) == ([], ["later"])


# What a target has that cannot take the messages.


def refused(ends: Ends, journal: Path, *more: str) -> str:
    done = CliRunner().invoke(main, words(ends, journal, *more))
    assert done.exit_code != 0, done.stdout
    return done.stderr


def test_a_queue_does_not_move_into_a_topic(ends: Ends, tmp_path: Path) -> None:
    """A topic without subscriptions would accept the messages, and keep none."""
    source, target = ends
    source.run("queue", "create", "orders")
    source.run("queue", "create", "others")
    target.run("topic", "create", "orders")
    source.run("send", "orders", "kept")

    text = refused(ends, tmp_path / "j", "--drain")

    assert "orders is a queue on the source and a topic on the target" in text
    assert source.bodies("orders") == ["kept"]
    assert json.loads(target.run("queue", "list", "--json").stdout) == [], "nothing is created"


def test_a_topic_does_not_move_into_a_queue(ends: Ends, tmp_path: Path) -> None:
    source, target = ends
    source.run("topic", "create", "news")
    source.run("subscription", "create", "news", "all")
    target.run("queue", "create", "news")
    source.run("send", "news", "kept")

    text = refused(ends, tmp_path / "j", "--drain")

    assert "news is a topic on the source and a queue on the target" in text
    assert source.bodies("news/Subscriptions/all") == ["kept"]


@pytest.mark.parametrize("side", ["source", "target"])
def test_messages_do_not_move_where_only_one_side_has_sessions(
    ends: Ends, tmp_path: Path, side: str
) -> None:
    """R26: without sessions on the target, their states and their order would be lost."""
    for bus, name in zip(ends, ("source", "target"), strict=True):
        bus.run("queue", "create", "talks", *(["--sessions"] if name == side else []))

    text = refused(ends, tmp_path / "j", "--drain")

    assert f"talks requires sessions on the {side} only" in text


def test_messages_do_not_move_into_a_queue_that_passes_them_on(ends: Ends, tmp_path: Path) -> None:
    """A later run could not find there what an earlier run, which was killed, has sent."""
    source, target = ends
    source.run("queue", "create", "orders")
    source.run("send", "orders", "kept")
    target.run("queue", "create", "elsewhere")
    target.run("queue", "create", "orders", "--forward-to", "elsewhere")

    text = refused(ends, tmp_path / "j", "--drain")

    assert "orders forwards to" in text and "elsewhere on the target" in text
    assert (source.bodies("orders"), target.bodies("elsewhere")) == (["kept"], [])


def test_a_namespace_does_not_move_to_itself(ends: Ends, tmp_path: Path) -> None:
    """By whatever address: each message would be sent to the end of its queue without an end."""
    source, _ = ends
    source.run("queue", "create", "orders")
    source.run("send", "orders", "alone")
    other = Bus(source.server)
    other.connection_string = source.connection_string.replace("localhost", "127.0.0.1")
    assert other.connection_string != source.connection_string

    text = refused((source, other), tmp_path / "j")

    assert "the same namespace" in text
    assert source.bodies("orders") == ["alone"]
    assert [each["name"] for each in json.loads(source.run("queue", "list", "--json").stdout)] == [
        "orders"
    ]


def test_what_the_sdk_hides_is_told_with_the_side_that_said_it(
    ends: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R34: a key that ends while messages move is a *client error* for the SDK."""
    source, target = ends
    source.run("queue", "create", "orders")
    source.run("send", "orders", "kept")
    source.run("sas", "rule", "create", "mover", "--rights", "Manage")
    shown = json.loads(source.run("sas", "rule", "show", "mover", "--json").stdout)
    moving_end = Bus(source.server)
    moving_end.connection_string = source.connection_string.replace(
        "RootManageSharedAccessKey", "mover"
    ).replace("SAS_KEY_VALUE", shown["primary_key"])

    def ends_its_key(_: object) -> None:
        source.run("sas", "rule", "delete", "mover", "--yes")
        raise ServiceBusError("amqp:client-error")

    monkeypatch.setattr(moving.LineMove, "run", ends_its_key)

    text = refused((moving_end, target), tmp_path / "j", "--drain")

    assert "--from: not authorised" in text and "mover" in text
    assert "run the same command again" in text
    assert source.bodies("orders") == ["kept"]
