"""The commands about stages and producers, and their replies.

A *stage* is a named set of messages that nobody sees until they are published. Messages are put
there in numbered *pieces*. A *producer* publishes stages in numbered batches, each batch once.
Stages and producers are identified by the UTF-8 of their names. See `staging` for the rules;
publishing is a transaction (`Work`).
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
"""A stage, and how many of its messages one fragment has."""

NO_BATCH: Final = -1


class AboutStages(Asked):
    """A command about stages or producers."""

    FAMILY: ClassVar[int] = OF_STAGES


@final
class Stage(AboutStages):
    """Keep messages as a piece of a stage, which ends `lifetime_ms` from now. Answered by `Done`.

    A piece that exists already stays as it is. Refused as a send would be, and while the stage is
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
    """Drop stages, except those that are being published. Answered by `Done`.

    A name that ends in a slash means all stages whose names begin with it.
    """

    FIELDS = fields(stages=NAMES)

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class ProlongStages(AboutStages):
    """Keep stages for their whole lifetime from now on; names as in `DropStages`. Answered by
    `Done`, even if there are no such stages.
    """

    FIELDS = fields(stages=NAMES)

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class AskStages(AboutStages):
    """Ask what the fragment has of these stages, and how much of a batch is still promised or being
    published. Answered by `StagesHeld`.
    """

    FIELDS = fields(stages=NAMES, batch_key=DATA)

    def __init__(self, stages: list[bytes], batch_key: bytes = b"") -> None:
        self.stages = stages
        self.batch_key = batch_key


@final
class CheckStages(AboutStages):
    """Check some more pieces of stages for damage. Answered by `StagesChecked`.

    Refused with STAGE_LOST when one is damaged.
    """

    FIELDS = fields(stages=NAMES)

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class PublishOn(AboutStages):
    """Send the next bite of the current publication; the runner gives this command by itself."""


@final
class AskProducers(AboutStages):
    """Ask what a producer has published, or, without a name, all producers. Answered by
    `Producers`.
    """

    FIELDS = fields(name=DATA)

    def __init__(self, name: bytes = b"") -> None:
        self.name = name


@final
class ForgetProducer(AboutStages):
    """A producer that publishes once has learnt that it has published. Answered by `Done`, also for
    a producer that is unknown or publishes often.
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
    """The stages of which the fragment has something. `left_bytes` is what is still promised or
    being published for the batch in the question. `unchecked_bytes` must be checked with
    `CheckStages` before the stages are published.
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
    """How many bytes of the stages are not checked yet."""

    FIELDS = fields(left_bytes=NUMBER)

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes


@final
class Publication(Declared):
    """A batch of a producer: its number, and the fingerprint of its rows, if there is one.

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
    """Which batch a producer published last, and when.

    `noted_ms` is that moment by the steady clock if the fragment has been in memory since, else
    NEVER_MS. `fingerprints` are those of the last batches with their numbers, the oldest first.
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
    """The known ones of the producers in the question."""

    FIELDS = fields(producers=list_of(record(Producer)))

    def __init__(self, producers: list[Producer]) -> None:
        self.producers = producers


StageCommand = (
    Stage | DropStages | ProlongStages | AskStages | CheckStages | AskProducers | ForgetProducer
)
StageReply = StagesHeld | StagesChecked | Producers
