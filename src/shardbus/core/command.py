"""Every request a fragment accepts, and what it answers."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.limits import STATE_BYTES_MAX
from shardbus.core.message import NEVER_MS, Entry, Message
from shardbus.core.reader_command import ALL_LINES as ALL_LINES
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
from shardbus.core.stage_command import Stage as Stage
from shardbus.core.stage_command import StageCommand as StageCommand
from shardbus.core.stage_command import StageReply as StageReply
from shardbus.core.stage_command import StageShare as StageShare
from shardbus.core.stage_command import StagesHeld as StagesHeld
from shardbus.core.ticket_command import AskTickets as AskTickets
from shardbus.core.ticket_command import Judged as Judged
from shardbus.core.ticket_command import Ticket as Ticket
from shardbus.core.transaction_command import COMMITTED as COMMITTED
from shardbus.core.transaction_command import ROLLED_BACK as ROLLED_BACK
from shardbus.core.transaction_command import UNDECIDED as UNDECIDED
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
from shardbus.core.transaction_command import Work as Work
from shardbus.core.transfer_command import ForgetSources as ForgetSources
from shardbus.core.transfer_command import ListSources as ListSources
from shardbus.core.transfer_command import SourceCommand as SourceCommand
from shardbus.core.transfer_command import Sources as Sources

COMPLETE: Final = 0
ABANDON: Final = 1
DEAD_LETTER: Final = 2
RELEASE: Final = 3
"""Hand back unused: unlocked, but the delivery does not count as failed."""
DEFER: Final = 4
"""Keep it, but give it only to who asks for its sequence number; not a failed delivery."""

NO_SESSION: Final = b""
"""As a session token: none."""


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
class Send:
    """Store all these messages in this order, or none. Answered by `Sent`.

    One with a `scheduled_at_ms` in the future waits for it, and gets another sequence number then.
    With a `ticket` its sender can ask later what became of it.
    """

    def __init__(self, messages: list[Message], ticket: Ticket | None = None) -> None:
        self.messages = messages
        self.ticket = ticket


@final
class Receive:
    """Take up to `count_max` messages from the front of a line. Answered by `Received`.

    `token_seed` is 8 fresh random bytes; it makes the lock tokens of this receive unguessable.
    Without a lock the messages are removed at once (receive-and-delete).
    With `session`, the token of a held session, only messages of that session are taken, locked
    until the session's own deadline. Refused with SESSION_LOCK_LOST when it is not held (any more).
    The main line of a fragment that requires sessions is received by session only: NOT_ALLOWED.
    """

    def __init__(
        self,
        line: int,
        count_max: int,
        *,
        is_locking: bool,
        token_seed: bytes,
        session: bytes = NO_SESSION,
    ) -> None:
        self.line = line
        self.count_max = count_max
        self.is_locking = is_locking
        self.token_seed = token_seed
        self.session = session


@final
class ReceiveDeferred:
    """Take exactly these deferred messages of a line, in this order. Answered by `Received`.

    Refused with MESSAGE_NOT_FOUND, all of them, when one is not there, not deferred or locked.
    On the main line of a fragment that requires sessions they must be of the held `session`.
    At most DEFERRED_COUNT_MAX numbers.
    """

    def __init__(
        self,
        line: int,
        sequence_numbers: list[int],
        *,
        is_locking: bool,
        token_seed: bytes,
        session: bytes = NO_SESSION,
    ) -> None:
        self.line = line
        self.sequence_numbers = sequence_numbers
        self.is_locking = is_locking
        self.token_seed = token_seed
        self.session = session


@final
class Settle:
    """End deliveries by their lock tokens. Answered by `Settled`: lost locks change nothing.

    `modified` (packed by `properties.pack`) is merged into what earlier settlements modified.
    A deferred message that is abandoned stays deferred. `delay_ms` keeps an abandoned message from
    being delivered again so long; it then waits at its own place in the order.
    """

    def __init__(
        self,
        how: int,
        tokens: list[bytes],
        *,
        reason: str | None = None,
        description: str | None = None,
        modified: bytes = b"",
        delay_ms: int = 0,
    ) -> None:
        self.how = how
        self.tokens = tokens
        self.reason = reason
        self.description = description
        self.modified = modified
        self.delay_ms = delay_ms


@final
class Renew:
    """Extend locks to the full lock duration from now, all or none. Answered by `Renewed`."""

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens


@final
class Purge:
    """Remove up to `count_max` unlocked active messages from the front of a line, or of a held
    session. Answered by `Purged`. With `enqueued_until_ms` it stops at the first message that was
    enqueued later.
    """

    def __init__(
        self,
        line: int,
        count_max: int,
        *,
        enqueued_until_ms: int = NEVER_MS,
        session: bytes = NO_SESSION,
    ) -> None:
        self.line = line
        self.count_max = count_max
        self.enqueued_until_ms = enqueued_until_ms
        self.session = session


@final
class Cancel:
    """Remove scheduled messages, all or none. Answered by `Done`.

    Refused with MESSAGE_NOT_FOUND when one is not there or not scheduled (any more).
    """

    def __init__(self, sequence_numbers: list[int]) -> None:
        self.sequence_numbers = sequence_numbers


@final
class AcceptSession:
    """Hold a session: the named one, or, with None, one that has active messages.

    Answered by `SessionAccepted`; by `NoSession` when None was asked for and none is free.
    A named session need not have messages. Refused with SESSION_CANNOT_BE_LOCKED while somebody
    else holds it, with NOT_ALLOWED where sessions are not required.
    """

    def __init__(self, session_id: str | None, token_seed: bytes) -> None:
        self.session_id = session_id
        self.token_seed = token_seed


@final
class RenewSession:
    """Hold a session for the full lock duration from now. Answered by `Renewed`.

    Like the commands below it is refused with SESSION_LOCK_LOST when the token is not held.
    """

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class ReleaseSession:
    """Let a session go; its unsettled messages return uncounted. Answered by `Done`, always."""

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class GetState:
    """Answered by `SessionState`."""

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class SetState:
    """Replace the state of a held session; None clears it. Answered by `Done`.

    Refused with QUOTA_EXCEEDED when it is too large, or when there are too many states.
    """

    def __init__(self, session: bytes, state: bytes | None) -> None:
        self.session = session
        self.state = state


@final
class TakeTransfers:
    """Give out messages of a line to be transferred. Answered by `Received`.

    In place of a lock token each has the number under which it is given out (see
    `transfers.transfer_number`): they rise, and no message has one that another had, or that it had
    before it was returned. The commands below name messages by them. Those come first that were
    given out before and not settled; then, up to `count_max`, the next of the line. Nobody else
    gets them and they do not expire until they are settled, by any of the
    three commands below. All that is given out is for one destination: refused with NOT_ALLOWED
    when something is that was given out for another.
    """

    def __init__(self, line: int, count_max: int, destination_id: int) -> None:
        self.line = line
        self.count_max = count_max
        self.destination_id = destination_id


@final
class TransfersDone:
    """The destination has these messages: remove those that are given out. Answered by `Done`."""

    def __init__(self, line: int, numbers: list[int]) -> None:
        self.line = line
        self.numbers = numbers


@final
class RefuseTransfers:
    """The destination will never have these: move those that are given out to another line.

    Answered by `Done`.
    """

    def __init__(
        self, line: int, numbers: list[int], to_line: int, reason: str, description: str
    ) -> None:
        self.line = line
        self.numbers = numbers
        self.to_line = to_line
        self.reason = reason
        self.description = description


@final
class ReturnTransfers:
    """The destination will never have these under their numbers: those that are given out wait
    again, each at its own place of the line. Answered by `Done`.
    """

    def __init__(self, line: int, numbers: list[int]) -> None:
        self.line = line
        self.numbers = numbers


@final
class ListTransfers:
    """For whom is something given out? Answered by `Outstanding`."""

    def __init__(self, line: int) -> None:
        self.line = line


TransferSource = tuple[int, int, int]
"""Where transferred messages come from: entity, fragment and line."""


@final
class TakeOver:
    """Store messages that are transferred from a source, unless that was done before.

    `numbers` are those under which they were given out there, rising. A message with a number not
    above the highest that ever came from the source is dropped. The numbers in `skipped` will never
    come: whoever sends them is late. Nothing with a number below `front` will be asked about again.
    Answered by `TakenOver`; refused, and nothing has changed, like a `Send`.
    """

    def __init__(
        self,
        source: TransferSource,
        messages: list[Message],
        numbers: list[int],
        skipped: list[int],
        front: int,
    ) -> None:
        self.source = source
        self.messages = messages
        self.numbers = numbers
        self.skipped = skipped
        self.front = front


@final
class SetAside:
    """Take messages whose stored record is damaged out of service, unless they are gone since.

    Answered by `Purged`.
    """

    def __init__(self, sequence_numbers: list[int]) -> None:
        self.sequence_numbers = sequence_numbers


@final
class Configure:
    """The entity's description changed. Locks already given keep their deadlines."""

    def __init__(self, rules: FragmentRules) -> None:
        self.rules = rules


@final
class Tick:
    """Time has passed: let go of expired locks, sessions and messages."""


Command = (
    Send
    | Receive
    | ReceiveDeferred
    | Settle
    | Renew
    | Purge
    | Cancel
    | AcceptSession
    | RenewSession
    | ReleaseSession
    | GetState
    | SetState
    | Enlist
    | Transact
    | Prepare
    | Decide
    | AskDecision
    | Finish
    | ForgetDecision
    | ListTransactions
    | TakeTransfers
    | TransfersDone
    | RefuseTransfers
    | ReturnTransfers
    | ListTransfers
    | TakeOver
    | AskTickets
    | SourceCommand
    | ReaderCommand
    | StageCommand
    | SetAside
    | Configure
    | Tick
)


@final
class Sent:
    """The `count` messages that were stored have the sequence numbers from `first` on.

    `duplicates` are the positions, rising, of those that were dropped because the fragment had
    them before; they have no number. What went to several fragments has its numbers `apart`, one
    for each message; no fragment answers so.
    """

    def __init__(
        self,
        first: int,
        count: int,
        duplicates: list[int] | None = None,
        apart: list[int] | None = None,
    ) -> None:
        self.first = first
        self.count = count
        self.duplicates: list[int] = [] if duplicates is None else duplicates
        self._apart = apart

    def numbers(self) -> list[int]:
        """The sequence number of each message that was sent, 0 for a duplicate."""
        if self._apart is not None:
            return self._apart
        numbers = list(range(self.first, self.first + self.count))
        for position in self.duplicates:
            numbers.insert(position, 0)
        return numbers


@final
class Delivery:
    """One message handed out. `payload` is None until the runner has read it from the store."""

    def __init__(
        self,
        entry: Entry,
        payload: bytes | None,
        delivery_count: int,
        token: bytes,
        locked_until_ms: int,
    ) -> None:
        self.entry = entry
        self.payload = payload
        self.delivery_count = delivery_count
        self.token = token
        self.locked_until_ms = locked_until_ms


@final
class Received:
    """`has_more` says that asking again would find more, perhaps only in the store."""

    def __init__(self, deliveries: list[Delivery], has_more: bool) -> None:
        self.deliveries = deliveries
        self.has_more = has_more


@final
class Settled:
    """`lost[i]` says that the lock of `tokens[i]` was not held (any more): nothing was done."""

    def __init__(self, lost: list[bool]) -> None:
        self.lost = lost


@final
class Renewed:
    def __init__(self, locked_until_ms: int) -> None:
        self.locked_until_ms = locked_until_ms


@final
class Purged:
    """`has_more` says that asking again may remove more, even if nothing was removed now."""

    def __init__(self, count: int, has_more: bool = False) -> None:
        self.count = count
        self.has_more = has_more


@final
class SessionAccepted:
    """`token` names the hold in commands; like a lock token it tells its fragment."""

    def __init__(self, session_id: str, token: bytes, locked_until_ms: int) -> None:
        self.session_id = session_id
        self.token = token
        self.locked_until_ms = locked_until_ms


@final
class NoSession:
    """No session is free and has messages: `watch(SESSIONS, …)` tells when one is."""


@final
class SessionState:
    """`state` is read from the store by the runner before this is passed on."""

    def __init__(self, session_id: str, state: bytes | None = None) -> None:
        self.session_id = session_id
        self.state = state


@final
class Done:
    """Nothing more to say."""


@final
class TakenOver:
    """The messages are here, but for those in `skipped`, which never were and never will be."""

    def __init__(self, skipped: list[int]) -> None:
        self.skipped = skipped


@final
class Outstanding:
    """`count` messages of a line are given out for an entity, if any are."""

    def __init__(self, destination_id: int, count: int) -> None:
        self.destination_id = destination_id
        self.count = count


Reply = (
    Sent
    | Received
    | Settled
    | Renewed
    | Purged
    | SessionAccepted
    | NoSession
    | SessionState
    | Decided
    | InDoubt
    | TakenOver
    | Outstanding
    | Judged
    | Sources
    | ReaderReply
    | StageReply
    | Done
)
