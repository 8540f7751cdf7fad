"""Stages and producers, and the records that store them."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.records import PRODUCER, PUBLISHING, STAGE
from shardbus.core.message import Message
from shardbus.core.packing import Unpacker, pack_messages, packed_count, packed_integer
from shardbus.core.runs import Runs, unpack_runs
from shardbus.core.stages.command import HeldStage, Producer

# In place of a number of messages: their payloads are stored beside the piece.
_PLAIN: Final = 0xFFFFFFFF
# In place of the number of a batch: the producer publishes once.
_ONCE: Final = -1


@final
class Amount:
    """How much is staged, and how much of that is packed and must be read to be published."""

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        self.packed_count = 0
        self.packed_bytes = 0

    def add(self, count: int, size_bytes: int, *, is_packed: bool) -> None:
        self.count += count
        self.size_bytes += size_bytes
        if is_packed:
            self.packed_count += count
            self.packed_bytes += size_bytes

    def include(self, other: Amount) -> None:
        self.count += other.count
        self.size_bytes += other.size_bytes
        self.packed_count += other.packed_count
        self.packed_bytes += other.packed_bytes

    def exclude(self, other: Amount) -> None:
        self.count -= other.count
        self.size_bytes -= other.size_bytes
        self.packed_count -= other.packed_count
        self.packed_bytes -= other.packed_bytes


@final
class OpenStage:
    """What a fragment has of a stage. Time cannot end a stage that is promised to a transaction or
    being published.

    `batch_key` identifies the batch of that publication. `sent` messages of the first piece are
    already sent. The pieces in `whole` were checked since the fragment was loaded; the payloads of
    those in `fresh` were stored since then, and a check would find them in memory, not on the disk.
    """

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.pieces = Runs()
        self.amount = Amount()
        # By the steady clock; a stage that is loaded has its whole lifetime again.
        self.deadline_ms = 0
        self.lifetime_ms = 0
        self.is_promised = False
        self.batch_key = b""
        self.sent = 0
        self.whole = Runs()
        self.fresh = Runs()

    def has_stale(self, pieces: Runs) -> bool:
        """Whether payloads of these pieces are worth a check."""
        rest = pieces.copy()
        rest.exclude(self.fresh)
        return rest.count > 0

    def held(self) -> HeldStage:
        return HeldStage(self.name, self.pieces.copy(), self.amount.count, self.amount.size_bytes)


@final
class ReadPiece:
    """A piece as it was read: its messages, or none where their payloads are stored beside it.

    In the latter case `ttls_ms` has a time to live for each message, or a single one for all.
    `data_bytes` is how much of the piece was read.
    """

    def __init__(
        self, messages: list[Message], count: int, size_bytes: int, ttls_ms: list[int]
    ) -> None:
        self.messages = messages
        self.count = count
        self.size_bytes = size_bytes
        self.ttls_ms = ttls_ms
        self.data_bytes = 0

    def amount(self) -> Amount:
        """What the piece counts as while it is staged."""
        amount = Amount()
        if self.messages:
            amount.add(self.count, self.data_bytes, is_packed=True)
        else:
            amount.add(self.count, self.data_bytes + self.size_bytes, is_packed=False)
        return amount


@final
class ReadStage:
    """What the store has of a stage: its pieces by number, and which of them are damaged."""

    def __init__(self) -> None:
        self.pieces: dict[int, ReadPiece] = {}
        self.damaged: list[int] = []

    def messages(self) -> list[Message]:
        """The packed messages."""
        return [message for piece in self.pieces.values() for message in piece.messages]


def packed_piece(messages: list[Message]) -> bytes:
    parts: list[bytes] = []
    pack_messages(messages, parts)
    return b"".join(parts)


def plain_piece(messages: list[Message]) -> bytes:
    """What publishing must know about messages, except their payloads."""
    ttls_ms = [message.ttl_ms for message in messages]
    if ttls_ms.count(ttls_ms[0]) == len(ttls_ms):
        del ttls_ms[1:]
    size_bytes = 0
    for message in messages:
        size_bytes += len(message.payload)
    parts = [packed_count(_PLAIN), packed_count(len(messages)), packed_integer(size_bytes)]
    parts += [packed_integer(ttl_ms) for ttl_ms in ttls_ms]
    return b"".join(parts)


def read_piece(data: bytes) -> ReadPiece:
    """Read what `packed_piece` or `plain_piece` wrote; ValueError for damaged bytes."""
    piece = _read_piece(data)
    piece.data_bytes = len(data)
    return piece


def _read_piece(data: bytes) -> ReadPiece:
    unpacker = Unpacker(data)
    if data[:4] != packed_count(_PLAIN):
        messages = unpacker.messages()
        unpacker.end()
        return ReadPiece(messages, len(messages), len(data), [])
    unpacker.count()
    count, size_bytes = unpacker.count(), unpacker.integer()
    ttls_ms = [unpacker.integer()]
    while not unpacker.is_at_end():
        ttls_ms.append(unpacker.integer())
    if len(ttls_ms) not in (1, count):
        raise ValueError(
            "the number of times to live in a piece is neither one nor the number of messages"
        )
    return ReadPiece([], count, size_bytes, ttls_ms)


def stage_change(stage: OpenStage) -> RecordChange:
    amount = stage.amount
    numbers = (
        stage.sent,
        amount.count,
        amount.size_bytes,
        amount.packed_count,
        amount.packed_bytes,
        stage.lifetime_ms,
    )
    data = b"".join([packed_integer(number) for number in numbers]) + stage.pieces.pack()
    return RecordChange(STAGE, stage.name, data)


def unpack_stage(name: bytes, data: bytes) -> OpenStage:
    """Read what `stage_change` wrote; ValueError for damaged bytes."""
    unpacker = Unpacker(data)
    stage = OpenStage(name)
    amount = stage.amount
    stage.sent = unpacker.integer()
    amount.count, amount.size_bytes = unpacker.integer(), unpacker.integer()
    amount.packed_count, amount.packed_bytes = unpacker.integer(), unpacker.integer()
    stage.lifetime_ms = unpacker.integer()
    stage.pieces = unpack_runs(unpacker.rest())
    return stage


def publishing_change(ordinal: int, batch_key: bytes, names: list[bytes]) -> RecordChange:
    """The record of a decided publication: its stages in the order in which they are sent."""
    parts = [packed_count(len(batch_key)), batch_key, packed_count(len(names))]
    for name in names:
        parts += (packed_count(len(name)), name)
    return RecordChange(PUBLISHING, packed_integer(ordinal), b"".join(parts))


def unpack_publishing(key: bytes, data: bytes) -> tuple[int, bytes, list[bytes]]:
    """Read what `publishing_change` wrote; ValueError for damaged bytes."""
    ordinal, unpacker = Unpacker(key).integer(), Unpacker(data)
    batch_key = unpacker.piece(unpacker.count())
    names = [unpacker.piece(unpacker.count()) for _ in range(unpacker.count())]
    unpacker.end()
    return ordinal, batch_key, names


def staged_in(records: dict[tuple[int, bytes], bytes]) -> int:
    """How many bytes are staged according to a fragment's records."""
    size_bytes = 0
    for (kind, key), data in records.items():
        if kind == STAGE:
            size_bytes += unpack_stage(key, data).amount.size_bytes
    return size_bytes


def producer_change(producer: Producer) -> RecordChange:
    parts = [packed_integer(producer.batch), packed_integer(producer.at_ms)]
    if producer.is_once:
        parts.append(packed_integer(_ONCE))
    for batch, fingerprint in producer.fingerprints:
        parts += (packed_integer(batch), packed_count(len(fingerprint)), fingerprint)
    return RecordChange(PRODUCER, producer.name, b"".join(parts))


def unpack_producer(name: bytes, data: bytes) -> Producer:
    """Read what `producer_change` wrote; ValueError for damaged bytes."""
    unpacker = Unpacker(data)
    producer = Producer(name, unpacker.integer(), unpacker.integer())
    while not unpacker.is_at_end():
        batch = unpacker.integer()
        if batch == _ONCE:
            producer.is_once = True
            continue
        producer.fingerprints.append((batch, unpacker.piece(unpacker.count())))
    return producer
