"""The driver's view of one reader: its claims in each fragment, and which are completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shardbus_spark.client import CALL_TIMEOUT_S, Client, Document
from shardbus_spark.entity import EntityState, describe, describe_whole, news
from shardbus_spark.errors import OptionError, ReaderDropped, ShardbusError, Unavailable
from shardbus_spark.limits import NO_LIMIT

CLAIM_ROWS_MAX: Final = 4_096
# The bus allows a reader twice as many open claims in a fragment; a batch may wait for its
# completion.
CLAIMS_MAX: Final = 512
OPEN_CLAIMS_MAX: Final = 1_024
# A million messages, which takes a few seconds: each call has one minute.
CLAIMS_AT_ONCE_MAX: Final = 256
# A call that hangs must not delay the next one beyond the shortest lease.
KEEP_TIMEOUT_S: Final = 3.0


@dataclass
class _Known:
    """A fragment: claims up to `completed` are completed, `open` are those after it by ordinal.

    `reader_id` changes when the reader is dropped and created again.
    """

    reader_id: str
    completed: int
    last: int
    lost: int
    open: dict[int, tuple[int, int]] = field(default_factory=dict)


class Claims:
    """The claims of a reader. `keep` may be called from another thread than the rest.

    `lags` has the unclaimed messages of each fragment at the last count.
    """

    def __init__(
        self, client: Client, entity: str, *, reader: str, owner: str, lease_ms: int
    ) -> None:
        self._client = client
        self._entity = entity
        self._who = {"reader": reader, "owner": owner}
        self._lease_ms = lease_ms
        self._fragments: dict[int, _Known] = {}
        self._row_bytes = 1
        self._seen: EntityState | None = None
        self._idle: EntityState | None = None
        self._sessions: bool | None = None
        self.incarnation = ""
        self.lags: dict[int, int] = {}

    def open(self) -> None:
        """Load the state of the reader; Unavailable unless every fragment answers."""
        answer = self._act("open", {"lease_ms": self._lease_ms})
        if out := _objects(answer, "missing"):
            raise Unavailable(self._unreachable(out))
        self.incarnation = str(answer["incarnation"])
        self._fragments = {
            _number(part, "number"): _Known(
                str(part["reader_id"]),
                _number(part, "completed"),
                _number(part, "last"),
                _number(part, "lost"),
                {_number(claim, "ordinal"): _size(claim) for claim in _objects(part, "claims")},
            )
            for part in _objects(answer, "fragments")
        }

    def keep(self) -> None:
        """Renew the claims; Unavailable unless every fragment answers."""
        answer = self._act("keep", {}, retry_s=0.0, timeout_s=KEEP_TIMEOUT_S)
        if answer.get("missing"):
            raise Unavailable(self._unreachable(_objects(answer, "missing")))

    def completed(self) -> dict[int, int]:
        """The claims after these are still to be read; lost claims are skipped."""
        return {
            number: max(known.completed, known.lost) for number, known in self._fragments.items()
        }

    def lost(self, number: int) -> int:
        """Claims up to this ordinal that are not completed were returned to receivers."""
        known = self._fragments.get(number)
        return 0 if known is None else known.lost

    def reader_ids(self) -> dict[int, str]:
        """The reader's id in each fragment."""
        return {number: known.reader_id for number, known in self._fragments.items()}

    def last(self) -> dict[int, int]:
        return {number: known.last for number, known in self._fragments.items()}

    def waiting(self, *, is_whole: bool) -> dict[int, int]:
        """How many messages of each fragment are in no claim of this reader.

        With `is_whole` it waits for fragments that cannot be counted now, or raises Unavailable;
        otherwise they are left out.
        """
        if is_whole:
            state = describe_whole(self._client, self._entity)
        else:
            state = news(self._client, self._entity, self._idle)
        self._seen, self._idle = state, None
        if any(part.number not in self._fragments for part in state.fragments):
            self.open()
            _check_answered([part.number for part in state.fragments], self._fragments, "open")
        found: dict[int, int] = {}
        for part in state.fragments:
            ours = sum(count for count, _ in self._fragments[part.number].open.values())
            found[part.number] = max(part.waiting - ours, 0)
        rows = sum(part.waiting for part in state.fragments)
        size_bytes = sum(part.size_bytes for part in state.fragments)
        self._row_bytes = max(size_bytes // max(rows, 1), 1)
        self.lags = dict(found)
        return found

    def has_sessions(self) -> bool:
        """Whether the messages belong to sessions."""
        if self._sessions is None:
            state = self._seen or describe(self._client, self._entity)
            self._sessions = state.requires_session
        return self._sessions

    def rest(self) -> None:
        """Nothing of what was counted could be claimed: the next count waits for a change."""
        self._idle = self._seen

    def rows_within(self, bytes_max: int) -> int:
        """About how many of the waiting messages have that many bytes together; at least one."""
        return max(bytes_max // self._row_bytes, 1)

    def taken_after(self, done: Mapping[int, int], rows_max: int, bytes_max: int) -> dict[int, int]:
        """The last of the claims after these that fit in a batch; at least one if there are any."""
        ends: dict[int, int] = {}
        rows = size_bytes = 0
        upcoming = sorted(
            (ordinal - done.get(number, 0), number, ordinal, claim)
            for number, known in self._fragments.items()
            for ordinal, claim in known.open.items()
            if ordinal > done.get(number, 0)
        )
        for _, number, ordinal, (count, claim_bytes) in upcoming:
            rows += count
            size_bytes += claim_bytes
            is_over = rows > rows_max or (bytes_max and size_bytes > bytes_max)
            if ends and is_over:
                break
            ends[number] = ordinal
        return ends

    def check_room(self, rows: Mapping[int, int]) -> None:
        """OptionError where that many messages cannot all be claimed at once."""
        for number, count in rows.items():
            room = (OPEN_CLAIMS_MAX - len(self._fragments[number].open)) * CLAIM_ROWS_MAX
            if count > room:
                raise OptionError(
                    f"trigger(once=True) reads everything in one batch, and {count} messages "
                    f"wait in fragment {number} of {self._entity}, of which a reader may "
                    f"claim {room} at once: use trigger(availableNow=True), which reads them "
                    "in several batches"
                )

    def make(
        self,
        rows: Mapping[int, int],
        bytes_max: int,
        claims_max: int = CLAIMS_MAX,
        *,
        done: Mapping[int, int] | None = None,
    ) -> tuple[dict[int, int], str]:
        """Claim about that many messages of each fragment; returns how many were claimed, and why
        some fragments could not be asked, which are left for later.

        Claims up to `done` are completed by the same commits, where anything is claimed.
        """
        left = dict(rows)
        made: dict[int, int] = {}
        missing: list[Document] = []
        while asked := self._next(left, bytes_max, claims_max):
            behind = self._behind(done or {})
            answer = self._act("claim", {"claims": asked, **({"done": behind} if behind else {})})
            claims, out = _objects(answer, "claims"), _objects(answer, "missing")
            told = [_number(claim, "fragment") for claim in claims]
            told += [_number(part, "number") for part in out]
            _check_answered([_number(claim, "fragment") for claim in asked], told, "claim")
            if behind:
                self._note_completed(_objects(answer, "completed"))
            missing += out
            for claim in asked:
                left[_number(claim, "fragment")] -= _number(claim, "count_max")
            for number in {_number(claim, "fragment") for claim in asked}:
                if told.count(number) < sum(claim["fragment"] == number for claim in asked):
                    # Nothing more waits, or the bus has no room for more claims.
                    left[number] = 0
            for claim in claims:
                number = _number(claim, "fragment")
                if claim["is_made"]:
                    count = self._note(claim)
                    made[number] = made.get(number, 0) + count
                    self.lags[number] = max(self.lags.get(number, 0) - count, 0)
                else:
                    left[number] = 0
            for part in out:
                left[_number(part, "number")] = 0
        return made, self._unreachable(missing) if missing else ""

    def complete(self, ordinals: Mapping[int, int]) -> None:
        """Complete the claims up to these ordinals; completed ones are not asked for again."""
        behind = self._behind(ordinals)
        if not behind:
            return
        answer = self._act("complete", {"claims": behind})
        completed, out = _objects(answer, "completed"), _objects(answer, "missing")
        self._note_completed(completed)
        if out:
            raise Unavailable(self._unreachable(out))
        told = [_number(part, "fragment") for part in completed]
        _check_answered([part["fragment"] for part in behind], told, "complete")

    def _unreachable(self, missing: list[Document]) -> str:
        """Names the fragments that did not answer, and the reason of the first."""
        numbers = sorted({_number(part, "number") for part in missing})
        return (
            f"fragments {numbers} of {self._entity} are unreachable ({missing[0].get('message')}): "
            "try again later"
        )

    def _behind(self, ordinals: Mapping[int, int]) -> list[Document]:
        """Those of these that are not known to be completed."""
        return [
            {"fragment": number, "ordinal": ordinal}
            for number, ordinal in ordinals.items()
            if number in self._fragments and ordinal > self._fragments[number].completed
        ]

    def _note_completed(self, completed: Iterable[Document]) -> None:
        for part in completed:
            known = self._fragments[_number(part, "fragment")]
            known.completed = max(known.completed, _number(part, "ordinal"))
            for ordinal in [one for one in known.open if one <= known.completed]:
                del known.open[ordinal]

    def pieces(
        self, number: int, after: int, ordinal: int, rows_max: int
    ) -> list[tuple[int, int, int]]:
        """The claims of a range in pieces of about that many messages: the first and the last
        ordinal and the number of messages of each.
        """
        known = self._fragments.get(number)
        claims = {} if known is None else known.open
        pieces: list[tuple[int, int, int]] = []
        first, rows = after + 1, 0
        for at in range(after + 1, ordinal + 1):
            count = claims.get(at, (0, 0))[0]
            if rows and rows + count > rows_max:
                pieces.append((first, at - 1, rows))
                first, rows = at, 0
            rows += count
        return [*pieces, (first, ordinal, rows)]

    def rows(self, number: int, after: int, ordinal: int) -> int:
        """About how many messages the claims of a range have."""
        [(_, _, rows)] = self.pieces(number, after, ordinal, NO_LIMIT)
        return rows

    def _next(self, rows: Mapping[int, int], bytes_max: int, claims_max: int) -> list[Document]:
        """The next claims, as many as fit and are answered in time: the first of all fragments,
        then the second, and so on. Those of one fragment are in order.
        """
        wanted: list[tuple[int, int, Document]] = []
        for number, count in rows.items():
            known = self._fragments[number]
            for index in range(min(-(-count // CLAIM_ROWS_MAX), claims_max - len(known.open))):
                claim: Document = {
                    "fragment": number,
                    "ordinal": known.last + 1 + index,
                    "count_max": min(count - index * CLAIM_ROWS_MAX, CLAIM_ROWS_MAX),
                }
                wanted.append((index, number, claim))
        wanted.sort(key=lambda each: each[:2])
        limit = {"bytes_max": bytes_max} if bytes_max else {}
        return [{**claim, **limit} for _, _, claim in wanted[:CLAIMS_AT_ONCE_MAX]]

    def _note(self, made: Document) -> int:
        ordinal, size = _number(made, "ordinal"), _size(made)
        known = self._fragments[_number(made, "fragment")]
        known.open[ordinal] = size
        known.last = max(known.last, ordinal)
        return size[0]

    def _act(
        self,
        action: str,
        body: Mapping[str, object],
        *,
        retry_s: float | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Document:
        whole = {**self._who, **body}
        return self._client.act(action, self._entity, whole, retry_s=retry_s, timeout_s=timeout_s)


def reader_position(client: Client, entity: str, reader: str, fragment: int) -> int:
    """Up to which ordinal the claims of a reader in a fragment are completed or lost.

    Unavailable when the fragment cannot be asked, ReaderDropped when it has no such reader.
    """
    answer = client.act("list", entity)
    for known in _objects(answer, "readers"):
        for part in _objects(known, "fragments"):
            if known.get("reader") == reader and _number(part, "number") == fragment:
                return max(_number(part, "completed"), _number(part, "lost"))
    if any(_number(part, "number") == fragment for part in _objects(answer, "missing")):
        raise Unavailable(f"fragment {fragment} of {entity} is unreachable; try again later")
    raise ReaderDropped(f"fragment {fragment} of {entity} no longer has a reader {reader!r}")


def _check_answered(asked: Iterable[object], told: Iterable[object], what: str) -> None:
    """Unavailable when the bus left out a fragment: it would look like one without messages."""
    silent = sorted(set(map(str, asked)) - set(map(str, told)))
    if silent:
        raise Unavailable(f"the bus answered {what} without the fragments {silent}")


def _size(claim: Document) -> tuple[int, int]:
    return _number(claim, "count"), _number(claim, "size_bytes")


def _objects(document: Document, name: str) -> list[Document]:
    found = document.get(name)
    if not isinstance(found, list):
        raise ShardbusError(f"the bus answered without {name}")
    return found


def _number(document: Document, name: str) -> int:
    found = document.get(name)
    if not isinstance(found, int):
        raise ShardbusError(f"the bus answered without {name}")
    return found
