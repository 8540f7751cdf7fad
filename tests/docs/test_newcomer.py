"""`make run` in a fresh clone, and then what the README says."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from tests.docs.examples import ROOT, run
from tests.docs.readme import commands
from tests.support.server import Server

DEMO_WAIT_S: Final = 60.0
_CLONED: Final = ("Makefile", "README.md", "LICENSE", "pyproject.toml", "setup.py")
_TREES: Final = ("requirements", "spark", "src")
_MADE: Final = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "build")
# What a make that runs these tests tells the makes below it, and what this Python was told.
_CLEARED: Final = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH", "VIRTUAL_ENV")


@pytest.mark.long
def test_a_newcomer_is_served_without_a_compiler(tmp_path: Path) -> None:
    """R5: everything that `make run` needs beyond Python and make, it sets up by itself."""
    clone = _clone(tmp_path / "clone")
    cleared = dict.fromkeys(_CLEARED, "")
    # The demo that it shows goes without Spark, which is hundreds of megabytes.
    make = f'exec make -C "{clone}" PYTHON="{sys.executable}" run ARGS="--prepare true $*"'
    server = Server(tmp_path / "data", environment=cleared, command=("sh", "-c", make, "make"))
    try:
        server.start()
        printed = run(commands(), server.http_port, clone, cleared)
        version = subprocess.run(
            [clone / ".venv" / "bin" / "shardbus", "version"],
            env={**os.environ, **cleared},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        _await_line(server, "pipeline unavailable")
    finally:
        server.close()

    assert "orders" in printed[0]
    assert "interpreted" in version.stdout
    assert "`make build`" in server.output


def _await_line(server: Server, words: str) -> None:
    """The demo says so some time after the bus serves."""
    deadline_s = time.monotonic() + DEMO_WAIT_S
    while words not in server.output:
        assert time.monotonic() < deadline_s, f"no line of the demo says: {words}"
        time.sleep(0.1)


def _clone(directory: Path) -> Path:
    directory.mkdir()
    for name in _CLONED:
        shutil.copy2(ROOT / name, directory / name)
    for name in _TREES:
        shutil.copytree(ROOT / name, directory / name, ignore=_MADE)
    return directory
