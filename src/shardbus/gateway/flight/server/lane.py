"""The Flight server: the bus decides who may read what, the data comes from the stores."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, final
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.flight as flight

from shardbus.core.errors import INVALID_ARGUMENT, NOT_FOUND, Refused
from shardbus.core.namespace.address import parse_address
from shardbus.gateway.flight.reading.claimed import ClaimAsk, claimed
from shardbus.gateway.flight.reading.describing import LaneDescription, with_first_numbers
from shardbus.gateway.flight.reading.kept_stores import KeptStores
from shardbus.gateway.flight.reading.recorded import read_records
from shardbus.gateway.flight.reading.schema import record_schema_of, schema_of
from shardbus.gateway.flight.reading.streaming import read_fragment
from shardbus.gateway.flight.server.admission import TOKEN, GuestFactory, LaneAdmission, token_of
from shardbus.gateway.flight.server.bus import WAITS_MAX, BusApi, entity_path
from shardbus.gateway.flight.server.peers import connections, hang_up, peer_name
from shardbus.gateway.flight.server.places import (
    FIRST_S_MAX,
    SILENT_S_MAX,
    STREAMS_MAX,
    WAITS_S_MAX,
    LanePlaces,
    Stream,
    StreamWatch,
)
from shardbus.gateway.flight.server.telling import LaneRefusal
from shardbus.gateway.flight.server.ticket import (
    COMMAND,
    LIFECYCLE,
    MESSAGES,
    TICKET,
    ReadRequest,
    checked_table,
    read_object,
)
from shardbus.gateway.flight.writing.putting import Put
from shardbus.gateway.flight.writing.sinking import check_written
from shardbus.stores.base.bulk import BulkAsk, BulkSource, OpenSource
from shardbus.stores.base.store import FragmentId

log = logging.getLogger(__name__)

ACTION_BYTES_MAX: Final = 1024 * 1024

_ACTIONS: Final = {
    "describe": "The fragments of an entity and their sequence numbers.",
    "open": "Start or continue to read under a name.",
    "keep": "Renew the claims of a reader.",
    "claim": "Claim the next messages.",
    "complete": "Complete claims: remove their messages.",
    "release": "Release claims: return their messages.",
    "drop": "Forget a reader.",
    "list": "The readers of an entity.",
    "publish": "Publish staged messages, once for each batch of a producer.",
    "forget": "Forget a producer that published once.",
    "discard": "Discard staged messages.",
    "prolong": "Keep staged messages for their whole lifetime again.",
}
_OF_STAGES: Final = ("publish", "forget", "discard", "prolong")


@final
class Lane(flight.FlightServerBase):
    """Serves the fragments whose stores can be opened here.

    A call without a good token is refused when it begins. A stream holds the batch that is being
    sent and the next one, and a store only while it makes a batch: a client that reads slowly, or
    not at all, only keeps one of STREAMS_MAX places for a while.
    """

    def __init__(  # noqa: PLR0913 - what a lane is made of, most of it by keyword
        self,
        location: str,
        bus: BusApi,
        stores: OpenSource,
        *,
        certificate: tuple[str, str] | None = None,
        strangers: BusApi | None = None,
        streams_max: int = STREAMS_MAX,
        waits_s_max: float = WAITS_S_MAX,
    ) -> None:
        """`certificate` is a chain and its key, in PEM, for TLS.

        `strangers` is the bus client for unknown tokens, so that wrong ones do not delay requests
        to `bus`.
        """
        tls = [] if certificate is None else [certificate]
        self.admission = LaneAdmission(strangers or bus)
        self._places = LanePlaces(self._hang_up, streams_max=streams_max, waits_s_max=waits_s_max)
        self._put_places = LanePlaces(
            self._hang_up, streams_max=streams_max, waits_s_max=waits_s_max
        )
        self._bus = bus
        self._stores = KeptStores(stores)
        self._waits = threading.BoundedSemaphore(WAITS_MAX)
        super().__init__(
            location, tls_certificates=tls, middleware={TOKEN: GuestFactory(self.admission)}
        )
        both = (self._places, self._put_places)
        self._watch = StreamWatch(
            both, lambda: connections(self.port), self._hang_up, self._stores.close_idle
        )

    @property
    def streams_open(self) -> int:
        return self._places.count() + self._put_places.count()

    @property
    def places_taken(self) -> int:
        return self._places.taken + self._put_places.taken

    def end_silent(self) -> None:
        """End the streams that waited too long for their clients; the lane itself calls this
        regularly.
        """
        self._places.end_silent()
        self._put_places.end_silent()

    def shutdown(self) -> None:
        self._watch.close()
        super().shutdown()
        self._stores.close()

    def list_actions(  # type: ignore[override]  # the stubs say Action, the server wants types
        self, context: flight.ServerCallContext
    ) -> list[flight.ActionType]:
        return [flight.ActionType(name, text) for name, text in _ACTIONS.items()]

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[bytes]:
        with LaneRefusal():
            answer = self._act(action.type, action.body.to_pybytes(), token_of(context))
            return iter([json.dumps(answer).encode()])

    def get_schema(  # type: ignore[override]  # the stubs say Schema, the server wants a result
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        with LaneRefusal():
            wish = _wish_of(descriptor)
            self._describe(wish.entity, token_of(context), table=wish.table)
            return flight.SchemaResult(_schema_of(wish))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with LaneRefusal():
            wish = _wish_of(descriptor)
            found = self._ranges(wish, token_of(context))
            starts, stops = wish.numbers_by_fragment("from"), wish.numbers_by_fragment("to")
            endpoints: list[flight.FlightEndpoint] = []
            for part in found.fragments:
                if part.number not in stops:
                    part.check_counted()
                # The oldest records may be dropped at any moment: 0 takes what is there then.
                first = 0 if wish.is_of_records else part.first
                kind = {"table": wish.table} if wish.is_of_records else {"states": wish.state_names}
                ticket = {
                    "entity": wish.entity,
                    **kind,
                    "columns": wish.columns,
                    "fragment": part.number,
                    "incarnation": str(found.entity_id),
                    "from": starts.get(part.number, first),
                    "to": stops.get(part.number, part.next),
                }
                endpoints.append(flight.FlightEndpoint(json.dumps(ticket).encode(), []))
            rows = -1 if wish.is_of_records else sum(part.waiting for part in found.fragments)
            return flight.FlightInfo(_schema_of(wish), descriptor, endpoints, rows, -1)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        with LaneRefusal():
            wish, peer = ReadRequest(ticket.ticket, TICKET), peer_name(context.peer())
            number = wish.number("fragment")
            if wish.is_of_records:
                batches = self._recorded(wish, number, token_of(context))
            elif wish.reader is None:
                batches = self._browsed(wish, number, token_of(context))
            else:
                whose = wish.reader, wish.reader_id
                ask = ClaimAsk(wish.entity, _line(wish.entity), number, *whose, wish.ordinals)
                bus, token = self._bus, token_of(context)
                batches = claimed(bus, self._stores, token, ask, wish.columns)
            return flight.GeneratorStream(_schema_of(wish), self._given(batches, peer))

    def _act(self, action: str, body: bytes, token: str) -> dict[str, object]:
        if action not in _ACTIONS:
            raise Refused(
                INVALID_ARGUMENT,
                f"There is no action '{action[:100]}'; the actions are {', '.join(_ACTIONS)}.",
            )
        document, entity = _action_body(body)
        if action == "describe":
            return self._news(entity, document, token)
        if action == "list":
            return self._bus.get(entity_path(entity, "readers"), token)
        whose = "stages" if action in _OF_STAGES else "readers"
        return self._bus.post(entity_path(entity, f"{whose}/{action}"), token, document)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with LaneRefusal(), self._put_places.stream(peer_name(context.peer())) as stream:
            put = Put(self._bus, token_of(context), descriptor.command or b"")
            put.run(self._taken(reader, stream))
            # A client that has gone cannot be told; its staged messages expire by themselves.
            with suppress(OSError):
                writer.write(pa.py_buffer(put.answer()))

    def _describe(
        self, entity: str, token: str, query: str = "", *, table: str = MESSAGES
    ) -> LaneDescription:
        path = "lifecycle-blocks" if table == LIFECYCLE else "bulk"
        return LaneDescription(self._bus.get(entity_path(entity, f"{path}{query}"), token))

    def _ranges(self, wish: ReadRequest, token: str) -> LaneDescription:
        """The first and the next number of each fragment."""
        found = self._describe(wish.entity, token, table=wish.table)
        if wish.is_of_records:
            return found
        return with_first_numbers(found, self._stores, _line(wish.entity))

    def _news(self, entity: str, asked: dict[str, object], token: str) -> dict[str, object]:
        """The numbers of fragments; with a known stamp, when the stamp changes or the wait is over.

        If nothing changed the first numbers are not needed, and no store is read.
        """
        known, wait_ms = asked.get("known", ""), asked.get("wait_ms", 0)
        if not isinstance(known, str) or not isinstance(wait_ms, int):
            raise Refused(INVALID_ARGUMENT, "'known' must be a text and 'wait_ms' a number.")
        table = checked_table(asked.get("table", MESSAGES))
        query = ""
        has_place = bool(known and wait_ms) and self._waits.acquire(blocking=False)
        try:
            if has_place:
                query = "?" + urlencode({"known": known, "wait_ms": wait_ms})
            found = self._describe(entity, token, query, table=table)
        finally:
            if has_place:
                self._waits.release()
        if table == LIFECYCLE or (known and found.document.get("stamp") == known):
            return found.document
        return with_first_numbers(found, self._stores, _line(entity)).document

    def _browsed(self, wish: ReadRequest, number: int, token: str) -> Iterator[pa.RecordBatch]:
        first, stop = wish.number("from"), wish.number("to")
        found = self._same(wish, token)
        broker = found.fragment(number).broker
        if first >= stop:
            return iter(())
        ask = BulkAsk(number, _line(wish.entity), [(first, stop - 1)], wish.states)
        fragment = FragmentId(found.entity_id, number)
        batches = read_fragment(self._stores, broker, fragment, ask, wish.columns, found.places)
        return _browsed(batches, fragment, wish)

    def _recorded(self, wish: ReadRequest, number: int, token: str) -> Iterator[pa.RecordBatch]:
        first, stop = wish.number("from"), wish.number("to")
        found = self._same(wish, token)
        broker = found.fragment(number).broker
        fragment = FragmentId(found.entity_id, number)
        return _recorded(lambda: self._stores(broker), fragment, wish.columns, first, stop)

    def _same(self, wish: ReadRequest, token: str) -> LaneDescription:
        """The entity of a ticket; Refused when another one has its name now."""
        found = self._describe(wish.entity, token, table=wish.table)
        if wish.incarnation not in ("", str(found.entity_id)):
            raise Refused(
                NOT_FOUND,
                f"The entity '{wish.entity}' of the ticket was deleted and created again, and "
                "has other messages. Ask for a new ticket.",
            )
        return found

    def _given(self, batches: Iterator[pa.RecordBatch], peer: str) -> Iterator[pa.RecordBatch]:
        """The batches, while the stream has a place and the client takes them."""
        with LaneRefusal(), self._places.stream(peer) as stream:
            self._places.take(stream)
            for batch in batches:
                with self._places.client_turn(stream):
                    yield batch

    def _taken(
        self, reader: flight.MetadataRecordBatchReader, stream: Stream
    ) -> Iterator[pa.RecordBatch]:
        """The batches that a client puts. The stream has a place from its first batch on: a silent
        client needs none.
        """
        with self._put_places.client_turn(stream, FIRST_S_MAX):
            schema = reader.schema
        check_written(schema)
        patience_s: float = FIRST_S_MAX
        while True:
            with self._put_places.client_turn(stream, patience_s):
                try:
                    batch = reader.read_chunk().data
                except StopIteration:
                    return
            self._put_places.take(stream)
            patience_s = SILENT_S_MAX
            if batch is not None:
                yield batch

    def _hang_up(self, peer: str) -> bool:
        return hang_up(self.port, peer)


def _browsed(
    batches: Iterator[tuple[pa.RecordBatch, list[int]]], fragment: FragmentId, wish: ReadRequest
) -> Iterator[pa.RecordBatch]:
    for batch, damaged in batches:
        if damaged:
            log.error("%s, %s: left out damaged messages %s", wish.entity, fragment, damaged)
        if batch.num_rows:
            yield batch


def _recorded(
    opened: Callable[[], BulkSource],
    fragment: FragmentId,
    columns: list[str],
    first: int,
    stop: int,
) -> Iterator[pa.RecordBatch]:
    """Opens the store with the first batch, when the stream has its place."""
    yield from read_records(opened(), fragment, columns, first, stop)


def _schema_of(wish: ReadRequest) -> pa.Schema:
    return record_schema_of(wish.columns) if wish.is_of_records else schema_of(wish.columns)


def _line(entity: str) -> int:
    return parse_address(entity).line


def _wish_of(descriptor: flight.FlightDescriptor) -> ReadRequest:
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return ReadRequest(descriptor.command or b"", COMMAND)
    path = b"/".join(descriptor.path or []).decode(errors="replace")
    return ReadRequest(json.dumps({"entity": path}).encode(), COMMAND)


def _action_body(body: bytes) -> tuple[dict[str, object], str]:
    """The body without the entity, and the entity."""
    document = read_object(body, "body of the action", ACTION_BYTES_MAX)
    entity = document.pop("entity", None)
    if not isinstance(entity, str) or not entity:
        raise Refused(INVALID_ARGUMENT, "The body of the action must have 'entity', a text.")
    return document, entity
