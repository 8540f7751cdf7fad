"""What the files of `deploy` say, and whether their command lines are ours."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import yaml  # type: ignore[import-untyped]  # it has no types

from shardbus.app.cli.main import main
from shardbus.app.server.node.run import parse_roles

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
MANIFESTS: Final = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
COMPOSE: Final = DEPLOY / "compose" / "compose.yaml"
SPARK_FILE: Final = DEPLOY / "compose" / "spark.Containerfile"
CONTAINER_FILES: Final = (DEPLOY / "container" / "Containerfile", SPARK_FILE)

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
    assert parse_roles(role) == tuple(role.split(","))
    assert options["--store"] and options["--node-tls"] == "/tls"
    if role == "broker":
        host = options["--listen"].partition(":")[0]
        assert host in (name, "$(POD_IP)"), "not all addresses: gateways dial it"
    else:
        assert options["--host"] == "0.0.0.0", "clients are elsewhere"
