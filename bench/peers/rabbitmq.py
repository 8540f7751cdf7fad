"""RabbitMQ with its AMQP 1.0 plugin: a node of our own that touches nothing of an installed one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.job import Endpoint
from bench.peers.process import ServerError, ServerProcess, free_ports

_HOST: Final = "127.0.0.1"
_USER: Final = "guest"
_PASSWORD: Final = "guest"
# Debian's command in sbin changes to the package's user and directories; the script behind it
# runs as whoever calls it.
_SCRIPTS: Final = (Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),)
_EPMD: Final = (Path("/usr/bin/epmd"), Path("/usr/local/bin/epmd"))
CLASSIC: Final = "bench-classic"
QUORUM: Final = "bench-quorum"


def is_installed() -> bool:
    return _found(_SCRIPTS) is not None and _found(_EPMD) is not None


@contextmanager
def running(directory: Path) -> Iterator[dict[str, Endpoint]]:
    """A node with a durable classic and a quorum queue; their endpoints by queue name."""
    script, epmd = _found(_SCRIPTS), _found(_EPMD)
    if script is None or epmd is None:
        raise ServerError("RabbitMQ is not installed: `make bench-peers`")
    directory.mkdir()
    port, distribution_port, epmd_port = free_ports(3)
    environment = _environment(directory, port, distribution_port, epmd_port)
    # Started by Erlang itself, the port mapper would go on running after the node has ended.
    mapper = ServerProcess(
        "epmd", [str(epmd), "-address", _HOST, "-port", str(epmd_port)], directory, {}
    )
    try:
        mapper.await_port(_HOST, epmd_port)
        node = ServerProcess("rabbitmq", [str(script)], directory, environment)
        try:
            node.await_port(_HOST, port)
            yield {
                name: Endpoint(_HOST, port, _USER, _PASSWORD, f"/amq/queue/{name}", node.pid)
                for name in (CLASSIC, QUORUM)
            }
        finally:
            node.stop()
    finally:
        mapper.stop()


def version() -> str:
    """The version of the installed server, read from the names of its files."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
    return found[-1].name.rpartition("-")[2] if found else "unknown"


def _environment(
    directory: Path, port: int, distribution_port: int, epmd_port: int
) -> dict[str, str]:
    paths = {name: directory / name for name in ("home", "mnesia", "log")}
    for path in paths.values():
        path.mkdir()
    (directory / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n", encoding="ascii")
    (directory / "definitions.json").write_text(json.dumps(_definitions()), encoding="ascii")
    (directory / "rabbitmq.conf").write_text(_configuration(directory, port), encoding="utf-8")
    return {
        "HOME": str(paths["home"]),
        "ERL_EPMD_ADDRESS": _HOST,
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": "shardbus-bench@localhost",
        "RABBITMQ_MNESIA_BASE": str(paths["mnesia"]),
        "RABBITMQ_LOG_BASE": str(paths["log"]),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_PID_FILE": str(directory / "node.pid"),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


def _configuration(directory: Path, port: int) -> str:
    return "\n".join(
        (
            f"listeners.tcp.default = {_HOST}:{port}",
            f"load_definitions = {directory / 'definitions.json'}",
            "log.console = false",
            "log.file.level = warning",
            "",
        )
    )


def _definitions() -> dict[str, list[dict[str, object]]]:
    return {
        "vhosts": [{"name": "/"}],
        "users": [{"name": _USER, "password": _PASSWORD, "tags": ["administrator"]}],
        "permissions": [
            {"user": _USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        ],
        "queues": [
            _queue(CLASSIC, {"x-queue-type": "classic"}),
            _queue(QUORUM, {"x-queue-type": "quorum"}),
        ],
    }


def _queue(name: str, arguments: dict[str, str]) -> dict[str, object]:
    return {
        "name": name,
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "arguments": arguments,
    }


def _found(candidates: tuple[Path, ...]) -> Path | None:
    return next((path for path in candidates if path.exists()), None)
