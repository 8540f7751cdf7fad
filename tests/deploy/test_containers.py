"""The images and the compose files, as a user of Docker builds and starts them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.client import HttpTransport, Management
from shardbus.app.cli.entities.atom import QUEUE as QUEUES
from shardbus.app.cli.sas import Credential, parse_connection_string
from tests.chaos.nodes import QUEUE, Applications
from tests.conformance.test_emulator import CONFIG
from tests.deploy.containers import Project, build, needed_docker, project, run, with_free_ports
from tests.deploy.files import COMPOSE, at, node
from tests.support.waiting import wait_for, wait_until

pytestmark = pytest.mark.release

ROOT: Final = Path(__file__).parents[2]
IMAGE: Final = "shardbus-tested"
EMULATOR: Final = "shardbus-emulator-tested"
BROKERS: Final = ("broker-0", "broker-1", "broker-2")
GATEWAYS: Final = ("gateway-0", "gateway-1")
SLOTS: Final = 16
CALM_S: Final = 2.0
SETTLED_S: Final = 120.0
STOP_S: Final = 45
EMULATOR_KEY: Final = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"


@pytest.fixture(scope="module")
def docker() -> str:
    return needed_docker()


@pytest.fixture(scope="module")
def image(docker: str) -> str:
    build(docker, IMAGE)
    return IMAGE


class Cluster:
    """The nodes and the database of compose.yaml."""

    def __init__(self, made: Project, key: str) -> None:
        self.project = made
        self._key = key

    def endpoint(self, gateway: str) -> str:
        return f"http://127.0.0.1:{self.project.port(gateway, 5300)}"

    def connection_string(self, gateway: str) -> str:
        port = self.project.port(gateway, 5672)
        named = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={self._key};"
        return f"Endpoint=sb://127.0.0.1:{port};{named}UseDevelopmentEmulator=true;"

    def applications(self, senders: str, receivers: str) -> Applications:
        return Applications(self.connection_string(senders), self.connection_string(receivers))

    def credential(self, gateway: str) -> Credential:
        return parse_connection_string(self.connection_string(gateway)).credential

    def owners(self, gateway: str = GATEWAYS[0]) -> dict[str, int]:
        """How many slots each broker serves."""
        endpoint = self.endpoint(gateway)
        api = ApiClient(
            HttpTransport(endpoint), endpoint, self.credential(gateway), clock=time.time
        )
        slots = api.get("cluster")["slots"]
        assert isinstance(slots, list)
        served = [str(slot["owner"]) for slot in slots if slot["state"] == "served"]
        return {name: served.count(name) for name in served}

    def wait_until_even(self) -> None:
        def is_even(owners: dict[str, int]) -> bool:
            return set(owners) == set(BROKERS) and sum(owners.values()) == SLOTS

        wait_for(self.owners, is_even, SETTLED_S)

    def wait_until_healthy(self, gateway: str) -> None:
        def is_healthy() -> bool:
            about = node(self.project.state(gateway)["State"])
            return at(about, "Health", "Status") == "healthy"

        wait_until(is_healthy, gateway, SETTLED_S)


@pytest.fixture(scope="module")
def cluster(docker: str, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """As the guide says: certify, in the image, and `docker compose up`."""
    here = tmp_path_factory.mktemp("compose")
    shutil.copy(COMPOSE.with_name("certify"), here)
    (here / "compose.yaml").write_text(with_free_ports(COMPOSE.read_text("utf-8")), "utf-8")
    certify(docker, image, here)
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    variables = {
        "SHARDBUS_IMAGE": image,
        "SHARDBUS_SAS_KEY": key,
        "POSTGRES_PASSWORD": secrets.token_hex(16),
    }
    services = ("postgres", *BROKERS, *GATEWAYS)
    name = f"shardbus-tested-{os.getpid()}"
    with project(docker, name, here / "compose.yaml", variables, *services) as made:
        found = Cluster(made, key)
        found.wait_until_even()
        endpoint = found.endpoint(GATEWAYS[0])
        management = Management(
            HttpTransport(endpoint), endpoint, found.credential(GATEWAYS[0]), clock=time.time
        )
        management.create(QUEUES, QUEUE, {})
        yield found


def certify(docker: str, image: str, here: Path) -> None:
    """The script of the compose file, in the image: nothing else need be installed."""
    run(
        *(docker, "run", "--rm", "--user", "0", "--volume", f"{here}:/work", "--workdir", "/work"),
        *("--entrypoint", "./certify", image),
    )


def test_containers_have_no_rights_and_write_nothing_outside_their_volume(
    cluster: Cluster,
) -> None:
    """R42: what compose.yaml asks for is what the kernel gives."""
    for service in (*BROKERS, *GATEWAYS):
        assert cluster.project.inside(service, "id", "-u").strip() == "10001"
        status = cluster.project.inside(service, "cat", "/proc/self/status")
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
        assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
        touch = "touch /usr/local/lib/shardbus/mine 2>&1 || true"
        assert "Read-only file system" in cluster.project.inside(service, "sh", "-c", touch)
        assert "other users can" not in cluster.project.logs(service)


def test_a_killed_container_is_started_again_and_loses_nothing(cluster: Cluster) -> None:
    """R3, R40"""
    applications = cluster.applications(*GATEWAYS)

    async def lose() -> None:
        async with applications.at_work():
            await asyncio.sleep(CALM_S)
            await asyncio.to_thread(cluster.project.kill, "broker-1")
            await asyncio.to_thread(cluster.project.compose, "kill", "broker-2")
            left = {"broker-0", "broker-1"}
            await asyncio.to_thread(
                wait_for, cluster.owners, lambda owners: set(owners) == left, SETTLED_S
            )
            await asyncio.to_thread(cluster.project.compose, "start", "broker-2")
            await asyncio.to_thread(cluster.wait_until_even)

    asyncio.run(lose())
    applications.book.check()


def test_a_rolling_restart_of_all_containers_costs_no_error_and_no_lock(cluster: Cluster) -> None:
    """R42: each container ends by itself, in the time that it is given."""
    applications = cluster.applications(GATEWAYS[0], GATEWAYS[0])

    async def roll() -> None:
        async with applications.at_work():
            await asyncio.sleep(CALM_S)
            for service in (*BROKERS, GATEWAYS[1]):
                began_s = time.monotonic()
                await asyncio.to_thread(cluster.project.compose, "stop", service)
                assert time.monotonic() - began_s < STOP_S
                state = cluster.project.state(service)
                assert at(state, "State", "ExitCode") == 0, cluster.project.logs(service)
                await asyncio.to_thread(cluster.project.compose, "start", service)
                await asyncio.to_thread(cluster.wait_until_even)

    asyncio.run(roll())
    applications.book.check()
    assert applications.book.lost_locks == []


def test_a_database_that_is_started_again_is_found_under_its_name(cluster: Cluster) -> None:
    """R41: while a container is away, its name leads nowhere."""
    applications = cluster.applications(*GATEWAYS)

    async def restart() -> None:
        async with applications.at_work():
            await asyncio.sleep(CALM_S)
            await asyncio.to_thread(cluster.project.compose, "kill", "postgres")
            await asyncio.sleep(CALM_S)
            await asyncio.to_thread(cluster.project.compose, "start", "postgres")
            # In the database nothing has changed: who owned a slot owns it.
            since_s = time.monotonic()
            await asyncio.to_thread(
                wait_until,
                lambda: any(moment > since_s for moment in applications.book.accepted_at_s),
                "nothing is accepted any more",
            )

    asyncio.run(restart())
    applications.book.check()


def test_a_gateway_that_is_started_again_has_the_name_and_is_healthy(cluster: Cluster) -> None:
    """R41: it keeps nothing, and its clients come back."""
    gateway = GATEWAYS[1]
    cluster.project.kill(gateway)
    cluster.wait_until_healthy(gateway)
    with (
        ServiceBusClient.from_connection_string(cluster.connection_string(gateway)) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages(ServiceBusMessage("after"))


def test_the_image_of_the_emulator_needs_one_line_of_the_official_compose_file(
    docker: str, image: str, tmp_path: Path
) -> None:
    """R36: the block of the guide."""
    build(docker, EMULATOR, "--target", "emulator")
    page = (ROOT / "docs" / "guides" / "emulator.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(services:\n.*?)```", page, re.DOTALL)
    text = with_free_ports(f"{block}networks:\n  sb-emulator:\n")
    file = tmp_path / "compose.yaml"
    file.write_text(text.replace("shardbus-emulator:latest", EMULATOR), "utf-8")
    config = tmp_path / "Config.json"
    config.write_text(json.dumps(CONFIG), "utf-8")
    variables = {"CONFIG_PATH": str(config), "SQL_PASSWORD": "unused", "ACCEPT_EULA": "Y"}
    with project(docker, f"emulator-tested-{os.getpid()}", file, variables, "emulator") as made:
        wait_until(lambda: "Emulator Service is Successfully Up!" in made.logs("emulator"))
        where = f"Endpoint=sb://localhost:{made.port('emulator', 5672)};{EMULATOR_KEY}"
        with ServiceBusClient.from_connection_string(
            f"{where}UseDevelopmentEmulator=true;"
        ) as client:
            with client.get_queue_sender("queue.1") as sender:
                sender.send_messages(ServiceBusMessage("x"))
            with client.get_queue_receiver("queue.1") as receiver:
                (message,) = receiver.receive_messages(max_wait_time=20)
                receiver.complete_message(message)
        health = f"http://127.0.0.1:{made.port('emulator', 5300)}/health"
        with urllib.request.urlopen(health, timeout=20) as answer:
            assert json.loads(answer.read())["status"] == "healthy"


def test_the_image_keeps_its_messages_in_a_volume(docker: str, image: str) -> None:
    """R3: another container with the same volume has them."""
    volume = f"shardbus-tested-{os.getpid()}"
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    here = (
        f"Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )
    serve = (
        *("run", "--detach", "--read-only", "--tmpfs", "/tmp", "--volume", f"{volume}:/data"),
        *("--env", f"SHARDBUS_SAS_KEY={key}", "--env", f"SHARDBUS_CONNECTION_STRING={here}"),
    )
    named = f"{volume}-bus"
    printed = ""
    try:
        for words in (
            ("queue", "create", "orders"),
            ("send", "orders", "kept"),
            ("peek", "orders"),
        ):
            run(docker, *serve, "--name", named, image)
            wait_until(lambda: "ready " in said(docker, named), "it does not serve", SETTLED_S)
            printed = run(docker, "exec", named, "shardbus", *words)
            assert "other users can" not in said(docker, named)
            run(docker, "stop", "--time", "30", named)
            run(docker, "rm", named)
        assert "kept" in printed
    finally:
        subprocess.run([docker, "rm", "--force", named], capture_output=True, check=False)
        run(docker, "volume", "rm", volume)


def said(docker: str, name: str) -> str:
    """What a container printed."""
    return run(docker, "logs", name)
