"""Every request a fragment accepts, and what it answers, by families."""

from __future__ import annotations

from typing import final

from shardbus.core.declared import Asked
from shardbus.core.limits import STATE_BYTES_MAX
from shardbus.core.message_command import ABANDON as ABANDON
from shardbus.core.message_command import COMPLETE as COMPLETE
from shardbus.core.message_command import DEAD_LETTER as DEAD_LETTER
from shardbus.core.message_command import DEFER as DEFER
from shardbus.core.message_command import NO_SESSION as NO_SESSION
from shardbus.core.message_command import RELEASE as RELEASE
from shardbus.core.message_command import AboutMessages as AboutMessages
from shardbus.core.message_command import Cancel as Cancel
from shardbus.core.message_command import Delivery as Delivery
from shardbus.core.message_command import Done as Done
from shardbus.core.message_command import MessageCommand as MessageCommand
from shardbus.core.message_command import MessageReply as MessageReply
from shardbus.core.message_command import Purge as Purge
from shardbus.core.message_command import Purged as Purged
from shardbus.core.message_command import Receive as Receive
from shardbus.core.message_command import Received as Received
from shardbus.core.message_command import ReceiveDeferred as ReceiveDeferred
from shardbus.core.message_command import Renew as Renew
from shardbus.core.message_command import Renewed as Renewed
from shardbus.core.message_command import Send as Send
from shardbus.core.message_command import Sent as Sent
from shardbus.core.message_command import Settle as Settle
from shardbus.core.message_command import Settled as Settled
from shardbus.core.message_command import Ticket as Ticket
from shardbus.core.reader_command import ALL_LINES as ALL_LINES
from shardbus.core.reader_command import AboutReaders as AboutReaders
from shardbus.core.reader_command import Claim as Claim
from shardbus.core.reader_command import Claimed as Claimed
from shardbus.core.reader_command import ClaimRead as ClaimRead
from shardbus.core.reader_command import ClaimRuns as ClaimRuns
from shardbus.core.reader_command import ClaimSummary as ClaimSummary
from shardbus.core.reader_command import CompleteClaim as CompleteClaim
from shardbus.core.reader_command import Completed as Completed
from shardbus.core.reader_command import DescribeClaim as DescribeClaim
from shardbus.core.reader_command import DropReader as DropReader
from shardbus.core.reader_command import KeepReader as KeepReader
from shardbus.core.reader_command import ListReaders as ListReaders
from shardbus.core.reader_command import OpenReader as OpenReader
from shardbus.core.reader_command import ReadClaim as ReadClaim
from shardbus.core.reader_command import ReaderCommand as ReaderCommand
from shardbus.core.reader_command import ReaderOpened as ReaderOpened
from shardbus.core.reader_command import ReaderReply as ReaderReply
from shardbus.core.reader_command import Readers as Readers
from shardbus.core.reader_command import ReaderStatus as ReaderStatus
from shardbus.core.reader_command import ReleaseClaims as ReleaseClaims
from shardbus.core.session_command import AboutSessions as AboutSessions
from shardbus.core.session_command import AcceptSession as AcceptSession
from shardbus.core.session_command import GetState as GetState
from shardbus.core.session_command import NoSession as NoSession
from shardbus.core.session_command import ReleaseSession as ReleaseSession
from shardbus.core.session_command import RenewSession as RenewSession
from shardbus.core.session_command import SessionAccepted as SessionAccepted
from shardbus.core.session_command import SessionCommand as SessionCommand
from shardbus.core.session_command import SessionReply as SessionReply
from shardbus.core.session_command import SessionState as SessionState
from shardbus.core.session_command import SetState as SetState
from shardbus.core.stage_command import AboutStages as AboutStages
from shardbus.core.stage_command import AskProducers as AskProducers
from shardbus.core.stage_command import AskStages as AskStages
from shardbus.core.stage_command import DropStages as DropStages
from shardbus.core.stage_command import ForgetProducer as ForgetProducer
from shardbus.core.stage_command import HeldStage as HeldStage
from shardbus.core.stage_command import Producer as Producer
from shardbus.core.stage_command import Producers as Producers
from shardbus.core.stage_command import ProlongStages as ProlongStages
from shardbus.core.stage_command import Publication as Publication
from shardbus.core.stage_command import PublishOn as PublishOn
from shardbus.core.stage_command import Stage as Stage
from shardbus.core.stage_command import StageCommand as StageCommand
from shardbus.core.stage_command import StageReply as StageReply
from shardbus.core.stage_command import StageShare as StageShare
from shardbus.core.stage_command import StagesHeld as StagesHeld
from shardbus.core.ticket_command import AskTickets as AskTickets
from shardbus.core.ticket_command import Judged as Judged
from shardbus.core.transaction_command import COMMITTED as COMMITTED
from shardbus.core.transaction_command import ROLLED_BACK as ROLLED_BACK
from shardbus.core.transaction_command import UNDECIDED as UNDECIDED
from shardbus.core.transaction_command import AboutTransactions as AboutTransactions
from shardbus.core.transaction_command import AskDecision as AskDecision
from shardbus.core.transaction_command import Decide as Decide
from shardbus.core.transaction_command import Decided as Decided
from shardbus.core.transaction_command import Enlist as Enlist
from shardbus.core.transaction_command import Finish as Finish
from shardbus.core.transaction_command import ForgetDecision as ForgetDecision
from shardbus.core.transaction_command import Home as Home
from shardbus.core.transaction_command import InDoubt as InDoubt
from shardbus.core.transaction_command import ListTransactions as ListTransactions
from shardbus.core.transaction_command import Owed as Owed
from shardbus.core.transaction_command import Prepare as Prepare
from shardbus.core.transaction_command import Promised as Promised
from shardbus.core.transaction_command import Reserved as Reserved
from shardbus.core.transaction_command import Transact as Transact
from shardbus.core.transaction_command import TransactionCommand as TransactionCommand
from shardbus.core.transaction_command import TransactionReply as TransactionReply
from shardbus.core.transaction_command import Work as Work
from shardbus.core.transfer_command import AboutTransfers as AboutTransfers
from shardbus.core.transfer_command import ForgetSources as ForgetSources
from shardbus.core.transfer_command import ListSources as ListSources
from shardbus.core.transfer_command import ListTransfers as ListTransfers
from shardbus.core.transfer_command import Outstanding as Outstanding
from shardbus.core.transfer_command import RefuseTransfers as RefuseTransfers
from shardbus.core.transfer_command import ReturnTransfers as ReturnTransfers
from shardbus.core.transfer_command import Sources as Sources
from shardbus.core.transfer_command import TakenOver as TakenOver
from shardbus.core.transfer_command import TakeOver as TakeOver
from shardbus.core.transfer_command import TakeTransfers as TakeTransfers
from shardbus.core.transfer_command import TransferCommand as TransferCommand
from shardbus.core.transfer_command import TransferReply as TransferReply
from shardbus.core.transfer_command import TransfersDone as TransfersDone
from shardbus.core.transfer_command import TransferSource as TransferSource


@final
class FragmentRules:
    """What an entity's description means for each of its fragments."""

    def __init__(  # noqa: PLR0913 - a record, all by keyword
        self,
        *,
        lock_ms: int,
        max_delivery_count: int,
        default_ttl_ms: int,
        dead_letters_on_expiry: bool,
        size_bytes_max: int,
        requires_session: bool = False,
        duplicate_window_ms: int = 0,
        is_partitioned: bool = False,
        state_bytes_max: int = STATE_BYTES_MAX,
        is_topic: bool = False,
    ) -> None:
        self.lock_ms = lock_ms
        self.max_delivery_count = max_delivery_count
        self.default_ttl_ms = default_ttl_ms  # -1: messages live for ever
        self.dead_letters_on_expiry = dead_letters_on_expiry
        self.size_bytes_max = size_bytes_max
        self.requires_session = requires_session
        self.duplicate_window_ms = duplicate_window_ms  # 0: duplicates are not detected
        self.is_partitioned = is_partitioned  # then a duplicate also has the same partition key
        self.state_bytes_max = state_bytes_max
        self.is_topic = is_topic  # then active messages are published, not kept


@final
class SetAside(Asked):
    """Take messages whose stored record is damaged out of service, unless they are gone since.

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
    """Time has passed: let go of expired locks, sessions and messages."""


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
"""The commands of a broker's own."""

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
