"""What happens to messages that are to be forwarded: sent on, skipped, or refused (R27)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, final

from shardbus.broker.bus import EntityHandle
from shardbus.core.errors import Refused
from shardbus.core.fragment.entrance import NO_SESSION_REASON, NO_SESSION_TEXT
from shardbus.core.limits import HOPS_MAX
from shardbus.core.message import (
    DEAD_LETTER_LINE,
    MAIN_LINE,
    TRANSFER_DEAD_LETTER_LINE,
    Message,
)
from shardbus.core.messages.command import Delivery
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.placement import fragment_at, hash_point, key_of
from shardbus.core.sequence import counter_of
from shardbus.core.transfers.command import TakeOver, TransferSource
from shardbus.core.transfers.transferring import transfer_number
from shardbus.message.forwarded import Forwarded, ForwardFormat

HOPS_REASON: Final = "MaxTransferHopCountExceeded"
HOPS_TEXT: Final = (
    "The maximum number of allowed hops when forwarding between queues has been exceeded. "
    f"This value is set to {HOPS_MAX}."
)
UNREADABLE_REASON: Final = "MessageNotReadable"
NOT_FOUND_REASON: Final = "MessagingEntityNotFound"
DISABLED_REASON: Final = "MessagingEntityDisabled"
TOO_LARGE_REASON: Final = "MessageSizeExceeded"
NOT_ALLOWED_REASON: Final = "InvalidOperation"


@final
class ForwardingVerdict:
    """Why a message is not forwarded, and where it goes instead."""

    def __init__(self, reason: str, description: str, line: int) -> None:
        self.reason = reason
        self.description = description
        self.line = line


@final
class ForwardingShare:
    """What goes to one fragment of the destination; the numbers in `skipped` must not."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.numbers: list[int] = []
        self.skipped: list[int] = []

    def command(self, source: TransferSource, front: int) -> TakeOver:
        return TakeOver(source, self.messages, self.numbers, self.skipped, front)


@final
class ForwardingPlan:
    """What to do with messages that were given out for one map of one destination.

    Every gateway chooses the same fragment for the same message and map. Where a verdict depends on
    conditions that may have changed a moment ago, the destination is first asked to skip the
    message: another gateway may have sent it. Without a destination none can have.
    """

    def __init__(
        self, source: str, line: int, format_of: ForwardFormat, now_ms: int, map_start: int
    ) -> None:
        self._map_start = map_start
        self._source = source
        self._line = line
        self._format_of = format_of
        self._now_ms = now_ms
        self.shares: dict[int, ForwardingShare] = {}
        # Of messages that the destination is asked to skip, and of those for which it need not be
        # asked.
        self.verdicts: dict[int, ForwardingVerdict] = {}
        self.refused: dict[int, ForwardingVerdict] = {}
        # No gateway can have sent these: no destination, or its fragment cannot be determined.
        self.unsent: list[int] = []

    def forward(self, delivery: Delivery, destination: EntityHandle | None, name: str) -> None:
        """Send a message on, unless there is a reason against it."""
        number = transfer_number(delivery)
        try:
            forwarded = self._format_of(delivery, self._source, self._now_ms)
            verdict = self._against_all(forwarded, destination)
            if verdict is not None:
                self.refused[number] = verdict
            elif destination is None:
                text = f"The messaging entity '{name}' could not be found."
                self.refused[number] = _not_transferred(NOT_FOUND_REASON, text)
            else:
                self._share(delivery, forwarded.message, destination.entity)
        except ValueError as error:
            self.refused[number] = _not_transferred(UNREADABLE_REASON, str(error))
        except Refused as refusal:
            self.refused[number] = _not_transferred(NOT_ALLOWED_REASON, refusal.message)

    def call_back(self, delivery: Delivery, destination: EntityHandle | None) -> None:
        """Make sure that a message does not reach a destination any more."""
        number = transfer_number(delivery)
        index = -1
        if destination is not None:
            with suppress(ValueError, Refused):
                forwarded = self._format_of(delivery, self._source, self._now_ms)
                if self._against_all(forwarded, destination) is None:
                    index = self._index(forwarded.message, number, destination.entity)
        if index < 0:
            self.unsent.append(number)
        else:
            self.shares.setdefault(index, ForwardingShare()).skipped.append(number)

    def _against_all(
        self, forwarded: Forwarded, destination: EntityHandle | None
    ) -> ForwardingVerdict | None:
        """The reason that every gateway finds, so that none ever sends the message."""
        if forwarded.hops >= HOPS_MAX:
            return self._too_many_hops()
        if destination is None or not destination.entity.spec.requires_session:
            return None
        if forwarded.message.session_id is not None:
            return None
        return _not_transferred(NO_SESSION_REASON, f"{NO_SESSION_TEXT}.")

    def _share(self, delivery: Delivery, message: Message, destination: Entity) -> None:
        number = transfer_number(delivery)
        index = self._index(message, number, destination)
        share = self.shares.setdefault(index, ForwardingShare())
        verdict = _against(delivery, destination)
        if verdict is None:
            share.numbers.append(number)
            share.messages.append(message)
        else:
            share.skipped.append(number)
            self.verdicts[number] = verdict

    def _index(self, message: Message, number: int, destination: Entity) -> int:
        """The position of the only fragment of the map that may take a message over: that of its
        key, or one derived from its transfer number, because only there a repeated message is
        recognised.
        """
        start = self._map_start
        # A destination that was recovered without its catalogue does not know its former maps.
        starts = destination.map_at(start)
        if not starts:
            start, starts = destination.former_count, destination.hash_starts
        if len(starts) == 1:
            return start
        key = key_of(message, destination.spec.requires_duplicate_detection)
        if key is not None:
            return start + fragment_at(hash_point(key), starts)
        return start + counter_of(number) % len(starts)

    def _too_many_hops(self) -> ForwardingVerdict:
        line = DEAD_LETTER_LINE if self._line == MAIN_LINE else TRANSFER_DEAD_LETTER_LINE
        return ForwardingVerdict(HOPS_REASON, HOPS_TEXT, line)


def _not_transferred(reason: str, description: str) -> ForwardingVerdict:
    return ForwardingVerdict(reason, description, TRANSFER_DEAD_LETTER_LINE)


def _against(delivery: Delivery, destination: Entity) -> ForwardingVerdict | None:
    """The reason against forwarding a message now, which may not have existed a moment ago."""
    spec = destination.spec
    if not spec.is_sendable():
        text = f"'{destination.name}' is {spec.status} and accepts no messages."
        return _not_transferred(DISABLED_REASON, text)
    # The size as sent: what the bus adds on the way does not count.
    if delivery.entry.size_bytes > spec.message_bytes_max():
        return _not_transferred(
            TOO_LARGE_REASON,
            f"The message has {delivery.entry.size_bytes} bytes; '{destination.name}' allows "
            f"at most {spec.message_bytes_max()}.",
        )
    return None
