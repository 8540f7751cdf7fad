"""A Python with the newest polars, DuckDB and others, and without us."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

INSTALL: Final = (
    "deltalake>=1.6.6,<2",
    "duckdb",
    "pandas<3",
    "polars",
    "pyarrow",
    "pyiceberg>=0.12,<0.13",
    "s3fs",
)
PROGRAM_S: Final = 600.0


def installed(place: Path) -> str:
    """The program of such a Python, in a new directory."""
    venv.create(place, with_pip=True)
    program = str(place / "bin" / "python")
    subprocess.run(
        [program, "-m", "pip", "install", "--quiet", *INSTALL], check=True, timeout=PROGRAM_S
    )
    return program


def printed(python: str, program: str, variables: Mapping[str, str] | None = None) -> str:
    """What a program prints, with these variables and none of a cloud's besides."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [python, "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        env={**ours, **(variables or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
