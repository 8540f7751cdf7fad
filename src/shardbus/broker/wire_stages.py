"""Commands and answers about stages and producers as the fields of a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardbus.broker.fields import I64, LENGTH, Reader, WireError, Writer
from shardbus.core.command import (
    AskProducers,
    AskStages,
    DropStages,
    ForgetProducer,
    HeldStage,
    Producer,
    Producers,
    ProlongStages,
    Publication,
    Stage,
    StageCommand,
    StageReply,
    StageShare,
    StagesHeld,
)
from shardbus.core.message import Message
from shardbus.core.runs import unpack_runs
from shardbus.core.stage_command import CheckStages, PublishOn, StagesChecked

STAGE: Final = 60
DROP_STAGES: Final = 61
ASK_STAGES: Final = 62
ASK_PRODUCERS: Final = 63
FORGET_PRODUCER: Final = 64
PROLONG_STAGES: Final = 65
CHECK_STAGES: Final = 66

STAGES_HELD: Final = 60
PRODUCERS: Final = 61
STAGES_CHECKED: Final = 62

EncodeMessage = Callable[[Writer, Message], None]
DecodeMessage = Callable[[Reader], Message]


def is_stage(tag: int) -> bool:
    """Whether a command with this tag is one of these."""
    return STAGE <= tag <= CHECK_STAGES


def is_staged(tag: int) -> bool:
    """Whether an answer with this tag is one of these."""
    return STAGES_HELD <= tag <= STAGES_CHECKED


def encode_stage(writer: Writer, command: StageCommand, encode_message: EncodeMessage) -> int:
    """Write the fields; the tag that tells which command they are of."""
    if isinstance(command, Stage):
        writer.data(command.stage)
        writer.i64(command.piece)
        writer.i64(command.lifetime_ms)
        writer.count(len(command.messages))
        for message in command.messages:
            encode_message(writer, message)
        return STAGE
    if isinstance(command, AskProducers | ForgetProducer):
        writer.data(command.name)
        return ASK_PRODUCERS if isinstance(command, AskProducers) else FORGET_PRODUCER
    assert not isinstance(command, PublishOn), "a runner asks for that itself"
    writer.count(len(command.stages))
    for name in command.stages:
        writer.data(name)
    if isinstance(command, AskStages):
        writer.data(command.batch_key)
        return ASK_STAGES
    if isinstance(command, CheckStages):
        return CHECK_STAGES
    return DROP_STAGES if isinstance(command, DropStages) else PROLONG_STAGES


def decode_stage(tag: int, reader: Reader, decode_message: DecodeMessage) -> StageCommand:
    if tag == STAGE:
        stage, piece, lifetime_ms = reader.data(), reader.i64(), reader.i64()
        messages = [decode_message(reader) for _ in range(reader.count(LENGTH.size))]
        return Stage(stage, piece, messages, lifetime_ms)
    if tag == ASK_PRODUCERS:
        return AskProducers(reader.data())
    if tag == FORGET_PRODUCER:
        return ForgetProducer(reader.data())
    names = [reader.data() for _ in range(reader.count(LENGTH.size))]
    if tag == ASK_STAGES:
        return AskStages(names, reader.data())
    if tag == CHECK_STAGES:
        return CheckStages(names)
    return DropStages(names) if tag == DROP_STAGES else ProlongStages(names)


def encode_staged(writer: Writer, answer: StageReply) -> int:
    """Write the fields; the tag that tells which answer they are of."""
    if isinstance(answer, StagesHeld):
        writer.count(len(answer.stages))
        for stage in answer.stages:
            writer.data(stage.stage)
            writer.data(stage.pieces.pack())
            writer.i64(stage.count)
            writer.i64(stage.size_bytes)
        writer.i64(answer.left_bytes)
        writer.i64(answer.unchecked_bytes)
        writer.u8(answer.takes_bites)
        return STAGES_HELD
    if isinstance(answer, StagesChecked):
        writer.i64(answer.left_bytes)
        return STAGES_CHECKED
    writer.count(len(answer.producers))
    for producer in answer.producers:
        writer.data(producer.name)
        writer.i64(producer.batch)
        writer.i64(producer.at_ms)
        writer.count(len(producer.fingerprints))
        for batch, fingerprint in producer.fingerprints:
            writer.i64(batch)
            writer.data(fingerprint)
    return PRODUCERS


def decode_staged(tag: int, reader: Reader) -> StageReply:
    if tag == STAGES_HELD:
        stages = [_decode_held(reader) for _ in range(reader.count(LENGTH.size))]
        left_bytes, unchecked_bytes = reader.i64(), reader.i64()
        return StagesHeld(stages, left_bytes, unchecked_bytes, takes_bites=reader.flag())
    if tag == STAGES_CHECKED:
        return StagesChecked(reader.i64())
    return Producers([_decode_producer(reader) for _ in range(reader.count(LENGTH.size))])


def encode_published(
    writer: Writer, stages: list[StageShare], publication: Publication | None
) -> None:
    """What a transaction publishes."""
    writer.count(len(stages))
    for name, count in stages:
        writer.data(name)
        writer.i64(count)
    writer.u8(publication is not None)
    if publication is not None:
        writer.data(publication.producer)
        writer.i64(publication.batch)
        writer.data(publication.fingerprint)
        writer.u8(publication.is_once)


def decode_published(reader: Reader) -> tuple[list[StageShare], Publication | None]:
    count = reader.count(LENGTH.size + I64.size)
    stages = [(reader.data(), reader.i64()) for _ in range(count)]
    if not reader.flag():
        return stages, None
    producer, batch, fingerprint = reader.data(), reader.i64(), reader.data()
    return stages, Publication(producer, batch, fingerprint, is_once=reader.flag())


def _decode_producer(reader: Reader) -> Producer:
    producer = Producer(reader.data(), reader.i64(), reader.i64())
    count = reader.count(LENGTH.size + I64.size)
    producer.fingerprints = [(reader.i64(), reader.data()) for _ in range(count)]
    return producer


def _decode_held(reader: Reader) -> HeldStage:
    name, packed = reader.data(), reader.data()
    try:
        pieces = unpack_runs(packed)
    except ValueError as error:
        raise WireError(str(error)) from error
    return HeldStage(name, pieces, reader.i64(), reader.i64())
