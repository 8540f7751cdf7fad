"""What clients put, staged on the bus piece by piece."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, final
from urllib.parse import quote

import pyarrow.flight as flight

from shardbus.amqp.errors import EncodeError
from shardbus.amqp.message import encode_batch
from shardbus.core.errors import INVALID_ARGUMENT, TOO_LARGE, Refused
from shardbus.gateway.flight.bus import Bus, entity_path
from shardbus.gateway.flight.sinking import check_written, drafts_of
from shardbus.gateway.flight.ticket import read_object

# What a gateway takes in one request is a megabyte, and sections around messages take some of it.
PIECE_BYTES_MAX: Final = 960 * 1024
PIECE_COUNT_MAX: Final = 4_000
COMMAND_BYTES_MAX: Final = 4_096
_AROUND_BYTES: Final = 16


@final
class Put:
    """One stage on its way to the bus."""

    def __init__(self, bus: Bus, token: str, command: bytes) -> None:
        """`command` is a JSON object with the entity and the stage."""
        members = read_object(command, "command", COMMAND_BYTES_MAX)
        self._bus = bus
        self._token = token
        self._entity = _text(members, "entity")
        self._stage = _text(members, "stage")
        self._piece = 0
        self.rows = 0

    def run(self, reader: flight.MetadataRecordBatchReader) -> None:
        """Stage everything that is read; Refused or BusError when that cannot be."""
        check_written(reader.schema)
        held: list[bytes] = []
        held_bytes = 0
        for message in _messages(reader):
            size_bytes = len(message) + _AROUND_BYTES
            if size_bytes > PIECE_BYTES_MAX:
                raise Refused(
                    TOO_LARGE,
                    f"Row {self.rows + len(held)} makes a message of {len(message)} bytes; the "
                    f"bulk lane takes {PIECE_BYTES_MAX - _AROUND_BYTES}.",
                )
            if held and (held_bytes + size_bytes > PIECE_BYTES_MAX or len(held) >= PIECE_COUNT_MAX):
                self._send(held)
                held, held_bytes = [], 0
            held.append(message)
            held_bytes += size_bytes
        if held:
            self._send(held)

    def answer(self) -> bytes:
        """What a client is told in the end."""
        return json.dumps({"rows": self.rows}).encode()

    def _send(self, messages: list[bytes]) -> None:
        stage = quote(self._stage, safe="")
        path = entity_path(self._entity, f"stages/{stage}?piece={self._piece}")
        self._bus.put(path, self._token, encode_batch(messages))
        self._piece += 1
        self.rows += len(messages)


def _messages(reader: flight.MetadataRecordBatchReader) -> Iterator[bytes]:
    while True:
        try:
            batch = reader.read_chunk().data
        except StopIteration:
            return
        if batch is None:
            continue
        try:
            yield from drafts_of(batch).encoded()
        except EncodeError as error:
            raise Refused(INVALID_ARGUMENT, f"A row cannot be sent: {error}.") from error


def _text(members: dict[str, object], name: str) -> str:
    value = members.get(name)
    if isinstance(value, str) and value:
        return value
    raise Refused(INVALID_ARGUMENT, f"The command needs '{name}', a text.")
