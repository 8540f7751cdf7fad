"""`python -m spark.tests.versions [VERSION ...]`: what the connector can do with each PySpark.

Makes an environment for each version, below `--environments`, where it stays; runs the ways of
`versions_driver` in it against a bus of this interpreter; writes a table to standard output, and to
standard error why something does not work. Ends with 1 if a version can do less, or more, than
EXPECTED says, which the guide says too, or if it does not say itself which version is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark.tests.bus import running_bus
from spark.tests.drivers import driver_environment

ENTITIES: Final = "".join(
    f'[[queue]]\nname = "{name}"\npartitioning = true\n'
    for name in ("written", "streamed", "source", "sink")
)
BATCHES: Final = ("batch write", "batch read", "SQL table", "foreachBatch")
WRITTEN: Final = (*BATCHES, "stream write")
WAYS: Final = (*WRITTEN, "stream read, browse", "stream read, consume")
EXPECTED: Final = {"4.0": BATCHES, "4.1": WRITTEN, "4.2": WAYS, "4.3": WAYS}
REFUSED: Final = re.compile(r"needs PySpark 4\.\d or later, and this is 4\.\d")
DRIVER_S: Final = 1_800


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m spark.tests.versions")
    parser.add_argument("version", nargs="*", default=list(EXPECTED), help="4.1, or 4.1.4 say")
    parser.add_argument("--environments", type=Path, default=Path("build/spark-versions"))
    wanted = parser.parse_args(arguments)
    is_good = True
    sys.stdout.write(f"| PySpark | {' | '.join(WAYS)} |\n|{'---|' * (len(WAYS) + 1)}\n")
    for version in wanted.version:
        python = environment(wanted.environments.absolute(), version)
        exact, why_not = try_version(python)
        works = tuple(way for way in WAYS if not why_not[way])
        is_good &= works == EXPECTED[".".join(version.split(".")[:2])]
        # What a version is too old for is refused by name, and does not just fail.
        is_good &= all(REFUSED.search(why_not[way]) is not None for way in WAYS if way not in works)
        row = ("yes" if way in works else "no" for way in WAYS)
        sys.stdout.write(f"| {exact} | {' | '.join(row)} |\n")
        sys.stdout.flush()
        for way, why in why_not.items():
            if why:
                sys.stderr.write(f"{exact}, {way}: {why}\n")
    return 0 if is_good else 1


def environment(directory: Path, version: str) -> Path:
    """The Python of an environment that has this PySpark, made if there is none."""
    place = directory / version
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    exact = version if version.count(".") > 1 else f"{version}.*"
    wanted = [f"pyspark[sql]=={exact}", "pandas<3"]
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *wanted], check=True, stdin=subprocess.DEVNULL)
    return python


def try_version(python: Path) -> tuple[str, dict[str, str]]:
    """The exact version, and for each way why it does not work, which is empty where it does."""
    asked = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    exact = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with running_bus(directory, ENTITIES) as bus:
            done = subprocess.run(
                [str(python), "-m", "spark.tests.versions_driver", bus.url, name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env={**os.environ, **driver_environment(), "PYSPARK_PYTHON": str(python)},
                timeout=DRIVER_S,
                check=False,
            )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    found = {one["way"]: one["why_not"] for one in told}
    return exact, {way: found.get(way, "the driver ended before") for way in WAYS}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
