"""Triage that the bus runs on real Spark, with a driver and a bus that are killed (P7, P9)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from spark.tests.bus import Bus, running_bus

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import Document
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.sas import Credential
from shardbus_spark.client import connect

ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true

[[topic]]
name = "events"

[[topic.subscription]]
name = "audit"

[[topic.subscription]]
name = "mail"
"""
LETTERS: Final = 60
STEP_S: Final = 600.0
PAUSE_S: Final = 0.1
_DRIVER: Final = re.compile(r"the driver of pipeline (\w+) runs as process (\d+)")


def dead_letter(bus: Bus, entity: str, path: str, count: int) -> None:
    """So many with two causes, of which a rule can select the first."""
    messages: list[dict[str, object]] = [
        {
            "message_id": f"m{number}",
            "body": '{"paid": null}' if number % 3 else "not JSON",
            "properties": {"amount": number},
        }
        for number in range(count)
    ]
    bus.send(entity, messages)
    left = count
    while left:
        tokens = [each["lock_token"] for each in bus.receive(path, left)]
        left -= bus.settle(path, "dead_letter", tokens, reason="Invalid")


class Pipelines:
    """The pipelines of a bus over the JSON API."""

    def __init__(self, bus: Bus) -> None:
        endpoint = f"http://127.0.0.1:{bus.server.http_port}"
        self._bus = bus
        self.api = ClientAccess(endpoint, Credential(), None).api()

    def start(self, name: str, **definition: str | int | bool) -> None:
        self.api.put(f"pipelines/{name}", {"kind": "triage", **definition})
        self.api.post(f"pipelines/{name}/start", {})

    def until(self, name: str, is_so: Callable[[Document], bool]) -> Document:
        found: Document = {}
        deadline_s = time.monotonic() + STEP_S
        while time.monotonic() < deadline_s:
            try:
                found = self.api.get(f"pipelines/{name}")
            except CommandError:
                found = {}
            if found and is_so(found):
                return found
            time.sleep(PAUSE_S)
        raise AssertionError(f"{found}\n{self.api.get(f'pipelines/{name}/logs')}")

    def kill_driver(self, name: str) -> None:
        """With the Python and the Java that it has started, which are of its group."""
        drivers = [pid for of, pid in _DRIVER.findall(self._bus.server.output) if of == name]
        os.killpg(int(drivers[-1]), signal.SIGKILL)


def letters_begun(place: Path) -> int:
    """How many reports have begun to be written."""
    return len(list(place.glob("*/letters")))


def wait(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + STEP_S
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(PAUSE_S)


def shardbus(bus: Bus, *arguments: str) -> subprocess.CompletedProcess[str]:
    endpoint = f"http://127.0.0.1:{bus.server.http_port}"
    command = [sys.executable, "-m", "shardbus", *arguments, "--endpoint", endpoint]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STEP_S
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_driver_and_a_bus_that_are_killed_make_one_report_and_change_nothing(
    tmp_path: Path,
) -> None:
    """P7, P9: of the letters that a rule selects, from which a redrive goes on."""
    place = tmp_path / "data" / "captured" / "causes"
    with running_bus(tmp_path, ENTITIES) as bus:
        pipelines = Pipelines(bus)
        dead_letter(bus, "orders", "orders", LETTERS)
        wrong = shardbus(
            bus, "pipeline", "create", "causes", "--kind", "triage", "--entity", "orders",
            "--where", "colour = 'red'",
        )  # fmt: skip
        assert "'colour' at character 1" in wrong.stderr, wrong.stderr

        pipelines.start("causes", entity="orders", once=True, rule="amount >= 6")
        wait(lambda: letters_begun(place) == 1, "Spark has not begun to write")
        pipelines.kill_driver("causes")
        pipelines.until("causes", lambda found: int(str(found["starts"])) > 1)
        wait(lambda: bool(list(place.glob("*"))), "no other report was begun")
        bus.server.kill()
        bus.server.start()
        pipelines.until("causes", lambda found: found["state"] == "finished")

        report = pipelines.api.get("pipelines/causes/report", page=1)
        assert (report["letters"], report["group_count"]) == (LETTERS - 6, 2)
        assert str(report["page"]).count("<section") == 2
        assert [file.name for file in place.iterdir()] == [report["name"]]
        told = shardbus(
            bus, "pipeline", "report", "causes", "--html", str(tmp_path / "page.html"), "--json"
        )
        assert json.loads(told.stdout)["letters"] == LETTERS - 6, told.stderr
        assert (tmp_path / "page.html").read_text("utf-8") == report["page"]
        client = connect(bus.url)
        assert client.read("orders/$DeadLetterQueue").num_rows == LETTERS
        largest = json.loads(told.stdout)["groups"][0]
        redriven = shardbus(
            bus, "triage", "orders", "--from", str(report["location"]), "--group", largest["id"],
            "--apply",
        )  # fmt: skip
        assert redriven.returncode == 0, redriven.stderr
        assert client.read("orders").num_rows == largest["count"] == (LETTERS - 6) * 2 // 3
        client.close()


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_reports_go_on_when_an_entity_is_deleted_and_there_again(tmp_path: Path) -> None:
    """P7, P9: a topic with fewer subscriptions is read without them, and a missing one is told."""
    place = tmp_path / "data" / "captured" / "causes"
    with running_bus(tmp_path, ENTITIES) as bus:
        pipelines = Pipelines(bus)
        for name in ("audit", "mail"):
            path = f"events/Subscriptions/{name}"
            dead_letter(bus, "events", path, 6)
        pipelines.start("causes", entity="events", interval_ms=60_000, reports_max=2)
        wait(lambda: len(reports_in(place)) == 1, "no report")
        first = pipelines.api.get("pipelines/causes/report")
        both = [f"events/Subscriptions/{name}" for name in ("audit", "mail")]
        assert first["entities"] == both

        bus.run("subscription", "delete", "events", "mail", "--yes")
        pipelines.kill_driver("causes")
        wait(lambda: len(reports_in(place)) > 1, "no second report")
        second = pipelines.api.get("pipelines/causes/report")
        assert second["entities"] == ["events/Subscriptions/audit"]

        bus.run("topic", "delete", "events", "--yes")
        pipelines.kill_driver("causes")
        told = pipelines.until("causes", lambda found: found["state"] == "failing")
        pipelines.until(
            "causes", lambda found: "'events' does not exist" in str(found["last_error"])
        )
        assert told["state"] == "failing"
        bus.run("topic", "create", "events")
        bus.run("subscription", "create", "events", "new")
        before = reports_in(place)
        wait(lambda: reports_in(place)[-1:] != before[-1:], "no report after the topic is back")
        assert pipelines.api.get("pipelines/causes/report")["letters"] == 0
        wait(lambda: len(reports_in(place)) <= 2, "older reports are not removed")


def reports_in(place: Path) -> list[str]:
    """The complete reports."""
    return sorted(file.parent.name for file in place.glob("*/report.json"))
