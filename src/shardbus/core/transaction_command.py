"""What fragments are asked about transactions, and what they answer (see `transactions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shardbus.core.message import Message
from shardbus.core.stage_command import Publication, StageShare

if TYPE_CHECKING:
    from shardbus.core.command import SetState, Settle, Ticket

Home = tuple[int, int]
"""Where a fragment is at home: the id of its entity, and its number."""
Reserved = tuple[int, Message]
"""A message to be scheduled, with the sequence number that was given out for it."""


@final
class Work:
    """What a transaction does in one fragment, all of it or nothing.

    It sends messages, settles others, publishes stages that have exactly so many messages here,
    and, only where it is decided, remembers that a batch of a producer is published: one that was
    published before is refused with ALREADY_PUBLISHED.

    `batch_key` is what that batch is known by where it is not remembered.

    It also schedules messages under numbers that `Enlist` gave out, cancels others that are
    scheduled, and sets the states of sessions that are held.
    """

    def __init__(
        self,
        messages: list[Message],
        settlements: list[Settle],
        stages: list[StageShare] | None = None,
        publication: Publication | None = None,
    ) -> None:
        self.messages = messages
        self.settlements = settlements
        self.stages: list[StageShare] = [] if stages is None else stages
        self.publication = publication
        self.batch_key = b""
        self.scheduled: list[Reserved] = []
        self.cancelled: list[int] = []
        self.states: list[SetState] = []


@final
class Enlist:
    """Could this work be done now? And give out `count` sequence numbers. Answered by `Sent`.

    Refused as `Transact` would be. Nobody else gets the numbers, whatever becomes of them; what is
    scheduled under one of them can be cancelled by it.
    """

    def __init__(self, work: Work, count: int = 0) -> None:
        self.work = work
        self.count = count


@final
class Transact:
    """Do the whole work of a transaction that concerns no other fragment. Answered by `Done`.

    Refused, and nothing has changed, when a lock is not held any more or a message is refused.
    """

    def __init__(self, work: Work, ticket: Ticket | None = None) -> None:
        self.work = work
        self.ticket = ticket


@final
class Prepare:
    """Promise to do the work if the transaction is committed. Answered by `Done`.

    From then on the messages that it settles are nobody's, and nothing that it needs is refused,
    until `Finish` says how the fragment `decider` has decided. After `wait_ms` anybody may ask it
    to roll back what is not decided yet. With `keeps_reply` the numbers that the messages get are
    kept for whoever wants to know them, until `ForgetDecision`.
    """

    def __init__(
        self,
        transaction_id: bytes,
        work: Work,
        decider: Home,
        wait_ms: int,
        *,
        keeps_reply: bool = False,
    ) -> None:
        self.transaction_id = transaction_id
        self.work = work
        self.decider = decider
        self.wait_ms = wait_ms
        self.keeps_reply = keeps_reply


@final
class Decide:
    """Commit a transaction that all `others` have prepared, and do its work here.

    Answered by `Decided`; by what was decided before, if something was. With a ticket that keeps
    the reply a commit is answered by `Sent`. Refused when the work cannot be done: then nothing is
    decided, and the others must be told that nothing comes of it.
    """

    def __init__(
        self, transaction_id: bytes, work: Work, others: list[Home], ticket: Ticket | None = None
    ) -> None:
        self.transaction_id = transaction_id
        self.work = work
        self.others = others
        self.ticket = ticket


@final
class AskDecision:
    """How was this transaction decided? Answered by `Decided`.

    A transaction that is undecided when its time `is_over` is decided by this question: rolled
    back. Whoever promised has measured that.
    """

    def __init__(self, transaction_id: bytes, *, is_over: bool) -> None:
        self.transaction_id = transaction_id
        self.is_over = is_over


@final
class Finish:
    """Do what was promised, or let go of it. Answered by `Done`, also if nothing was promised.

    A commit of what was prepared to keep the reply is answered by `Sent`, however often.
    """

    def __init__(self, transaction_id: bytes, *, is_commit: bool) -> None:
        self.transaction_id = transaction_id
        self.is_commit = is_commit


@final
class ForgetDecision:
    """All others have finished: the decision to commit need not be kept, nor the numbers of what
    was sent. Answered by `Done`.
    """

    def __init__(self, transaction_id: bytes) -> None:
        self.transaction_id = transaction_id


@final
class ListTransactions:
    """Which transactions are not finished? Answered by `InDoubt`."""


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
    """A transaction that a fragment has prepared and not finished; `is_over`: it has waited for the
    decision as long as it was to.
    """

    def __init__(self, transaction_id: bytes, decider: Home, *, is_over: bool) -> None:
        self.transaction_id = transaction_id
        self.decider = decider
        self.is_over = is_over


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
