"""One reader as its driver knows it: which claims it has in each fragment, and which are done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shardbus_spark.client import Client, Document
from shardbus_spark.entity import describe, describe_whole
from shardbus_spark.errors import ShardbusError, Unavailable

CLAIM_ROWS_MAX: Final = 4_096
# The bus lets a reader have twice as many open ones in a fragment; a batch may wait to be done.
CLAIMS_MAX: Final = 512
CLAIMS_AT_ONCE_MAX: Final = 4_096
KEEP_RETRY_S: Final = 2.0


@dataclass
class _Known:
    """A fragment: claims up to `completed` are done, `open` are those after it by ordinal."""

    completed: int
    last: int
    lost: int
    open: dict[int, tuple[int, int]] = field(default_factory=dict)


class Claims:
    """The claims of a reader. `keep` may be called by another thread than the rest.

    `lags` are how many messages of each fragment waited unclaimed when they were last counted.
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
        self.incarnation = ""
        self.lags: dict[int, int] = {}

    def open(self) -> None:
        """Learn what the bus knows; Unavailable unless every fragment tells."""
        answer = self._act("open", {"lease_ms": self._lease_ms})
        if answer["missing"]:
            raise Unavailable(f"fragments of {self._entity} are out of reach: {answer['missing']}")
        self.incarnation = str(answer["incarnation"])
        self._fragments = {
            _number(part, "number"): _Known(
                _number(part, "completed"),
                _number(part, "last"),
                _number(part, "lost"),
                {_number(claim, "ordinal"): _size(claim) for claim in _objects(part, "claims")},
            )
            for part in _objects(answer, "fragments")
        }

    def keep(self) -> None:
        """Be heard of, so that nothing is lost."""
        self._act("keep", {}, retry_s=KEEP_RETRY_S)

    def completed(self) -> dict[int, int]:
        """What comes after these is still to be read; lost claims are passed over."""
        return {
            number: max(known.completed, known.lost) for number, known in self._fragments.items()
        }

    def lost(self, number: int) -> int:
        """Claims up to this ordinal that are not completed went back to receivers."""
        known = self._fragments.get(number)
        return 0 if known is None else known.lost

    def last(self) -> dict[int, int]:
        return {number: known.last for number, known in self._fragments.items()}

    def waiting(self, *, is_whole: bool) -> dict[int, int]:
        """How many messages of each fragment are in no claim of ours.

        `is_whole` waits for fragments that cannot be counted now, or raises Unavailable; otherwise
        they are left out.
        """
        look = describe_whole if is_whole else describe
        state = look(self._client, self._entity)
        if any(part.number not in self._fragments for part in state.fragments):
            self.open()
        found: dict[int, int] = {}
        for part in state.fragments:
            known = self._fragments.get(part.number)
            if known is not None:
                ours = sum(count for count, _ in known.open.values())
                found[part.number] = max(part.waiting - ours, 0)
        rows = sum(part.waiting for part in state.fragments)
        size_bytes = sum(part.size_bytes for part in state.fragments)
        self._row_bytes = max(size_bytes // max(rows, 1), 1)
        self.lags = dict(found)
        return found

    def rows_within(self, bytes_max: int) -> int:
        """About how many of the messages that wait have so many bytes together; one at least."""
        return max(bytes_max // self._row_bytes, 1)

    def taken_after(self, done: Mapping[int, int], rows_max: int, bytes_max: int) -> dict[int, int]:
        """The last of the claims after these that fit a batch together; one at least if any."""
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

    def make(self, rows: Mapping[int, int], bytes_max: int) -> tuple[dict[int, int], str]:
        """Claim about so many messages of each fragment: how many it were, and why some could
        not be asked, which is left for later.
        """
        wanted = [
            claim
            for number, count in rows.items()
            for claim in self._next(number, count, bytes_max)
        ]
        made: dict[int, int] = {}
        missing: list[Document] = []
        for start in range(0, len(wanted), CLAIMS_AT_ONCE_MAX):
            answer = self._act("claim", {"claims": wanted[start : start + CLAIMS_AT_ONCE_MAX]})
            missing += _objects(answer, "missing")
            for claim in _objects(answer, "claims"):
                if claim["is_made"]:
                    number, count = self._note(claim)
                    made[number] = made.get(number, 0) + count
        for number, count in made.items():
            self.lags[number] = max(self.lags.get(number, 0) - count, 0)
        return made, f"fragments are out of reach: {missing}" if missing else ""

    def complete(self, ordinals: Mapping[int, int]) -> None:
        """Remove what was claimed up to these; what is done already is not asked again."""
        behind = [
            {"fragment": number, "ordinal": ordinal}
            for number, ordinal in ordinals.items()
            if number in self._fragments and ordinal > self._fragments[number].completed
        ]
        if not behind:
            return
        answer = self._act("complete", {"claims": behind})
        for part in _objects(answer, "completed"):
            known = self._fragments[_number(part, "fragment")]
            known.completed = max(known.completed, _number(part, "ordinal"))
            for ordinal in [one for one in known.open if one <= known.completed]:
                del known.open[ordinal]
        if answer["missing"]:
            raise Unavailable(f"fragments are out of reach: {answer['missing']}")

    def rows(self, number: int, after: int, ordinal: int) -> int:
        """About how many messages the claims of a range have."""
        known = self._fragments.get(number)
        claims = {} if known is None else known.open
        return sum(count for at, (count, _) in claims.items() if after < at <= ordinal)

    def _next(self, number: int, count: int, bytes_max: int) -> list[Document]:
        """The next claims of a fragment, as many as have room."""
        known = self._fragments[number]
        claims = min(-(-count // CLAIM_ROWS_MAX), CLAIMS_MAX - len(known.open))
        return [
            {
                "fragment": number,
                "ordinal": known.last + 1 + index,
                "count_max": min(count - index * CLAIM_ROWS_MAX, CLAIM_ROWS_MAX),
                **({"bytes_max": bytes_max} if bytes_max else {}),
            }
            for index in range(claims)
        ]

    def _note(self, made: Document) -> tuple[int, int]:
        number, ordinal, size = _number(made, "fragment"), _number(made, "ordinal"), _size(made)
        known = self._fragments[number]
        known.open[ordinal] = size
        known.last = max(known.last, ordinal)
        return number, size[0]

    def _act(
        self, action: str, body: Mapping[str, object], *, retry_s: float | None = None
    ) -> Document:
        return self._client.act(action, self._entity, {**self._who, **body}, retry_s=retry_s)


def reader_positions(client: Client, entity: str, reader: str) -> dict[int, int]:
    """Up to which ordinal the claims of a reader are done or lost, by fragment."""
    answer = client.act("list", entity)
    return {
        _number(part, "number"): max(_number(part, "completed"), _number(part, "lost"))
        for known in _objects(answer, "readers")
        if known.get("reader") == reader
        for part in _objects(known, "fragments")
    }


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
