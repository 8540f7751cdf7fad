"""Files that Spark writes to a queue of a cluster, and that a pipeline of the cluster captures.

Each row must be in the captured files once, whatever happens to nodes and to the database: then
neither the sink nor the capture has lost or repeated one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, final

import pyarrow.parquet as parquet
from spark.tests.drivers import Driver
from spark.tests.job import Job
from spark.tests.storm.books import Books, Verdict
from spark.tests.storm.sink import write_rows

from bench.processor import tree
from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.sas import Credential
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import settings_of
from shardbus_spark.client import Client, connect
from shardbus_spark.errors import ShardbusError
from tests.chaos.cluster_show import GATEWAYS, Broker, brokers, gateways
from tests.support.breaking import BreakingProxy
from tests.support.postgres import PostgresServer
from tests.support.postgres_pair import either, primary_and_standby
from tests.support.queues import create_queue
from tests.support.server import Server

QUEUE: Final = "rows"
PIPELINE: Final = "archive"
FILE_ROWS: Final = 100
SIZE_BYTES: Final = 64
# Machines that also run other tests are slow, and a driver takes half a minute to start there.
STEP_S: Final = 600.0
LOOK_S: Final = 0.2
# A driver may give up while nodes are away; one that never works must not be tried for ever.
LIVES_MAX: Final = 20


@final
class Chain:
    """The cluster, what runs in it, and what may be done to it."""

    def __init__(
        self, directory: Path, servers: tuple[PostgresServer, PostgresServer],
        members: list[Broker], served: list[Server], cables: list[list[BreakingProxy]], files: int,
    ) -> None:  # fmt: skip
        self.members = members
        self._cables = dict(zip(GATEWAYS, cables, strict=True))
        self.books = Books(files * FILE_ROWS, SIZE_BYTES)
        self.sink_lives = 0
        self._files = files
        self._primary, self._standby = servers
        self._url = either(*servers)
        self._gateways = dict(zip(GATEWAYS, served, strict=True))
        self._table = directory / "captured" / PIPELINE
        self._job = Job("", QUEUE, str(directory / "sink"))
        self._sink: Driver | None = None
        Path(self._job.directory).mkdir()
        write_rows(self._job.rows, self.books, files, FILE_ROWS)

    def start(self) -> None:
        create_queue(served := self._another(""), QUEUE, EnablePartitioning="true")
        api = _api(served)
        bounds: Document = {"interval_ms": 0, "rows_max": FILE_ROWS, "compact": False}
        api.put(f"pipelines/{PIPELINE}", {"entity": QUEUE, **bounds})
        api.post(f"pipelines/{PIPELINE}/start", {})
        self.wait(lambda: self.owner() != "", "a node to take the pipeline")

    def owner(self) -> str:
        """The gateway that runs the pipeline, as the database says; "" of none."""
        link = Link(Address(self._url), settings_of("test", is_reader=True))
        try:
            row = link.row("SELECT owner FROM pipeline WHERE name = $1", PIPELINE)
        finally:
            link.close()
        return "" if row is None else str(row[0]).partition("/")[0]

    def captured(self) -> int:
        """How many rows are in files that readers see."""
        return sum(parquet.ParquetFile(file).metadata.num_rows for file in self._captured())

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Until it is; meanwhile a sink that has ended is followed by another."""
        deadline_s = time.monotonic() + STEP_S
        while not is_so():
            self._keep_sinking()
            if time.monotonic() > deadline_s:
                raise AssertionError(f"{what} took more than {STEP_S:.0f} s: {self.told()}")
            time.sleep(LOOK_S)

    def wait_for_files(self, count: int) -> None:
        """Until the rows of so many more files are captured, and some are not yet."""
        least = self.captured() + count * FILE_ROWS
        self.wait(lambda: self.captured() >= least, f"capturing {least} rows")
        assert self.captured() < self._files * FILE_ROWS, "everything was captured before"

    def promote(self) -> None:
        """Kill the primary with all of its processes, and make the standby the primary."""
        self._primary.stop(signal.SIGKILL)
        self._standby.execute("SELECT pg_promote(true, 60)")

    @contextmanager
    def paused_owner(self, *, with_driver: bool) -> Iterator[None]:
        """Stop the node that runs the pipeline until another one does, and then let it go on."""
        name = self.owner()
        pid = self._gateways[name].pid
        stopped = tree(pid) if with_driver else [pid]
        for each in stopped:
            os.kill(each, signal.SIGSTOP)
        try:
            self.wait(lambda: self.owner() not in ("", name), "a take-over of the pipeline")
            yield
        finally:
            for each in stopped:
                os.kill(each, signal.SIGCONT)

    @contextmanager
    def cut_off_owner(self) -> Iterator[None]:
        """Keep the node that runs the pipeline from the databases until another one runs it; what
        it had sent arrives at the end.
        """
        name = self.owner()
        for cable in self._cables[name]:
            cable.hold()
        try:
            self.wait(lambda: self.owner() not in ("", name), "a take-over of the pipeline")
            yield
        finally:
            for cable in self._cables[name]:
                cable.release()

    def finish(self) -> Verdict:
        """Wait until everything has arrived; what there is then."""
        self.wait(lambda: self._job.files_committed() >= self._files, "writing all rows")
        self.wait(self._is_empty, "capturing all rows")
        self.end()
        for file in self._captured():
            for body in parquet.ParquetFile(file).read(["body"])["body"].to_pylist():
                assert isinstance(body, bytes)
                self.books.find(body)
        return self.books.verdict()

    def end(self) -> None:
        if self._sink is not None:
            self._sink.kill()

    def told(self) -> str:
        sink = "" if self._sink is None else self._sink.log[-4_000:]
        return f"{self.captured()} rows captured, {self.sink_lives} sinks\n{sink}"

    def _captured(self) -> list[Path]:
        return [file for file in self._table.glob("[!_]*/**/*.parquet") if file.is_file()]

    def _another(self, name: str) -> Server:
        """A gateway of another name."""
        return next(server for each, server in self._gateways.items() if each != name)

    def _keep_sinking(self) -> None:
        if self._job.files_committed() >= self._files:
            return
        if self._sink is None or self._sink.process.poll() is not None:
            assert self.sink_lives < LIVES_MAX, f"no sink works: {self.told()}"
            self.sink_lives += 1
            url = self._another(self.owner()).flight_url
            job = Job(url, QUEUE, self._job.directory, master="local[2]")
            self._sink = Driver("sink_driver.py", job)

    def _is_empty(self) -> bool:
        client: Client = connect(self._another(self.owner()).flight_url)
        try:
            fragments = client.describe(QUEUE)["fragments"]
        except ShardbusError:
            return False
        finally:
            client.close()
        assert isinstance(fragments, list)
        return all(part["is_counted"] and part["waiting"] == 0 for part in fragments)


@contextmanager
def running_chain(directory: Path, files: int) -> Iterator[Chain]:
    """All of it, under way; at the end nothing runs any more."""
    with ExitStack() as running:
        servers = running.enter_context(primary_and_standby())
        cables = [
            [running.enter_context(BreakingProxy(server.port)) for server in servers]
            for _ in GATEWAYS
        ]
        members = running.enter_context(brokers(either(*servers), directory))
        served = running.enter_context(gateways([either(*own) for own in cables], directory))
        chain = Chain(directory, servers, members, served, cables, files)
        try:
            chain.start()
            yield chain
        except BaseException as failure:
            for server in served:
                failure.add_note(server.output[-6_000:])
            raise
        finally:
            chain.end()


def _api(server: Server) -> ApiClient:
    return ClientAccess(f"http://127.0.0.1:{server.http_port}", Credential(), None).api()
