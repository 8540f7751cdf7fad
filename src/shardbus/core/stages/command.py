"""What fragments are asked about stages and those who publish them, and what they answer.

A *stage* is messages under a name that nobody sees until they are published, put there in numbered
*pieces*. A *producer* publishes stages in numbered batches, each once. Stages go by the UTF-8 of
their names, and so do producers. See `staging` for the rules; publishing is a transaction (`Work`).
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from shardbus.core.declared import (
    DATA,
    FLAG,
    NAMES,
    NUMBER,
    OF_STAGES,
    RUNS,
    Asked,
    Declared,
    fields,
    list_of,
    record,
    tuple_of,
)
from shardbus.core.message import NEVER_MS, Message
from shardbus.core.runs import Runs

StageShare = tuple[bytes, int]
"""A stage, and how many messages of it one fragment has."""

NO_BATCH: Final = -1


class AboutStages(Asked):
    """A command about stages, or those who publish them."""

    FAMILY: ClassVar[int] = OF_STAGES


@final
class Stage(AboutStages):
    """Keep messages as a piece of a stage, which ends `lifetime_ms` from now. Answered by `Done`.

    A piece that is there already stays as it is. Refused as a send would be, and when the stage is
    being published.
    """

    FIELDS = fields(stage=DATA, piece=NUMBER, messages=list_of(record(Message)), lifetime_ms=NUMBER)

    def __init__(self, stage: bytes, piece: int, messages: list[Message], lifetime_ms: int) -> None:
        self.stage = stage
        self.piece = piece
        self.messages = messages
        self.lifetime_ms = lifetime_ms


@final
class DropStages(AboutStages):
    """Forget stages, but not those that are being published. Answered by `Done`.

    A name that ends in a slash is all stages whose names begin so.
    """

    FIELDS = fields(stages=NAMES)

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class ProlongStages(AboutStages):
    """Keep stages for their whole time from now on; named as in `DropStages`. Answered by `Done`,
    also when they are not there.
    """

    FIELDS = fields(stages=NAMES)

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class AskStages(AboutStages):
    """What is there of these stages, and how much is left of what is promised or being published
    for a batch? Answered by `StagesHeld`.
    """

    FIELDS = fields(stages=NAMES, batch_key=DATA)

    def __init__(self, stages: list[bytes], batch_key: bytes = b"") -> None:
        self.stages = stages
        self.batch_key = batch_key


@final
class CheckStages(AboutStages):
    """Look whether some more pieces of stages are whole. Answered by `StagesChecked`.

    Refused with STAGE_LOST when one is damaged.
    """

    FIELDS = fields(stages=NAMES)

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class PublishOn(AboutStages):
    """Send the next bite of what is being published: a runner asks for that by itself."""


@final
class AskProducers(AboutStages):
    """What has a producer published, or, without a name, any? Answered by `Producers`."""

    FIELDS = fields(name=DATA)

    def __init__(self, name: bytes = b"") -> None:
        self.name = name


@final
class ForgetProducer(AboutStages):
    """A producer that published once knows that it has. Answered by `Done`, also when it is not
    known or publishes often.
    """

    FIELDS = fields(name=DATA)

    def __init__(self, name: bytes) -> None:
        self.name = name


@final
class HeldStage(Declared):
    """What one fragment has of a stage."""

    FIELDS = fields(stage=DATA, pieces=RUNS, count=NUMBER, size_bytes=NUMBER)

    def __init__(self, stage: bytes, pieces: Runs, count: int, size_bytes: int) -> None:
        self.stage = stage
        self.pieces = pieces
        self.count = count
        self.size_bytes = size_bytes


@final
class StagesHeld(Declared):
    """Only those that the fragment has something of; `left_bytes` are promised or being published
    for the batch that was asked for. Of `unchecked_bytes` it is to be asked whether they are whole
    (`CheckStages`) before the stages are published. That may take bites, or will not.
    """

    FIELDS = fields(
        stages=list_of(record(HeldStage)),
        left_bytes=NUMBER,
        unchecked_bytes=NUMBER,
        takes_bites=FLAG,
    )

    def __init__(
        self,
        stages: list[HeldStage],
        left_bytes: int = 0,
        unchecked_bytes: int = 0,
        *,
        takes_bites: bool = False,
    ) -> None:
        self.stages = stages
        self.left_bytes = left_bytes
        self.unchecked_bytes = unchecked_bytes
        self.takes_bites = takes_bites


@final
class StagesChecked(Declared):
    """So many bytes of the stages have not been looked at."""

    FIELDS = fields(left_bytes=NUMBER)

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes


@final
class Publication(Declared):
    """A batch of a producer: its number, and what its rows are known by, if anything.

    A producer that publishes `is_once` has no other batch, and is forgotten soon.
    """

    FIELDS = fields(producer=DATA, batch=NUMBER, fingerprint=DATA, is_once=FLAG)

    def __init__(
        self, producer: bytes, batch: int, fingerprint: bytes = b"", *, is_once: bool = False
    ) -> None:
        self.producer = producer
        self.batch = batch
        self.fingerprint = fingerprint
        self.is_once = is_once


@final
class Producer(Declared):
    """Which batch was published last, and when.

    `noted_ms` is when by the steady clock, if the fragment has been in memory since (NEVER_MS).
    `fingerprints` are those of the last batches, with their numbers, the oldest first.
    """

    FIELDS = fields(
        name=DATA, batch=NUMBER, at_ms=NUMBER, fingerprints=list_of(tuple_of(NUMBER, DATA))
    )

    def __init__(
        self,
        name: bytes,
        batch: int,
        at_ms: int,
        noted_ms: int = NEVER_MS,
        *,
        fingerprints: list[tuple[int, bytes]] | None = None,
    ) -> None:
        self.name = name
        self.batch = batch
        self.at_ms = at_ms
        self.noted_ms = noted_ms
        self.fingerprints: list[tuple[int, bytes]] = [] if fingerprints is None else fingerprints
        self.is_once = False


@final
class Producers(Declared):
    """Those that the fragment remembers, of those that were asked for."""

    FIELDS = fields(producers=list_of(record(Producer)))

    def __init__(self, producers: list[Producer]) -> None:
        self.producers = producers


StageCommand = (
    Stage | DropStages | ProlongStages | AskStages | CheckStages | AskProducers | ForgetProducer
)
StageReply = StagesHeld | StagesChecked | Producers
