"""Nodes on machines of their own, as far as the kernel is concerned: each has a network namespace.

A node has two cables, one to the databases and one to the gateways, and each direction of each
cable can be cut: packets are dropped without a word, as by a broken switch. That needs root, or a
user who may make namespaces; `become_a_world` starts the program again in namespaces of its own, in
which nothing that it does is seen by anybody else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_IS_INSIDE: Final = "SHARDBUS_OWN_NETWORK"
_NAMES: Final = Path("/run/netns")
NODE_PORT: Final = 7400
DATABASES: Final = "db"
GATEWAYS: Final = "gw"
# A queue without places drops all that is sent into it.
_DROP: Final = ("root", "pfifo", "limit", "0")


def can_make_worlds() -> bool:
    """Whether this user can have networks of their own here."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        return False
    words = ["unshare", "--net", "--mount", "ip", "link", "add", "one", "type", "veth"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def become_a_world(module: str, arguments: Sequence[str]) -> bool:
    """Go on in namespaces of our own; False where that cannot be, and nothing was done."""
    if os.environ.get(_IS_INSIDE):
        return True
    if not can_make_worlds():
        return False
    inside = ("unshare", "--net", "--mount", sys.executable, "-m", module, *arguments)
    os.execvpe(inside[0], inside, {**os.environ, _IS_INSIDE: "1"})


def prepare_world() -> None:
    """Once, in the new namespaces."""
    _NAMES.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "tmpfs", str(_NAMES))
    _run("ip", "link", "set", "lo", "up")
    # Nodes reach each other through us.
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")


class Machine:
    """The network namespace of one node. `number` is unique, and from 1 to 250."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.databases = f"10.98.{number}.1"
        self.listens = f"10.99.{number}.2:{NODE_PORT}"
        _run("ip", "netns", "add", name)
        self._inside("ip", "link", "set", "lo", "up")
        for cable, net in ((DATABASES, "10.98"), (GATEWAYS, "10.99")):
            ours = self._ours(cable)
            _run("ip", "link", "add", ours, "type", "veth", "peer", "name", cable, "netns", name)
            _run("ip", "addr", "add", f"{net}.{number}.1/30", "dev", ours)
            _run("ip", "link", "set", ours, "up")
            self._inside("ip", "addr", "add", f"{net}.{number}.2/30", "dev", cable)
            self._inside("ip", "link", "set", cable, "up")
        self._inside("ip", "route", "add", "10.99.0.0/16", "via", f"10.99.{number}.1")

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command that runs another one on this machine."""
        return ("nsenter", f"--net={_NAMES / self.name}", *command)

    def cut(self, cable: str, *, sends: bool, hears: bool) -> None:
        """Let a cable carry what the node sends, what it hears, both or neither."""
        self._limit(self._inside, cable, is_open=sends)
        self._limit(_run, self._ours(cable), is_open=hears)

    def mend(self) -> None:
        for cable in (DATABASES, GATEWAYS):
            self.cut(cable, sends=True, hears=True)

    def _limit(self, run: object, device: str, *, is_open: bool) -> None:
        assert callable(run)
        if is_open:
            run("tc", "qdisc", "replace", "dev", device, "root", "pfifo", "limit", "1000")
        else:
            run("tc", "qdisc", "replace", "dev", device, *_DROP)

    def _ours(self, cable: str) -> str:
        return f"{cable}-{self.name}"

    def _inside(self, *words: str) -> None:
        _run("ip", "netns", "exec", self.name, *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
