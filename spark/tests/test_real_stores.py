"""Tables in real servers of objects: S3's and Azure's dialects (P4)."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet
import pytest
from spark.tests.apart import Run
from spark.tests.bus import Bus, running_bus
from spark.tests.fated_server import environment
from spark.tests.killed_objects import kill_commits, lose_answers, pause_drivers
from spark.tests.object_steps import commit_and_compact, two_writers
from spark.tests.real_stores import RealStore, azurite, versitygw
from spark.tests.test_replay_pipeline import shardbus

from shardbus_spark.tables.files import Files, files_at
from shardbus_spark.tables.form import FORMS
from shardbus_spark.tables.reading import captured_files

# They need what `make s3 azurite` gets.
pytestmark = [pytest.mark.release, pytest.mark.timeout(1800)]

STORES: Final[dict[str, Callable[[Path], AbstractContextManager[RealStore]]]] = {
    "s3": versitygw,
    "azure": azurite,
}
COUNT: Final = 900
# Others are killed at every request; a Spark is worth its start.
KILLS: Final = 1
WAIT_S: Final = 1_200.0
ROWS_MAX: Final = 300
ENTITIES: Final = 'spark-master = "local[2,4]"\n' + "".join(
    f'[[queue]]\nname = "{form}"\npartitioning = true\n' for form in FORMS
)
_PAUSE_S: Final = 1.0


@pytest.fixture(scope="module", params=STORES)
def real(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealStore]:
    with STORES[request.param](tmp_path_factory.mktemp(request.param)) as store:
        yield store


@pytest.mark.parametrize("form", FORMS)
def test_every_message_is_captured_once_by_drivers_that_are_killed(
    tmp_path: Path, real: RealStore, form: str
) -> None:
    """P4: and no secret of the store is in what Spark and the bus leave behind."""
    events = tmp_path / "events"
    events.mkdir()
    conf = [
        *real.conf,
        "spark.eventLog.enabled=true",
        f"spark.eventLog.dir={events.as_uri()}",
        "spark.eventLog.compress=false",
    ]
    options = [word for setting in conf for word in ("--spark-conf", setting)]
    url = f"{real.upstream.root}/captured"
    variables = real.upstream.environment(real.upstream.port)
    with (
        environment(variables),
        running_bus(tmp_path, ENTITIES, "--capture-dir", url, *options) as bus,
    ):
        files = _files(f"{url}/{form}")
        _capture(bus, form, files)
        shardbus(bus, "stop", form, "--finish")
        found = _bodies(files, form)
        assert (len(found), sum(found.values())) == (COUNT, COUNT)
        assert bus.receive(form, 1) == []
        _check_secrets(tmp_path, real.secret)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_that_is_killed_is_there_once_in_a_real_store(
    apart: Run, real: RealStore, form: str
) -> None:
    """P4: killed at every third request."""
    assert apart(kill_commits, form, real.upstream, 3) > 20


@pytest.mark.parametrize("form", FORMS)
def test_a_write_whose_answer_is_lost_is_known_in_a_real_store(
    apart: Run, real: RealStore, form: str
) -> None:
    """P4"""
    assert apart(lose_answers, form, real.upstream) > 5


@pytest.mark.parametrize("form", FORMS)
def test_a_driver_that_was_stopped_takes_nothing_back_in_a_real_store(
    apart: Run, real: RealStore, form: str
) -> None:
    """P4"""
    assert apart(pause_drivers, form, real.upstream) > 5


@pytest.mark.parametrize("form", FORMS)
def test_batches_are_taken_once_and_compacted_in_a_real_store(
    apart: Run, real: RealStore, form: str
) -> None:
    """P4: also by two drivers at once."""
    with environment(real.upstream.environment(real.upstream.port)):
        told = apart(commit_and_compact, f"{real.upstream.root}/compacted/{form}", form)
        rows = apart(two_writers, f"{real.upstream.root}/two/{form}", form)

    assert told["taken"] == [True, True, True, False]
    assert told["after"] == [0, 1, 2, 7, 8, 9, 33]
    assert rows == [1, 2, 3, 4]


def _capture(bus: Bus, form: str, files: Files) -> None:
    """Until all messages are in the table, whatever was killed meanwhile."""
    bus.send(form, [{"body": f"message {number}"} for number in range(COUNT)])
    shardbus(
        bus,
        *("create", form, "--entity", form, "--format", form),
        *("--interval-ms", "500", "--rows-max", str(ROWS_MAX), "--start"),
    )
    killed: list[str] = []
    deadline_s = time.monotonic() + WAIT_S
    while (rows := _rows(files, form)) < COUNT or len(killed) < KILLS:
        assert time.monotonic() < deadline_s, shardbus(bus, "logs", form)
        drivers = re.findall(rf"driver of pipeline {form} runs as process (\d+)", bus.server.output)
        if len(killed) < KILLS and rows > ROWS_MAX * len(killed) and drivers[-1] not in killed:
            os.kill(int(drivers[-1]), signal.SIGKILL)
            killed.append(drivers[-1])
        time.sleep(_PAUSE_S)


def _rows(files: Files, form: str) -> int:
    paths = captured_files(files, form)
    return sum(parquet.read_metadata(files.open(files.named(path))).num_rows for path in paths)


def _bodies(files: Files, form: str) -> Counter[object]:
    found: Counter[object] = Counter()
    for path in captured_files(files, form):
        found.update(parquet.read_table(files.open(files.named(path)))["body"].to_pylist())
    return found


def _files(url: str) -> Files:
    files = files_at(url)
    assert files is not None
    return files


def _check_secrets(place: Path, secret: str) -> None:
    left = [file for file in place.rglob("*") if file.is_file()]
    assert any("eventlog" in str(file) for file in left), "Spark has left no events"
    assert not [file for file in left if secret.encode() in file.read_bytes()]
