"""The JSON of readers and claims."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct

from shardbus.core.limits import (
    CLAIM_COUNT_MAX,
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    READER_ID_BYTES_MAX,
    READER_NAME_CHARACTERS_MAX,
)
from shardbus.gateway.http.document import Body, Count, Maybe, Moment, Positive, told

CLAIMS_AT_ONCE_MAX: Final = 4_096
FRAGMENT_MAX: Final = 0xFFFF
OWNER_CHARACTERS_MAX: Final = 128
BYTES_MAX: Final = 1 << 40

_Name = Annotated[
    str, Meta(min_length=1, max_length=READER_NAME_CHARACTERS_MAX, examples=["nightly-report"])
]
_Number = Annotated[int, Meta(ge=0, le=FRAGMENT_MAX, examples=[0])]
_Ordinal = Annotated[Positive, Meta(examples=[1])]
_ReaderId = Annotated[
    str,
    told("Changes when the reader is dropped and created again; empty for a reader without an id."),
]
_Incarnation = Annotated[str, told("Changes when the entity is deleted and created again.")]


class MissingFragment(Struct, kw_only=True):
    number: Count
    message: str


class BulkFragment(Struct, kw_only=True):
    number: Count
    broker: str
    state: str
    is_counted: Annotated[bool, told("False: the numbers that follow are unknown.")]
    first: Annotated[Count, told("No sequence number is lower.")]
    next: Annotated[Count, told("All sequence numbers so far are lower.")]
    waiting: Annotated[Count, told("Active messages, including locked and claimed ones.")]
    size_bytes: Count


class FormerFragment(Struct, kw_only=True):
    number: Count
    broker: str


class FormerMaps(Struct, kw_only=True):
    """Where earlier states of sessions may be."""

    fragments: Annotated[
        list[FormerFragment], told("The fragments of all former maps, those of the oldest first.")
    ]
    starts: Annotated[
        list[list[Count]],
        told(
            "The hash starts of the last of these maps. Of older maps only the fragments are known."
        ),
    ]


class MapFragment(Struct, kw_only=True):
    number: Count
    broker: str


class SessionMaps(Struct, kw_only=True):
    """By these the fragments are found that may have the state of a session."""

    fragments: Annotated[
        list[MapFragment], told("The fragments of all maps, those of the oldest first.")
    ]
    starts: Annotated[
        list[list[Count]],
        told(
            "The hash starts of each map. Of the oldest maps perhaps only the fragments are known."
        ),
    ]


_SessionMaps = Annotated[
    SessionMaps, told("Empty unless the entity requires sessions and was repartitioned.")
]


class Bulk(Struct, kw_only=True):
    entity: str
    entity_id: Count
    incarnation: _Incarnation
    stamp: Annotated[str, told("Changes when messages arrive or are removed.")]
    requires_session: bool
    session_maps: _SessionMaps
    fragments: list[BulkFragment]


class DroppedReader(Body, kw_only=True, frozen=True):
    reader: _Name


class Reader(DroppedReader, kw_only=True, frozen=True):
    owner: Annotated[
        str,
        Meta(
            max_length=OWNER_CHARACTERS_MAX,
            description="The process that uses the reader; other owners are refused.",
            examples=["driver-1"],
        ),
    ]


class OpenReader(Reader, kw_only=True, frozen=True):
    lease_ms: Annotated[
        int,
        Meta(
            ge=LEASE_MS_MIN,
            le=LEASE_MS_MAX,
            description="Claims are lost after this time without activity.",
            examples=[600_000],
        ),
    ] = LEASE_MS_DEFAULT


class OpenClaim(Struct, kw_only=True):
    ordinal: Count
    count: Count
    size_bytes: Count
    first: Annotated[Count, told("The lowest sequence number.")]
    last: Annotated[Count, told("The highest sequence number.")]


class OpenedFragment(Struct, kw_only=True):
    number: Count
    reader_id: _ReaderId
    completed: Annotated[Count, told("Claims up to this ordinal are completed.")]
    last: Annotated[Count, told("The ordinal of the last claim.")]
    lost: Annotated[Count, told("Claims up to this ordinal that are not completed were lost.")]
    claims: list[OpenClaim]


class ReaderOpened(Struct, kw_only=True):
    entity_id: Count
    incarnation: _Incarnation
    fragments: list[OpenedFragment]
    missing: list[MissingFragment]


class ReaderReached(Struct, kw_only=True):
    reader: str
    missing: list[MissingFragment]


class NewClaim(Body, kw_only=True, frozen=True):
    fragment: _Number
    ordinal: Annotated[_Ordinal, told("One more than the last, or that of an open claim.")]
    count_max: Annotated[int, Meta(ge=1, le=CLAIM_COUNT_MAX, examples=[1_000])] = CLAIM_COUNT_MAX
    bytes_max: Annotated[int, Meta(ge=1, le=BYTES_MAX, examples=[8_000_000])] = BYTES_MAX


class DoneClaim(Body, kw_only=True, frozen=True):
    fragment: _Number
    ordinal: Annotated[Count, Meta(examples=[1])]


class NewClaims(Reader, kw_only=True, frozen=True):
    claims: Annotated[list[NewClaim], Meta(max_length=CLAIMS_AT_ONCE_MAX)]
    done: Annotated[
        tuple[DoneClaim, ...],
        Meta(
            max_length=CLAIMS_AT_ONCE_MAX,
            description="Claims to complete too: each new claim completes one in its commit.",
        ),
    ] = ()


class MadeClaim(OpenClaim, kw_only=True):
    fragment: Count
    is_made: Annotated[bool, told("False: no message waited, and the ordinal is still free.")]
    is_more: Annotated[bool, told("Whether messages may be left for the next claim.")]


class CompletedFragment(Struct, kw_only=True):
    fragment: Count
    ordinal: Count


class Claims(Struct, kw_only=True):
    claims: list[MadeClaim]
    completed: list[CompletedFragment]
    missing: list[MissingFragment]


class DoneClaims(Reader, kw_only=True, frozen=True):
    claims: Annotated[list[DoneClaim], Meta(max_length=CLAIMS_AT_ONCE_MAX)]


class Completed(Struct, kw_only=True):
    completed: list[CompletedFragment]
    missing: list[MissingFragment]


class AskedClaims(DroppedReader, kw_only=True, frozen=True):
    fragment: _Number
    first_ordinal: _Ordinal
    last_ordinal: Maybe[_Ordinal] = UNSET
    reader_id: Annotated[
        str,
        Meta(
            max_length=2 * READER_ID_BYTES_MAX,
            description="Refused when the reader has another id now.",
        ),
    ] = ""


class RunsOfClaim(Struct, kw_only=True):
    ordinal: Count
    runs: Annotated[
        list[list[Count]], told("The first and the last of consecutive sequence numbers.")
    ]
    size_bytes: Count


class ClaimRuns(Struct, kw_only=True):
    entity_id: Count
    incarnation: _Incarnation
    broker: str
    session_maps: _SessionMaps
    claims: list[RunsOfClaim]


class CheckedClaims(Struct, kw_only=True):
    count: Annotated[Count, told("How many messages are undamaged.")]


class ReaderFragment(Struct, kw_only=True):
    number: Count
    reader_id: _ReaderId
    lease_ms: Count
    heard_at: Moment
    completed: Count
    last: Count
    lost: Count
    open_claims: Count
    claimed: Count
    claimed_bytes: Count
    waiting: Count
    waiting_bytes: Count


class NamedReader(Struct, kw_only=True):
    reader: str
    fragments: list[ReaderFragment]


class Readers(Struct, kw_only=True):
    readers: list[NamedReader]
    missing: list[MissingFragment]
