"""A small bulk lane that speaks the contract and fails on demand, in this process."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, final

import pyarrow as pa
import pyarrow.flight as flight

BATCH_ROWS: Final = 3
ROW_BYTES: Final = 100
_TYPES: Final[dict[str, pa.DataType]] = {
    "sequence_number": pa.int64(),
    "fragment": pa.int32(),
    "body": pa.binary(),
    "enqueued_time": pa.timestamp("us", tz="UTC"),
}
_BEGIN: Final = datetime(2026, 11, 16, tzinfo=UTC)
Document = dict[str, object]


def enqueued_at(number: int) -> datetime:
    """When a message was enqueued, unless the lane says otherwise."""
    return _BEGIN + timedelta(minutes=number)


@final
class Fragment:
    """Numbers that wait, and the claims of the one reader."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.next = 1
        self.waiting: list[int] = []
        self.claims: dict[int, list[int]] = {}
        self.completed = self.last = self.lost = 0
        self.reader_id = "aa"

    def send(self, count: int) -> None:
        self.waiting += range(self.next, self.next + count)
        self.next += count

    def lose(self) -> None:
        """As when a lease has run out."""
        for ordinal, numbers in self.claims.items():
            self.waiting = sorted([*self.waiting, *numbers])
            self.lost = ordinal
        self.claims = {}

    def drop(self) -> None:
        """Somebody drops the reader; who opens it next makes it again."""
        self.lose()
        self.completed = self.last = self.lost = 0
        self.reader_id += "aa"

    def held(self) -> list[int]:
        return [number for numbers in self.claims.values() for number in numbers]


@final
class FakeLane(flight.FlightServerBase):
    """One entity, one reader. Failures are popped from lists, the first comes first."""

    def __init__(self, fragments: int = 2) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.fragments = {number: Fragment(number) for number in range(fragments)}
        self.incarnation = "1"
        self.requires_session = False
        # How many claims of a fragment one request makes.
        self.claims_max = 1 << 30
        self.owner = ""
        self.missing: set[int] = set()
        # By action: raised before it is done, or after.
        self.refusals: defaultdict[str, list[flight.FlightError]] = defaultdict(list)
        self.lost_answers: defaultdict[str, list[flight.FlightError]] = defaultdict(list)
        # By action: given instead of its answer.
        self.odd_answers: defaultdict[str, list[list[bytes]]] = defaultdict(list)
        self.when_kept: Callable[[], None] = _nothing
        # So many batches of a stream, and then it breaks.
        self.breaks: list[int] = []
        self.asked: list[str] = []
        # The stamps that came with questions how far fragments go.
        self.known: list[str] = []
        # By number: those that were not enqueued when their number says.
        self.moments: dict[int, datetime] = {}
        self.staged: list[object] = []
        # What is answered to rows that are put; None: the truth.
        self.put_answer: bytes | None = None
        # Fragments of which no action says a word.
        self.silent: set[int] = set()
        # Those that cannot be asked who reads.
        self.list_misses: set[int] = set()
        self.pieces: list[tuple[str, int]] = []
        # What was asked about stages, and what "publish" answers.
        self.told: list[tuple[str, Document]] = []
        self.published: Document = {"is_new": True, "count": 0}

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def send(self, count: int) -> None:
        for fragment in self.fragments.values():
            fragment.send(count)

    def left(self) -> int:
        """How many messages the bus still has."""
        return sum(len(part.waiting) + len(part.held()) for part in self.fragments.values())

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[bytes]:
        kind = action.type
        self.asked.append(kind)
        if self.refusals[kind]:
            raise self.refusals[kind].pop(0)
        body = json.loads(action.body.to_pybytes())
        if kind == "describe":
            self.known.append(body.get("known", ""))
        answer = self._describe() if kind == "describe" else self._act(kind, body)
        if self.lost_answers[kind]:
            raise self.lost_answers[kind].pop(0)
        if kind == "keep":
            self.when_kept()
        if self.odd_answers[kind]:
            return iter(self.odd_answers[kind].pop(0))
        return iter([json.dumps(answer).encode()])

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        wish = json.loads(descriptor.command or b"{}")
        columns = wish.get("columns", list(_TYPES))
        schema = pa.schema([pa.field(name, _TYPES[name]) for name in columns])
        tickets = [
            {"fragment": part.number, "from": 0, "to": part.next, "columns": columns}
            for part in self.fragments.values()
        ]
        endpoints = [flight.FlightEndpoint(json.dumps(one).encode(), []) for one in tickets]
        return flight.FlightInfo(schema, descriptor, endpoints, -1, -1)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        wish = json.loads(ticket.ticket)
        part = self.fragments[wish["fragment"]]
        if part.number in self.missing:
            raise flight.FlightUnavailableError("unavailable: the fragment is out")
        if "reader" in wish:
            if wish.get("reader_id", part.reader_id) != part.reader_id:
                raise flight.FlightServerError("reader-not-found: This is another reader.")
            numbers = self._claimed(part, *wish["ordinals"])
        else:
            everything = sorted([*part.waiting, *part.held()])
            numbers = [number for number in everything if wish["from"] <= number < wish["to"]]
        columns = wish["columns"]
        schema = pa.schema([pa.field(name, _TYPES[name]) for name in columns])
        broken_after = self.breaks.pop(0) if self.breaks else -1
        return flight.GeneratorStream(schema, self._stream(part, numbers, schema, broken_after))

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        command = json.loads(descriptor.command or b"")
        rows = reader.read_all()
        if self.refusals["put"]:
            raise self.refusals["put"].pop(0)
        # One piece of each stream; the same one again is there already.
        piece = command["stage"], command["piece"]
        if piece not in self.pieces:
            self.pieces.append(piece)
            self.staged += rows["body"].to_pylist()
        if self.lost_answers["put"]:
            self.lost_answers["put"].pop(0)
            return
        told = {"rows": rows.num_rows, "digest": f"{rows.num_rows:x}", "pieces": 1}
        writer.write(pa.py_buffer(self.put_answer or json.dumps(told).encode()))

    def _stream(
        self, part: Fragment, numbers: list[int], schema: pa.Schema, broken_after: int
    ) -> Iterator[pa.RecordBatch]:
        for index, start in enumerate(range(0, len(numbers), BATCH_ROWS)):
            if index == broken_after:
                raise flight.FlightUnavailableError("unavailable: broken on demand")
            some = numbers[start : start + BATCH_ROWS]
            values: dict[str, list[object]] = {
                "sequence_number": list(some),
                "fragment": [part.number] * len(some),
                "enqueued_time": [self.moments.get(one, enqueued_at(one)) for one in some],
                "body": [b"%d-%d" % (part.number, number) for number in some],
            }
            yield pa.RecordBatch.from_pydict(
                {field.name: values[field.name] for field in schema}, schema=schema
            )
        if broken_after >= 0 and broken_after * BATCH_ROWS >= len(numbers):
            raise flight.FlightUnavailableError("unavailable: broken on demand")

    def _claimed(self, part: Fragment, first: int, last: int) -> list[int]:
        numbers: list[int] = []
        for ordinal in range(first, last + 1):
            if ordinal not in part.claims:
                code = "claim-lost" if ordinal <= part.lost else "claim-completed"
                raise flight.FlightServerError(f"{code}: Claim {ordinal} is not there.")
            numbers += part.claims[ordinal]
        return numbers

    def _describe(self) -> Document:
        return {
            "entity": "orders",
            "incarnation": self.incarnation,
            "stamp": f"{sum(part.next for part in self.fragments.values())}.{self.left()}",
            "requires_session": self.requires_session,
            "fragments": [self._described(part) for part in self.fragments.values()],
        }

    def _described(self, part: Fragment) -> Document:
        is_out = part.number in self.missing
        waiting = 0 if is_out else len(part.waiting) + len(part.held())
        return {
            "number": part.number,
            "state": "unavailable" if is_out else "available",
            "is_counted": not is_out,
            "first": 1,
            "next": 1 if is_out else part.next,
            "waiting": waiting,
            "size_bytes": waiting * ROW_BYTES,
        }

    def _act(self, kind: str, body: Mapping[str, object]) -> Document:
        if kind in ("publish", "prolong", "discard", "forget"):
            self.told.append((kind, dict(body)))
            return self.published if kind == "publish" else {}
        missing = [{"number": number, "message": "out"} for number in sorted(self.missing)]
        out = self.missing | self.silent
        reached = [part for part in self.fragments.values() if part.number not in out]
        if kind == "open":
            self.owner = str(body["owner"])
        elif kind != "list" and body["owner"] != self.owner:
            raise flight.FlightServerError("reader-lost: It belongs to somebody else now.")
        answer: Document = {"incarnation": self.incarnation, "missing": missing}
        if kind == "open":
            answer["fragments"] = [_opened(part) for part in reached]
        elif kind == "list":
            told = [_opened(part) for part in reached if part.number not in self.list_misses]
            answer["readers"] = [{"reader": "r", "fragments": told}]
            missing += [{"number": number, "message": "out"} for number in self.list_misses]
        elif kind == "claim":
            answer["completed"] = [d for part in reached for d in _complete(part, body, "done")]
            answer["claims"] = [
                made for part in reached for made in islice(_claim(part, body), self.claims_max)
            ]
        elif kind == "complete":
            answer["completed"] = [d for part in reached for d in _complete(part, body, "claims")]
        return answer


def _nothing() -> None:
    """Nobody asked to be told."""


def _opened(part: Fragment) -> Document:
    return {
        "number": part.number,
        "reader_id": part.reader_id,
        "completed": part.completed,
        "last": part.last,
        "lost": part.lost,
        "claims": [_claim_of(part, ordinal) for ordinal in part.claims],
    }


def _claim_of(part: Fragment, ordinal: int) -> Document:
    count = len(part.claims.get(ordinal, []))
    return {
        "fragment": part.number,
        "ordinal": ordinal,
        "count": count,
        "size_bytes": count * ROW_BYTES,
        "is_made": ordinal in part.claims,
    }


def _claim(part: Fragment, body: Mapping[str, object]) -> Iterator[Document]:
    for wanted in _of(part, body, "claims"):
        ordinal = wanted["ordinal"]
        if ordinal == part.last + 1 and part.waiting:
            count = min(wanted["count_max"], max(wanted.get("bytes_max", 1 << 40) // ROW_BYTES, 1))
            part.claims[ordinal], part.waiting = part.waiting[:count], part.waiting[count:]
            part.last = ordinal
        yield _claim_of(part, ordinal)


def _complete(part: Fragment, body: Mapping[str, object], name: str) -> Iterator[Document]:
    for wanted in _of(part, body, name):
        ordinal = wanted["ordinal"]
        if part.completed < ordinal and ordinal not in part.claims:
            raise flight.FlightServerError(f"claim-lost: Claim {ordinal} is lost.")
        part.claims = {at: numbers for at, numbers in part.claims.items() if at > ordinal}
        part.completed = max(part.completed, ordinal)
        yield {"fragment": part.number, "ordinal": part.completed}


def _of(part: Fragment, body: Mapping[str, object], name: str) -> list[dict[str, int]]:
    claims = body.get(name, [])
    assert isinstance(claims, list)
    return [claim for claim in claims if claim["fragment"] == part.number]
