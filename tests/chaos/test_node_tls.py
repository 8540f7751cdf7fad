"""Brokers and gateways over TCP with mutual TLS, as processes (R42)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from shardbus.app.cli.main import main
from tests.support.health import health
from tests.support.queues import create_queue, describe_queue
from tests.support.server import COMMAND, Server
from tests.support.waiting import wait_until

WAIT_S: Final = 60.0


def made(*arguments: str) -> None:
    done = CliRunner().invoke(main, ["cluster", *arguments])
    assert done.exit_code == 0, done.output


class Nodes:
    """Two brokers with their certificates, and what they print."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ca = root / "ca"
        made("ca", "--cluster", "prod", "--out", str(self.ca))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}

    def certify(self, name: str, role: str, *options: str) -> Path:
        out = self.root / f"{name}-tls"
        signed = ("--ca", str(self.ca), "--out", str(out), "--force")
        made("cert", "--name", name, "--role", role, *signed, *options)
        return out

    def command(self, name: str) -> list[str]:
        address = self.addresses.get(name, "127.0.0.1:0")
        catalogue = ["--catalogue"] if name == "broker-0" else []
        return [
            *(COMMAND[0], "broker", "--name", name, "--listen", address, *catalogue),
            *("--data-dir", str(self.root / name)),
            *("--node-tls", str(self.root / f"{name}-tls")),
        ]

    def start_broker(self, name: str) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self.command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: f"ready {name} tcp://" in self.log(name))
        self.addresses[name] = self.log(name).split(f"ready {name} tcp://")[-1].split()[0]

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait(20)

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text(encoding="utf-8")

    def close(self) -> None:
        for name in self._processes:
            self.kill(name)

    def gateway(self) -> Server:
        listed = self.root / "brokers.conf"
        lines = [f"tcp://{self.addresses[name]}\n" for name in sorted(self.addresses)]
        listed.write_text("".join(lines), encoding="utf-8")
        return Server(
            self.root / "gateway",
            *("--brokers-config", str(listed), "--node-tls", str(self.root / "gateway-tls")),
            command=(COMMAND[0], "gateway"),
        )


@contextmanager
def nodes(root: Path) -> Iterator[Nodes]:
    found = Nodes(root)
    try:
        for name in ("broker-0", "broker-1"):
            found.certify(name, "broker")
            found.start_broker(name)
        found.certify("gateway", "gateway")
        yield found
    except BaseException as failure:
        for path in root.glob("*.log"):
            failure.add_note(f"{path.name}:\n{path.read_text(encoding='utf-8')[-4_000:]}")
        raise
    finally:
        found.close()


@pytest.mark.long
def test_a_gateway_uses_brokers_over_mutual_tls_and_says_whom_it_refuses(tmp_path: Path) -> None:
    """R42: certificates are replaced while all run, and a wrong one is named by both sides."""
    with nodes(tmp_path) as found:
        gateway = found.gateway()
        gateway.start()
        try:
            create_queue(gateway, "orders", EnablePartitioning="true")
            assert describe_queue(gateway, "orders").message_count == 0
            assert health(gateway) == []

            # New ones for all, without a restart; what is open stays open.
            for name, role in (("broker-0", "broker"), ("gateway", "gateway")):
                found.certify(name, role)
            assert health(gateway) == []

            # Connections that are made now use them.
            found.kill("broker-0")
            found.start_broker("broker-0")
            wait_until(lambda: health(gateway) == [])
            describe_queue(gateway, "orders")
        finally:
            gateway.close()

        found.certify("broker-1", "gateway")
        found.kill("broker-1")
        done = _ran(found.command("broker-1"))
        assert done.returncode == 2
        assert "is for gateway, but this process is a broker" in done.stderr


def _ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)


@pytest.mark.long
def test_a_stranger_is_refused_and_both_logs_say_why(tmp_path: Path) -> None:
    """R42"""
    with nodes(tmp_path) as found:
        # Of the same authority, but with the role of a broker and not of a gateway.
        found.certify("gateway", "lane")
        done = _ran([*found.gateway()._command, *found.gateway()._arguments()])
        assert done.returncode == 2
        assert "is for lane, but this process is a gateway" in done.stderr

        # Of another cluster.
        found.ca = tmp_path / "other"
        made("ca", "--cluster", "test", "--out", str(found.ca))
        found.certify("gateway", "gateway")
        gateway = found.gateway()
        with (tmp_path / "gateway.log").open("wb") as log:
            process = subprocess.Popen(
                [*gateway._command, *gateway._arguments()], stdin=subprocess.DEVNULL, stderr=log
            )
        try:
            wait_until(lambda: "connection from" in found.log("broker-0"))
            wait_until(lambda: "not signed by the authority of our" in found.log("gateway"))
        finally:
            process.kill()
            process.wait(20)
        assert "refused a connection from " in found.log("broker-0")
