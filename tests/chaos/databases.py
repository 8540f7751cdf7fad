"""A PostgreSQL primary with a synchronous standby that are killed, promoted, filled and slowed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Address, Link
from tests.support.postgres import STANDBY, PostgresServer, needed_binaries
from tests.support.postgres_pair import IN_STEP

DISK_MB: Final = 600
WAIT_S: Final = 90.0
# Everybody may come, since nobody else is in this network; and a standby soon finds its primary.
OPTIONS: Final = ("-c", "listen_addresses=*", "-c", "wal_retrieve_retry_interval=200ms")
RULES: Final = "host all all 10.98.0.0/16 trust\n"


class Databases:
    """What the primary answers, the standby has. With `disks`, each is on a small disk."""

    def __init__(self, directory: Path, *, has_disks: bool) -> None:
        self.promotions = 0
        self._has_disks = has_disks
        binaries = needed_binaries()
        roots = [_disk(directory / f"disk-{number}") if has_disks else None for number in (0, 1)]
        self._primary, self._standby = (PostgresServer(binaries, root) for root in roots)

    def start(self) -> None:
        self._primary.make()
        with (self._primary.data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write(RULES)
        self._primary.start(*OPTIONS)
        self._follow(is_same_port=False)

    def remove(self) -> None:
        for server in (self._standby, self._primary):
            root = server.directory.parent
            server.remove()
            if self._has_disks:
                subprocess.run(["umount", "--lazy", str(root)], check=False)

    def url(self, host: str = "127.0.0.1") -> str:
        ports = sorted((self._primary.port, self._standby.port))
        hosts = ",".join(f"{host}:{port}" for port in ports)
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=primary"

    def number(self, sql: str) -> int:
        return self._primary.number(sql)

    def kill(self, away_s: float) -> None:
        """End the primary at once, and start it again."""
        self._primary.stop(signal.SIGKILL)
        time.sleep(away_s)
        self._primary.start(*OPTIONS, is_same_port=True)
        self._wait_until_in_step()

    def promote(self) -> None:
        """The primary dies, the standby takes its place, and the dead one follows it later."""
        self._primary.stop(signal.SIGKILL)
        self._standby.execute("SELECT pg_promote()")
        self._primary, self._standby = self._standby, self._primary
        self.promotions += 1
        shutil.rmtree(self._standby.data)
        self._follow(is_same_port=True)

    @contextmanager
    def full(self) -> Iterator[None]:
        """The disk of the primary has no byte left."""
        ballast = self._primary.directory.parent / "ballast"
        fill(ballast)
        try:
            yield
        finally:
            ballast.unlink()
            if not self._primary.is_running:
                self._primary.stop()
                self._primary.start(*OPTIONS, is_same_port=True)
            self._wait_until_in_step()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Somebody has a transaction open, and nothing that is deleted can be vacuumed."""
        link = Link(Address(self._primary.url()), {})
        try:
            link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
            yield
        finally:
            link.close()

    def _follow(self, *, is_same_port: bool) -> None:
        self._standby.make_standby(self._primary)
        self._standby.start(*OPTIONS, is_same_port=is_same_port)
        self._primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        self._primary.execute("SELECT pg_reload_conf()")
        self._wait_until_in_step()

    def _wait_until_in_step(self) -> None:
        _wait_until(lambda: self._primary.number(IN_STEP) == 1)


def fill(ballast: Path) -> None:
    """Write a file until its disk has no byte left."""
    # A buffer would be written once more when the file is closed, and fail again.
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


def _disk(path: Path) -> Path:
    path.mkdir()
    options = f"size={DISK_MB}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    return path


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if is_so():
                return
        except StoreError:
            # It is starting.
            pass
        assert time.monotonic() < deadline, "the standby does not follow the primary"
        time.sleep(0.05)
