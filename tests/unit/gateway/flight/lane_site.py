"""A bulk lane in this process: a real Flight server over real stores, and a bus in a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight

from shardbus.gateway.flight.server.bus import BusError, Document
from shardbus.gateway.flight.server.lane import Lane
from shardbus.message.sections import encode_data_message
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen

ENTITY_ID = 7
TOKEN = "SharedAccessSignature sr=q"
COLUMNS = ["sequence_number", "body"]
Answer = Document | BusError | Callable[[], Document]


class TableBus:
    """Answers what the table says for a path, and notes what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, str]] = []
        self.posted: list[Document] = []
        self.put_bytes: list[bytes] = []
        # Pieces are put side by side: those that are told apart by their place.
        self.put_at: dict[str, bytes] = {}

    def get(self, path: str, token: str) -> Document:
        self.asked.append((path, token))
        answer = self.answers[path]
        if isinstance(answer, BusError):
            raise answer
        return json.loads(json.dumps(answer)) if isinstance(answer, dict) else answer()

    def post(self, path: str, token: str, document: Document) -> Document:
        self.posted.append(document)
        return self.get(path, token)

    def put(self, path: str, token: str, content: bytes | memoryview) -> Document:
        self.put_bytes.append(bytes(content))
        self.put_at[path] = bytes(content)
        return self.get(path.partition("?")[0], token)


class LaneSite:
    """The queue `q` with one fragment, number 0, whose store is that of the first broker."""

    def __init__(
        self,
        directory: Path,
        *,
        streams_max: int = 64,
        waits_s_max: float = 0.0,
    ) -> None:
        self.path = directory / "broker-0.db"
        self.bus = TableBus()
        self.strangers = TableBus()
        self.strangers.answers["token"] = {"rule": "root", "entity": ""}
        self.pen = Pen(FragmentId(ENTITY_ID, 0))
        self.store = SqliteStore(self.path, durability="relaxed")
        self.store.create([self.pen.fragment])
        self.opened: list[str] = []
        self.lane = Lane(
            "grpc://127.0.0.1:0",
            self.bus,
            lambda broker: self._opened(directory, broker),
            strangers=self.strangers,
            streams_max=streams_max,
            waits_s_max=waits_s_max,
        )
        self.client = self.connect()
        self.describe()
        self._is_stopped = False

    def _opened(self, directory: Path, broker: str) -> BulkReader:
        self.opened.append(broker)
        return BulkReader(directory / f"{broker}.db")

    def connect(self) -> flight.FlightClient:
        return flight.connect(f"grpc://127.0.0.1:{self.lane.port}")

    def close(self) -> None:
        self.client.close()
        self.lane.shutdown()
        self.stop()

    def stop(self) -> None:
        """Nobody writes the store from now on."""
        if not self._is_stopped:
            self.store.close()
        self._is_stopped = True

    def send(self, *bodies: bytes) -> None:
        """Store messages in one chunk."""
        self.pen.append([encode_data_message(body) for body in bodies])
        self.pen.write(self.store)

    def describe(self, next_number: int = 1, *, is_counted: bool = True) -> None:
        """What the bus tells of the queue from now on."""
        part = {
            "number": 0,
            "broker": "broker-0",
            "state": "available" if is_counted else "unavailable",
            "is_counted": is_counted,
            "first": 1,
            "next": next_number,
            "waiting": next_number - 1,
            "size_bytes": 0,
        }
        self.bus.answers["entities/q/bulk"] = {"entity_id": ENTITY_ID, "fragments": [part]}

    def claims(self, *runs: list[list[int]]) -> Document:
        """What the bus tells of claims from ordinal 1 on."""
        claims = [{"ordinal": at, "runs": pairs} for at, pairs in enumerate(runs, 1)]
        one_map: dict[str, object] = {"fragments": [], "starts": []}
        claimed = {"entity_id": ENTITY_ID, "broker": "broker-0", "claims": claims}
        return {**claimed, "session_maps": one_map}

    def get(self, **ticket: object) -> flight.FlightStreamReader:
        asked = {"entity": "q", "fragment": 0, "columns": COLUMNS, **ticket}
        return self.client.do_get(flight.Ticket(json.dumps(asked).encode()), options())

    def read(self, **ticket: object) -> pa.Table:
        return self.get(**ticket).read_all()

    def act(self, action: str, **body: object) -> Document:
        asked = flight.Action(action, json.dumps({"entity": "q", **body}).encode())
        [result] = self.client.do_action(asked, options())
        answer: Document = json.loads(result.body.to_pybytes())
        return answer


def options(token: str = TOKEN) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(
        headers=[(b"authorization", token.encode())],  # type: ignore[list-item]  # wants bytes
        timeout=30,
    )
