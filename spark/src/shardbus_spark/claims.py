"""One reader as its driver knows it: which claims it has in each fragment, and which are done."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shardbus_spark.client import Client, Document
from shardbus_spark.entity import describe
from shardbus_spark.errors import ShardbusError, Unavailable

CLAIM_ROWS_MAX: Final = 4_096


@dataclass
class _Known:
    """A fragment: claims up to `completed` are done, `open` are those after it by ordinal."""

    completed: int
    last: int
    lost: int
    open: dict[int, tuple[int, int]] = field(default_factory=dict)


class Claims:
    """The claims of a reader. `waiting` and `make` are for one thread, `keep` for another."""

    def __init__(self, client: Client, entity: str, reader: str) -> None:
        self._client = client
        self._entity = entity
        self._who = {"reader": reader, "owner": uuid.uuid4().hex}
        self._fragments: dict[int, _Known] = {}
        self.incarnation = ""

    def open(self, lease_ms: int) -> None:
        """Learn what the bus knows; Unavailable unless every fragment tells."""
        answer = self._act("open", {"lease_ms": lease_ms})
        if answer["missing"]:
            raise Unavailable(f"fragments of {self._entity} are out of reach: {answer['missing']}")
        self.incarnation = str(answer["incarnation"])
        for part in _objects(answer, "fragments"):
            claims = {
                _number(claim, "ordinal"): (
                    _number(claim, "count"),
                    _number(claim, "size_bytes"),
                )
                for claim in _objects(part, "claims")
            }
            self._fragments[_number(part, "number")] = _Known(
                _number(part, "completed"), _number(part, "last"), _number(part, "lost"), claims
            )

    def keep(self) -> None:
        self._act("keep", {}, retry_s=2.0)

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

    def waiting(self) -> dict[int, int]:
        """How many messages of each fragment are in no claim of ours."""
        state = describe(self._client, self._entity)
        found: dict[int, int] = {}
        for part in state.fragments:
            known = self._fragments.get(part.number)
            if known is not None:
                ours = sum(count for count, _ in known.open.values())
                found[part.number] = max(part.waiting - ours, 0)
        return found

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

    def make(self, rows: Mapping[int, int], bytes_max: int) -> None:
        """Claim about so many messages of each fragment; what is out of reach is left for later."""
        wanted: list[Document] = []
        for number, count in rows.items():
            ordinal = self._fragments[number].last
            left = count
            while left > 0:
                ordinal += 1
                claim: Document = {
                    "fragment": number,
                    "ordinal": ordinal,
                    "count_max": min(left, CLAIM_ROWS_MAX),
                }
                if bytes_max:
                    claim["bytes_max"] = bytes_max
                wanted.append(claim)
                left -= CLAIM_ROWS_MAX
        for start in range(0, len(wanted), CLAIM_ROWS_MAX):
            answer = self._act("claim", {"claims": wanted[start : start + CLAIM_ROWS_MAX]})
            for made in _objects(answer, "claims"):
                if made["is_made"]:
                    self._note(made)

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

    def _note(self, made: Document) -> None:
        known = self._fragments[_number(made, "fragment")]
        ordinal = _number(made, "ordinal")
        known.open[ordinal] = (_number(made, "count"), _number(made, "size_bytes"))
        known.last = max(known.last, ordinal)

    def _act(
        self, action: str, body: Mapping[str, object], *, retry_s: float | None = None
    ) -> Document:
        return self._client.act(action, self._entity, {**self._who, **body}, retry_s=retry_s)


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
