"""The connector on every kind of Spark: two executors, a standalone cluster, Spark Connect."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from spark.tests.bus import Bus, running_bus
from spark.tests.clusters import connect_server, standalone_cluster
from spark.tests.drivers import TESTS, driver_environment

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.sas import Credential

# Each is minutes of clusters that come and go.
pytestmark = pytest.mark.release

LOCAL_CLUSTER: Final = "local-cluster[2,1,1024]"
KINDS: Final = ("executors", "standalone", "connect")
QUEUES: Final = (
    "captured",
    "large",
    *(f"{kind}-{end}" for kind in KINDS for end in ("from", "to")),
)
ENTITIES: Final = "".join(f'[[queue]]\nname = "{name}"\npartitioning = true\n' for name in QUEUES)
FIFTY: Final = [f"{number:03}" for number in range(50)]
JOB_S: Final = 600.0


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory, connect: str) -> Iterator[Bus]:
    """A bus whose pipelines run over Spark Connect."""
    place = tmp_path_factory.mktemp("bus")
    with running_bus(place, ENTITIES, "--spark-master", connect) as bus:
        yield bus


def _check(kind: str, master: str, bus: Bus, place: Path) -> None:
    """What a job writes to one queue is read there, and goes to the other."""
    arguments = [master, bus.url, f"{kind}-from", f"{kind}-to", str(place / "checkpoint")]
    done = subprocess.run(
        [sys.executable, str(TESTS / "cluster_driver.py"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=driver_environment(),
        timeout=JOB_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-10_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"written": FIFTY, "left": [], "moved": FIFTY}


def _check_capture(bus: Bus) -> None:
    """A pipeline takes all that is in a queue."""
    bus.send("captured", [{"body": body} for body in FIFTY])
    api = ClientAccess(f"http://127.0.0.1:{bus.server.http_port}", Credential(), None).api()
    api.put("pipelines/far", {"entity": "captured", "path": "far", "once": True})
    api.post("pipelines/far/start", {})
    deadline_s = time.monotonic() + JOB_S
    while (found := api.get("pipelines/far"))["state"] != "finished":
        assert time.monotonic() < deadline_s, api.get("pipelines/far/logs")
        time.sleep(0.2)

    assert bus.receive("captured", 1) == []
    progress = found["progress"]
    assert isinstance(progress, dict)
    assert progress["rows_total"] == len(FIFTY)


@pytest.mark.timeout(900)
def test_two_executors_read_and_write(bus: Bus, tmp_path: Path) -> None:
    """P1, P2, P3: in batches and in streams, as do the tests below."""
    _check("executors", LOCAL_CLUSTER, bus, tmp_path)


@pytest.mark.timeout(900)
def test_large_rows_fit_into_a_small_executor(bus: Bus) -> None:
    """P1, P3: batches between Java and Python are bounded by bytes, too."""
    done = subprocess.run(
        [sys.executable, str(TESTS / "memory_driver.py"), bus.url, "large"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=driver_environment(),
        timeout=JOB_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-10_000:]
    assert done.stdout.split() == [b"600000000"]


@pytest.mark.timeout(900)
def test_a_standalone_cluster_reads_and_writes(tmp_path: Path) -> None:
    """P1, P2, P3, and P4, P9: the bus itself runs its pipelines there."""
    with (
        standalone_cluster(tmp_path) as master,
        running_bus(tmp_path, ENTITIES, "--spark-master", master) as bus,
    ):
        _check("standalone", master, bus, tmp_path)
        _check_capture(bus)


@pytest.mark.timeout(900)
def test_spark_connect_reads_and_writes(connect: str, bus: Bus, tmp_path: Path) -> None:
    """P1, P2, P3."""
    _check("connect", connect, bus, tmp_path)


@pytest.mark.timeout(900)
def test_the_bus_runs_a_capture_over_spark_connect(bus: Bus) -> None:
    """P4, P9: the driver is the bus's, the work is done by the server that --spark-master names."""
    _check_capture(bus)
