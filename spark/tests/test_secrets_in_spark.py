"""Spark does everything with a key of ours; then the key is searched for in all that it leaves."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from spark.tests.bus import Bus, running_bus
from spark.tests.clusters import connect_server, standalone_cluster
from spark.tests.drivers import TESTS, driver_environment

from tests.support.ports import free_port

# Each is minutes of clusters that come and go.
pytestmark = pytest.mark.release

SECRET: Final = "CanaryKeyThatNobodyMayEverSee0123456789abcd="
STRING: Final = (
    f"Endpoint=sb://h;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={SECRET}"
)
QUEUES: Final = ("first", "second", "captured")
ENTITIES: Final = "".join(f'[[queue]]\nname = "{name}"\npartitioning = true\n' for name in QUEUES)
JOB_S: Final = 600.0
LOG: Final = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all that Spark writes goes: it logs as it does by default, and keeps its events."""
    settings = tmp_path / "settings"
    left = tmp_path / "left"
    for directory in (settings, left, left / "events"):
        directory.mkdir()
    (settings / "log4j2.properties").write_text(LOG, encoding="utf-8")
    (settings / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.compress false\n"
        f"spark.eventLog.dir {(left / 'events').as_uri()}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings))
    return left


@pytest.fixture
def credential(tmp_path: Path) -> Path:
    file = tmp_path / "credential"
    file.write_text(SECRET + "\n", encoding="utf-8")
    return file


@pytest.fixture
def bus(tmp_path: Path, credential: Path) -> Iterator[Bus]:
    with running_bus(tmp_path, ENTITIES, "--sas-key-file", str(credential)) as bus:
        yield bus


def _do_everything(master: str, access: Mapping[str, str], place: Path, ui: str = "") -> None:
    program = TESTS / "secrets_driver.py"
    _run(place, {}, str(program), master, json.dumps(access), str(place), *filter(None, [ui]))


def _run(place: Path, environment: Mapping[str, str], *arguments: str) -> None:
    log = place / "driver.log"
    with log.open("ab") as output:
        done = subprocess.run(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**driver_environment(), **environment},
            timeout=JOB_S,
            check=False,
        )
    assert done.returncode == 0, log.read_text("utf-8", "replace")[-10_000:]


def _files_with(text: str, place: Path) -> set[str]:
    """Files below a place that have a text, by their names from there on."""
    files = [Path(base) / name for base, _, names in os.walk(place) for name in names]
    assert files
    return {str(file.relative_to(place)) for file in files if text.encode() in file.read_bytes()}


@pytest.mark.timeout(900)
def test_a_key_as_an_option_is_in_nothing_that_a_cluster_leaves(place: Path, bus: Bus) -> None:
    with standalone_cluster(place) as master:
        _do_everything(master, {"endpoint": bus.url, "accessKey": SECRET}, place)

    # The search finds what is there: plans in logs and events, and what the UI tells.
    for name in ("driver.log", "events/", "shown", "checkpoint-of-browsing/offsets/", "work/"):
        assert any(file.startswith(name) for file in _files_with("a", place)), name
    assert any(file.startswith("events/") for file in _files_with("shardbus", place))
    assert _files_with(SECRET, place) == set()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["accessKey", "connectionString"])
def test_a_key_as_an_option_is_in_nothing_that_spark_connect_leaves(
    place: Path, bus: Bus, name: str
) -> None:
    """The server has the setting of `shardbus_spark.redaction`, as `session` has it."""
    given = {"accessKey": SECRET, "connectionString": STRING}
    port = free_port()
    with connect_server(place, spark_ui_enabled="true", spark_ui_port=str(port)) as master:
        access = {"endpoint": bus.url, name: given[name]}
        _do_everything(master, access, place, f"http://127.0.0.1:{port}")

    hidden = _files_with("*********(redacted)", place)
    assert any(file.startswith("events/") for file in hidden) and "shown" in hidden
    assert _files_with(SECRET, place) == set()


@pytest.mark.timeout(900)
def test_a_file_with_the_key_is_in_nothing_that_spark_connect_leaves(
    place: Path, bus: Bus, credential: Path
) -> None:
    port = free_port()
    with connect_server(place, spark_ui_enabled="true", spark_ui_port=str(port)) as master:
        access = {"endpoint": bus.url, "credentialFile": str(credential)}
        _do_everything(master, access, place, f"http://127.0.0.1:{port}")

    # Events of Spark Connect hold options as they were given, but for what is hidden by its look.
    assert any(file.startswith("events/") for file in _files_with(str(credential), place))
    assert _files_with(SECRET, place) == set()


@pytest.mark.timeout(900)
def test_the_key_in_a_variable_is_in_nothing_that_a_capture_leaves(place: Path, bus: Bus) -> None:
    rows = json.dumps([{"body": "x"}])
    write = (
        "import json, shardbus_spark.client as c, pyarrow as pa;"
        f"k = c.connect(); n = k.stage('captured', 's', pa.Table.from_pylist(json.loads('{rows}'))"
        ".to_batches()); k.act('publish', 'captured',"
        " {'producer': 'p', 'batch': 1, 'stages': [{'stage': 's', 'count': n.rows}]})"
    )
    definition = {
        "name": "kept",
        "entity": "captured",
        "path": str(place / "table"),
        "once": True,
        "spark_master": "local[2,4]",
    }
    file = place / "definition.json"
    file.write_text(json.dumps(definition), encoding="utf-8")
    for variable, value in (("SHARDBUS_KEY", SECRET), ("SHARDBUS_CONNECTION_STRING", STRING)):
        opened = {"SHARDBUS_FLIGHT_URL": bus.url, variable: value}
        if variable == "SHARDBUS_KEY":
            _run(place, opened, "-c", write)
        else:
            _run(place, opened, "-m", "shardbus_spark.pipelines", str(file))

    assert any(file.endswith(".parquet") for file in _files_with("PAR1", place / "table"))
    assert any(file.startswith("events/") for file in _files_with("shardbus", place))
    assert _files_with(SECRET, place) == set()
