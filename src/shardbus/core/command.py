"""Every request a fragment accepts, and what it answers."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.limits import STATE_BYTES_MAX
from shardbus.core.message import NEVER_MS, Entry, Message

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
    """

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages


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


Home = tuple[int, int]
"""Where a fragment is at home: the id of its entity, and its number."""


@final
class Work:
    """What a transaction does in one fragment, all of it or nothing."""

    def __init__(self, messages: list[Message], settlements: list[Settle]) -> None:
        self.messages = messages
        self.settlements = settlements


@final
class Transact:
    """Do the whole work of a transaction that concerns no other fragment. Answered by `Done`.

    Refused, and nothing has changed, when a lock is not held any more or a message is refused.
    """

    def __init__(self, work: Work) -> None:
        self.work = work


@final
class Prepare:
    """Promise to do the work if the transaction is committed. Answered by `Done`.

    From then on the messages that it settles are nobody's, and nothing that it needs is refused,
    until `Finish` says how the fragment `decider` has decided. The decision cannot be made any
    more when it is `expires_at_ms` there.
    """

    def __init__(
        self, transaction_id: bytes, work: Work, decider: Home, expires_at_ms: int
    ) -> None:
        self.transaction_id = transaction_id
        self.work = work
        self.decider = decider
        self.expires_at_ms = expires_at_ms


@final
class Decide:
    """Commit a transaction that all `others` have prepared, and do its work here.

    Answered by `Decided`; by what was decided before, if something was. Refused when the work
    cannot be done: then nothing is decided, and the others must be told that nothing comes of it.
    """

    def __init__(
        self, transaction_id: bytes, work: Work, others: list[Home], expires_at_ms: int
    ) -> None:
        self.transaction_id = transaction_id
        self.work = work
        self.others = others
        self.expires_at_ms = expires_at_ms


@final
class AskDecision:
    """How was this transaction decided? Answered by `Decided`.

    A transaction that is undecided when its time is over is decided by this question: rolled back.
    """

    def __init__(self, transaction_id: bytes, expires_at_ms: int) -> None:
        self.transaction_id = transaction_id
        self.expires_at_ms = expires_at_ms


@final
class Finish:
    """Do what was promised, or let go of it. Answered by `Done`, also if nothing was promised."""

    def __init__(self, transaction_id: bytes, *, is_commit: bool) -> None:
        self.transaction_id = transaction_id
        self.is_commit = is_commit


@final
class ForgetDecision:
    """All others have finished: the decision to commit need not be kept. Answered by `Done`."""

    def __init__(self, transaction_id: bytes) -> None:
        self.transaction_id = transaction_id


@final
class ListTransactions:
    """Which transactions are not finished? Answered by `InDoubt`."""


@final
class SetAside:
    """Take messages whose stored record is damaged out of service. Answered by `Purged`."""

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
    | Transact
    | Prepare
    | Decide
    | AskDecision
    | Finish
    | ForgetDecision
    | ListTransactions
    | SetAside
    | Configure
    | Tick
)


@final
class Sent:
    """The `count` messages that were stored have the sequence numbers from `first` on.

    `duplicates` are the positions, rising, of those that were dropped because the fragment had
    them before; they have no number.
    """

    def __init__(self, first: int, count: int, duplicates: list[int] | None = None) -> None:
        self.first = first
        self.count = count
        self.duplicates: list[int] = [] if duplicates is None else duplicates

    def numbers(self) -> list[int]:
        """The sequence number of each message that was sent, 0 for a duplicate."""
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


UNDECIDED: Final = 0
COMMITTED: Final = 1
ROLLED_BACK: Final = 2


@final
class Decided:
    """`how` is UNDECIDED, COMMITTED or ROLLED_BACK."""

    def __init__(self, how: int) -> None:
        self.how = how


@final
class Promised:
    """A transaction that a fragment has prepared and not finished."""

    def __init__(self, transaction_id: bytes, decider: Home, expires_at_ms: int) -> None:
        self.transaction_id = transaction_id
        self.decider = decider
        self.expires_at_ms = expires_at_ms


@final
class Owed:
    """A transaction that a fragment committed at a moment; not all `others` have finished, or not
    all are known to have.
    """

    def __init__(self, transaction_id: bytes, at_ms: int, others: list[Home]) -> None:
        self.transaction_id = transaction_id
        self.at_ms = at_ms
        self.others = others


@final
class InDoubt:
    """The transactions of one fragment that are under way, or that nobody has ended."""

    def __init__(self, promised: list[Promised], owed: list[Owed]) -> None:
        self.promised = promised
        self.owed = owed


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
    | Done
)
