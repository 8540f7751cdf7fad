"""Readers and their claims in the JSON API, for the bulk lane and other clients.

An unreachable fragment is listed as missing and can be asked again; every request here may be
repeated.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from typing import Final, final

from msgspec import UNSET

from shardbus.broker.bus import Bus, EntityHandle
from shardbus.broker.namespace.host import EntityStatistics
from shardbus.broker.operations.readers import Advanced, WantedClaim
from shardbus.core.errors import INVALID_ARGUMENT, Refused, Unavailable
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.core.namespace.entity import Entity
from shardbus.core.readers.command import Claimed, ReaderStatus
from shardbus.core.readers.command import ReaderOpened as Opened
from shardbus.core.sequence import sequence_number
from shardbus.gateway.http.api.bulk.documents import (
    AskedClaims,
    Bulk,
    BulkFragment,
    CheckedClaims,
    ClaimRuns,
    Claims,
    Completed,
    CompletedFragment,
    DoneClaim,
    DoneClaims,
    DroppedReader,
    MadeClaim,
    MapFragment,
    MissingFragment,
    NamedReader,
    NewClaims,
    OpenClaim,
    OpenedFragment,
    OpenReader,
    Reader,
    ReaderFragment,
    ReaderOpened,
    ReaderReached,
    Readers,
    RunsOfClaim,
    SessionMaps,
)
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.api.route import NAME, Parameter, Route
from shardbus.gateway.http.document import Shape
from shardbus.gateway.http.moment import format_moment

READER_ID_BYTES: Final = 8
ORDINALS_AT_ONCE_MAX: Final = 1_024
# How often to check for a client that waits for changes; a check costs less than a request.
LOOK_MS: Final = 50
WAIT_MS_MAX: Final = 5_000
KNOWN: Final = Parameter("known", "query", "The stamp of an earlier answer.", example="41.16.7.0")
WAIT: Final = Parameter(
    "wait_ms",
    "query",
    "How long to wait for a different stamp.",
    least=0,
    most=WAIT_MS_MAX,
    example=500,
)

_ENTITY: Final = "/api/v1/entities/{name}"


@final
class ReaderPages:
    """A Group of the API: the readers of an entity and their claims."""

    def __init__(self, bus: Bus, places: EntityPlaces) -> None:
        self._bus = bus
        self._places = places

    def rows(self) -> list[Row]:
        return [
            shows(
                _shown(
                    "bulk",
                    Bulk,
                    "The fragments of an entity and their sequence numbers.",
                    (KNOWN, WAIT),
                ),
                self._describe,
            ),
            shows(_shown("readers", Readers, "The readers of an entity."), self._list),
            takes(
                _posted("open", ReaderOpened, "Start or continue to read."), OpenReader, self._open
            ),
            takes(_posted("keep", ReaderReached, "Renew a reader's claims."), Reader, self._keep),
            takes(_posted("claim", Claims, "Claim messages."), NewClaims, self._claim),
            takes(_posted("runs", ClaimRuns, "The messages of claims."), AskedClaims, self._runs),
            takes(
                _posted("check", CheckedClaims, "Set damaged messages of claims aside."),
                AskedClaims,
                self._check,
            ),
            takes(
                _posted("complete", Completed, "Complete claims: remove their messages."),
                DoneClaims,
                self._complete,
            ),
            takes(
                _posted("release", ReaderReached, "Release claims: return their messages."),
                Reader,
                self._release,
            ),
            takes(
                _posted("drop", ReaderReached, "Forget a reader.", right=MANAGE),
                DroppedReader,
                self._drop,
            ),
        ]

    async def _describe(self, call: Call[Nothing]) -> Bulk:
        place = self._places.place(call.name)
        known, wait_ms = call.query.text("known"), call.query.integer("wait_ms", 0, WAIT_MS_MAX)
        statistics = await self._bus.namespace.statistics(place.handle.entity)
        for _ in range(wait_ms // LOOK_MS):
            if _stamp(place, statistics) != known:
                break
            await asyncio.sleep(LOOK_MS / 1000)
            statistics = await self._bus.namespace.statistics(place.handle.entity)
        return self._described(place, statistics)

    def _described(self, place: EntityPlace, statistics: EntityStatistics) -> Bulk:
        entity = place.handle.entity
        homes = {home.number: home.broker_index for home in entity.fragments}
        return Bulk(
            entity=entity.name,
            entity_id=entity.entity_id,
            incarnation=_incarnation(place.handle),
            stamp=_stamp(place, statistics),
            requires_session=place.has_sessions,
            session_maps=_session_maps(entity),
            fragments=[
                BulkFragment(
                    number=part.number,
                    broker=f"broker-{homes[part.number]}",
                    state=part.state,
                    is_counted=part.is_counted,
                    first=sequence_number(part.number, 1),
                    next=sequence_number(part.number, part.sent_total + 1),
                    waiting=part.counts[place.line],
                    size_bytes=part.size_bytes,
                )
                for part in statistics.fragments
            ],
        )

    async def _list(self, call: Call[Nothing]) -> Readers:
        place = self._places.place(call.name)
        found = await place.handle.readers.known(place.line)
        readers: dict[str, list[ReaderFragment]] = {}
        for number, statuses in found.found.items():
            for status in statuses:
                readers.setdefault(status.name, []).append(_status(number, status))
        return Readers(
            readers=[NamedReader(reader=name, fragments=parts) for name, parts in readers.items()],
            missing=_missing(found.missing),
        )

    async def _open(self, call: Call[OpenReader]) -> ReaderOpened:
        place = self._places.receivable(call.name)
        new_id = secrets.token_bytes(READER_ID_BYTES)
        opened = await place.handle.readers.open(
            place.line,
            call.body.reader,
            call.body.owner.encode(),
            new_id,
            lease_ms=call.body.lease_ms,
        )
        return ReaderOpened(
            entity_id=place.handle.entity.entity_id,
            incarnation=_incarnation(place.handle),
            fragments=[_opened(number, one) for number, one in opened.found.items()],
            missing=_missing(opened.missing),
        )

    async def _keep(self, call: Call[Reader]) -> ReaderReached:
        place = self._places.place(call.name)
        reached = await place.handle.readers.keep(place.line, *_who(call.body))
        return _reached(call.body, reached.missing)

    async def _release(self, call: Call[Reader]) -> ReaderReached:
        place = self._places.place(call.name)
        reached = await place.handle.readers.release(place.line, *_who(call.body))
        return _reached(call.body, reached.missing)

    async def _drop(self, call: Call[DroppedReader]) -> ReaderReached:
        place = self._places.place(call.name)
        reached = await place.handle.readers.drop(place.line, call.body.reader)
        return _reached(call.body, reached.missing)

    async def _claim(self, call: Call[NewClaims]) -> Claims:
        place = self._places.place(call.name)
        done = _done(call.body.done)
        try:
            self._places.receivable(call.name)
        except Refused:
            # Claims that were read while messages were claimed are completed nevertheless.
            await place.handle.readers.complete(place.line, *_who(call.body), done)
            raise
        wanted_claims: dict[int, list[WantedClaim]] = {number: [] for number in done}
        for one in call.body.claims:
            wanted = WantedClaim(one.ordinal, one.count_max, one.bytes_max)
            wanted_claims.setdefault(one.fragment, []).append(wanted)
        advanced = await _all(
            [
                place.handle.readers.advance(
                    number, place.line, *_who(call.body), asked, done.get(number, 0)
                )
                for number, asked in wanted_claims.items()
            ]
        )
        found = dict(zip(wanted_claims, advanced, strict=True))
        return Claims(
            claims=[
                _claimed(number, wanted.ordinal, claimed)
                for number, one in found.items()
                for wanted, claimed in zip(wanted_claims[number], one.claims, strict=False)
            ],
            completed=_told_completed({number: found[number].completed for number in done}),
            missing=_missing(
                {number: one.failure for number, one in found.items() if one.failure is not None}
            ),
        )

    async def _complete(self, call: Call[DoneClaims]) -> Completed:
        place = self._places.place(call.name)
        completed = await place.handle.readers.complete(
            place.line, *_who(call.body), _done(call.body.claims)
        )
        return Completed(
            completed=_told_completed(completed.found), missing=_missing(completed.missing)
        )

    async def _runs(self, call: Call[AskedClaims]) -> ClaimRuns:
        place = self._places.place(call.name)
        number = call.body.fragment
        claims: list[RunsOfClaim] = []
        for ordinal in _ordinals(call.body):
            found = await place.handle.readers.describe(
                number, place.line, call.body.reader, ordinal, _reader_id(call.body)
            )
            runs = [list(pair) for pair in found.runs.pairs()]
            claims.append(RunsOfClaim(ordinal=ordinal, runs=runs, size_bytes=found.size_bytes))
        homes = {home.number: home.broker_index for home in place.handle.entity.fragments}
        return ClaimRuns(
            entity_id=place.handle.entity.entity_id,
            incarnation=_incarnation(place.handle),
            broker=f"broker-{homes[number]}",
            session_maps=_session_maps(place.handle.entity),
            claims=claims,
        )

    async def _check(self, call: Call[AskedClaims]) -> CheckedClaims:
        """The broker reads the claims, which sets their damaged messages aside as evidence."""
        place = self._places.place(call.name)
        whole = 0
        for ordinal in _ordinals(call.body):
            pieces = place.handle.readers.pieces(
                call.body.fragment, place.line, call.body.reader, ordinal, _reader_id(call.body)
            )
            async for piece in pieces:
                whole += len(piece)
        return CheckedClaims(count=whole)


async def _all(work: list[Coroutine[object, object, Advanced]]) -> list[Advanced]:
    """Run in parallel; a refusal is raised after all have ended, so that none is interrupted."""
    answers = await asyncio.gather(*work, return_exceptions=True)
    advanced: list[Advanced] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        advanced.append(answer)
    return advanced


def _stamp(place: EntityPlace, statistics: EntityStatistics) -> str:
    """A text that changes when messages are sent or removed, or when a fragment becomes unreachable
    or reachable.
    """
    parts = [part for part in statistics.fragments if part.is_counted]
    sent, waiting = sum(p.sent_total for p in parts), sum(p.counts[place.line] for p in parts)
    return f"{place.handle.entity.entity_id}.{len(parts)}.{sent}.{waiting}"


def _incarnation(handle: EntityHandle) -> str:
    """An entity that is deleted and created again has another incarnation."""
    return str(handle.entity.entity_id)


def _session_maps(entity: Entity) -> SessionMaps:
    if not (entity.spec.requires_session and entity.former_count):
        return SessionMaps(fragments=[], starts=[])
    return SessionMaps(
        fragments=[
            MapFragment(number=home.number, broker=f"broker-{home.broker_index}")
            for home in entity.fragments
        ],
        starts=[*entity.former_starts, entity.hash_starts],
    )


def _who(body: Reader) -> tuple[str, bytes]:
    return body.reader, body.owner.encode()


def _reader_id(body: AskedClaims) -> bytes:
    """The reader's id; empty for any reader of this name."""
    try:
        return bytes.fromhex(body.reader_id)
    except ValueError:
        raise Refused(INVALID_ARGUMENT, "reader_id must be that of the answer to open.") from None


def _done(claims: Sequence[DoneClaim]) -> dict[int, int]:
    """The ordinal up to which each fragment is to complete claims."""
    return {one.fragment: one.ordinal for one in claims}


def _told_completed(completed: Mapping[int, int]) -> list[CompletedFragment]:
    return [
        CompletedFragment(fragment=number, ordinal=ordinal) for number, ordinal in completed.items()
    ]


def _ordinals(body: AskedClaims) -> range:
    first = body.first_ordinal
    last = first if body.last_ordinal is UNSET else body.last_ordinal
    if not first <= last < first + ORDINALS_AT_ONCE_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            "last_ordinal must be at least first_ordinal, with at most "
            f"{ORDINALS_AT_ONCE_MAX} claims.",
        )
    return range(first, last + 1)


def _opened(number: int, opened: Opened) -> OpenedFragment:
    return OpenedFragment(
        number=number,
        reader_id=opened.reader_id.hex(),
        completed=opened.completed,
        last=opened.last,
        lost=opened.lost,
        claims=[
            OpenClaim(
                ordinal=claim.ordinal,
                count=claim.count,
                size_bytes=claim.size_bytes,
                first=claim.first,
                last=claim.last,
            )
            for claim in opened.claims
        ],
    )


def _claimed(number: int, ordinal: int, claimed: Claimed) -> MadeClaim:
    claim = claimed.claim
    return MadeClaim(
        fragment=number,
        ordinal=ordinal,
        count=0 if claim is None else claim.count,
        size_bytes=0 if claim is None else claim.size_bytes,
        first=0 if claim is None else claim.first,
        last=0 if claim is None else claim.last,
        is_made=claim is not None,
        is_more=claimed.is_more,
    )


def _status(number: int, status: ReaderStatus) -> ReaderFragment:
    return ReaderFragment(
        number=number,
        reader_id=status.reader_id.hex(),
        lease_ms=status.lease_ms,
        heard_at=format_moment(status.heard_ms),
        completed=status.completed,
        last=status.last,
        lost=status.lost,
        open_claims=status.claims,
        claimed=status.claimed,
        claimed_bytes=status.claimed_bytes,
        waiting=status.waiting,
        waiting_bytes=status.waiting_bytes,
    )


def _reached(body: DroppedReader, missing: Mapping[int, Unavailable]) -> ReaderReached:
    return ReaderReached(reader=body.reader, missing=_missing(missing))


def _missing(missing: Mapping[int, Unavailable]) -> list[MissingFragment]:
    return [MissingFragment(number=number, message=why.message) for number, why in missing.items()]


def _shown(path: str, shape: Shape, summary: str, more: tuple[Parameter, ...] = ()) -> Route:
    return Route(
        f"{_ENTITY}/{path}",
        summary,
        shape,
        right=LISTEN,
        otherwise=MANAGE,
        parameters=(NAME, *more),
    )


def _posted(path: str, shape: Shape, summary: str, *, right: int = LISTEN) -> Route:
    return Route(
        f"{_ENTITY}/readers/{path}",
        summary,
        shape,
        method="POST",
        right=right,
        otherwise=MANAGE,
        parameters=(NAME,),
        identifier=f"{path}Reader",
    )
