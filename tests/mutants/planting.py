"""Plants a known bug in a scratch copy of the source and runs the tests that must notice."""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from tests.mutants.places import Edit, Sources

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS_MAX: Final = 240
# What pytest says when tests ran and some failed; anything else is not a catch.
TESTS_FAILED: Final = 1
CAUGHT: Final = "caught"
# Instead of a file of tests: the fixed seeds of the simulator.
SIMULATION: Final = "simulation"
# The same for one of the scenarios of tests/simulation/test_histories.py.
SIMULATION_OF: Final = "simulation of "
_MEMBERS: Final = frozenset(("name", "at", "old", "new", "caught_by", "chosen", "also"))


class Mutant:
    """One row of tests/mutants.toml."""

    def __init__(self, row: dict[str, object]) -> None:
        self.name = str(row["name"])
        assert row.keys() <= _MEMBERS, (
            f"{self.name}: unknown members {sorted(row.keys() - _MEMBERS)}"
        )
        self.caught_by = str(row["caught_by"])
        self.is_chosen = bool(row.get("chosen", False))
        more = row.get("also", [])
        assert isinstance(more, list)
        self.edits = [
            Edit(str(edit["at"]), str(edit["old"]), str(edit["new"])) for edit in [row, *more]
        ]


def mutants() -> list[Mutant]:
    rows = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text(encoding="utf-8"))
    return [Mutant(row) for row in rows["mutant"]]


def plant(mutant: Mutant, source: Path) -> None:
    """Edit the copy of `src`."""
    for path, text in Sources(source).apply(mutant.edits).items():
        path.write_text(text, encoding="utf-8")


def verdict(mutant: Mutant) -> str:
    """`caught`, or what happened instead."""
    with tempfile.TemporaryDirectory(prefix="shardbus-mutant-") as scratch:
        copy = Path(scratch)
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "node_modules", "conformance")
        shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
        shutil.copytree(ROOT / "tests", copy / "tests", ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", copy)
        plant(mutant, copy / "src")
        return _run(mutant, copy)


def _chosen(caught_by: str) -> list[str]:
    """What pytest is to run."""
    if caught_by == SIMULATION:
        return ["tests/simulation/test_simulation.py", "-k", "promise"]
    if caught_by.startswith(SIMULATION_OF):
        scenario = caught_by.removeprefix(SIMULATION_OF)
        return ["tests/simulation/test_histories.py", "-k", " and ".join(scenario.split())]
    return [caught_by]


def _run(mutant: Mutant, copy: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += _chosen(mutant.caught_by)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(copy / "src"), *filter(None, sys.path)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / "hypothesis"),
        "SHARDBUS_EXPECT_COMPILED": "0",
        "SEEDS": "",
        "MUTANT": mutant.name,
    }
    try:
        ended = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not caught in {SECONDS_MAX} s"
    if ended.returncode == TESTS_FAILED:
        return CAUGHT
    return f"not caught (pytest said {ended.returncode}):\n{ended.stdout[-2000:]}"
