"""Every command that a fragment accepts, and its reply, by family."""

from __future__ import annotations

from typing import final

from shardbus.core.declared import Asked
from shardbus.core.lifecycle.command import LifecycleRead, ReadLifecycle
from shardbus.core.limits import STATE_BYTES_MAX
from shardbus.core.messages.command import MessageCommand, MessageReply
from shardbus.core.readers.command import ReaderCommand, ReaderReply
from shardbus.core.sealing.command import SealingCommand, SealingReply
from shardbus.core.sessions.command import SessionCommand, SessionReply
from shardbus.core.stages.command import PublishOn, StageCommand, StageReply
from shardbus.core.tickets.command import AskTickets, Judged
from shardbus.core.transactions.command import TransactionCommand, TransactionReply
from shardbus.core.transfers.command import TransferCommand, TransferReply


@final
class FragmentRules:
    """What an entity's description means for each of its fragments."""

    def __init__(  # noqa: PLR0913 - a record, all by keyword
        self,
        *,
        lock_ms: int,
        delivery_count_max: int,
        default_ttl_ms: int,
        dead_letters_on_expiration: bool,
        size_bytes_max: int,
        requires_session: bool = False,
        duplicate_window_ms: int = 0,
        is_partitioned: bool = False,
        state_bytes_max: int = STATE_BYTES_MAX,
        is_topic: bool = False,
        lifecycle: bool = False,
    ) -> None:
        self.lock_ms = lock_ms
        self.delivery_count_max = delivery_count_max
        self.default_ttl_ms = default_ttl_ms  # -1: messages live for ever
        self.dead_letters_on_expiration = dead_letters_on_expiration
        self.size_bytes_max = size_bytes_max
        self.requires_session = requires_session
        self.duplicate_window_ms = duplicate_window_ms  # 0: duplicates are not detected
        self.is_partitioned = is_partitioned  # True: a duplicate has the same partition key too
        self.state_bytes_max = state_bytes_max
        self.is_topic = is_topic  # True: active messages are published, not kept
        self.lifecycle = lifecycle  # True: every event of a message is recorded


@final
class SetAside(Asked):
    """Take messages whose stored record is damaged out of service, if they still exist.

    Answered by `Purged`.
    """

    def __init__(self, sequence_numbers: list[int]) -> None:
        self.sequence_numbers = sequence_numbers


@final
class Configure(Asked):
    """The entity's description changed. Locks already given keep their deadlines."""

    def __init__(self, rules: FragmentRules) -> None:
        self.rules = rules


@final
class Tick(Asked):
    """Time has passed: end expired locks, session holds and messages."""


ClientCommand = (
    MessageCommand
    | SessionCommand
    | TransactionCommand
    | TransferCommand
    | AskTickets
    | ReaderCommand
    | StageCommand
    | ReadLifecycle
    | SealingCommand
)
"""The commands that come from gateways."""

RunnerCommand = SetAside | Configure | Tick | PublishOn
"""The commands that a broker itself gives."""

Command = ClientCommand | RunnerCommand

Reply = (
    MessageReply
    | SessionReply
    | TransactionReply
    | TransferReply
    | Judged
    | ReaderReply
    | StageReply
    | LifecycleRead
    | SealingReply
)
