"""The pytest plugin as other projects use it: runs of pytest in a process and a folder of their
own.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from shardbus.testing import BusFailed, WarmProcess
from shardbus.testing.warm_client import BusOptions

PLUGIN: Final = ("-p", "shardbus.testing.plugin")
RUN_S_MAX: Final = 300
SOURCES: Final = os.pathsep.join(
    str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
)


class Project:
    """A folder of somebody's tests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.temporary = directory / "tmp"
        self.temporary.mkdir()

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text, encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        plain = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
        return [sys.executable, "-m", "pytest", *plain, *PLUGIN, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": SOURCES,
            "TMPDIR": str(self.temporary),
        }

    def run(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RUN_S_MAX,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def left(self) -> list[str]:
        """Files of buses, and processes that were started with this folder for their files."""
        files = [path.name for path in self.temporary.glob("shardbus-test-*")]
        return files + processes_with(f"TMPDIR={self.temporary}")


def processes_with(variable: str) -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes().split(b"\0"):
                found.append(f"process {path.parent.name}")
        except OSError:
            continue
    return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


EXAMPLE: Final = """
import pytest
from azure.servicebus import ServiceBusMessage

pytestmark = pytest.mark.shardbus(queues=["orders"])


@pytest.fixture
def sent(servicebus_client):
    with servicebus_client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))


def test_a_message_arrives(sent, servicebus_client):
    with servicebus_client.get_queue_receiver("orders") as receiver:
        [message] = receiver.receive_messages(max_wait_time=20)
        receiver.complete_message(message)


@pytest.mark.shardbus(config="Config.json", settings={"tier": "premium"}, frozen=True)
def test_markers_add_up(shardbus, servicebus_administration_client):
    assert shardbus.now == shardbus.now
    queues = {queue.name for queue in servicebus_administration_client.list_queues()}
    assert queues == {"orders", "queue.1"}
    names = servicebus_administration_client.get_namespace_properties()
    assert str(names.messaging_sku) == "MessagingSku.PREMIUM" or names.messaging_sku == "Premium"


def test_every_test_has_a_bus_of_its_own(servicebus_client):
    with servicebus_client.get_queue_receiver("orders") as receiver:
        assert receiver.peek_messages() == []
"""
CONFIG: Final = """{
  // As the emulator's file, which may have comments.
  "UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "queue.1"}]}]}
}
"""


def test_fixtures_and_markers_do_what_the_guide_says(project: Project) -> None:
    project.write("test_orders.py", EXAMPLE)
    project.write("Config.json", CONFIG)

    code, printed = project.run()

    assert code == 0, printed
    assert "3 passed" in printed
    assert project.left() == []


def test_the_examples_of_the_guide_are_tests_that_pass(project: Project) -> None:
    guide = Path(__file__).resolve().parents[2] / "docs/guides/testing-with-shardbus.md"
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(encoding="utf-8"), re.M | re.S)
    project.write("test_guide.py", "\n".join(blocks))

    code, printed = project.run()

    assert code == 0, printed
    assert "2 passed" in printed


SHARED: Final = """
import pytest


@pytest.fixture(scope="session")
def first(shardbus):
    return shardbus.pid


@pytest.mark.shardbus(queues=["a"])
def test_one(shardbus, first, servicebus_administration_client):
    assert shardbus.pid == first
    assert [queue.name for queue in servicebus_administration_client.list_queues()] == ["a", "z"]


@pytest.mark.shardbus(topics={"t": ["s"]})
def test_two(shardbus, first, servicebus_administration_client):
    assert shardbus.pid == first
    assert [topic.name for topic in servicebus_administration_client.list_topics()] == ["t"]
    assert [queue.name for queue in servicebus_administration_client.list_queues()] == ["a", "z"]
"""


def test_one_bus_serves_a_whole_run_when_the_project_says_so(project: Project) -> None:
    project.write("test_shared.py", SHARED)
    project.write("entities.json", CONFIG.replace("queue.1", "z"))
    ini = "[pytest]\nshardbus_scope = session\nshardbus_config = entities.json\n"
    project.write("pytest.ini", ini)

    code, printed = project.run()

    assert code == 0, printed
    assert project.left() == []


WRONG: Final = {
    "queue=['q']": "the marker shardbus has no queue; it has config, frozen",
    "'q'": "the marker shardbus has no argument without a name",
    "queues='q'": "write a list of names",
    "queues={'q': {'LockDuration': 'PT1H'}}": "LockDuration",
    "settings={'teir': 'premium'}": "'teir' is not a setting of a test server",
    "settings={'host': '0.0.0.0', 'sas_key': 'x'}": "loopback",
    "settings={'store': 'sqlite:'}": "'store' is not a setting of a test server",
    "now='soon'": "is not a moment",
}


def test_an_invalid_marker_is_an_error_that_says_why(project: Project) -> None:
    tests = [
        f"@pytest.mark.shardbus({marker})\ndef test_{number}(shardbus): pass\n"
        for number, marker in enumerate(WRONG)
    ]
    project.write("test_wrong.py", "\n".join(["import pytest", *tests]))

    code, printed = project.run()

    assert code == 1, printed
    assert f"{len(WRONG)} errors" in printed
    for said in WRONG.values():
        assert said in printed, (said, printed)
    assert project.left() == []


def test_a_failed_test_shows_what_its_bus_has_logged(project: Project) -> None:
    text = """
import os, signal
def test_it(shardbus):
    os.kill(shardbus.pid, signal.SIGKILL)
    shardbus.advance(1)
"""
    project.write("test_failing.py", text)
    code, printed = project.run()
    assert code == 1
    assert "the private bus does not answer" in printed
    assert project.left() == []


def test_a_run_without_the_sdk_fails_and_says_what_is_missing(project: Project) -> None:
    project.write("azure.py", "")
    project.write("test_it.py", "def test_it(servicebus_client): pass\n")
    code, printed = project.run()
    assert code == 1, printed
    assert "pip install 'shardbus[pytest]'" in printed


def test_nothing_is_loaded_or_started_for_tests_without_a_bus(project: Project) -> None:
    text = """
import sys
def test_it():
    heavy = [name for name in sys.modules if name.startswith(("shardbus.app", "uvloop", "azure"))]
    assert heavy == []
"""
    project.write("test_light.py", text)
    code, printed = project.run()
    assert code == 0, printed


def test_buses_end_with_a_run_that_is_killed(project: Project) -> None:
    text = """
import time
def test_it(shardbus):
    print("READY", flush=True)
    time.sleep(600)
"""
    project.write("test_hanging.py", text)
    run = subprocess.Popen(
        project.command("-s"),
        cwd=project.directory,
        env=project.environment,
        stdout=subprocess.PIPE,
    )
    assert run.stdout is not None
    try:
        while b"READY" not in run.stdout.readline():
            assert run.poll() is None
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdout.close()
    deadline_s = time.monotonic() + 30
    while project.left():
        assert time.monotonic() < deadline_s, project.left()
        time.sleep(0.05)


def test_buses_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """However that ends: its buses notice it themselves."""
    warm = WarmProcess()
    bus = warm.start()
    parent = int(Path(f"/proc/{bus.pid}/stat").read_text(encoding="ascii").split()[3])
    os.kill(parent, signal.SIGKILL)
    deadline_s = time.monotonic() + 30
    while Path(f"/proc/{bus.pid}").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    with pytest.raises(BusFailed, match="ended"):
        warm.start()
    warm.close()
    assert not list(Path(tempfile.gettempdir()).glob(f"shardbus-test-*/{bus.pid}*"))


def test_a_bus_on_disk_serves_from_files(warm: WarmProcess) -> None:
    bus = warm.start(BusOptions(is_in_memory=False))
    try:
        bus.declare(queues=["q"])
        files = Path(bus.ca_file).parents[1]
        assert list(files.glob("*.db"))
    finally:
        bus.close()
    assert not files.exists()


def test_a_bus_is_ready_within_a_second(warm: WarmProcess) -> None:
    """The median of 20, with a queue in it; the first one also loads everything."""
    took_s: list[float] = []
    for _ in range(20):
        started_s = time.perf_counter()
        bus = warm.start()
        bus.declare(queues=["orders"])
        took_s.append(time.perf_counter() - started_s)
        bus.close()
    assert statistics.median(took_s) < 1.0, took_s


MANY: Final = """
import pytest
from azure.servicebus import ServiceBusMessage

@pytest.mark.shardbus(queues=["q"])
@pytest.mark.parametrize("number", range(200))
def test_it(number, shardbus, servicebus_client):
    with servicebus_client.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage(str(number)))
    shardbus.advance(hours=1)
    with servicebus_client.get_queue_receiver("q") as receiver:
        assert [str(message) for message in receiver.peek_messages(9)] == [str(number)]
"""


@pytest.mark.long
def test_two_hundred_tests_have_a_bus_each_in_parallel(project: Project) -> None:
    project.write("test_many.py", MANY)
    project.write("pytest.ini", "[pytest]\n")

    code, printed = project.run("-p", "xdist", "-n", "8")

    assert code == 0, printed
    assert re.search(r"200 passed", printed)
    assert project.left() == []
