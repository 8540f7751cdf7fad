"""`deploy/compose`: the file by its schema and by what it refers to, and Spark with the bus."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml  # type: ignore[import-untyped]  # it has no types

from tests.deploy.files import COMPOSE, DEPLOY, SPARK_FILE, Node, at, check_node, node
from tests.support.tools import needed_linter

REPOSITORY: Final = DEPLOY.parent
LANE: Final = "5301"
ROLES: Final = {"broker": "broker", "gateway": "gateway,lane"}


def services() -> dict[str, Node]:
    found = node(at(yaml.safe_load(COMPOSE.read_text("utf-8")), "services"))
    return {name: node(service) for name, service in found.items()}


def words(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(each) for each in value]


def conditions(service: Node) -> dict[str, str]:
    """What a service waits for: by the name of another, the condition."""
    given = service.get("depends_on", [])
    if isinstance(given, list):
        return dict.fromkeys(given, "service_started")
    return {name: str(node(each)["condition"]) for name, each in node(given).items()}


def command_of(service: Node) -> list[str]:
    command = service["command"]
    assert isinstance(command, str)
    return command.split()


def test_the_compose_file_starts_a_whole_cluster() -> None:
    kinds: dict[str, int] = {}
    for name, service in services().items():
        kinds[name.partition("-")[0]] = kinds.get(name.partition("-")[0], 0) + 1
        if name.startswith(("broker", "gateway")):
            check_node(command_of(service), name, ROLES[name.partition("-")[0]])
            assert f"./tls/{name}:/tls:ro" in words(service["volumes"])
    assert kinds == {"postgres": 1, "broker": 3, "gateway": 2, "spark": 1}


def test_docker_takes_the_compose_file() -> None:
    """Where there is a docker with compose; the daemon is not needed."""
    docker = shutil.which("docker")
    tries = [docker, "compose", "version"] if docker else []
    if not docker or subprocess.run(tries, capture_output=True, check=False).returncode != 0:
        pytest.skip("docker compose is not installed, so nothing is said by it")
    done = subprocess.run(
        [docker, "compose", "--file", str(COMPOSE), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "POSTGRES_PASSWORD": "x", "SHARDBUS_SAS_KEY": "y"},
    )
    assert done.returncode == 0, done.stderr


def test_the_certificates_of_compose_are_made_and_used(tmp_path: Path) -> None:
    """R42: by the script that its users run."""
    shutil.copy(COMPOSE.with_name("certify"), tmp_path / "certify")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    done = subprocess.run(
        [str(tmp_path / "certify")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PATH": path},
    )

    assert done.returncode == 0, done.stderr
    made = sorted(each.name for each in (tmp_path / "tls").iterdir())
    assert made == ["broker-0", "broker-1", "broker-2", "gateway-0", "gateway-1"]


def test_the_compose_file_is_what_its_schema_knows() -> None:
    """By the schema of the Compose Specification, without members that it does not have."""
    done = validated(COMPOSE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_compose_file_with_a_wrong_member_is_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text("utf-8").replace("healthcheck:", "healthchek:", 1))
    done = validated(wrong)
    assert done.returncode != 0 and "healthchek" in done.stdout + done.stderr


def validated(compose: Path) -> subprocess.CompletedProcess[str]:
    linter = needed_linter("check-jsonschema")
    return subprocess.run(
        [linter, "--builtin-schema", "vendor.compose-spec", str(compose)],
        capture_output=True,
        check=False,
        text=True,
    )


def test_the_compose_file_refers_to_what_is_there() -> None:
    """Services that wait for others, volumes, files to build from, ports of this machine."""
    found = services()
    declared = set(node(at(yaml.safe_load(COMPOSE.read_text("utf-8")), "volumes")))
    used: set[str] = set()
    published: list[str] = []
    for name, service in found.items():
        for other, condition in conditions(service).items():
            assert condition in ("service_started", "service_healthy")
            assert other in found and other != name
            assert condition == "service_started" or "healthcheck" in found[other]
        if "build" in service:
            context = COMPOSE.parent / str(at(service, "build", "context"))
            assert context.resolve() == REPOSITORY
            assert (context / str(at(service, "build", "dockerfile"))).exists()
        sources = {each.split(":")[0] for each in words(service.get("volumes", []))}
        used |= {each for each in sources if not each.startswith("./")}
        assert all(each.startswith("./tls/") for each in sources - used), "made by certify"
        published += (
            [each.rpartition(":")[0].split(":")[-1] for each in words(service["ports"])]
            if ("ports" in service)
            else []
        )
    assert used == declared
    assert len(set(published)) == len(published), "a port is published twice"


def test_healthchecks_of_the_compose_file_are_programs_that_compile() -> None:
    for name, service in services().items():
        if "healthcheck" not in service:
            assert name.startswith("broker"), "a broker is watched by the others"
            continue
        test = words(at(service, "healthcheck", "test"))
        assert test[0] in ("CMD", "CMD-SHELL")
        if test[1:3] == ["python", "-c"]:
            compile(test[3], name, "exec")


def test_spark_reaches_the_bulk_lane_of_a_gateway_of_the_compose_file() -> None:
    """R42: over TLS, with the certificate that the gateway shows, and as nobody else can."""
    found = services()
    environment = node(found["spark"]["environment"])
    address = re.fullmatch(r"grpc\+tls://(.+):(\d+)", str(environment["SHARDBUS_FLIGHT_URL"]))
    assert address is not None and address[2] == LANE
    gateway = found[address[1]]
    assert words(gateway["expose"]) == [LANE]
    assert conditions(found["spark"])[address[1]] == "service_healthy"
    for name, service in found.items():
        if name.startswith("gateway"):
            command = command_of(service)
            options = dict(zip(command[1::2], command[2::2], strict=True))
            assert options["--tls-cert"] == "/tls/node.pem"
            assert options["--tls-key"] == "/tls/node-key.pem"
    trusted = environment["SHARDBUS_TLS_CA"]
    assert words(found["spark"]["volumes"]) == [f"./tls/{address[1]}/ca.pem:{trusted}:ro"]
    [port] = words(found["spark"]["ports"])
    assert port.startswith("127.0.0.1:"), "Spark Connect asks nobody for a password"


def test_the_container_of_spark_has_what_is_in_the_repository() -> None:
    """The connector, and a PySpark with which the tests run."""
    text = SPARK_FILE.read_text("utf-8").replace("\\\n", " ")
    copied = re.findall(r"^COPY (\S+) (\S+)$", text, re.MULTILINE)
    assert all(source == to and (REPOSITORY / source).exists() for source, to in copied)
    assert "spark" in dict(copied) and "pip install --no-cache-dir --no-deps ./spark" in text
    [pins] = re.findall(r"--requirement (\S+)", text)
    assert pins in dict(copied)
    pinned = re.findall(r"^(\S+==\S+)", (REPOSITORY / pins).read_text("utf-8"), re.MULTILINE)
    tested = re.findall(
        r"^(\S+==\S+)", (REPOSITORY / "requirements/dev.txt").read_text("utf-8"), re.MULTILINE
    )
    assert set(pinned) <= set(tested)
    assert any(each.startswith("pyspark==") for each in pinned)
