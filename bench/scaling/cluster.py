"""A cluster in PostgreSQL: a server in memory with some databases, one gateway, some brokers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.client import HttpTransport
from shardbus.app.cli.sas import parse_connection_string
from tests.chaos.nodes import COMMAND
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue
from tests.support.server import Server

# Of each broker: a commit of a slot is as large then, whatever their number is.
SLOTS: Final = 4
QUEUES: Final = tuple(f"queue-{number}" for number in range(4))
READY_S: Final = 120.0
STOP_S: Final = 40.0
# Nothing of it outlives this process, also what is stopped at that moment.
_TIED: Final = ("setpriv", "--pdeathsig", "KILL", "--", *COMMAND)


@final
class Cluster:
    def __init__(self, directory: Path, urls: list[str], brokers: int) -> None:
        self._directory = directory
        self._stores = [word for url in urls for word in ("--store", url)]
        self._names = [f"broker-{number}" for number in range(brokers)]
        self._slots_each = SLOTS * brokers // len(urls)
        self._brokers: list[subprocess.Popen[bytes]] = []
        self.gateway = Server(
            directory / "gateway", *self._options("gateway", "gateway"), command=_TIED
        )

    @property
    def pids(self) -> list[int]:
        """Of the brokers."""
        return [broker.pid for broker in self._brokers]

    def start(self) -> None:
        """Start all, and wait until each broker has its share of the slots."""
        for name in self._names:
            with (self._directory / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [
                        *_TIED, *self._options(name, "broker"),
                        "--data-dir", str(self._directory / name),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )  # fmt: skip
            self._brokers.append(process)
            if name == self._names[0]:
                # It makes the cluster.
                self._wait_until(lambda: "ready " in self._log())
        self.gateway.start()
        self._wait_until(lambda: self._served() == [SLOTS] * len(self._names))

    def create_queues(self) -> None:
        for name in QUEUES:
            create_queue(self.gateway, name, EnablePartitioning="true", MaxSizeInMegabytes="5120")

    def end(self) -> None:
        self.gateway.close()
        for broker in self._brokers:
            broker.terminate()
        for broker in self._brokers:
            try:
                broker.wait(STOP_S)
            except subprocess.TimeoutExpired:
                broker.kill()
                broker.wait()

    def _options(self, name: str, roles: str) -> tuple[str, ...]:
        return (*self._stores, "--name", name, "--roles", roles, "--slots", str(self._slots_each))

    def _log(self) -> str:
        return (self._directory / f"{self._names[0]}.log").read_text(errors="replace")

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + READY_S
        while not is_so():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"the cluster does not start: {self._log()}")
            time.sleep(0.2)

    def _served(self) -> list[int]:
        """How many slots each broker serves."""
        slots = self._api().get("cluster")["slots"]
        assert isinstance(slots, list)
        served = dict.fromkeys(self._names, 0)
        for slot in slots:
            if isinstance(slot, dict) and slot["state"] == "served":
                served[str(slot["owner"])] += 1
        return list(served.values())

    def _api(self) -> ApiClient:
        endpoint = f"http://{self.gateway.host}:{self.gateway.http_port}"
        credential = parse_connection_string(self.gateway.connection_string).credential
        return ApiClient(HttpTransport(endpoint), endpoint, credential, clock=time.time)


@contextmanager
def running_cluster(directory: Path, stores: int, brokers: int) -> Iterator[Cluster]:
    """A cluster with queues; at the end nothing of it runs."""
    server = PostgresServer(needed_binaries())
    cluster: Cluster | None = None
    try:
        server.make()
        options = ("shared_buffers=512MB", "max_wal_size=2GB", "max_connections=600")
        server.start(*(word for option in options for word in ("-c", option)))
        urls = [server.url(server.new_database()) for _ in range(stores)]
        cluster = Cluster(directory, urls, brokers)
        cluster.start()
        cluster.create_queues()
        yield cluster
    finally:
        if cluster is not None:
            cluster.end()
        server.remove()
