"""A desk for stages: short forms of the commands about them."""

from shardbus.core.limits import STAGE_MS_DEFAULT
from shardbus.core.message import Message
from shardbus.core.messages.command import Done
from shardbus.core.stages.command import (
    AskProducers,
    AskStages,
    DropStages,
    Producers,
    Publication,
    Stage,
    StagesHeld,
)
from shardbus.core.transactions.command import Transact, Work
from tests.unit.core.desk import Desk

NAME = b"attempt"
PRODUCER = b"query"


class StagingDesk(Desk):
    """A desk where somebody stages."""

    def stage(
        self,
        *payloads: bytes,
        name: bytes = NAME,
        piece: int = 1,
        lifetime_ms: int = STAGE_MS_DEFAULT,
    ) -> None:
        self.stage_all([Message(payload) for payload in payloads], name, piece, lifetime_ms)

    def stage_all(
        self,
        messages: list[Message],
        name: bytes = NAME,
        piece: int = 1,
        lifetime_ms: int = STAGE_MS_DEFAULT,
    ) -> None:
        assert isinstance(self.do(Stage(name, piece, messages, lifetime_ms)), Done)

    def drop(self, *names: bytes) -> None:
        assert isinstance(self.do(DropStages(list(names))), Done)

    def held(self, *names: bytes) -> dict[bytes, int]:
        """How many messages there are of stages."""
        held = self.do(AskStages(list(names) or [NAME]))
        assert isinstance(held, StagesHeld)
        return {each.stage: each.count for each in held.stages}

    def publication(
        self,
        *names: bytes,
        producer: bytes = PRODUCER,
        batch: int | None = None,
        fingerprint: bytes = b"",
    ) -> Work:
        """What publishes all that is here of stages."""
        published = None if batch is None else Publication(producer, batch, fingerprint)
        return Work([], [], list(self.held(*names).items()), published)

    def publish(
        self,
        *names: bytes,
        producer: bytes = PRODUCER,
        batch: int | None = None,
        fingerprint: bytes = b"",
    ) -> None:
        work = self.publication(*names, producer=producer, batch=batch, fingerprint=fingerprint)
        assert isinstance(self.do(Transact(work)), Done)

    def batches(self, name: bytes = b"") -> dict[bytes, int]:
        """The last batch of each producer."""
        known = self.do(AskProducers(name))
        assert isinstance(known, Producers)
        return {each.name: each.batch for each in known.producers}
