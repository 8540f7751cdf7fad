"""Messages on the command line, against a real process: nothing is lost on the way (R20, R26)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.failures import ServerUnavailable
from shardbus.app.cli.main import main
from shardbus.app.cli.messages.removing import count_of
from shardbus.app.cli.sas import Credential
from tests.support.server import Server, running_server

SHARDBUS: Final = str(Path(sys.executable).with_name("shardbus"))
LINES: Final = 10_000
DEADLINE_S: Final = 60.0
# Transactions of a resubmission are of a hundred messages: the first of so many are stored.
BEGUN: Final = 300


class Shell:
    """Runs commands against one server: here, which is quick, or as a process of their own."""

    def __init__(self, server: Server) -> None:
        self._endpoint = f"http://{server.host}:{server.http_port}"

    def run(self, *words: str, text: str = "") -> Result:
        there = [*words, "--endpoint", self._endpoint]
        return CliRunner().invoke(main, there, input=text, catch_exceptions=False)

    def out(self, *words: str, text: str = "") -> str:
        """What a command prints that must succeed."""
        done = self.run(*words, text=text)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def lines(self, *words: str) -> list[str]:
        return self.out(*words).splitlines()

    def start(self, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        there = [SHARDBUS, *words, "--endpoint", self._endpoint]
        return subprocess.Popen(there, stdout=stdout, stderr=subprocess.PIPE)

    def api(self) -> ApiClient:
        return ClientAccess(self._endpoint, Credential()).api()


@pytest.fixture
def shell(server: Server) -> Shell:
    return Shell(server)


@pytest.mark.parametrize("partitioning", ["--partitioning", "--no-partitioning"])
def test_ten_thousand_lines_go_in_and_come_out(
    shell: Shell, queue_name: str, partitioning: str
) -> None:
    """R10, R17."""
    shell.out("queue", "create", queue_name, partitioning)
    lines = [f"line {number}" for number in range(LINES)]

    sent = json.loads(
        shell.out("send", queue_name, "--lines", "--json", text="\n".join(lines) + "\n")
    )
    received = shell.lines("receive", queue_name, "--all")
    left = json.loads(shell.out("peek", queue_name, "--json"))
    shell.out("queue", "delete", queue_name, "--yes")

    assert sent == {"entity": queue_name, "sent": LINES, "duplicates": 0}
    assert sorted(received) == sorted(lines)
    assert left == []
    if partitioning == "--no-partitioning":
        assert received == lines


def test_a_dump_can_be_sent_back(shell: Shell, queue_name: str) -> None:
    """R20."""
    shell.out("queue", "create", queue_name)
    shell.out(
        "send", queue_name, "häuse", "--property", "colour=red", "--property", "size:=7",
        "--subject", "s", "--message-id", "m", "--correlation-id", "c", "--content-type",
        "text/plain", "--ttl", "1h", "--partition-key", "k",
    )  # fmt: skip

    dump = shell.out("receive", queue_name, "--jsonl")
    shell.out("send", queue_name, "--jsonl", text=dump)
    [shown] = json.loads(shell.out("peek", queue_name, "--json"))
    again = shell.out("receive", queue_name, "--all", "--json")
    shell.out("send", queue_name, "--jsonl", text=again)
    details = shell.out("peek", queue_name, "--details")
    shell.out("queue", "delete", queue_name, "--yes")

    was = json.loads(dump)
    for member in ("message_id", "subject", "correlation_id", "content_type", "partition_key"):
        assert shown[member] == was[member]
    assert (shown["body"], shown["properties"]) == ("häuse", {"colour": "red", "size": 7})
    assert shown["time_to_live_ms"] == 3_600_000
    assert "häuse" in details


def test_a_broken_pipe_loses_nothing(shell: Shell, queue_name: str) -> None:
    """What nobody could read is received again, at once."""
    shell.out("queue", "create", queue_name, "--partitioning")
    shell.out("send", queue_name, "x", "--count", "500")
    read_end, write_end = os.pipe()
    os.close(read_end)

    with shell.start("receive", queue_name, "--all", stdout=write_end) as process:
        os.close(write_end)
        _, complaint = process.communicate(timeout=DEADLINE_S)
    rest = shell.lines("receive", queue_name, "--all")
    shell.out("queue", "delete", queue_name, "--yes")

    assert (process.returncode, b"0 messages received" in complaint) == (1, True)
    assert rest == ["x"] * 500


def test_a_full_disk_loses_nothing(shell: Shell, queue_name: str) -> None:
    shell.out("queue", "create", queue_name, "--no-partitioning")
    shell.out("send", queue_name, "x", "--count", "5")

    with (
        Path("/dev/full").open("wb") as full,
        shell.start("receive", queue_name, "--all", stdout=full.fileno()) as process,
    ):
        _, complaint = process.communicate(timeout=DEADLINE_S)
    rest = shell.lines("receive", queue_name, "--all")
    shell.out("queue", "delete", queue_name, "--yes")

    assert process.returncode == 1
    assert b"standard output cannot be written" in complaint
    assert b"Traceback" not in complaint
    assert rest == ["x"] * 5


def test_dead_letters_are_listed_resubmitted_and_purged(shell: Shell, queue_name: str) -> None:
    shell.out("queue", "create", queue_name, "--partitioning")
    shell.out("send", queue_name, "--lines", text="".join(f"{n}\n" for n in range(300)))
    shell.out("receive", queue_name, "--all", "--dead-letter-reason", "too dull")

    summary = json.loads(shell.out("deadletter", "list", queue_name, "--summary", "--json"))
    listed = json.loads(shell.out("deadletter", "list", queue_name, "--count", "2", "--json"))
    numbers = [str(each["sequence_number"]) for each in listed]
    chosen = shell.out(
        "deadletter", "resubmit", queue_name, "--number", numbers[0], "--number", numbers[1]
    )
    some = shell.out("deadletter", "resubmit", queue_name, "--count", "98")
    back = shell.lines("receive", queue_name, "--all")
    unsure = shell.run("deadletter", "purge", queue_name)
    purged = json.loads(shell.out("deadletter", "purge", queue_name, "--yes", "--json"))
    dead = shell.lines("receive", queue_name, "--all", "--dead-letter")
    shell.out("queue", "delete", queue_name, "--yes")

    assert summary == [{"reason": "too dull", "count": 300}]
    assert chosen.startswith("resubmitted 2 ")
    assert some.startswith("resubmitted 98 ")
    assert len(set(back)) == 100
    assert {each["body"] for each in listed} <= set(back)
    assert (unsure.exit_code, "--yes" in unsure.stderr) == (2, True)
    assert (purged["purged"], dead) == (200, [])


def test_a_crash_in_the_middle_of_a_resubmission_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    """R22."""
    count = 3_000
    with running_server(tmp_path / "data") as server:
        shell = Shell(server)
        shell.out("queue", "create", "orders", "--partitioning")
        shell.out("send", "orders", "--lines", text="".join(f"{n}\n" for n in range(count)))
        shell.out("receive", "orders", "--all", "--dead-letter-reason", "x")
        with shell.start("deadletter", "resubmit", "orders") as process:
            _wait_for_some(shell.api(), "orders")
            server.kill()
            process.communicate(timeout=DEADLINE_S)
        server.start()

        back = shell.lines("receive", "orders", "--all")
        dead = shell.lines("receive", "orders", "--all", "--dead-letter")

    assert sorted(back + dead, key=int) == [str(number) for number in range(count)]
    assert back


def _wait_for_some(api: ApiClient, entity: str) -> None:
    """Until a resubmission has begun, and something of it is stored."""
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        try:
            if count_of(api, entity, "active") >= BEGUN:
                return
        except ServerUnavailable:
            continue
    raise AssertionError("nothing was resubmitted")


def test_sessions_are_received_one_after_the_other(shell: Shell, queue_name: str) -> None:
    """R26."""
    shell.out("queue", "create", queue_name, "--sessions", "--partitioning")
    for session in ("a", "b", "c"):
        shell.out(
            "send", queue_name, "--lines", "--session", session, text=f"{session}1\n{session}2\n"
        )

    listed = {
        each["session_id"] for each in json.loads(shell.out("sessions", queue_name, "--json"))
    }
    one = shell.lines("receive", queue_name, "--session", "b", "--all")
    following = shell.lines("receive", queue_name, "--next-session", "--all")
    rest = shell.lines("receive", queue_name, "--all")
    lacking = shell.run("send", queue_name, "x")
    shell.out("queue", "delete", queue_name, "--yes")

    assert listed == {"a", "b", "c"}
    assert one == ["b1", "b2"]
    assert (following, rest) in ((["a1", "a2"], ["c1", "c2"]), (["c1", "c2"], ["a1", "a2"]))
    assert (lacking.exit_code, "--session" in lacking.stderr) == (1, True)


@pytest.mark.parametrize("form", [[], ["--json"], ["--details"]], ids=["text", "json", "details"])
def test_a_reader_that_takes_one_message_and_leaves_costs_no_other(
    shell: Shell, queue_name: str, form: list[str]
) -> None:
    """`receive --all | head -1`: what was not read is still on the bus, and is told of."""
    shell.out("queue", "create", queue_name)
    shell.out("send", queue_name, "x", "--count", "100")

    receiving = shell.start("receive", queue_name, "--all", *form)
    assert receiving.stdout is not None and receiving.stderr is not None
    head = subprocess.run(["head", "-1"], stdin=receiving.stdout, timeout=DEADLINE_S, check=True)
    receiving.stdout.close()
    told = receiving.stderr.read().decode()
    code = receiving.wait(DEADLINE_S)
    receiving.stderr.close()
    left = count_of(shell.api(), queue_name, "active")
    shell.out("queue", "delete", queue_name, "--yes")

    assert (head.returncode, code) == (0, 1)
    assert left in (99, 100), "100 if head took the beginning of the first message only"
    assert f"{100 - left} message" in told and "no other was removed" in told


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_send_says_how_many_were_sent(shell: Shell, queue_name: str) -> None:
    shell.out("queue", "create", queue_name)

    sending = shell.start("send", queue_name, "x", "--count", "10000000")
    try:
        until_s = time.monotonic() + DEADLINE_S
        while not count_of(shell.api(), queue_name, "active") and time.monotonic() < until_s:
            time.sleep(0.05)
        sending.send_signal(signal.SIGINT)
        _, told = sending.communicate(timeout=DEADLINE_S)
    finally:
        sending.kill()
    numbers = [int(word.replace(",", "")) for word in told.decode().split() if word[0].isdigit()]
    stored = count_of(shell.api(), queue_name, "active")
    shell.out("queue", "delete", queue_name, "--yes")

    assert sending.returncode == 130, told
    assert told.decode().startswith("shardbus: interrupted: sent ")
    assert numbers[0] <= stored <= sum(numbers)


def test_a_purge_removes_all_and_a_topic_is_reached_through_its_subscription(
    shell: Shell, queue_name: str
) -> None:
    shell.out("topic", "create", queue_name)
    shell.out("subscription", "create", queue_name, "europe")
    shell.out("send", queue_name, "news", "--count", "20")

    misnamed = shell.run("peek", f"{queue_name}/europe")
    topic = shell.run("receive", queue_name)
    peeked = json.loads(shell.out("peek", queue_name, "--subscription", "europe", "--json"))
    shell.out("receive", f"{queue_name}/Subscriptions/europe", "--count", "5", "--abandon")
    purged = shell.out("purge", queue_name, "--subscription", "europe", "--yes")
    shell.out("topic", "delete", queue_name, "--yes")

    assert (misnamed.exit_code, "Subscriptions/europe" in misnamed.stderr) == (4, True)
    assert (topic.exit_code, "is a topic" in topic.stderr) == (1, True)
    assert len(peeked) == 20
    assert purged.startswith("purged 20 ")


def test_bad_input_is_told_without_a_traceback(shell: Shell, queue_name: str) -> None:
    shell.out("queue", "create", queue_name)
    attempts = [
        (2, shell.run("send", queue_name, "--jsonl", text="{bad\n")),
        (1, shell.run("send", queue_name, "--jsonl", text='{"colour": 1}\n')),
        (2, shell.run("send", queue_name, "x", "--at", "soon")),
        (2, shell.run("send", queue_name, "--file", "/nowhere/at-all")),
        (1, shell.run("send", queue_name, "x" * 300_000))
        if sys.platform != "linux"
        else (1, shell.run("send", queue_name, text="x" * 300_000)),
        (4, shell.run("send", f"{queue_name}-none", "x")),
        (1, shell.run("peek", queue_name, "--key", "wrong")),
        (2, shell.run("receive", queue_name, "--all", "--count", "2")),
    ]
    left = json.loads(shell.out("peek", queue_name, "--json"))
    shell.out("queue", "delete", queue_name, "--yes")

    for code, done in attempts:
        assert done.exit_code == code, done.stderr
        assert done.stderr
        assert "Traceback" not in done.stderr
    assert left == []


def test_the_command_line_reaches_a_bus_over_https(server: Server, queue_name: str) -> None:
    """R35."""
    secure = server.connection_string.replace("UseDevelopmentEmulator=true;", "")
    words = ["--connection-string", secure, "--ca", str(server.ca_file)]

    def run(*command: str) -> Result:
        return CliRunner().invoke(main, command, catch_exceptions=False)

    made = run("queue", "create", queue_name, *words)
    sent = run("send", queue_name, "secret", *words)
    received = run("receive", queue_name, *words)
    distrusted = run("peek", queue_name, "--connection-string", secure)
    run("queue", "delete", queue_name, "--yes", *words)

    assert (made.exit_code, sent.exit_code) == (0, 0), (made.stderr, sent.stderr)
    assert received.stdout == "secret\n"
    assert (distrusted.exit_code, "--ca" in distrusted.stderr) == (3, True)
