"""A connection to PostgreSQL that threads use without an event loop of their own.

The driver is asyncpg. Each link has a loop that runs only while a thread waits for an answer, on
that thread: nothing passes between threads (docs/adr/0068-stores-in-postgresql.md).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol, TypeVar, cast, final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from asyncpg.exceptions._base import (
    ClientConfigurationError,
    InterfaceError,
    InternalClientError,
    PostgresError,
)
from asyncpg.protocol.record import Record

from shardbus.stores.base.store import NotStored, StoreError

T = TypeVar("T")

SERVER_VERSION_MIN: Final = 14
CONNECT_S: Final = 10.0
CLOSE_S: Final = 2.0
# How soon a dead peer is detected, also in the middle of a commit.
KEEPALIVE_S: Final = 5
KEEPALIVE_COUNT: Final = 3
LOST_MS: Final = 15_000

# How soon the server ends a statement that waits for a lock, and for a client that is gone.
_CLIENT_CHECK: Final = "2s"
_TRANSACTION_TIMEOUT_SINCE: Final = 17

FENCED_STATE: Final = "SB001"
_NO_ROOM_STATES: Final = ("53100",)
# Errors about a value, not about the database.
_UNFIT_CLASSES: Final = ("22", "23")
# The server is stopping or starting, or has closed this connection: the statement may have taken
# effect. Or it is a standby, and another server is the primary now.
_LOST_STATES: Final = ("57P01", "57P02", "57P03", "57P05", "25P03", "25006")
_LOST_CLASSES: Final = ("08",)
# The system, resources, and PostgreSQL itself.
_FAILURE_CLASSES: Final = ("58", "53", "XX")
# At the start of a connection: a setting is unknown, to PostgreSQL or to a pooler before it.
_UNKNOWN_SETTING_STATE: Final = "42704"
_POOLER: Final = "startup parameter"

_LOST: Final = (OSError, TimeoutError, InterfaceError, InternalClientError)

Argument = object
Row = Record


class LinkLost(StoreError):
    """There is no connection, or it was lost; the last statement may have taken effect or not."""


class ServerRefused(StoreError):
    """PostgreSQL refused a statement and said why. `state` is its error code (SQLSTATE)."""

    def __init__(self, text: str, state: str) -> None:
        super().__init__(text)
        self.state = state


class _Connection(Protocol):
    """The methods of asyncpg's connection that are used here; asyncpg has no types."""

    async def fetch(self, query: str, *args: Argument) -> list[Row]: ...

    async def execute(self, query: str) -> str: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...

    def is_closed(self) -> bool: ...

    def add_log_listener(self, callback: object) -> None: ...

    def get_server_version(self) -> _Version: ...


class _Version(Protocol):
    major: int


class _Notice(Protocol):
    severity: str
    sqlstate: str
    message: str


@final
class Address:
    """The address of a database: a URL in libpq's syntax, and the part that may be shown."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            parts = urlsplit(url)
            shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="")
            if parts.username:
                shown = shown._replace(netloc=f"{parts.username}@{shown.netloc}")
        except ValueError as error:
            raise StoreError(f"--store is no URL of a database: {error}") from error
        self.shown = urlunsplit(shown)
        if parts.password is not None or "password=" in parts.query:
            raise StoreError(
                f"{self.shown}: --store must not hold a password, since all users of this machine "
                "see the arguments of processes; put it into PGPASSWORD, or into a file that "
                "PGPASSFILE names"
            )
        self.database = parts.path.lstrip("/")
        if not url.startswith("postgresql://") or not self.database:
            raise StoreError(
                f"{self.shown}: name a database as in postgresql://USER@HOST:5432/DATABASE"
            )


@final
class Link:
    """One connection, which is made by the first call. Called from one thread at a time.

    A call raises LinkLost, ServerRefused, or NotStored for a value that no column takes. `warnings`
    are the server's warnings since the list was emptied. A lost connection is replaced by the next
    call, except within a transaction: its later statements would take effect without the earlier
    ones, so the next of them raises LinkLost.
    """

    def __init__(self, address: Address, settings: dict[str, str]) -> None:
        self.address = address
        self.warnings: list[str] = []
        # The number of connections opened so far.
        self.opened = 0
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: _Connection | None = None
        self._is_abandoned = False
        self._is_in_transaction = False

    @property
    def is_open(self) -> bool:
        if self._connection is None or self._is_abandoned:
            return False
        return not self._connection.is_closed()

    def open(self) -> None:
        """Connect, unless there is a connection."""
        if self.is_open:
            return
        was_in_transaction = self._is_in_transaction
        self.drop()
        if was_in_transaction:
            raise LinkLost(f"{self.address.shown}: the connection was lost within a transaction")
        loop = asyncio.new_event_loop()
        try:
            self._connection = _completed(loop, self._connected())
        except BaseException as error:
            loop.close()
            raise self._explained(error) from error
        self._loop = loop
        self.opened += 1

    def fetch(self, sql: str, *arguments: Argument) -> list[Row]:
        """The rows that one statement returns."""
        self.open()
        assert self._connection is not None
        return self._run(self._connection.fetch(sql, *arguments))

    def row(self, sql: str, *arguments: Argument) -> Row | None:
        rows = self.fetch(sql, *arguments)
        return rows[0] if rows else None

    def execute(self, script: str) -> None:
        """Statements without arguments."""
        self.open()
        assert self._connection is not None
        self._run(self._connection.execute(script))

    def begin(self, mode: str = "") -> None:
        """Begin a transaction, which ends with `commit`, `roll_back` or the connection."""
        if not self.is_open:
            self.drop()
        self.execute(f"BEGIN {mode}".rstrip())
        self._is_in_transaction = True

    def commit(self) -> None:
        self.execute("COMMIT")
        self._is_in_transaction = False

    def roll_back(self) -> None:
        """Undo the transaction. A lost connection has done so already."""
        if self.is_open:
            self.execute("ROLLBACK")
        self._is_in_transaction = False

    def drop(self) -> None:
        """Drop the connection, whatever it is doing; the next call opens another one."""
        connection, self._connection = self._connection, None
        loop, self._loop = self._loop, None
        self._is_abandoned = False
        self._is_in_transaction = False
        if connection is not None and loop is not None:
            with suppress(Exception):
                connection.terminate()
            _ended(loop)

    def abandon(self) -> None:
        """End the connection from another thread: a call that waits for an answer is lost, and the
        next one opens another.
        """
        connection, loop = self._connection, self._loop
        if connection is not None and loop is not None:
            self._is_abandoned = True
            # Its loop may have ended in the meantime.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(connection.terminate)

    def close(self) -> None:
        connection, loop = self._connection, self._loop
        if connection is not None and loop is not None and not connection.is_closed():
            with suppress(Exception):
                _completed(loop, asyncio.wait_for(connection.close(), CLOSE_S))
        self.drop()

    async def _connected(self) -> _Connection:
        connected = asyncpg.connect(  # type: ignore[no-untyped-call]  # it has no types
            self.address.url,
            timeout=CONNECT_S,
            # No time limit: a commit that is cancelled while it waits for a standby reports
            # success.
            command_timeout=None,
            server_settings=self._settings,
        )
        connection = cast("_Connection", await connected)
        connection.add_log_listener(self._note)
        _keep_alive(connection)
        try:
            await asyncio.wait_for(_adjust(connection), CONNECT_S)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _note(self, _: object, notice: _Notice) -> None:
        if notice.severity == "WARNING":
            self.warnings.append(f"{notice.message} ({notice.sqlstate})")

    def _run(self, work: Coroutine[object, object, T]) -> T:
        assert self._loop is not None
        try:
            return _completed(self._loop, work)
        except BaseException as error:
            explained = self._explained(error)
            if not isinstance(explained, ServerRefused | NotStored):
                # Its next answer might belong to an earlier statement.
                self.drop()
            raise explained from error

    def _explained(self, error: BaseException) -> BaseException:
        """The error for a failure, with advice; bugs and interruptions are raised unchanged."""
        shown = self.address.shown
        if isinstance(error, PostgresError):
            return self._server_error(error)
        if isinstance(error, InterfaceError | OverflowError) and self.is_open:
            return NotStored(f"{shown}: {error}")
        if isinstance(error, ClientConfigurationError):
            return StoreError(f"{shown}: check the URL of --store ({error})")
        if isinstance(error, ssl.SSLError):
            return LinkLost(
                f"{shown} has no certificate that can be verified: check the name of the host, and "
                f"sslrootcert in --store, which names the file of its authority ({error})"
            )
        if isinstance(error, _LOST):
            what = str(error) or type(error).__name__
            return LinkLost(
                f"{shown} cannot be reached: check that PostgreSQL runs there, and host and port "
                f"of --store ({what})"
            )
        return error

    def _server_error(self, error: PostgresError) -> StoreError:
        shown = self.address.shown
        state = str(getattr(error, "sqlstate", None) or "")
        is_fatal = getattr(error, "severity_en", getattr(error, "severity", "")) != "ERROR"
        if state in ("28P01", "28000"):
            return ServerRefused(
                f"{shown}: PostgreSQL does not let this user in: check the user in --store, the "
                f"password (PGPASSWORD, or the file of PGPASSFILE), and pg_hba.conf ({error})",
                state,
            )
        if state == "3D000":
            return ServerRefused(
                f"{shown}: there is no such database: create it, with `createdb "
                f"{self.address.database}` for example, or name another one ({error})",
                state,
            )
        if is_fatal and state == _UNKNOWN_SETTING_STATE:
            return ServerRefused(
                f"{shown} is too old: it does not know a setting of PostgreSQL {SERVER_VERSION_MIN}"
                f", and Shardbus needs {SERVER_VERSION_MIN} or later. Nothing was changed. Upgrade "
                f"the server, or name another one ({error})",
                state,
            )
        if is_fatal and _POOLER in str(error):
            return ServerRefused(
                f"{shown} is a pooler such as PgBouncer, which does not keep the settings of a "
                "connection. Nothing was changed. Name the PostgreSQL server behind it in --store "
                f"({error})",
                state,
            )
        if is_fatal and state[:2] in _FAILURE_CLASSES:
            return LinkLost(
                f"{shown}: PostgreSQL fails: its log has the reason, such as a full disk "
                f"({error}, {state})"
            )
        if state in _LOST_STATES or state[:2] in _LOST_CLASSES or is_fatal:
            return LinkLost(f"{shown}: PostgreSQL ended the connection ({error}, {state})")
        if state[:2] in _UNFIT_CLASSES:
            return NotStored(f"{shown}: {error} ({state})")
        if state in _NO_ROOM_STATES:
            return ServerRefused(
                f"{shown}: the disk of PostgreSQL is full: free space there; then the server "
                f"continues automatically ({error})",
                state,
            )
        return ServerRefused(f"{shown}: {error} ({state})", state)


def _completed(loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, T]) -> T:
    """Run the loop of a link until something is done."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return loop.run_until_complete(work)
    # At the start and the end of a process, its own loop is running but blocked here.
    with ThreadPoolExecutor(1) as another_thread:
        return another_thread.submit(loop.run_until_complete, work).result()


def _ended(loop: asyncio.AbstractEventLoop) -> None:
    # Callbacks that have not run yet close the transport.
    for _ in range(3):
        with suppress(Exception):
            _completed(loop, asyncio.sleep(0))
    loop.close()


async def _adjust(connection: _Connection) -> None:
    """Set options that only some servers support; others would refuse a connection that requests
    them.
    """
    version = connection.get_server_version()
    if version.major >= _TRANSACTION_TIMEOUT_SINCE:
        await connection.execute("SET transaction_timeout = 0")
    # Unsupported on some operating systems of servers, where a waiting statement outlives its
    # client.
    with suppress(PostgresError):
        await connection.execute(f"SET client_connection_check_interval = '{_CLIENT_CHECK}'")


def _keep_alive(connection: _Connection) -> None:
    """Let the kernel detect a dead peer, which asyncpg does not request."""
    transport = getattr(connection, "_transport", None)
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or found.family == socket.AF_UNIX:
        return
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEPALIVE_S),
        (socket.TCP_KEEPINTVL, KEEPALIVE_S),
        (socket.TCP_KEEPCNT, KEEPALIVE_COUNT),
        (socket.TCP_USER_TIMEOUT, LOST_MS),
    ):
        found.setsockopt(socket.IPPROTO_TCP, option, value)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
