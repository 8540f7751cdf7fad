"""Readers and their claims in the JSON API: what the bulk lane asks, and whoever wants to.

A fragment that cannot be reached is told as missing and can be asked again; everything here may be
repeated.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Mapping
from typing import Final, final

from shardbus.broker.bus import Bus, EntityHandle
from shardbus.broker.host import EntityStatistics
from shardbus.broker.readers import Advanced, Wish
from shardbus.core.access import LISTEN, MANAGE
from shardbus.core.command import Claimed, ReaderOpened, ReaderStatus
from shardbus.core.errors import INVALID_ARGUMENT, Refused, Unavailable
from shardbus.core.limits import (
    CLAIM_COUNT_MAX,
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    READER_ID_BYTES_MAX,
    READER_NAME_CHARACTERS_MAX,
)
from shardbus.core.sequence import sequence_number
from shardbus.gateway.http.api_call import Answer, Call, Members
from shardbus.gateway.http.api_places import Place, Places
from shardbus.gateway.http.api_readers_schemas import CLAIMS_AT_ONCE_MAX, SCHEMAS
from shardbus.gateway.http.api_route import NAME, Parameter, Route
from shardbus.gateway.http.documents_schema import Document, Schema
from shardbus.gateway.http.moment import format_moment

FRAGMENT_MAX: Final = 0xFFFF
OWNER_CHARACTERS_MAX: Final = 128
READER_ID_BYTES: Final = 8
ORDINALS_AT_ONCE_MAX: Final = 1_024
BYTES_MAX: Final = 1 << 40
# Whoever waits for news has us look so often; a look is a fraction of a request.
LOOK_MS: Final = 50
WAIT_MS_MAX: Final = 5_000
KNOWN: Final = Parameter("known", "query", "The stamp of a former answer.", example="41.16.7.0")
WAIT: Final = Parameter(
    "wait_ms",
    "query",
    "How long to wait for another stamp.",
    least=0,
    most=WAIT_MS_MAX,
    example=500,
)

_ENTITY: Final = "/api/v1/entities/{name}"
_WANTED: Final = ("fragment", "ordinal", "count_max", "bytes_max")
_DONE: Final = ("fragment", "ordinal")


@final
class ReaderPages:
    """A Group of the API: who reads an entity in bulk, what they claim and complete."""

    def __init__(self, bus: Bus, places: Places) -> None:
        self._bus = bus
        self._places = places

    def schemas(self) -> dict[str, Schema]:
        return SCHEMAS

    def routes(self) -> list[tuple[Route, Answer]]:
        return [
            (
                _shown("bulk", "Bulk", "How far the fragments of an entity go.", (KNOWN, WAIT)),
                self._describe,
            ),
            (_shown("readers", "Readers", "Who reads an entity in bulk."), self._list),
            (
                _posted("open", "OpenReader", "ReaderOpened", "Begin, or go on, to read."),
                self._open,
            ),
            (_posted("keep", "Reader", "ReaderReached", "Renew a reader's claims."), self._keep),
            (_posted("claim", "NewClaims", "Claims", "Set messages aside."), self._claim),
            (
                _posted("runs", "AskedClaims", "ClaimRuns", "Which messages claims have."),
                self._runs,
            ),
            (
                _posted("check", "AskedClaims", "CheckedClaims", "Set damaged messages aside."),
                self._check,
            ),
            (
                _posted("complete", "DoneClaims", "Completed", "Remove what was claimed."),
                self._complete,
            ),
            (
                _posted("release", "Reader", "ReaderReached", "Give back what is claimed."),
                self._release,
            ),
            (
                _posted("drop", "DroppedReader", "ReaderReached", "Forget a reader.", right=MANAGE),
                self._drop,
            ),
        ]

    async def _describe(self, call: Call) -> Document:
        place = self._places.place(call.name)
        known, wait_ms = call.query.text("known"), call.query.integer("wait_ms", 0, WAIT_MS_MAX)
        statistics = await self._bus.namespace.statistics(place.handle.entity)
        for _ in range(wait_ms // LOOK_MS):
            if _stamp(place, statistics) != known:
                break
            await asyncio.sleep(LOOK_MS / 1000)
            statistics = await self._bus.namespace.statistics(place.handle.entity)
        return self._described(place, statistics)

    def _described(self, place: Place, statistics: EntityStatistics) -> Document:
        entity = place.handle.entity
        homes = {home.number: home.broker_index for home in entity.fragments}
        return {
            "entity": entity.name,
            **_identity(place.handle),
            "stamp": _stamp(place, statistics),
            "requires_session": place.has_sessions,
            "fragments": [
                {
                    "number": part.number,
                    "broker": f"broker-{homes[part.number]}",
                    "state": part.state,
                    "is_counted": part.is_counted,
                    "first": sequence_number(part.number, 1),
                    "next": sequence_number(part.number, part.sent_total + 1),
                    "waiting": part.counts[place.line],
                    "size_bytes": part.size_bytes,
                }
                for part in statistics.fragments
            ],
        }

    async def _list(self, call: Call) -> Document:
        place = self._places.place(call.name)
        found = await place.handle.readers.known(place.line)
        readers: dict[str, list[Document]] = {}
        for number, statuses in found.found.items():
            for status in statuses:
                readers.setdefault(status.name, []).append(_status(number, status))
        return {
            "readers": [{"reader": name, "fragments": parts} for name, parts in readers.items()],
            "missing": _missing(found.missing),
        }

    async def _open(self, call: Call) -> Document:
        place = self._places.receivable(call.name)
        lease_ms = call.body.integer("lease_ms", LEASE_MS_DEFAULT, LEASE_MS_MAX, least=LEASE_MS_MIN)
        new_id = secrets.token_bytes(READER_ID_BYTES)
        opened = await place.handle.readers.open(
            place.line, _reader(call.body), _owner(call.body), new_id, lease_ms=lease_ms
        )
        return {
            **_identity(place.handle),
            "fragments": [_opened(number, one) for number, one in opened.found.items()],
            "missing": _missing(opened.missing),
        }

    async def _keep(self, call: Call) -> Document:
        place = self._places.place(call.name)
        reached = await place.handle.readers.keep(place.line, _reader(call.body), _owner(call.body))
        return _reached(call, reached.missing)

    async def _release(self, call: Call) -> Document:
        place = self._places.place(call.name)
        reached = await place.handle.readers.release(
            place.line, _reader(call.body), _owner(call.body)
        )
        return _reached(call, reached.missing)

    async def _drop(self, call: Call) -> Document:
        place = self._places.place(call.name)
        reached = await place.handle.readers.drop(place.line, _reader(call.body))
        return _reached(call, reached.missing)

    async def _claim(self, call: Call) -> Document:
        place = self._places.place(call.name)
        wanted = call.body.objects("claims", _WANTED, most=CLAIMS_AT_ONCE_MAX)
        done = _done(call.body, "done") if call.body.has("done") else {}
        reader, owner = _reader(call.body), _owner(call.body)
        try:
            self._places.receivable(call.name)
        except Refused:
            # What was read while messages were given is done all the same.
            await place.handle.readers.complete(place.line, reader, owner, done)
            raise
        wishes: dict[int, list[Wish]] = {number: [] for number in done}
        for one in wanted:
            wishes.setdefault(_fragment(one), []).append(_wish(one))
        advanced = await _all(
            [
                place.handle.readers.advance(
                    number, place.line, reader, owner, asked, done.get(number, 0)
                )
                for number, asked in wishes.items()
            ]
        )
        found = dict(zip(wishes, advanced, strict=True))
        return {
            "claims": [
                _claimed(number, wish.ordinal, claimed)
                for number, one in found.items()
                for wish, claimed in zip(wishes[number], one.claims, strict=False)
            ],
            "completed": _told_completed({number: found[number].completed for number in done}),
            "missing": _missing(
                {number: one.failure for number, one in found.items() if one.failure is not None}
            ),
        }

    async def _complete(self, call: Call) -> Document:
        place = self._places.place(call.name)
        completed = await place.handle.readers.complete(
            place.line, _reader(call.body), _owner(call.body), _done(call.body, "claims")
        )
        return {
            "completed": _told_completed(completed.found),
            "missing": _missing(completed.missing),
        }

    async def _runs(self, call: Call) -> Document:
        place = self._places.place(call.name)
        number = _fragment(call.body)
        claims: list[Document] = []
        for ordinal in _ordinals(call.body):
            found = await place.handle.readers.describe(
                number, place.line, _reader(call.body), ordinal, _reader_id(call.body)
            )
            runs = [list(pair) for pair in found.runs.pairs()]
            claims.append({"ordinal": ordinal, "runs": runs, "size_bytes": found.size_bytes})
        homes = {home.number: home.broker_index for home in place.handle.entity.fragments}
        return {
            **_identity(place.handle),
            "broker": f"broker-{homes[number]}",
            "claims": claims,
        }

    async def _check(self, call: Call) -> Document:
        """Reading a claim where it is kept takes what is damaged out of it, as evidence."""
        place = self._places.place(call.name)
        number = _fragment(call.body)
        whole = 0
        for ordinal in _ordinals(call.body):
            pieces = place.handle.readers.pieces(
                number, place.line, _reader(call.body), ordinal, _reader_id(call.body)
            )
            async for piece in pieces:
                whole += len(piece)
        return {"count": whole}


async def _all(work: list[Coroutine[object, object, Advanced]]) -> list[Advanced]:
    """Side by side; a refusal is raised when all have ended, so that none is left half made."""
    answers = await asyncio.gather(*work, return_exceptions=True)
    advanced: list[Advanced] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        advanced.append(answer)
    return advanced


def _stamp(place: Place, statistics: EntityStatistics) -> str:
    """Another one whenever something was sent, removed, or is out of reach or back."""
    parts = [part for part in statistics.fragments if part.is_counted]
    sent, waiting = sum(p.sent_total for p in parts), sum(p.counts[place.line] for p in parts)
    return f"{place.handle.entity.entity_id}.{len(parts)}.{sent}.{waiting}"


def _identity(handle: EntityHandle) -> Document:
    """An entity that is deleted and made again is another one."""
    number = handle.entity.entity_id
    return {"entity_id": number, "incarnation": str(number)}


def _reader(body: Members) -> str:
    name = body.text("reader", most=READER_NAME_CHARACTERS_MAX)
    if not name:
        raise Refused(INVALID_ARGUMENT, "A reader needs a name.")
    return name


def _owner(body: Members) -> bytes:
    return body.text("owner", most=OWNER_CHARACTERS_MAX).encode()


def _reader_id(body: Members) -> bytes:
    """Empty when any reader of the name is meant."""
    text = body.text("reader_id", "", most=2 * READER_ID_BYTES_MAX)
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Refused(INVALID_ARGUMENT, "reader_id must be what open answered.") from None


def _wish(body: Members) -> Wish:
    return Wish(
        body.integer("ordinal", least=1),
        body.integer("count_max", CLAIM_COUNT_MAX, CLAIM_COUNT_MAX, least=1),
        body.integer("bytes_max", BYTES_MAX, BYTES_MAX, least=1),
    )


def _done(body: Members, name: str) -> dict[int, int]:
    """Up to where each fragment is to complete."""
    return {
        _fragment(one): one.integer("ordinal")
        for one in body.objects(name, _DONE, most=CLAIMS_AT_ONCE_MAX)
    }


def _told_completed(completed: Mapping[int, int]) -> list[Document]:
    return [{"fragment": number, "ordinal": ordinal} for number, ordinal in completed.items()]


def _fragment(body: Members) -> int:
    return body.integer("fragment", most=FRAGMENT_MAX)


def _ordinals(body: Members) -> range:
    first = body.integer("first_ordinal", least=1)
    last = body.integer("last_ordinal", first, least=1)
    if not first <= last < first + ORDINALS_AT_ONCE_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"last_ordinal must be from first_ordinal on, {ORDINALS_AT_ONCE_MAX} claims at most.",
        )
    return range(first, last + 1)


def _opened(number: int, opened: ReaderOpened) -> Document:
    return {
        "number": number,
        "reader_id": opened.reader_id.hex(),
        "completed": opened.completed,
        "last": opened.last,
        "lost": opened.lost,
        "claims": [
            {
                "ordinal": claim.ordinal,
                "count": claim.count,
                "size_bytes": claim.size_bytes,
                "first": claim.first,
                "last": claim.last,
            }
            for claim in opened.claims
        ],
    }


def _claimed(number: int, ordinal: int, claimed: Claimed) -> Document:
    claim = claimed.claim
    return {
        "fragment": number,
        "ordinal": ordinal,
        "count": 0 if claim is None else claim.count,
        "size_bytes": 0 if claim is None else claim.size_bytes,
        "first": 0 if claim is None else claim.first,
        "last": 0 if claim is None else claim.last,
        "is_made": claim is not None,
        "is_more": claimed.is_more,
    }


def _status(number: int, status: ReaderStatus) -> Document:
    return {
        "number": number,
        "reader_id": status.reader_id.hex(),
        "lease_ms": status.lease_ms,
        "heard_at": format_moment(status.heard_ms),
        "completed": status.completed,
        "last": status.last,
        "lost": status.lost,
        "open_claims": status.claims,
        "claimed": status.claimed,
        "claimed_bytes": status.claimed_bytes,
        "waiting": status.waiting,
        "waiting_bytes": status.waiting_bytes,
    }


def _reached(call: Call, missing: Mapping[int, Unavailable]) -> Document:
    return {"reader": _reader(call.body), "missing": _missing(missing)}


def _missing(missing: Mapping[int, Unavailable]) -> list[Document]:
    return [{"number": number, "message": why.message} for number, why in missing.items()]


def _shown(path: str, schema: str, summary: str, more: tuple[Parameter, ...] = ()) -> Route:
    return Route(
        f"{_ENTITY}/{path}",
        summary,
        schema,
        right=LISTEN,
        otherwise=MANAGE,
        parameters=(NAME, *more),
    )


def _posted(path: str, body: str, schema: str, summary: str, *, right: int = LISTEN) -> Route:
    return Route(
        f"{_ENTITY}/readers/{path}",
        summary,
        schema,
        method="POST",
        body=body,
        right=right,
        otherwise=MANAGE,
        parameters=(NAME,),
        identifier=f"{path}Reader",
    )
