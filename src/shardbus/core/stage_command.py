"""What fragments are asked about stages and those who publish them, and what they answer.

A *stage* is messages under a name that nobody sees until they are published, put there in numbered
*pieces*. A *producer* publishes stages in numbered batches, each once. Stages go by the UTF-8 of
their names, and so do producers. See `staging` for the rules; publishing is a transaction (`Work`).
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import NEVER_MS, Message
from shardbus.core.runs import Runs

StageShare = tuple[bytes, int]
"""A stage, and how many messages of it one fragment has."""

NO_BATCH: Final = -1


class AboutStages:
    """A command about stages, or those who publish them."""


@final
class Stage(AboutStages):
    """Keep messages as a piece of a stage, which ends `lifetime_ms` from now. Answered by `Done`.

    A piece that is there already stays as it is. Refused as a send would be, and when the stage is
    being published.
    """

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

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class ProlongStages(AboutStages):
    """Keep stages for their whole time from now on; named as in `DropStages`. Answered by `Done`,
    also when they are not there.
    """

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class AskStages(AboutStages):
    """What is there of these stages, and how much is left of what is promised or being published
    for a batch? Answered by `StagesHeld`.
    """

    def __init__(self, stages: list[bytes], batch_key: bytes = b"") -> None:
        self.stages = stages
        self.batch_key = batch_key


@final
class CheckStages(AboutStages):
    """Look whether some more pieces of stages are whole. Answered by `StagesChecked`.

    Refused with STAGE_LOST when one is damaged.
    """

    def __init__(self, stages: list[bytes]) -> None:
        self.stages = stages


@final
class PublishOn(AboutStages):
    """Send the next bite of what is being published: a runner asks for that by itself."""


@final
class AskProducers(AboutStages):
    """What has a producer published, or, without a name, any? Answered by `Producers`."""

    def __init__(self, name: bytes = b"") -> None:
        self.name = name


@final
class ForgetProducer(AboutStages):
    """A producer that published once knows that it has. Answered by `Done`, also when it is not
    known or publishes often.
    """

    def __init__(self, name: bytes) -> None:
        self.name = name


@final
class HeldStage:
    """What one fragment has of a stage."""

    def __init__(self, stage: bytes, pieces: Runs, count: int, size_bytes: int) -> None:
        self.stage = stage
        self.pieces = pieces
        self.count = count
        self.size_bytes = size_bytes


@final
class StagesHeld:
    """Only those that the fragment has something of; `left_bytes` are promised or being published
    for the batch that was asked for. Of `unchecked_bytes` it is to be asked whether they are whole
    (`CheckStages`) before the stages are published. That may take bites, or will not.
    """

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
class StagesChecked:
    """So many bytes of the stages have not been looked at."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes


@final
class Publication:
    """A batch of a producer: its number, and what its rows are known by, if anything.

    A producer that publishes `is_once` has no other batch, and is forgotten soon.
    """

    def __init__(
        self, producer: bytes, batch: int, fingerprint: bytes = b"", *, is_once: bool = False
    ) -> None:
        self.producer = producer
        self.batch = batch
        self.fingerprint = fingerprint
        self.is_once = is_once


@final
class Producer:
    """Which batch was published last, and when.

    `noted_ms` is when by the steady clock, if the fragment has been in memory since (NEVER_MS).
    `fingerprints` are those of the last batches, with their numbers, the oldest first.
    """

    def __init__(self, name: bytes, batch: int, at_ms: int, noted_ms: int = NEVER_MS) -> None:
        self.name = name
        self.batch = batch
        self.at_ms = at_ms
        self.noted_ms = noted_ms
        self.fingerprints: list[tuple[int, bytes]] = []
        self.is_once = False


@final
class Producers:
    """Those that the fragment remembers, of those that were asked for."""

    def __init__(self, producers: list[Producer]) -> None:
        self.producers = producers


StageCommand = (
    Stage
    | DropStages
    | ProlongStages
    | AskStages
    | CheckStages
    | PublishOn
    | AskProducers
    | ForgetProducer
)
StageReply = StagesHeld | StagesChecked | Producers
