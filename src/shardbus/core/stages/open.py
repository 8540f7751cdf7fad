"""The stages of a fragment, and their totals."""

from __future__ import annotations

from typing import final

from shardbus.core.fragment.change import RecordChange, StageDrop
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.records import STAGE
from shardbus.core.runs import runs_of
from shardbus.core.stages.record import Amount, OpenStage, ReadPiece, unpack_stage


@final
class OpenStages:
    """The stages by name. Whatever is added, sent or dropped is counted here."""

    def __init__(self, ledger: Ledger, records: dict[tuple[int, bytes], bytes]) -> None:
        self._ledger = ledger
        self.named: dict[bytes, OpenStage] = {}
        for (kind, key), data in records.items():
            if kind == STAGE:
                stage = unpack_stage(key, data)
                self.named[key] = stage
                ledger.staged_bytes += stage.amount.size_bytes

    def add(self, stage: OpenStage, piece: int, amount: Amount) -> None:
        """Add a piece to a stage."""
        self.named[stage.name] = stage
        stage.pieces.include(runs_of([piece]))
        stage.amount.include(amount)
        self._ledger.staged_bytes += amount.size_bytes

    def promise(self, stage: OpenStage, batch_key: bytes) -> None:
        """From now on only a transaction can end the stage; its messages are sent if that
        commits.
        """
        if not stage.is_promised:
            stage.is_promised = True
            self._ledger.promised_ids += stage.amount.packed_count
        stage.batch_key = batch_key

    def let_go(self, stage: OpenStage) -> None:
        """The promise of the stage is withdrawn."""
        if stage.is_promised:
            stage.is_promised = False
            self._ledger.promised_ids -= stage.amount.packed_count
        stage.batch_key = b""

    def cut(self, stage: OpenStage, number: int, piece: ReadPiece | None) -> None:
        """The first piece of a stage that is being published is sent, or lost."""
        stage.pieces.exclude(runs_of([number]))
        stage.sent = 0
        if piece is not None:
            amount = piece.amount()
            stage.amount.exclude(amount)
            self._ledger.staged_bytes -= amount.size_bytes
            self._ledger.promised_ids -= amount.packed_count

    def drop(self, stage: OpenStage) -> None:
        """Remove a stage that is over."""
        self.let_go(stage)
        del self.named[stage.name]
        self._ledger.staged_bytes -= stage.amount.size_bytes
        self._ledger.changes.append(StageDrop(stage.name))
        self._ledger.changes.append(RecordChange(STAGE, stage.name, None))

    def amount_of(self, names: list[bytes]) -> Amount:
        """The total of the named stages that exist."""
        total = Amount()
        for name in names:
            stage = self.named.get(name)
            if stage is not None:
                total.include(stage.amount)
        return total

    def left_bytes(self, batch_key: bytes) -> int:
        """How many bytes are promised or being published for a batch."""
        size_bytes = 0
        if batch_key:
            for stage in self.named.values():
                if stage.is_promised and stage.batch_key == batch_key:
                    size_bytes += stage.amount.size_bytes
        return size_bytes
