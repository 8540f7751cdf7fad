"""A PostgreSQL server for tests: made once in a run, with a database for each test.

It is Debian's, or that of `SHARDBUS_POSTGRES_BIN`. Where there is none, tests that need it are
skipped and say so; in CI they fail. Its files are in memory where that is possible, so that an
fsync costs nothing; what is asked of the server is the same.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import prepare
from tests.support.ports import free_port

DEBIAN: Final = Path("/usr/lib/postgresql")
MEMORY: Final = Path("/dev/shm")
# PostgreSQL refuses to run as root; this is the user that Debian's package makes.
UNPRIVILEGED: Final = "postgres"
START_S: Final = 60.0
STOP_S: Final = 30.0
TEMPLATE: Final = "shardbus_template"
LOCKED: Final = "locked"
STANDBY: Final = "standby"
CONFIGURATION: Final = """
listen_addresses = '127.0.0.1'
shared_buffers = 32MB
max_connections = 60
wal_level = replica
max_wal_size = 256MB
autovacuum_naptime = 5s
log_min_messages = warning
"""


def found_binaries() -> Path | None:
    """Where the programs of a server are; None where it is not installed."""
    named = os.environ.get("SHARDBUS_POSTGRES_BIN")
    if named:
        return Path(named)
    on_path = shutil.which("initdb")
    if on_path is not None and shutil.which("postgres") is not None:
        # Perhaps a link to where all programs are.
        return Path(on_path).resolve().parent
    versions = [path for path in DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    return max(versions, key=lambda path: int(path.parent.name), default=None)


class PostgresServer:
    """A server of our own, in a directory of its own."""

    def __init__(self, binaries: Path, root: Path | None = None) -> None:
        """`root` is where its directory is made; in memory by default."""
        self._binaries = binaries
        if root is None and MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
            root = MEMORY
        self.directory = Path(tempfile.mkdtemp(prefix="shardbus-pg-", dir=root))
        self.data = self.directory / "data"
        self.port = 5432
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        if os.geteuid() == 0:
            shutil.chown(self.directory, UNPRIVILEGED, UNPRIVILEGED)

    def make(self) -> None:
        """Make the files of the server."""
        command = ["initdb", "--no-sync", "--auth=trust", "--username=postgres", "--locale=C"]
        self._run(*command, "--encoding=UTF8", f"--pgdata={self.data}")
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(CONFIGURATION)
        rules = self.data / "pg_hba.conf"
        # One user has to give a password; the others are let in.
        rules.write_text(f"host all {LOCKED} all scram-sha-256\n{rules.read_text()}")

    def make_standby(self, primary: PostgresServer) -> None:
        """Make the files of a server that follows another one, which runs.

        Without `pg_basebackup`, which not every package of binaries has.
        """
        is_former = primary.number("SELECT current_setting('server_version_num')::int") < 150_000
        begin, end = (
            ("pg_start_backup('standby', true, false)", "pg_stop_backup(false, false)")
            if is_former
            else ("pg_backup_start('standby', true)", "pg_backup_stop(false)")
        )
        link = Link(Address(primary.url()), {})
        try:
            link.fetch(f"SELECT {begin}")
            shutil.copytree(primary.data, self.data, ignore=_left_out)
            label = link.fetch(f"SELECT labelfile FROM {end}")[0][0]
        finally:
            link.close()
        (self.data / "backup_label").write_text(label)
        (self.data / "pg_wal").mkdir(mode=0o700)
        (self.data / "standby.signal").touch()
        where = f"host={primary.directory} port={primary.port} user=postgres"
        with (self.data / "postgresql.auto.conf").open("a", encoding="ascii") as settings:
            settings.write(f"primary_conninfo = '{where} application_name={STANDBY}'\n")
        if os.geteuid() == 0:
            for path in (self.data, *self.data.rglob("*")):
                shutil.chown(path, UNPRIVILEGED, UNPRIVILEGED)

    def start(self, *options: str, is_same_port: bool = False) -> None:
        """Start it, and wait until it answers; `options` are for `postgres`."""
        if not is_same_port:
            self.port = free_port()
        deadline = time.monotonic() + START_S
        process = self._launch(options)
        while not self._answers():
            if time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL does not start: {self.log()}")
            if process.poll() is not None:
                if not self._is_hindered():
                    raise AssertionError(f"PostgreSQL does not start: {self.log()}")
                process = self._launch(options)
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it, at once if not told otherwise; a SIGKILL is for all of its processes."""
        process, self._process = self._process, None
        if process is None:
            return
        if how == signal.SIGKILL:
            _kill_all(process.pid)
        else:
            process.send_signal(how)
        process.wait(STOP_S)

    @property
    def pid(self) -> int:
        """Of the process whose children serve the connections."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def log(self) -> str:
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}&port={self.port}"

    def tcp_url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def execute(self, script: str, database: str = "postgres") -> None:
        link = Link(Address(self.url(database)), {})
        try:
            link.execute(script)
        finally:
            link.close()

    def new_database(self, template: str = "template1") -> str:
        """The name of a new database."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def number(self, sql: str, database: str = "postgres") -> int:
        """The answer to a question."""
        link = Link(Address(self.url(database)), {})
        try:
            return int(link.fetch(sql)[0][0])
        finally:
            link.close()

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _launch(self, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(
                    "postgres", "-D", str(self.data), "-k", str(self.directory),
                    "-p", str(self.port), *options,
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                # Ctrl-C is for us, who may still need the server.
                start_new_session=True,
            )  # fmt: skip
        return self._process

    def _is_hindered(self) -> bool:
        """Whether it ended because processes of the server that was killed have not ended yet."""
        last = [line for line in self.log().splitlines() if "FATAL:" in line][-1:]
        return any("pre-existing shared memory block" in line for line in last)

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except StoreError:
            return False
        return True

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            self._command(*command), capture_output=True, cwd=self.directory, check=False
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")

    def _command(self, name: str, *arguments: str) -> list[str]:
        """A program of the server, which ends when we do, as a user who may run it."""
        become = ["setpriv", "--pdeathsig", "QUIT"]
        if os.geteuid() == 0:
            become += ["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups"]
        return [*become, "--", str(self._binaries / name), *arguments]


@cache
def server() -> PostgresServer:
    """The one of this run, with a template of a database in which our schema is."""
    made = PostgresServer(needed_binaries())
    atexit.register(made.remove)
    made.make()
    made.start()
    made.execute(f"CREATE DATABASE {TEMPLATE}")
    prepare(Address(made.url(TEMPLATE)), is_full=True)
    return made


def needed_binaries() -> Path:
    """Where the server is; without one the test is skipped, or fails in CI."""
    found = found_binaries()
    if found is None:
        text = "PostgreSQL is not installed, so nothing is said about stores in it: `make postgres`"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return found


def _left_out(directory: str, names: list[str]) -> set[str]:
    """What a copy of a server that runs must not have."""
    is_top = "PG_VERSION" in names and "postgresql.conf" in names
    return {"pg_wal", "postmaster.pid", "postmaster.opts"} & set(names) if is_top else set()


def _kill_all(pid: int) -> None:
    """A server and its children, so that none of them can tidy up."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    os.kill(pid, signal.SIGSTOP)
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
