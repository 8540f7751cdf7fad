"""Every command that a fragment accepts, and its reply, by family."""

from __future__ import annotations

from typing import final

from shardbus.core.declared import Asked
from shardbus.core.limits import STATE_BYTES_MAX
from shardbus.core.messages.command import ABANDON as ABANDON
from shardbus.core.messages.command import COMPLETE as COMPLETE
from shardbus.core.messages.command import DEAD_LETTER as DEAD_LETTER
from shardbus.core.messages.command import DEFER as DEFER
from shardbus.core.messages.command import NO_SESSION as NO_SESSION
from shardbus.core.messages.command import RELEASE as RELEASE
from shardbus.core.messages.command import AboutMessages as AboutMessages
from shardbus.core.messages.command import Cancel as Cancel
from shardbus.core.messages.command import Delivery as Delivery
from shardbus.core.messages.command import Done as Done
from shardbus.core.messages.command import MessageCommand as MessageCommand
from shardbus.core.messages.command import MessageReply as MessageReply
from shardbus.core.messages.command import Purge as Purge
from shardbus.core.messages.command import Purged as Purged
from shardbus.core.messages.command import Receive as Receive
from shardbus.core.messages.command import Received as Received
from shardbus.core.messages.command import ReceiveDeferred as ReceiveDeferred
from shardbus.core.messages.command import Renew as Renew
from shardbus.core.messages.command import Renewed as Renewed
from shardbus.core.messages.command import Send as Send
from shardbus.core.messages.command import Sent as Sent
from shardbus.core.messages.command import Settle as Settle
from shardbus.core.messages.command import Settled as Settled
from shardbus.core.messages.command import Ticket as Ticket
from shardbus.core.readers.command import ALL_LINES as ALL_LINES
from shardbus.core.readers.command import AboutReaders as AboutReaders
from shardbus.core.readers.command import Claim as Claim
from shardbus.core.readers.command import Claimed as Claimed
from shardbus.core.readers.command import ClaimRead as ClaimRead
from shardbus.core.readers.command import ClaimRuns as ClaimRuns
from shardbus.core.readers.command import ClaimSummary as ClaimSummary
from shardbus.core.readers.command import CompleteClaim as CompleteClaim
from shardbus.core.readers.command import Completed as Completed
from shardbus.core.readers.command import DescribeClaim as DescribeClaim
from shardbus.core.readers.command import DropReader as DropReader
from shardbus.core.readers.command import KeepReader as KeepReader
from shardbus.core.readers.command import ListReaders as ListReaders
from shardbus.core.readers.command import OpenReader as OpenReader
from shardbus.core.readers.command import ReadClaim as ReadClaim
from shardbus.core.readers.command import ReaderCommand as ReaderCommand
from shardbus.core.readers.command import ReaderOpened as ReaderOpened
from shardbus.core.readers.command import ReaderReply as ReaderReply
from shardbus.core.readers.command import Readers as Readers
from shardbus.core.readers.command import ReaderStatus as ReaderStatus
from shardbus.core.readers.command import ReleaseClaims as ReleaseClaims
from shardbus.core.sessions.command import AboutSessions as AboutSessions
from shardbus.core.sessions.command import AcceptSession as AcceptSession
from shardbus.core.sessions.command import GetState as GetState
from shardbus.core.sessions.command import NoSession as NoSession
from shardbus.core.sessions.command import ReleaseSession as ReleaseSession
from shardbus.core.sessions.command import RenewSession as RenewSession
from shardbus.core.sessions.command import SessionAccepted as SessionAccepted
from shardbus.core.sessions.command import SessionCommand as SessionCommand
from shardbus.core.sessions.command import SessionReply as SessionReply
from shardbus.core.sessions.command import SessionState as SessionState
from shardbus.core.sessions.command import SetState as SetState
from shardbus.core.stages.command import AboutStages as AboutStages
from shardbus.core.stages.command import AskProducers as AskProducers
from shardbus.core.stages.command import AskStages as AskStages
from shardbus.core.stages.command import DropStages as DropStages
from shardbus.core.stages.command import ForgetProducer as ForgetProducer
from shardbus.core.stages.command import HeldStage as HeldStage
from shardbus.core.stages.command import Producer as Producer
from shardbus.core.stages.command import Producers as Producers
from shardbus.core.stages.command import ProlongStages as ProlongStages
from shardbus.core.stages.command import Publication as Publication
from shardbus.core.stages.command import PublishOn as PublishOn
from shardbus.core.stages.command import Stage as Stage
from shardbus.core.stages.command import StageCommand as StageCommand
from shardbus.core.stages.command import StageReply as StageReply
from shardbus.core.stages.command import StageShare as StageShare
from shardbus.core.stages.command import StagesHeld as StagesHeld
from shardbus.core.tickets.command import AskTickets as AskTickets
from shardbus.core.tickets.command import Judged as Judged
from shardbus.core.transactions.command import COMMITTED as COMMITTED
from shardbus.core.transactions.command import ROLLED_BACK as ROLLED_BACK
from shardbus.core.transactions.command import UNDECIDED as UNDECIDED
from shardbus.core.transactions.command import AboutTransactions as AboutTransactions
from shardbus.core.transactions.command import AskDecision as AskDecision
from shardbus.core.transactions.command import Decide as Decide
from shardbus.core.transactions.command import Decided as Decided
from shardbus.core.transactions.command import Enlist as Enlist
from shardbus.core.transactions.command import Finish as Finish
from shardbus.core.transactions.command import ForgetDecision as ForgetDecision
from shardbus.core.transactions.command import Home as Home
from shardbus.core.transactions.command import InDoubt as InDoubt
from shardbus.core.transactions.command import ListTransactions as ListTransactions
from shardbus.core.transactions.command import Owed as Owed
from shardbus.core.transactions.command import Prepare as Prepare
from shardbus.core.transactions.command import Promised as Promised
from shardbus.core.transactions.command import Reserved as Reserved
from shardbus.core.transactions.command import Transact as Transact
from shardbus.core.transactions.command import TransactionCommand as TransactionCommand
from shardbus.core.transactions.command import TransactionReply as TransactionReply
from shardbus.core.transactions.command import Work as Work
from shardbus.core.transfers.command import AboutTransfers as AboutTransfers
from shardbus.core.transfers.command import ForgetSources as ForgetSources
from shardbus.core.transfers.command import ListSources as ListSources
from shardbus.core.transfers.command import ListTransfers as ListTransfers
from shardbus.core.transfers.command import Outstanding as Outstanding
from shardbus.core.transfers.command import RefuseTransfers as RefuseTransfers
from shardbus.core.transfers.command import ReturnTransfers as ReturnTransfers
from shardbus.core.transfers.command import Sources as Sources
from shardbus.core.transfers.command import TakenOver as TakenOver
from shardbus.core.transfers.command import TakeOver as TakeOver
from shardbus.core.transfers.command import TakeTransfers as TakeTransfers
from shardbus.core.transfers.command import TransferCommand as TransferCommand
from shardbus.core.transfers.command import TransferReply as TransferReply
from shardbus.core.transfers.command import TransfersDone as TransfersDone
from shardbus.core.transfers.command import TransferSource as TransferSource


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
)
