"""Captures to a real server that speaks S3, by Spark, with drivers that are killed (P4)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet
import pytest
from spark.tests.bus import Bus, running_bus
from spark.tests.object_server import environment
from spark.tests.test_replay_pipeline import shardbus

from shardbus_spark.tables.files import Files, files_at
from shardbus_spark.tables.form import FORMS
from shardbus_spark.tables.reading import captured_files
from tests.support.ports import free_port

# It needs a server that `make s3` builds, and the libraries of Hadoop for S3.
pytestmark = [pytest.mark.release, pytest.mark.timeout(3600)]

BUILD: Final = Path(__file__).parent / "s3" / "build"
SECRET: Final = "TheSecretOfTheStoreThatNobodyMayEverSee0123"
COUNT: Final = 3_000
KILLS: Final = 2
WAIT_S: Final = 900.0
ENTITIES: Final = 'spark-master = "local[2,4]"\n' + "".join(
    f'[[queue]]\nname = "{form}"\npartitioning = true\n' for form in FORMS
)
_PAUSE_S: Final = 1.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A server of a directory, and the environment of those who use it."""
    (tmp_path / "objects" / "tables").mkdir(parents=True)
    port = free_port()
    keys = {"ROOT_ACCESS_KEY": "operator", "ROOT_SECRET_KEY": SECRET}
    server = subprocess.Popen(
        [BUILD / "versitygw", "--port", f"127.0.0.1:{port}", "posix", tmp_path / "objects"],
        env={**os.environ, **keys},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "operator",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.wait()


def test_every_message_is_captured_once_in_each_form_by_drivers_that_are_killed(
    tmp_path: Path, store: dict[str, str]
) -> None:
    """P4: and no secret of the store is in what Spark and the bus leave behind."""
    events = tmp_path / "events"
    events.mkdir()
    options = [
        *("--capture-dir", "s3a://tables/captured"),
        *("--spark-conf", f"spark.driver.extraClassPath={BUILD / 'dependencies'}/*"),
        *("--spark-conf", "spark.eventLog.enabled=true"),
        *("--spark-conf", f"spark.eventLog.dir={events.as_uri()}"),
        *("--spark-conf", "spark.eventLog.compress=false"),
    ]
    with environment(store), running_bus(tmp_path, ENTITIES, *options) as bus:
        for form in FORMS:
            _capture(bus, form)
            shardbus(bus, "stop", form, "--finish")
            found = _bodies(form)
            assert (len(found), sum(found.values())) == (COUNT, COUNT), form
            assert bus.receive(form, 1) == []
        _check_secrets(tmp_path)


def _capture(bus: Bus, form: str) -> None:
    """Until all messages are in the table, whatever was killed meanwhile."""
    bus.send(form, [{"body": f"message {number}"} for number in range(COUNT)])
    shardbus(
        bus,
        *("create", form, "--entity", form, "--format", form),
        *("--interval-ms", "500", "--rows-max", "300", "--start"),
    )
    killed: list[str] = []
    deadline_s = time.monotonic() + WAIT_S
    while (rows := _rows(form)) < COUNT or len(killed) < KILLS:
        assert time.monotonic() < deadline_s, shardbus(bus, "logs", form)
        drivers = re.findall(rf"driver of pipeline {form} runs as process (\d+)", bus.server.output)
        if len(killed) < KILLS and rows > 300 * len(killed) and drivers[-1] not in killed:
            os.kill(int(drivers[-1]), signal.SIGKILL)
            killed.append(drivers[-1])
        time.sleep(_PAUSE_S)


def _rows(form: str) -> int:
    files = _files(form)
    paths = captured_files(files, form)
    return sum(parquet.read_metadata(files.open(files.named(path))).num_rows for path in paths)


def _bodies(form: str) -> Counter[object]:
    files = _files(form)
    found: Counter[object] = Counter()
    for path in captured_files(files, form):
        found.update(parquet.read_table(files.open(files.named(path)))["body"].to_pylist())
    return found


def _files(form: str) -> Files:
    files = files_at(f"s3a://tables/captured/{form}")
    assert files is not None
    return files


def _check_secrets(place: Path) -> None:
    left = [file for file in place.rglob("*") if file.is_file()]
    assert any("eventlog" in str(file) for file in left), "Spark has left no events"
    assert not [file for file in left if SECRET.encode() in file.read_bytes()]
