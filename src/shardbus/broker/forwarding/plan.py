"""What happens to messages that are to be forwarded: sent on, skipped, or refused (R27)."""

from __future__ import annotations

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
from shardbus.core.namespace.placement import key_of
from shardbus.core.sequence import counter_of
from shardbus.core.transfers.command import TakeOver, TransferSource
from shardbus.core.transfers.transferring import transfer_number
from shardbus.message.forwarded import ForwardFormat

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
    """What to do with messages that were given out for one destination.

    Every gateway chooses the same fragment for the same message and destination. Where a verdict
    depends on conditions that may have changed a moment ago, the destination is first asked to skip
    the message: another gateway may have sent it. Without a destination none can have.
    """

    def __init__(self, source: str, line: int, format_of: ForwardFormat, now_ms: int) -> None:
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
            if forwarded.hops >= HOPS_MAX:
                self.refused[number] = self._too_many_hops()
            elif destination is None:
                text = f"The messaging entity '{name}' could not be found."
                self.refused[number] = _not_transferred(NOT_FOUND_REASON, text)
            elif destination.entity.spec.requires_session and forwarded.message.session_id is None:
                self.refused[number] = _not_transferred(NO_SESSION_REASON, f"{NO_SESSION_TEXT}.")
            else:
                self._share(delivery, forwarded.message, destination)
        except ValueError as error:
            self.refused[number] = _not_transferred(UNREADABLE_REASON, str(error))
        except Refused as refusal:
            self.refused[number] = _not_transferred(NOT_ALLOWED_REASON, refusal.message)

    def call_back(self, delivery: Delivery, destination: EntityHandle | None) -> None:
        """Make sure that a message does not reach a destination any more."""
        number = transfer_number(delivery)
        try:
            if destination is None:
                raise ValueError("there is no destination")
            message = self._format_of(delivery, self._source, self._now_ms).message
            index = _index(message, number, destination)
        except (ValueError, Refused):
            self.unsent.append(number)
            return
        self.shares.setdefault(index, ForwardingShare()).skipped.append(number)

    def _share(self, delivery: Delivery, message: Message, destination: EntityHandle) -> None:
        number = transfer_number(delivery)
        share = self.shares.setdefault(_index(message, number, destination), ForwardingShare())
        verdict = _against(delivery, destination.entity)
        if verdict is None:
            share.numbers.append(number)
            share.messages.append(message)
        else:
            share.skipped.append(number)
            self.verdicts[number] = verdict

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


def _index(message: Message, number: int, destination: EntityHandle) -> int:
    """The position of the only fragment that may take a message over: that of its key, or one
    derived from its transfer number, because only there a repeated message is recognised.
    """
    router = destination.router
    if not router.is_partitioned:
        return router.former_count
    key = key_of(message, destination.entity.spec.requires_duplicate_detection)
    if key is not None:
        return router.index_of_key(key)
    return router.former_count + counter_of(number) % router.present_count
