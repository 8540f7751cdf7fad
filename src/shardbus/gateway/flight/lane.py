"""The Flight server: who may read what is asked of the bus, the data comes from the stores."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final, final

import pyarrow as pa
import pyarrow.flight as flight

from shardbus.core.address import parse_address
from shardbus.core.document import Fields
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.flight.bus import BusClient, BusError, entity_path
from shardbus.gateway.flight.reading import read_fragment
from shardbus.gateway.flight.schema import schema_of
from shardbus.gateway.flight.ticket import Wish, read_object
from shardbus.stores.base import FragmentId, StoreError
from shardbus.stores.bulk import BulkAsk, Range

log = logging.getLogger(__name__)

STREAMS_MAX: Final = 64
ACTION_BYTES_MAX: Final = 1024 * 1024

_ACTIONS: Final = {
    "describe": "What an entity is made of, and how far its fragments go.",
    "open": "Begin, or go on, to read under a name.",
    "keep": "Renew the claims of a reader.",
    "claim": "Set the next messages aside.",
    "complete": "Remove what was claimed.",
    "release": "Give back what was claimed.",
    "drop": "Forget a reader.",
    "list": "The readers of an entity.",
}
_TOKEN: Final = "token"
_HEADER: Final = "authorization"


@final
class _Token(flight.ServerMiddleware):
    def __init__(self, text: str) -> None:
        self.text = text


@final
class _Tokens(flight.ServerMiddlewareFactory):
    """Keeps what a client showed; the bus looks at it, here nobody has a key."""

    def start_call(
        self, info: flight.CallInfo, headers: dict[str, list[str] | list[bytes]]
    ) -> flight.ServerMiddleware | None:
        shown = headers.get(_HEADER) or [""]
        text = shown[0].decode("latin-1") if isinstance(shown[0], bytes) else shown[0]
        return _Token(text)


@final
class Lane(flight.FlightServerBase):
    """Serves the fragments whose stores are in one directory."""

    def __init__(
        self,
        location: str,
        bus: BusClient,
        stores: Path,
        *,
        certificate: tuple[str, str] | None = None,
    ) -> None:
        """`certificate` is a chain and its key, in PEM, for TLS."""
        tls = [] if certificate is None else [certificate]
        super().__init__(location, tls_certificates=tls, middleware={_TOKEN: _Tokens()})
        self._bus = bus
        self._stores = stores
        self._room = threading.BoundedSemaphore(STREAMS_MAX)

    def list_actions(  # type: ignore[override]  # the stubs say Action, the server wants types
        self, context: flight.ServerCallContext
    ) -> list[flight.ActionType]:
        return [flight.ActionType(name, text) for name, text in _ACTIONS.items()]

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[bytes]:
        with _Told():
            if action.type not in _ACTIONS:
                raise Refused(
                    INVALID_ARGUMENT,
                    f"There is no action '{action.type[:100]}'; there are {', '.join(_ACTIONS)}.",
                )
            document, entity = _action_body(action.body.to_pybytes())
            token = _token(context)
            if action.type == "describe":
                answer = self._bus.get(entity_path(entity, "bulk"), token)
            elif action.type == "list":
                answer = self._bus.get(entity_path(entity, "readers"), token)
            else:
                path = entity_path(entity, f"readers/{action.type}")
                answer = self._bus.post(path, token, document)
            return iter([json.dumps(answer).encode()])

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with _Told():
            wish = _wish_of(descriptor)
            found = self._describe(wish.entity, _token(context))
            starts, stops = wish.numbers_by_fragment("from"), wish.numbers_by_fragment("to")
            endpoints: list[flight.FlightEndpoint] = []
            rows = 0
            for value in found.values("fragments"):
                part = Fields(value, "fragment")
                number = part.integer("number")
                ticket = {
                    "entity": wish.entity,
                    "columns": wish.columns,
                    "states": wish.state_names,
                    "fragment": number,
                    "from": starts.get(number, part.integer("first")),
                    "to": stops.get(number, part.integer("next")),
                }
                rows += part.integer("waiting")
                endpoints.append(flight.FlightEndpoint(json.dumps(ticket).encode(), []))
            schema = schema_of(wish.columns)
            return flight.FlightInfo(schema, descriptor, endpoints, rows, -1)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        with _Told():
            wish = Wish(ticket.ticket, "ticket")
            number = wish.number("fragment")
            if wish.reader is None:
                batches = self._browsed(wish, number, _token(context))
            else:
                batches = self._claimed(wish, number, wish.reader, _token(context))
            return flight.GeneratorStream(schema_of(wish.columns), self._bounded(batches))

    def _describe(self, entity: str, token: str) -> Fields:
        return Fields(self._bus.get(entity_path(entity, "bulk"), token), "description")

    def _browsed(self, wish: Wish, number: int, token: str) -> Iterator[pa.RecordBatch]:
        found = self._describe(wish.entity, token)
        entity_id = found.integer("entity_id")
        path = self._store_of(found, number)
        first, stop = wish.number("from"), wish.number("to")
        if first >= stop:
            return iter(())
        line = parse_address(wish.entity).line
        ask = BulkAsk(number, line, [(first, stop - 1)], wish.states)
        return self._without_damaged(path, FragmentId(entity_id, number), ask, wish)

    def _without_damaged(
        self, path: Path, fragment: FragmentId, ask: BulkAsk, wish: Wish
    ) -> Iterator[pa.RecordBatch]:
        for batch, damaged in read_fragment(path, fragment, ask, wish.columns):
            if damaged:
                log.error("%s, %s: damaged records %s", wish.entity, fragment, damaged)
            yield batch

    def _claimed(
        self, wish: Wish, number: int, reader: str, token: str
    ) -> Iterator[pa.RecordBatch]:
        first, last = wish.ordinals
        body: dict[str, object] = {
            "reader": reader,
            "fragment": number,
            "first_ordinal": first,
            "last_ordinal": last,
        }
        answer = self._bus.post(entity_path(wish.entity, "readers/runs"), token, body)
        found = Fields(answer, "claims")
        fragment = FragmentId(found.integer("entity_id"), number)
        path = self._stores / f"{found.text('broker')}.db"
        line = parse_address(wish.entity).line
        for value in found.values("claims"):
            claim = Fields(value, "claim")
            runs = _runs(claim)
            if not runs:
                continue
            ask = BulkAsk(number, line, runs)
            damaged: list[int] = []
            for batch, unread in read_fragment(path, fragment, ask, wish.columns):
                damaged += unread
                yield batch
            if damaged:
                # A completed claim must not take evidence along: reading it there sets it aside.
                check = body | {"first_ordinal": claim.integer("ordinal")}
                self._bus.post(entity_path(wish.entity, "readers/check"), token, check)

    def _bounded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not self._room.acquire(blocking=False):
            raise flight.FlightUnavailableError(
                f"server-busy: {STREAMS_MAX} streams are being read; try again later."
            )
        try:
            with _Told():
                yield from batches
        finally:
            self._room.release()

    def _store_of(self, found: Fields, number: int) -> Path:
        for value in found.values("fragments"):
            part = Fields(value, "fragment")
            if part.integer("number") == number:
                return self._stores / f"{part.text('broker')}.db"
        raise Refused(INVALID_ARGUMENT, f"The entity has no fragment {number}.")


@final
class _Told:
    """Turns what the bus and the stores refuse into errors that Flight carries to clients."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, BusError):
            raise _flight_error(error.status, str(error)) from error
        if isinstance(error, Refused):
            raise _flight_error(error.kind.status, f"{error.kind.name}: {error}") from error
        if isinstance(error, StoreError):
            raise flight.FlightUnavailableError(f"unavailable: {error}") from error


def _flight_error(status: int, text: str) -> flight.FlightError:
    if status == HTTPStatus.UNAUTHORIZED:
        return flight.FlightUnauthenticatedError(text)
    if status == HTTPStatus.FORBIDDEN:
        return flight.FlightUnauthorizedError(text)
    if status in (0, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT):
        return flight.FlightUnavailableError(text)
    return flight.FlightServerError(text)


def _token(context: flight.ServerCallContext) -> str:
    shown = context.get_middleware(_TOKEN)
    return shown.text if isinstance(shown, _Token) else ""


def _wish_of(descriptor: flight.FlightDescriptor) -> Wish:
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return Wish(descriptor.command or b"", "command")
    path = b"/".join(descriptor.path or []).decode(errors="replace")
    return Wish(json.dumps({"entity": path}).encode(), "path")


def _action_body(body: bytes) -> tuple[dict[str, object], str]:
    """The body without the entity, and that."""
    document = read_object(body, "body of the action", ACTION_BYTES_MAX)
    entity = document.pop("entity", None)
    if not isinstance(entity, str) or not entity:
        raise Refused(INVALID_ARGUMENT, "The body of the action needs 'entity', a text.")
    return document, entity


def _runs(claim: Fields) -> list[Range]:
    runs: list[Range] = []
    for value in claim.values("runs"):
        assert isinstance(value, list)
        first, last = value
        runs.append((int(first), int(last)))
    return runs
