"""Stages what clients put on the bus, piece by piece."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, final
from urllib.parse import quote

import pyarrow as pa

from shardbus.codec.errors import EncodeError
from shardbus.core.errors import INVALID_ARGUMENT, STAGE_LOST, Refused
from shardbus.gateway.flight.server.bus import BusApi, BusError, Document, entity_path
from shardbus.gateway.flight.server.ticket import read_object
from shardbus.gateway.flight.writing.pieces import PIECE_BYTES_MAX, Piece, PieceGatherer
from shardbus.gateway.flight.writing.sinking import drafts_of

PIECES_MAX: Final = 4
"""Pieces of one stage that are on their way to the bus at the same time."""
COMMAND_BYTES_MAX: Final = 4_096
PAST: Final = "sequence_number"
"""The column with the numbers under which a topic published its messages."""
NUMBER_BYTES: Final = 8


@final
class Put:
    """One stage on its way to the bus."""

    def __init__(self, bus: BusApi, token: str, command: bytes) -> None:
        """`command` is a JSON object with the entity and the stage."""
        members = read_object(command, "command", COMMAND_BYTES_MAX)
        self._bus = bus
        self._token = token
        self._entity = _text(members, "entity")
        self._stage = _text(members, "stage")
        # Past messages are in the order of their numbers, which stand before each piece.
        self._is_past = members.get("past") is True
        self._numbers: list[int] = []
        self._pieces = PieceGatherer()
        # The number of the first piece; a stage may be put in several streams, one after the other.
        self._first = _number(members, "piece")
        self._count = 0
        self.rows = 0

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Stage all of it; Refused or BusError when that fails.

        Several pieces are on their way at a time, since each waits for the disk of its fragment.
        When this ends, each was answered or given up, so that a discarded stage does not come back
        from here.
        """
        sent: deque[Future[Document]] = deque()
        with ThreadPoolExecutor(PIECES_MAX) as senders:
            for number, piece in enumerate(self._gathered(batches), self._first):
                self.rows += piece.count
                self._count += 1
                if number == self._first:
                    # The answer to the first piece tells how to gather the others.
                    row = self._pieces.alone_row
                    fragments = self._send(number, piece, row, self._past_of(piece)).get(
                        "fragments"
                    )
                    if not self._is_past:
                        self._pieces.spread(fragments if isinstance(fragments, int) else 1)
                    continue
                # A message that is larger than a piece is sent when no other piece is on its way.
                others_max = 0 if piece.size_bytes > PIECE_BYTES_MAX else PIECES_MAX - 1
                while len(sent) > others_max:
                    sent.popleft().result()
                row = self._pieces.alone_row
                past = self._past_of(piece)
                sent.append(senders.submit(self._send, number, piece, row, past))
            while sent:
                sent.popleft().result()

    def answer(self) -> bytes:
        """The final answer to the client."""
        told = {"rows": self.rows, "digest": self._pieces.digest(), "pieces": self._count}
        return json.dumps(told).encode()

    def _gathered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        rows = 0
        for batch in batches:
            if self._is_past:
                self._numbers += _numbers(batch)
                batch = batch.drop_columns([PAST])
            try:
                self._pieces.take_in(drafts_of(batch, rows))
            except EncodeError as error:
                raise Refused(INVALID_ARGUMENT, f"A row cannot be sent: {error}.") from error
            rows += batch.num_rows
            while piece := self._pieces.next():
                yield piece
        yield from self._pieces.rest()

    def _past_of(self, piece: Piece) -> Sequence[int]:
        """The numbers of the next messages."""
        if not self._is_past:
            return ()
        taken, self._numbers = self._numbers[: piece.count], self._numbers[piece.count :]
        return taken

    def _send(self, number: int, piece: Piece, row: int, past: Sequence[int] = ()) -> Document:
        """`row` is that of a message that is a piece of its own, if this is one."""
        stage = quote(self._stage, safe="")
        path = entity_path(self._entity, f"stages/{stage}?piece={number}")
        content = piece.content()
        is_small = len(content) <= PIECE_BYTES_MAX
        if past:
            path = f"{path}&past={len(past)}"
            content = b"".join([each.to_bytes(NUMBER_BYTES, "big") for each in past]) + content
        if is_small:
            return self._bus.put(path, self._token, content)
        try:
            return self._send_parts(path, content)
        except BusError as error:
            code, _, text = str(error).partition(": ")
            told = f"Row {row} makes a message of {len(piece.parts[0])} bytes. {text}"
            if code == STAGE_LOST.name:
                # Its earlier parts are gone: the client must put it again.
                raise BusError(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", told) from error
            raise BusError(error.status, code, told) from error

    def _send_parts(self, path: str, content: bytes | memoryview) -> Document:
        """Send a piece that is too large for one request; returns the answer to its last part."""
        parts = -(-len(content) // PIECE_BYTES_MAX)
        answer: Document = {}
        for part in range(parts):
            some = content[part * PIECE_BYTES_MAX : (part + 1) * PIECE_BYTES_MAX]
            answer = self._bus.put(f"{path}&part={part}&parts={parts}", self._token, some)
        return answer


def _numbers(batch: pa.RecordBatch) -> list[int]:
    if PAST not in batch.schema.names or batch.column(PAST).null_count:
        raise Refused(INVALID_ARGUMENT, f"Past messages need {PAST} in every row.")
    return [number or 0 for number in batch.column(PAST).cast(pa.int64()).to_pylist()]


def _number(members: dict[str, object], name: str) -> int:
    value = members.get(name, 0)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise Refused(INVALID_ARGUMENT, f"'{name}' of the command must be a non-negative whole number.")


def _text(members: dict[str, object], name: str) -> str:
    value = members.get(name)
    if isinstance(value, str) and value:
        return value
    raise Refused(INVALID_ARGUMENT, f"The command must have '{name}', a text.")
