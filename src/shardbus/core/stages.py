"""What a fragment keeps about stages and producers, as the records that keep it."""

from __future__ import annotations

from typing import final

from shardbus.core.change import RecordChange
from shardbus.core.message import Message
from shardbus.core.packing import Unpacker, pack_messages, packed_integer
from shardbus.core.records import PRODUCER, STAGE
from shardbus.core.runs import Runs, unpack_runs
from shardbus.core.stage_command import HeldStage, Producer


@final
class OpenStage:
    """What a fragment has of a stage. While a transaction has promised it, time cannot end it."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.pieces = Runs()
        self.count = 0
        self.size_bytes = 0
        self.expires_at_ms = 0
        self.is_promised = False

    def held(self) -> HeldStage:
        return HeldStage(self.name, self.pieces.copy(), self.count, self.size_bytes)


@final
class ReadStage:
    """What the store has of a stage: its messages in order, and which pieces are damaged."""

    def __init__(self, messages: list[Message], damaged: list[int]) -> None:
        self.messages = messages
        self.damaged = damaged


def packed_piece(messages: list[Message]) -> bytes:
    parts: list[bytes] = []
    pack_messages(messages, parts)
    return b"".join(parts)


def unpacked_piece(data: bytes) -> list[Message]:
    """What `packed_piece` packed; ValueError when it is something else."""
    unpacker = Unpacker(data)
    messages = unpacker.messages()
    unpacker.end()
    return messages


def stage_change(stage: OpenStage) -> RecordChange:
    numbers = (stage.count, stage.size_bytes, stage.expires_at_ms)
    data = b"".join([packed_integer(number) for number in numbers]) + stage.pieces.pack()
    return RecordChange(STAGE, stage.name, data)


def unpack_stage(name: bytes, data: bytes) -> OpenStage:
    """What `stage_change` packed; ValueError when it is something else."""
    unpacker = Unpacker(data)
    stage = OpenStage(name)
    stage.count, stage.size_bytes = unpacker.integer(), unpacker.integer()
    stage.expires_at_ms = unpacker.integer()
    stage.pieces = unpack_runs(unpacker.rest())
    return stage


def staged_in(records: dict[tuple[int, bytes], bytes]) -> int:
    """How many bytes are staged by what a fragment has on record."""
    size_bytes = 0
    for (kind, key), data in records.items():
        if kind == STAGE:
            size_bytes += unpack_stage(key, data).size_bytes
    return size_bytes


def producer_change(producer: Producer) -> RecordChange:
    data = packed_integer(producer.batch) + packed_integer(producer.at_ms)
    return RecordChange(PRODUCER, producer.name, data)


def unpack_producer(name: bytes, data: bytes) -> Producer:
    """What `producer_change` packed; ValueError when it is something else."""
    unpacker = Unpacker(data)
    batch, at_ms = unpacker.integer(), unpacker.integer()
    unpacker.end()
    return Producer(name, batch, at_ms)
