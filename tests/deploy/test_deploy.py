"""The files of `deploy`, checked by their own tools where there are some, and by our commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml  # type: ignore[import-untyped]  # it has no types

from shardbus.app.server.settings import TABLE
from shardbus_spark import address, credentials
from tests.deploy.files import (
    COMPOSE,
    CONTAINER_FILES,
    DEPLOY,
    MANIFESTS,
    Node,
    at,
    check_command,
    check_node,
    documents,
    node,
    nodes,
)
from tests.support.tools import needed_linter, needed_program

UNITS: Final = sorted((DEPLOY / "systemd").glob("shardbus*"))
INSTALLED: Final = "/usr/local/lib/shardbus/bin/shardbus"
SETTINGS: Final = {f"SHARDBUS_{row.name.upper()}" for row in TABLE} | {
    "SHARDBUS_CONNECTION_STRING", "SHARDBUS_IMAGE", "SHARDBUS_SPARK_IMAGE",
    address.URL, address.CA_FILE, credentials.KEY,
}  # fmt: skip


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


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_that_may_not_see_homes_has_its_state_for_one(unit: Path) -> None:
    """R39: the client of PostgreSQL looks for certificates there, and may look into no other."""
    lines = unit.read_text("utf-8").splitlines()
    kept = [line.partition("=")[2] for line in lines if line.startswith("StateDirectory=")]
    assert ("ProtectHome=yes" in lines) == bool(kept)
    for directory in kept:
        assert f"Environment=HOME=/var/lib/{directory}" in lines


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_that_is_reloaded_while_it_starts_is_started_again(unit: Path) -> None:
    """The signal ends a program that does not wait for it yet, and systemd calls that a success."""
    lines = unit.read_text("utf-8").splitlines()
    is_reloaded = any(line.startswith("ExecReload=/bin/kill -HUP") for line in lines)
    assert is_reloaded == ("RestartForceExitStatus=SIGHUP" in lines)


def test_settings_in_the_environment_are_settings() -> None:
    for path in (*UNITS, *MANIFESTS, COMPOSE):
        named = set(re.findall(r"SHARDBUS_[A-Z_]+", path.read_text("utf-8")))
        assert named <= SETTINGS, path


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


def test_manifests_verify_the_certificate_of_the_database() -> None:
    """R42: its authority is mounted where the address of the store says."""
    [config] = [
        each for path in MANIFESTS for each in documents(path) if each["kind"] == "ConfigMap"
    ]
    options = parse_qs(urlsplit(str(at(config, "data", "store"))).query)
    assert options["sslmode"] == ["verify-full"]
    [authority] = map(PurePosixPath, options["sslrootcert"])
    for each in workloads():
        spec = at(each, "spec", "template", "spec")
        secrets = {
            volume["name"]: node(volume["secret"])
            for volume in nodes(at(spec, "volumes"))
            if "secret" in volume
        }
        [container] = nodes(at(spec, "containers"))
        [mounted] = [
            mount["name"]
            for mount in nodes(container["volumeMounts"])
            if mount["mountPath"] == str(authority.parent)
        ]
        assert secrets[mounted]["secretName"] == "shardbus-database"
        assert [item["path"] for item in nodes(secrets[mounted]["items"])] == [authority.name]


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


@pytest.mark.parametrize("container_file", CONTAINER_FILES, ids=lambda path: path.name)
def test_a_container_file_passes_its_linter(container_file: Path) -> None:
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
