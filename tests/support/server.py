"""The real server as a process: started, asked where it listens, killed, started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from shardbus.app.cli.sas import parse_connection_string
from tests.support.ports import free_port

COMMAND: Final = (str(Path(sys.executable).with_name("shardbus")), "serve")
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.01
_CONNECTION_STRING: Final = re.compile(r"Endpoint=sb://\S+")
_HTTP_URL: Final = re.compile(r"https?://[^\s/;]+:(\d+)")
_TLS_URL: Final = re.compile(r"amqps://[^\s/;]+:(\d+)")
_FLIGHT_URL: Final = re.compile(r"grpc(?:\+tls)?://\S+:\d+")


class ServerFailed(AssertionError):
    """The process did not do what was asked of it; the text holds all that it printed."""


@dataclass(frozen=True)
class Ready:
    """What the `ready` line says."""

    connection_string: str
    host: str
    amqp_port: int
    http_port: int
    tls_port: int
    flight_url: str


class Server:
    """One data directory and, most of the time, one process that serves it.

    The first start takes free ports; every later one takes the same ports again, so that clients
    find it where it was.
    """

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        environment: dict[str, str] | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.data_dir = data_dir
        self._command = command
        self._options = options
        self._environment = {**os.environ, **(environment or {})}
        self._log = data_dir.with_name(data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: Ready | None = None
        self.start_s = 0.0

    @property
    def connection_string(self) -> str:
        return self._known().connection_string

    @property
    def host(self) -> str:
        return self._known().host

    @property
    def amqp_port(self) -> int:
        return self._known().amqp_port

    @property
    def http_port(self) -> int:
        return self._known().http_port

    @property
    def tls_port(self) -> int:
        """Where AMQP is spoken with TLS only; 0 when that port is off."""
        return self._known().tls_port

    @property
    def flight_url(self) -> str:
        """Where the bulk lane is; empty without `--flight-port`, which is off here otherwise."""
        return self._known().flight_url

    @property
    def ca_file(self) -> Path:
        """The development certificate authority, for clients that dial with TLS."""
        return self.data_dir / "tls" / "ca.pem"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """Everything that the server printed so far, over all its lives."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self.has_run else ""

    @property
    def has_run(self) -> bool:
        return self._log.exists()

    def start(self) -> None:
        """Start and wait for the `ready` line; `start_s` is how long that took."""
        assert self._process is None, "the server is running"
        position = len(self.output)
        started = time.monotonic()
        with self._log.open("ab") as log:
            self._process = launch(self._arguments(), log, self._environment, self._command)
        self._ready = self._wait_until_ready(position, started + START_TIMEOUT_S)
        self.start_s = time.monotonic() - started

    def kill(self) -> None:
        """SIGKILL to the server and to every process that it has started: no goodbye, no flush."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and a clean exit."""
        code = self._end(signal.SIGTERM)
        if code != 0:
            raise ServerFailed(f"the server ended with code {code}\n{self.output}")

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Make sure that nothing runs, whatever state the process is in."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def memory_kb(self) -> int:
        """The proportional set size of the process: its own memory and its share of the rest."""
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text(encoding="ascii")
        found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None, text
        return int(found[1])

    def _known(self) -> Ready:
        assert self._ready is not None, "the server was never started"
        return self._ready

    def _arguments(self) -> list[str]:
        amqp_port, http_port = (
            (self._ready.amqp_port, self._ready.http_port)
            if self._ready
            else (free_port(), free_port())
        )
        ports = ["--amqp-port", str(amqp_port), "--http-port", str(http_port), "--tls-port", "0"]
        # A bulk lane is a process more, which few tests have a use for.
        ports += ["--flight-port", "0"]
        return [*ports, "--data-dir", str(self.data_dir), *self._options]

    def _wait_until_ready(self, position: int, deadline: float) -> Ready:
        assert self._process is not None
        while time.monotonic() < deadline:
            for line in self.output[position:].splitlines():
                if line.startswith("ready"):
                    return _read_ready(line)
            if self._process.poll() is not None:
                break
            time.sleep(_POLL_S)
        code = self._end(signal.SIGKILL)
        raise ServerFailed(f"the server did not get ready (code {code})\n{self.output}")

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None, "the server is not running"
        self._process = None
        if process.poll() is None:
            process.send_signal(number)
        if number is signal.SIGKILL:
            _kill_group(process.pid)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            process.wait()
            raise ServerFailed(f"{number.name} did not end the server\n{self.output}") from None
        finally:
            if process.stdin is not None:
                process.stdin.close()


@contextmanager
def running_server(
    data_dir: Path, *options: str, command: Sequence[str] = COMMAND
) -> Iterator[Server]:
    """A server that runs at the start and is gone at the end; its output is shown on failure."""
    server = Server(data_dir, *options, command=command)
    server.start()
    try:
        yield server
    except BaseException as failure:
        failure.add_note(f"output of the server:\n{server.output[-20_000:]}")
        raise
    finally:
        server.close()


def launch(
    arguments: Sequence[str],
    log: IO[bytes],
    environment: dict[str, str] | None = None,
    command: Sequence[str] = COMMAND,
) -> subprocess.Popen[bytes]:
    """`shardbus serve` as this interpreter finds it, compiled where the tests are.

    It ends when this process does, even if that is killed: its standard input ends. Other commands
    do not know that option.
    """
    tied = ("--ends-with-stdin",) if command[-1] == "serve" else ()
    return subprocess.Popen(
        [*command, *arguments, *tied],
        stdin=subprocess.PIPE if tied else subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def serve_and_fail(*arguments: str, timeout_s: float = START_TIMEOUT_S) -> tuple[int, str]:
    """Run a server that is expected not to start: its exit code and what it said."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def _kill_group(pid: int) -> None:
    # The server leads a group of its own, so that nothing it started can outlive a test.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _read_ready(line: str) -> Ready:
    found = _CONNECTION_STRING.search(line)
    http = _HTTP_URL.search(line)
    if found is None or http is None:
        raise ServerFailed(f"the ready line names no connection string or no URL: {line}")
    address = parse_connection_string(found[0])
    if address.port is None:
        raise ServerFailed(f"the connection string names no port: {line}")
    tls, flight = _TLS_URL.search(line), _FLIGHT_URL.search(line)
    return Ready(
        found[0],
        address.host,
        address.port,
        int(http[1]),
        int(tls[1]) if tls else 0,
        flight[0] if flight else "",
    )
