"""The files of `deploy`, checked by their own tools where there are some, and by our commands."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
import yaml  # type: ignore[import-untyped]  # it has no types

from shardbus.app.cli.main import main
from shardbus.app.server.node.run import parse_roles
from shardbus.app.server.settings import TABLE
from tests.support.tools import needed_linter, needed_program

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
UNITS: Final = sorted((DEPLOY / "systemd").glob("shardbus*"))
MANIFESTS: Final = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
COMPOSE: Final = DEPLOY / "compose" / "compose.yaml"
INSTALLED: Final = "/usr/local/lib/shardbus/bin/shardbus"
SETTINGS: Final = {f"SHARDBUS_{row.name.upper()}" for row in TABLE} | {
    "SHARDBUS_CONNECTION_STRING", "SHARDBUS_IMAGE",
}  # fmt: skip

Node = dict[str, object]


def node(value: object) -> Node:
    assert isinstance(value, dict)
    return value


def nodes(value: object) -> list[Node]:
    assert isinstance(value, list)
    return [node(each) for each in value]


def at(value: object, *path: str) -> object:
    for name in path:
        value = node(value)[name]
    return value


def documents(path: Path) -> list[Node]:
    return [node(each) for each in yaml.safe_load_all(path.read_text("utf-8"))]


def check_command(words: list[str]) -> None:
    """The command is there, and so is every option that it is given."""
    command = main.commands[words[0]]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    needs = {
        each.opts[0] for each in command.params if isinstance(each, click.Option) and each.required
    }
    given = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
    assert given <= known, f"{words[0]} has no {given - known}"
    assert needs <= given, f"{words[0]} needs {needs - given}"


def check_node(words: list[str], name: str, role: str) -> None:
    """A node of a cluster with this name and role, which others reach by the address it names."""
    check_command(words)
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert words[0] == "node"
    assert (options["--name"], options["--roles"]) == (name, role)
    assert parse_roles(role) == (role,)
    assert options["--store"] and options["--node-tls"] == "/tls"
    if role == "broker":
        host = options["--listen"].partition(":")[0]
        assert host in (name, "$(POD_IP)"), "not all addresses: gateways dial it"
    else:
        assert options["--host"] == "0.0.0.0", "clients are elsewhere"


def commands_of(unit: Path) -> Iterator[list[str]]:
    for line in unit.read_text("utf-8").splitlines():
        if line.startswith(f"ExecStart={INSTALLED} "):
            yield shlex.split(line.removeprefix(f"ExecStart={INSTALLED} "))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_is_taken_by_systemd(unit: Path, tmp_path: Path) -> None:
    tool = needed_program("systemd-analyze", "systemd")
    # A program that is there, in the place of the one that is not installed here.
    for each in UNITS:
        text = each.read_text("utf-8").replace(INSTALLED, sys.executable)
        (tmp_path / each.name).write_text(text, encoding="utf-8")
    name = unit.name.replace("@.", "@0.")
    if "@" in name:
        (tmp_path / name).write_text((tmp_path / unit.name).read_text("utf-8"), encoding="utf-8")

    done = subprocess.run(
        [tool, "verify", "--man=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )

    complaints = [line for line in done.stderr.splitlines() if "shardbus" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_the_commands_of_units_are_ours(unit: Path) -> None:
    found = list(commands_of(unit))
    assert found or unit.suffix == ".timer"
    for words in found:
        check_command(words)


def test_settings_in_the_environment_are_settings() -> None:
    for path in (*UNITS, *MANIFESTS, COMPOSE):
        named = set(re.findall(r"SHARDBUS_[A-Z_]+", path.read_text("utf-8")))
        assert named <= SETTINGS, path


def test_the_compose_file_starts_a_whole_cluster() -> None:
    services = node(at(yaml.safe_load(COMPOSE.read_text("utf-8")), "services"))
    kinds: dict[str, int] = {}
    for name, service in services.items():
        kinds[name.partition("-")[0]] = kinds.get(name.partition("-")[0], 0) + 1
        if name.startswith(("broker", "gateway")):
            command = node(service)["command"]
            assert isinstance(command, str)
            check_node(command.split(), name, name.partition("-")[0])
            assert f"./tls/{name}:/tls:ro" in str(node(service)["volumes"])
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


def workloads() -> list[Node]:
    kinds = ("StatefulSet", "Deployment")
    return [each for path in MANIFESTS for each in documents(path) if each["kind"] in kinds]


def test_manifests_hold_together() -> None:
    """What is selected is there, what is mounted is a volume, what is probed is a port."""
    found = [each for path in MANIFESTS for each in documents(path)]
    labels = [at(each, "spec", "template", "metadata", "labels") for each in workloads()]
    for each in found:
        assert {"apiVersion", "kind", "metadata"} <= set(each)
        if each["kind"] == "Service":
            assert at(each, "spec", "selector") in labels
        if each["kind"] == "PodDisruptionBudget":
            assert at(each, "spec", "selector", "matchLabels") in labels
    for each in workloads():
        spec = at(each, "spec", "template", "spec")
        assert at(each, "spec", "selector", "matchLabels") in labels
        assert at(spec, "enableServiceLinks") is False
        volumes = {volume["name"] for volume in nodes(at(spec, "volumes"))}
        for container in nodes(at(spec, "containers")):
            ports = {port["name"] for port in nodes(container["ports"])}
            assert {mount["name"] for mount in nodes(container["volumeMounts"])} == volumes
            for probe in ("readinessProbe", "livenessProbe"):
                how = node(container[probe])
                kind = "httpGet" if "httpGet" in how else "tcpSocket"
                assert at(how, kind, "port") in ports
    budgets = [each for each in found if each["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == len(workloads()) == 2


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_what_kubernetes_knows(manifest: Path) -> None:
    """By the schemas of Kubernetes, without members that they do not have."""
    tool = needed_linter("kubernetes-validate")
    done = subprocess.run(
        [tool, "--strict", str(manifest)], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_manifest_with_a_member_too_many_is_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(MANIFESTS[0].read_text("utf-8").replace("replicas:", "replicates:", 1))
    done = subprocess.run(
        [needed_linter("kubernetes-validate"), "--strict", str(wrong)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode != 0 and "replicates" in done.stdout + done.stderr


def test_the_container_file_passes_its_linter() -> None:
    container_file = DEPLOY / "container" / "Containerfile"
    done = subprocess.run(
        [needed_linter("hadolint"), "--no-color", str(container_file)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_commands_of_manifests_are_ours() -> None:
    for each in workloads():
        for container in nodes(at(each, "spec", "template", "spec", "containers")):
            args = container["args"]
            assert isinstance(args, list)
            given = {variable["name"] for variable in nodes(container["env"])}
            assert set(re.findall(r"\$\((\w+)\)", str(args))) <= given
            words = [word for each in args for word in str(each).split("=", 1)]
            check_node(words, "$(POD_NAME)", str(container["name"]))


def test_the_container_file_uses_what_is_in_the_repository() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    instructions = {line.split()[0] for line in lines}
    assert instructions <= {
        "FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    for named in re.findall(r"--requirement (\S+)", text):
        assert (DEPLOY.parent / named).exists()
    command = re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)
    assert command is not None
    check_command([str(word) for word in yaml.safe_load(command[1])])
    assert "USER 10001" in lines and 'ENTRYPOINT ["shardbus"]' in lines
