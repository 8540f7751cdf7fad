"""Decides the command that seals a fragment (P6)."""

from __future__ import annotations

from typing import Protocol, final

from shardbus.core.fragment.command import Command
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.messages.command import Done
from shardbus.core.sealing.command import IdsTold, LearnIds, Seal, Sealed, TellIds
from shardbus.core.sealing.seal import FragmentSeal
from shardbus.core.stages.staging import Staging


class Promising(Protocol):
    """The transactions of a fragment."""

    def prepared_count(self) -> int: ...


class Remembering(Protocol):
    """The message ids that a fragment remembers."""

    seal: FragmentSeal

    def id_count(self) -> int: ...

    def tell_ids(self, start: int) -> IdsTold: ...

    def learn_ids(self, command: LearnIds, now_ms: int) -> Done: ...


@final
class Sealing(Handler):
    """Seals one fragment, and reports what may still add messages to it."""

    def __init__(
        self,
        ledger: Ledger,
        entrance: Remembering,
        transactions: Promising,
        staging: Staging,
    ) -> None:
        self._ledger = ledger
        self._entrance = entrance
        self._seal = entrance.seal
        self._transactions = transactions
        self._staging = staging

    def decide(self, command: Command, now_ms: int) -> Sealed | IdsTold | Done:
        if isinstance(command, TellIds):
            return self._entrance.tell_ids(command.start)
        if isinstance(command, LearnIds):
            return self._entrance.learn_ids(command, now_ms)
        assert isinstance(command, Seal)
        change = self._seal.turn(command.map_number, command.is_open)
        if change is not None:
            self._ledger.changes.append(change)
        pending = self._transactions.prepared_count() + int(self._staging.is_under_way)
        stages, ids = self._staging.stage_count(), self._entrance.id_count()
        return Sealed(self._seal.is_sealed, pending, stages, ids)
