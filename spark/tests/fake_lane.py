"""A small bulk lane that speaks the contract and fails on demand, in this process."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, final

import pyarrow as pa
import pyarrow.flight as flight

BATCH_ROWS: Final = 3
ROW_BYTES: Final = 100
_TYPES: Final[dict[str, pa.DataType]] = {
    "sequence_number": pa.int64(),
    "fragment": pa.int32(),
    "body": pa.binary(),
}
Document = dict[str, object]


@final
class Fragment:
    """Numbers that wait, and the claims of the one reader."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.next = 1
        self.waiting: list[int] = []
        self.claims: dict[int, list[int]] = {}
        self.completed = self.last = self.lost = 0

    def send(self, count: int) -> None:
        self.waiting += range(self.next, self.next + count)
        self.next += count

    def lose(self) -> None:
        """As when a lease has run out."""
        for ordinal, numbers in self.claims.items():
            self.waiting = sorted([*self.waiting, *numbers])
            self.lost = ordinal
        self.claims = {}

    def held(self) -> list[int]:
        return [number for numbers in self.claims.values() for number in numbers]


@final
class FakeLane(flight.FlightServerBase):
    """One entity, one reader. Failures are popped from lists, the first comes first."""

    def __init__(self, fragments: int = 2) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.fragments = {number: Fragment(number) for number in range(fragments)}
        self.incarnation = "1"
        self.owner = ""
        self.missing: set[int] = set()
        # By action: raised before it is done, or after.
        self.refusals: defaultdict[str, list[flight.FlightError]] = defaultdict(list)
        self.lost_answers: defaultdict[str, list[flight.FlightError]] = defaultdict(list)
        # So many batches of a stream, and then it breaks.
        self.breaks: list[int] = []
        self.asked: list[str] = []
        self.staged: list[object] = []
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
        answer = self._describe() if kind == "describe" else self._act(kind, body)
        if self.lost_answers[kind]:
            raise self.lost_answers[kind].pop(0)
        return iter([json.dumps(answer).encode()])

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        wish = json.loads(ticket.ticket)
        part = self.fragments[wish["fragment"]]
        if part.number in self.missing:
            raise flight.FlightUnavailableError("unavailable: the fragment is out")
        if "reader" in wish:
            numbers = self._claimed(part, *wish["ordinals"])
        else:
            everything = sorted([*part.waiting, *part.held()])
            numbers = [number for number in everything if wish["from"] <= number < wish["to"]]
        columns = wish["columns"]
        schema = pa.schema([pa.field(name, _TYPES[name]) for name in columns])
        broken_after = self.breaks.pop(0) if self.breaks else -1
        return flight.GeneratorStream(schema, _stream(part, numbers, schema, broken_after))

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
        writer.write(pa.py_buffer(json.dumps(told).encode()))

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
            "requires_session": False,
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
        reached = [part for part in self.fragments.values() if part.number not in self.missing]
        if kind == "open":
            self.owner = str(body["owner"])
        elif kind != "list" and body["owner"] != self.owner:
            raise flight.FlightServerError("reader-lost: It belongs to somebody else now.")
        answer: Document = {"incarnation": self.incarnation, "missing": missing}
        if kind == "open":
            answer["fragments"] = [_opened(part) for part in reached]
        elif kind == "list":
            answer["readers"] = [{"reader": "r", "fragments": [_opened(part) for part in reached]}]
        elif kind == "claim":
            answer["claims"] = [made for part in reached for made in _claim(part, body)]
        elif kind == "complete":
            answer["completed"] = [done for part in reached for done in _complete(part, body)]
        return answer


def _opened(part: Fragment) -> Document:
    return {
        "number": part.number,
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
    for wanted in _of(part, body):
        ordinal = wanted["ordinal"]
        if ordinal == part.last + 1 and part.waiting:
            count = min(wanted["count_max"], max(wanted.get("bytes_max", 1 << 40) // ROW_BYTES, 1))
            part.claims[ordinal], part.waiting = part.waiting[:count], part.waiting[count:]
            part.last = ordinal
        yield _claim_of(part, ordinal)


def _complete(part: Fragment, body: Mapping[str, object]) -> Iterator[Document]:
    for wanted in _of(part, body):
        ordinal = wanted["ordinal"]
        if part.completed < ordinal and ordinal not in part.claims:
            raise flight.FlightServerError(f"claim-lost: Claim {ordinal} is lost.")
        part.claims = {at: numbers for at, numbers in part.claims.items() if at > ordinal}
        part.completed = max(part.completed, ordinal)
        yield {"fragment": part.number, "ordinal": part.completed}


def _of(part: Fragment, body: Mapping[str, object]) -> list[dict[str, int]]:
    claims = body["claims"]
    assert isinstance(claims, list)
    return [claim for claim in claims if claim["fragment"] == part.number]


def _stream(
    part: Fragment, numbers: list[int], schema: pa.Schema, broken_after: int
) -> Iterator[pa.RecordBatch]:
    for index, start in enumerate(range(0, len(numbers), BATCH_ROWS)):
        if index == broken_after:
            raise flight.FlightUnavailableError("unavailable: broken on demand")
        some = numbers[start : start + BATCH_ROWS]
        values: dict[str, list[object]] = {
            "sequence_number": list(some),
            "fragment": [part.number] * len(some),
            "body": [b"%d-%d" % (part.number, number) for number in some],
        }
        yield pa.RecordBatch.from_pydict(
            {field.name: values[field.name] for field in schema}, schema=schema
        )
    if broken_after >= 0 and broken_after * BATCH_ROWS >= len(numbers):
        raise flight.FlightUnavailableError("unavailable: broken on demand")
