"""The Flight server: who may read what is asked of the bus, the data comes from the stores."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final, final

import pyarrow as pa
import pyarrow.flight as flight

from shardbus.core.address import parse_address
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.flight.bus import Bus, entity_path
from shardbus.gateway.flight.claimed import ClaimAsk, claimed
from shardbus.gateway.flight.describing import Described, with_first_numbers
from shardbus.gateway.flight.reading import read_fragment
from shardbus.gateway.flight.schema import schema_of
from shardbus.gateway.flight.telling import Told
from shardbus.gateway.flight.ticket import COMMAND, TICKET, Wish, read_object
from shardbus.stores.base import FragmentId
from shardbus.stores.base_bulk import BulkAsk, BulkSource, OpenSource

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
    """Serves the fragments whose stores can be opened here.

    A stream holds the batch that is being sent and the next one, and a store only while it makes
    one: who reads slowly, or not at all, keeps one of STREAMS_MAX places and nothing else.
    """

    def __init__(
        self,
        location: str,
        bus: Bus,
        stores: OpenSource,
        *,
        certificate: tuple[str, str] | None = None,
        streams_max: int = STREAMS_MAX,
    ) -> None:
        """`certificate` is a chain and its key, in PEM, for TLS."""
        tls = [] if certificate is None else [certificate]
        super().__init__(location, tls_certificates=tls, middleware={_TOKEN: _Tokens()})
        self._bus = bus
        self._stores = stores
        self._streams_max = streams_max
        self._room = threading.BoundedSemaphore(streams_max)

    def list_actions(  # type: ignore[override]  # the stubs say Action, the server wants types
        self, context: flight.ServerCallContext
    ) -> list[flight.ActionType]:
        return [flight.ActionType(name, text) for name, text in _ACTIONS.items()]

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[bytes]:
        with Told():
            answer = self._act(action.type, action.body.to_pybytes(), _token(context))
            return iter([json.dumps(answer).encode()])

    def get_schema(  # type: ignore[override]  # the stubs say Schema, the server wants a result
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        with Told():
            wish = _wish_of(descriptor)
            self._describe(wish.entity, _token(context))
            return flight.SchemaResult(schema_of(wish.columns))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with Told():
            wish = _wish_of(descriptor)
            found = with_first_numbers(
                self._describe(wish.entity, _token(context)), self._stores, _line(wish.entity)
            )
            starts, stops = wish.numbers_by_fragment("from"), wish.numbers_by_fragment("to")
            endpoints: list[flight.FlightEndpoint] = []
            for part in found.fragments:
                if part.number not in stops:
                    part.check_counted()
                ticket = {
                    "entity": wish.entity,
                    "columns": wish.columns,
                    "states": wish.state_names,
                    "fragment": part.number,
                    "from": starts.get(part.number, part.first),
                    "to": stops.get(part.number, part.next),
                }
                endpoints.append(flight.FlightEndpoint(json.dumps(ticket).encode(), []))
            rows = sum(part.waiting for part in found.fragments)
            return flight.FlightInfo(schema_of(wish.columns), descriptor, endpoints, rows, -1)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        with Told():
            wish = Wish(ticket.ticket, TICKET)
            number = wish.number("fragment")
            if wish.reader is None:
                batches = self._browsed(wish, number, _token(context))
            else:
                ask = ClaimAsk(wish.entity, _line(wish.entity), number, wish.reader, wish.ordinals)
                bus, token = self._bus, _token(context)
                batches = claimed(bus, self._stores, token, ask, wish.columns)
            return flight.GeneratorStream(schema_of(wish.columns), self._bounded(batches))

    def _act(self, action: str, body: bytes, token: str) -> dict[str, object]:
        if action not in _ACTIONS:
            raise Refused(
                INVALID_ARGUMENT,
                f"There is no action '{action[:100]}'; there are {', '.join(_ACTIONS)}.",
            )
        document, entity = _action_body(body)
        if action == "describe":
            found = self._describe(entity, token)
            return with_first_numbers(found, self._stores, _line(entity)).document
        if action == "list":
            return self._bus.get(entity_path(entity, "readers"), token)
        return self._bus.post(entity_path(entity, f"readers/{action}"), token, document)

    def _describe(self, entity: str, token: str) -> Described:
        return Described(self._bus.get(entity_path(entity, "bulk"), token))

    def _browsed(self, wish: Wish, number: int, token: str) -> Iterator[pa.RecordBatch]:
        first, stop = wish.number("from"), wish.number("to")
        found = self._describe(wish.entity, token)
        broker = found.fragment(number).broker
        if first >= stop:
            return iter(())
        ask = BulkAsk(number, _line(wish.entity), [(first, stop - 1)], wish.states)
        fragment = FragmentId(found.entity_id, number)
        return _browsed(lambda: self._stores(broker), fragment, ask, wish)

    def _bounded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not self._room.acquire(blocking=False):
            raise flight.FlightUnavailableError(
                f"server-busy: {self._streams_max} streams are being read; try again later."
            )
        try:
            with Told():
                yield from batches
        finally:
            self._room.release()


def _browsed(
    opened: Callable[[], BulkSource], fragment: FragmentId, ask: BulkAsk, wish: Wish
) -> Iterator[pa.RecordBatch]:
    for batch, damaged in read_fragment(opened(), fragment, ask, wish.columns):
        if damaged:
            log.error("%s, %s: left out damaged messages %s", wish.entity, fragment, damaged)
        if batch.num_rows:
            yield batch


def _token(context: flight.ServerCallContext) -> str:
    shown = context.get_middleware(_TOKEN)
    return shown.text if isinstance(shown, _Token) else ""


def _line(entity: str) -> int:
    return parse_address(entity).line


def _wish_of(descriptor: flight.FlightDescriptor) -> Wish:
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return Wish(descriptor.command or b"", COMMAND)
    path = b"/".join(descriptor.path or []).decode(errors="replace")
    return Wish(json.dumps({"entity": path}).encode(), COMMAND)


def _action_body(body: bytes) -> tuple[dict[str, object], str]:
    """The body without the entity, and that."""
    document = read_object(body, "body of the action", ACTION_BYTES_MAX)
    entity = document.pop("entity", None)
    if not isinstance(entity, str) or not entity:
        raise Refused(INVALID_ARGUMENT, "The body of the action needs 'entity', a text.")
    return document, entity
