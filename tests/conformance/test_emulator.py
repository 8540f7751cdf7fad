"""`shardbus emulator` where the official emulator was: its variables, file, key, ports, health."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from shardbus.app.cli.main import main
from shardbus.app.server.emulating import emulator_sources
from shardbus.app.server.setting import SettingError
from tests.support.namespaces import needed_namespaces
from tests.support.ports import free_port
from tests.support.server import Server, serve_and_fail

ROOT: Final = Path(__file__).parents[2]
WORLD_S: Final = 300
COMMAND: Final = (str(Path(sys.executable).with_name("shardbus")), "emulator")
CONFIG: Final = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [{"Name": "queue.1", "Properties": {"LockDuration": "PT1M"}}],
                "Topics": [{"Name": "topic.1", "Subscriptions": [{"Name": "subscription.1"}]}],
            }
        ],
        "Logging": {"Type": "File"},
    }
}
VARIABLES: Final = {
    "ACCEPT_EULA": "Y",
    "SQL_SERVER": "sqledge",
    "MSSQL_SA_PASSWORD": "unused",
    "SQL_WAIT_INTERVAL": "0",
}


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Server]:
    config = tmp_path / "Config.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    environment = {**VARIABLES, "CONFIG_PATH": str(config)}
    server = Server(tmp_path / "data", environment=environment, command=COMMAND)
    server.start()
    yield server
    server.close()


def test_an_application_of_the_emulator_finds_its_entities_key_and_health(
    emulator: Server,
) -> None:
    """R31, R36: nothing is told to the bus beyond what the emulator is told."""
    # The emulator's own text, with the port that this test has.
    connection_string = (
        f"Endpoint=sb://localhost:{emulator.amqp_port};"
        "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
        "UseDevelopmentEmulator=true;"
    )
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender("queue.1") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("queue.1") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=20)
            receiver.complete_message(message)
        with client.get_topic_sender("topic.1") as sender:
            sender.send_messages(ServiceBusMessage("y"))
        with client.get_subscription_receiver("topic.1", "subscription.1") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=20)

    connection = http.client.HTTPConnection("127.0.0.1", emulator.http_port, timeout=20)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    assert (answer.status, said["status"]) == (200, "healthy")
    assert "key is public" in emulator.output
    # What Testcontainers and people's scripts wait for.
    assert "Emulator Service is Successfully Up!\n" in emulator.output


def test_a_compose_file_needs_no_other_line(tmp_path: Path) -> None:
    """R36: the service of the guide, at its own ports, names and paths."""
    apart = needed_namespaces()
    page = (ROOT / "docs" / "guides" / "emulator.md").read_text(encoding="utf-8")
    service = service_in(page)
    config = tmp_path / "Config.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    here = tmp_path / "here"
    here.mkdir()

    done = subprocess.run(
        [
            *(*apart, sys.executable, "-m", "tests.conformance.emulator_world"),
            *(str(here), str(config), json.dumps(service)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WORLD_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["bodies"] == ["localhost", "sb-emulator"]
    assert told["health"] == {"5300": "healthy"}


def service_in(page: str) -> dict[str, object]:
    """What the block of a compose file in a page says of the emulator."""
    (block,) = re.findall(r"```yaml\n(services:\n.*?)```", page, re.DOTALL)
    lists = {
        name: re.findall(r'- "([^"]+)"', part)
        for name, part in re.findall(r"    (volumes|ports|networks):\n((?: {6,}.*\n)+)", block)
    }
    (variables,) = re.findall(r"    environment:\n((?: {6}.*\n)+)", block)
    environment = dict(re.findall(r"^ +(\w+): (\S+)", variables, re.MULTILINE))
    assert environment.keys() == {"SQL_SERVER", "MSSQL_SA_PASSWORD", "ACCEPT_EULA"}
    return {
        "volumes": lists["volumes"],
        "ports": lists["ports"],
        "aliases": lists["networks"],
        "environment": {**environment, "ACCEPT_EULA": "Y"},
    }


def test_variables_of_the_emulator_mean_settings_unless_these_are_given(tmp_path: Path) -> None:
    mounted = tmp_path / "Config.json"
    variables = {"EMULATOR_HTTP_PORT": "5310", **VARIABLES}
    every = {"host": "0.0.0.0", "http_port": "5310"}
    assert emulator_sources({}, (), variables, mounted) == (every, ())

    mounted.write_text("{}", encoding="utf-8")
    assert emulator_sources({}, (), {}, mounted) == ({"host": "0.0.0.0"}, (str(mounted),))
    assert emulator_sources({}, ("other.json",), {}, mounted)[1] == ("other.json",)

    given = {"host": "::1", "http_port": "1"}
    assert emulator_sources(given, (), variables, mounted)[0] == given
    ours = {**variables, "SHARDBUS_HTTP_PORT": "1", "SHARDBUS_HOST": "::1"}
    assert emulator_sources({}, (), ours, mounted)[0] == {}


def test_only_the_image_for_it_runs_the_emulator() -> None:
    """The last stage of the file is what `docker build` makes without a target."""
    file = Path(__file__).parents[2] / "deploy" / "container" / "Containerfile"
    stages = re.split(r"^FROM ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {stage.split()[2]: stage for stage in stages if stage.split()[1:2] == ["AS"]}
    (words,) = re.findall(r'^CMD (\["emulator".*\])$', named["emulator"], re.MULTILINE)
    assert main.commands[json.loads(words)[0]].name == "emulator"
    assert stages[-1].strip() == "bus"
    assert '"serve"' in named["bus"] and "emulator" not in named["bus"].splitlines()[-2]


def test_a_file_that_is_missing_is_an_error_and_not_an_empty_bus(tmp_path: Path) -> None:
    """Docker makes a directory where the file of a mount does not exist."""
    with pytest.raises(SettingError, match="CONFIG_PATH"):
        emulator_sources({}, (), {"CONFIG_PATH": str(tmp_path / "none.json")}, tmp_path / "x")
    with pytest.raises(SettingError, match="directory"):
        emulator_sources({}, (), {}, tmp_path)


def test_a_server_that_is_no_emulator_keeps_the_public_key_to_this_machine() -> None:
    """R34: variables of the emulator open nothing."""
    code, printed = serve_and_fail("--host", "0.0.0.0", "--amqp-port", str(free_port()))
    assert code == 2
    assert "the development key is public" in printed
