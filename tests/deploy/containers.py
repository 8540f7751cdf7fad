"""The containers of `deploy`, built and run by the Docker Engine of this machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml  # type: ignore[import-untyped]  # it has no types

from tests.deploy.files import Node, node
from tests.support.tools import needed_program

ROOT: Final = Path(__file__).parents[2]
CONTAINER_FILE: Final = ROOT / "deploy" / "container" / "Containerfile"
BUILD_S: Final = 2_400
COMMAND_S: Final = 300
ANY_PORT: Final = "127.0.0.1::"


def needed_docker() -> str:
    """The command `docker`, with an engine that answers and with Compose."""
    docker = needed_program("docker", "docker")
    for words, what in ((("info",), "engine"), (("compose", "version"), "compose")):
        done = subprocess.run([docker, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"there is no docker {what} here, so no container runs: {done.stderr}")
    return docker


def run(*words: str, wait_s: float = COMMAND_S, variables: dict[str, str] | None = None) -> str:
    """What the command prints; its errors are told when it fails."""
    done = subprocess.run(
        words,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=wait_s,
        check=False,
        env={**os.environ, **(variables or {})},
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def build(docker: str, tag: str, *options: str) -> None:
    """An image of the container file, made as its first lines say."""
    where = ("--file", str(CONTAINER_FILE), "--tag", tag)
    run(docker, "build", *where, *options, ".", wait_s=BUILD_S)


class Project:
    """The services of a compose file, at free ports of this machine."""

    def __init__(self, docker: str, name: str, file: Path, variables: dict[str, str]) -> None:
        self._docker = docker
        self._variables = variables
        self._words = (docker, "compose", "--project-name", name, "--file", str(file))

    def compose(self, *words: str) -> str:
        return run(*self._words, *words, variables=self._variables)

    def inside(self, service: str, *words: str) -> str:
        """What a command prints in the container of a service."""
        return self.compose("exec", "-T", service, *words)

    def logs(self, service: str) -> str:
        return self.compose("logs", "--no-color", service)

    def port(self, service: str, port: int) -> int:
        """The port of this machine for one of a container."""
        return int(self.compose("port", service, str(port)).strip().rpartition(":")[2])

    def state(self, service: str) -> Node:
        """What the engine knows of the container of a service."""
        found = self.compose("ps", "--all", "--quiet", service).strip()
        (about,) = json.loads(run(self._docker, "inspect", found))
        return node(about)

    def kill(self, service: str) -> None:
        """Kill what runs in a container; the engine starts it again, as compose.yaml says."""
        self.inside(service, "python", "-c", "import os; os.kill(-1, 9)")


@contextmanager
def project(
    docker: str, name: str, file: Path, variables: dict[str, str], *services: str
) -> Iterator[Project]:
    """These services run, and are healthy; at the end nothing of the file is left."""
    made = Project(docker, name, file, variables)
    try:
        made.compose("up", "--detach", "--wait", "--no-build", *services)
        yield made
    except BaseException as failure:
        failure.add_note(made.compose("logs", "--no-color", "--tail", "40"))
        raise
    finally:
        made.compose("down", "--volumes", "--timeout", "5")


def with_free_ports(text: str) -> str:
    """The compose file, whose ports get any numbers that are free on this machine."""
    file = node(yaml.safe_load(text))
    for service in node(file["services"]).values():
        about = node(service)
        if "ports" in about:
            ports = about["ports"]
            assert isinstance(ports, list)
            about["ports"] = [ANY_PORT + str(each).rpartition(":")[2] for each in ports]
    shown: str = yaml.safe_dump(file)
    return shown
