"""The release before this one, from the history of this repository, beside the present sources."""

from __future__ import annotations

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.source import ROOT

LAST_RELEASE: Final = "7a553e7f"
"""Its commit. When a version is released: the commit of that release."""


def last_release(directory: Path) -> Path:
    """Its sources, which run without being installed or compiled.

    Skips where they cannot be had: from an archive of the sources, or a clone without its history.
    In CI a whole clone must have them.
    """
    done = subprocess.run(
        ["git", "-C", str(ROOT), "archive", LAST_RELEASE, "src", "spark/src"],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        left_out = f"commit {LAST_RELEASE}, the last release, is not in the history of this clone"
        if os.environ.get("CI") == "true" and _is_whole_clone():
            pytest.fail(f"{left_out}, although it is a whole one: {done.stderr.decode()}")
        pytest.skip(f"{left_out}: no node of it runs beside those of this one")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return directory


def environment_of(sources: Path) -> dict[str, str]:
    """For processes that run these sources, interpreted."""
    path = os.pathsep.join(str(sources / part) for part in ("src", "spark/src"))
    return {"PYTHONPATH": path, "SHARDBUS_EXPECT_COMPILED": "0"}


def _is_whole_clone() -> bool:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    done = subprocess.run(asked, capture_output=True, check=False, text=True)
    return done.returncode == 0 and done.stdout.strip() == "false"
