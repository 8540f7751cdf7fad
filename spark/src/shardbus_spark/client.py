"""The bulk lane for Python: tables and batches of messages, readers and their claims.

    import shardbus_spark.client as shardbus

    table = shardbus.connect("grpc://localhost:5301").read("orders")
    table.to_pandas()

A client may be used by several threads. It retries calls that a restart of the bus makes fail, for
a while; a refusal is raised at once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar, final

import pyarrow as pa
import pyarrow.flight as flight

from shardbus_spark.address import Address, address_from
from shardbus_spark.credentials import Given
from shardbus_spark.errors import (
    BatchDiffers,
    BeingPublished,
    ClaimCompleted,
    ClaimLost,
    NotFound,
    OptionError,
    QuotaExceeded,
    ReaderDropped,
    ReaderInUse,
    ReaderLost,
    RecordsDropped,
    ShardbusError,
    StageLost,
    Unauthorized,
    Unavailable,
)
from shardbus_spark.parallel import in_parallel

CALL_TIMEOUT_S: Final = 60.0
STREAM_TIMEOUT_S: Final = 3600.0
RETRY_S: Final = 60.0
# The lane has 64 places for streams, which others need too.
STREAMS_MAX: Final = 32
STREAMS_DEFAULT_MAX: Final = 8
# How long to ask for a required answer, counted from the last progress; each attempt waits longer
# than the lane waits for the bus.
ASK_S: Final = 900.0
ASK_TIMEOUT_S: Final = 150.0
# Rows are put in chunks: one is collected while another is on its way.
CHUNK_BYTES: Final = 16 * 1024 * 1024
CHUNK_TIMEOUT_S: Final = 300.0
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

Document = dict[str, object]
T = TypeVar("T")

_KINDS: Final[dict[str, type[ShardbusError]]] = {
    "not-found": NotFound,
    "reader-not-found": ReaderDropped,
    "unauthorized": Unauthorized,
    "reader-in-use": ReaderInUse,
    "reader-lost": ReaderLost,
    "claim-lost": ClaimLost,
    "claim-completed": ClaimCompleted,
    "stage-lost": StageLost,
    "batch-differs": BatchDiffers,
    "records-dropped": RecordsDropped,
    "being-published": BeingPublished,
    "quota-exceeded": QuotaExceeded,
    "too-large": OptionError,
    "invalid-argument": OptionError,
    "not-allowed": OptionError,
    "unavailable": Unavailable,
    "server-busy": Unavailable,
    "outcome-unknown": Unavailable,
}
_ADVICE: Final[dict[type[ShardbusError], str]] = {
    NotFound: "Check the name, and that the endpoint is that of the right bus.",
    ReaderDropped: "The reader was dropped, and its claimed messages returned to receivers: use "
    "another checkpointLocation to start again.",
    Unauthorized: "Reading needs a key or token with Listen on the entity, writing one with Send: "
    "check credentialFile, connectionString, keyName and accessKey, or token. A plan that is older "
    "than taskAccessMs must be made again by another load().",
    BatchDiffers: "To write these rows, set another producerName, transactionId or txnAppId: rows "
    "written since the checkpoint was copied are then written again. To skip them, set "
    "onRepeatedBatch to skip.",
    Unavailable: "Try again when the bus is healthy: its /health shows the reason.",
}
# Flight puts this before some texts.
_FRAME: Final = " error, with message: "
# A connection that ends during an answer is reported as one of these, too.
_BROKEN: Final = ("Stream removed", "Socket closed", "Connection reset", "RST_STREAM", "GOAWAY")


def connect(  # noqa: PLR0913 - each is one of the ways to open a bus
    url: str = "",
    *,
    connection_string: str = "",
    key_name: str = "",
    key: str = "",
    token: str = "",
    ca_file: str = "",
    credential_file: str = "",
) -> Client:
    """A client of the bulk lane at a URL.

    What is not given comes from the environment (SHARDBUS_FLIGHT_URL, SHARDBUS_CREDENTIAL_FILE and
    so on); without that, it is a client of the development bus on this machine.
    """
    given = Given(credential_file, connection_string, token, key, key_name)
    return Client(address_from(url, given, ca_file=ca_file))


@final
class Connection:
    """A connection to a location, made at its first use."""

    def __init__(self, location: str, ca_file: str) -> None:
        self._location = location
        self._ca_file = ca_file
        self._flight: flight.FlightClient | None = None

    def open(self) -> flight.FlightClient:
        if self._flight is None:
            trusted = Path(self._ca_file).read_text("utf-8") if self._ca_file else None
            self._flight = flight.connect(self._location, tls_root_certs=trusted)
        return self._flight

    def close(self) -> None:
        if self._flight is not None:
            self._flight.close()
            self._flight = None


@dataclass(frozen=True, slots=True)
class Put:
    """How many rows were staged, and their fingerprint: a number that is the same for the same rows
    in any order; those of several stages are added, modulo 2 ** 128.
    """

    rows: int = 0
    digest: int = 0
    pieces: int = 0

    def and_then(self, more: Future[Put] | None) -> Put:
        """This and what is still under way, when that is done."""
        if more is None:
            return self
        other = more.result()
        digest = (self.digest + other.digest) % (1 << 128)
        return Put(self.rows + other.rows, digest, self.pieces + other.pieces)


@final
class Client:
    """One bulk lane."""

    def __init__(
        self, address: Address, *, retry_s: float = RETRY_S, connection: Connection | None = None
    ) -> None:
        """Calls that fail without an answer are retried for `retry_s`.

        `connection` may be shared.
        """
        self._address = address
        self._retry_s = retry_s
        self._connection = connection or Connection(address.location(), address.ca_file)

    def close(self) -> None:
        self._connection.close()

    def read(
        self,
        entity: str,
        *,
        columns: Sequence[str] | None = None,
        states: Sequence[str] | None = None,
        table: str = "",
    ) -> pa.Table:
        """All messages of an entity as a table, by fragment and number; with the table
        "lifecycle", its lifecycle records by fragment and block.

        Receivers are not disturbed. Fragments are read in parallel.
        """
        info = self._info(entity, columns, states, table)
        tickets = [endpoint.ticket.ticket for endpoint in info.endpoints]
        with ThreadPoolExecutor(_streams(0, len(tickets))) as pool:
            found = list(pool.map(lambda ticket: list(self.fetch(ticket)), tickets))
        return pa.Table.from_batches(list(chain.from_iterable(found)), info.schema)

    def reader(
        self,
        entity: str,
        *,
        columns: Sequence[str] | None = None,
        states: Sequence[str] | None = None,
        table: str = "",
        streams: int = 0,
    ) -> pa.RecordBatchReader:
        """The rows of `read`, for pandas, Polars or DuckDB to take batch by batch.

        `streams` fragments are read at the same time (by default as many as there are cores, up to
        8). About 8 MB of each are held, however large the entity is; rows of a fragment are in the
        order of their numbers.
        """
        info = self._info(entity, columns, states, table)
        tickets = [endpoint.ticket.ticket for endpoint in info.endpoints]
        batches = in_parallel(self.fetch, tickets, _streams(streams, len(tickets)))
        return pa.RecordBatchReader.from_batches(info.schema, batches)

    def batches(
        self,
        entity: str,
        *,
        columns: Sequence[str] | None = None,
        states: Sequence[str] | None = None,
        table: str = "",
    ) -> Iterator[pa.RecordBatch]:
        """The rows of `read`, piece by piece, one fragment after the other."""
        for endpoint in self._info(entity, columns, states, table).endpoints:
            yield from self.fetch(endpoint.ticket.ticket)

    def fetch(self, ticket: bytes, *, retry_s: float | None = None) -> Iterator[pa.RecordBatch]:
        """The batches of one ticket; a stream that breaks is not restarted."""
        reader = self._retried(
            lambda: self._client().do_get(flight.Ticket(ticket), self._options(STREAM_TIMEOUT_S)),
            retry_s,
        )
        while True:
            try:
                batch = reader.read_chunk().data
            except StopIteration:
                return
            except (flight.FlightError, pa.ArrowException) as error:
                raise _told(error) from error
            if batch is not None and batch.num_rows:
                yield batch

    def stage(
        self,
        entity: str,
        stage: str,
        batches: Iterable[pa.RecordBatch],
        *,
        wait_s: float = ASK_S,
        is_past: bool = False,
    ) -> Put:
        """Put rows on the bus, durably and invisible until `publish`; returns their count and
        fingerprint. With `is_past`, the rows are for a subscription, and have the sequence numbers
        that its topic gave to the messages.

        The rows are sent in chunks. Each chunk is a stream of its own, so it takes a place of the
        bulk lane only while it is sent; the next chunk is collected meanwhile. A chunk that gets no
        answer is sent again, for at most `wait_s`: the bus stores no row of it twice.
        """
        put = Put()
        with ThreadPoolExecutor(1) as sender:
            under_way: Future[Put] | None = None
            for chunk in _chunks(batches):
                put = put.and_then(under_way)
                place: Document = {"entity": entity, "stage": stage, "piece": put.pieces}
                if is_past:
                    place["past"] = True
                under_way = sender.submit(self._stage_chunk, place, chunk, wait_s)
            return put.and_then(under_way)

    def _stage_chunk(self, place: Document, batches: list[pa.RecordBatch], wait_s: float) -> Put:
        command = json.dumps(place).encode()
        descriptor = flight.FlightDescriptor.for_command(command)

        def put() -> Put:
            options = self._options(CHUNK_TIMEOUT_S)
            writer, answers = self._client().do_put(descriptor, batches[0].schema, options)
            with writer:
                for batch in batches:
                    writer.write_batch(batch)
                writer.done_writing()
                # The stubs take it for a stream of batches; it reads the lane's answer.
                answer = answers.read()  # type: ignore[attr-defined]  # see above
            if answer is None:
                raise flight.FlightUnavailableError("unavailable: The answer to a put was lost.")
            told = json.loads(answer.to_pybytes())
            rows = sum(batch.num_rows for batch in batches)
            if told.get("rows") != rows:
                raise Unavailable(
                    f"{rows} rows were put on the bus, but it counted {told.get('rows')}: "
                    "they are not published. Run the write again"
                )
            return Put(rows, int(told["digest"], 16), int(told["pieces"]))

        return self._retried(put, wait_s)

    def describe(
        self, entity: str, *, known: str = "", wait_ms: int = 0, table: str = ""
    ) -> Document:
        """The fragments of an entity and their sequence numbers, or those of the blocks of the
        table "lifecycle".

        With the `stamp` of an earlier answer, when the stamp changes or `wait_ms` are over.
        """
        asked: Document = {"known": known, "wait_ms": wait_ms} if known else {}
        if table:
            asked["table"] = table
        return self.act("describe", entity, asked)

    def act(
        self,
        action: str,
        entity: str,
        body: Mapping[str, object] | None = None,
        *,
        retry_s: float | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Document:
        """Call an action of the bulk lane; returns its answer.

        Each attempt may take `timeout_s`.
        """
        content = json.dumps({"entity": entity, **(body or {})}).encode()

        def ask() -> Document:
            asked = flight.Action(action, content)
            options = self._options(timeout_s)
            return _document(list(self._client().do_action(asked, options)), action)

        return self._retried(ask, retry_s)

    def _info(
        self,
        entity: str,
        columns: Sequence[str] | None,
        states: Sequence[str] | None,
        table: str,
    ) -> flight.FlightInfo:
        command: Document = {"entity": entity, **({"table": table} if table else {})}
        if columns is not None:
            command["columns"] = list(columns)
        if states is not None:
            command["states"] = list(states)
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        info = self._retried(lambda: self._client().get_flight_info(descriptor, self._options()))
        if not info.endpoints:
            raise ShardbusError(f"the answer of the bus lacks a fragment of {entity}: ask again")
        return info

    def _retried(self, work: Callable[[], T], retry_s: float | None = None) -> T:
        patience_s = self._retry_s if retry_s is None else retry_s
        deadline_s = time.monotonic() + patience_s
        left = ""
        for attempt in range(1_000_000):
            try:
                return work()
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                told = _told(error)
                pause_s = _PAUSES_S[min(attempt, len(_PAUSES_S) - 1)]
                if isinstance(told, BeingPublished) and str(told) != left:
                    # There is progress: the time limit starts again.
                    left, deadline_s = str(told), time.monotonic() + patience_s
                if not isinstance(told, Unavailable) or time.monotonic() + pause_s > deadline_s:
                    raise told from error
                time.sleep(pause_s)
        raise AssertionError("the deadline comes first")

    def _client(self) -> flight.FlightClient:
        return self._connection.open()

    def _options(self, timeout_s: float = CALL_TIMEOUT_S) -> flight.FlightCallOptions:
        headers = [(b"authorization", self._address.authorization().encode())]
        return flight.FlightCallOptions(
            timeout=timeout_s,
            headers=headers,  # type: ignore[arg-type]  # the stubs say text, Flight wants bytes
        )


def _document(results: Sequence[flight.Result], action: str) -> Document:
    """The one answer of an action; FlightUnavailableError, to be asked again, when none came."""
    if len(results) != 1:
        raise flight.FlightUnavailableError(
            f"unavailable: The bus gave {len(results)} answers to {action}, not one."
        )
    try:
        answer: object = json.loads(results[0].body.to_pybytes())
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ShardbusError(
            f"the answer to {action} is not a JSON object: check that the endpoint is that of "
            "a bulk lane"
        )
    return answer


def _streams(asked: int, tickets: int) -> int:
    """How many to read at the same time."""
    if not 0 <= asked <= STREAMS_MAX:
        raise OptionError(f"streams is {asked}; it must be from 1 to {STREAMS_MAX}")
    return max(min(asked or min(os.cpu_count() or 1, STREAMS_DEFAULT_MAX), tickets), 1)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches in lists of about CHUNK_BYTES, none without rows."""
    chunk: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            chunk.append(batch)
            size_bytes += batch.nbytes
        if size_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def _told(error: Exception) -> ShardbusError:
    """The error as one of our exceptions: the bus puts its code before a colon."""
    text = str(error).partition(". gRPC client debug context")[0].partition(". Detail: ")[0]
    text = text.rpartition(_FRAME)[2]
    code, separator, message = text.partition(": ")
    if separator and code in _KINDS:
        return _advised(_KINDS[code], message)
    if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
        return _advised(Unauthorized, text)
    if _is_passing(error, text):
        return Unavailable(f"the bulk lane does not answer: {text}")
    return ShardbusError(text)


def _is_passing(error: Exception, text: str) -> bool:
    if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError | OSError):
        return True
    return isinstance(error, flight.FlightError) and any(sign in text for sign in _BROKEN)


def _advised(kind: type[ShardbusError], text: str) -> ShardbusError:
    advice = _ADVICE.get(kind)
    return kind(f"{text} {advice}" if advice else text)
