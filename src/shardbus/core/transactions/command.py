"""What fragments are asked about transactions, and what they answer (see `transactions`)."""

from __future__ import annotations

from typing import ClassVar, Final, final

from shardbus.core.declared import (
    COUNT,
    DATA,
    FLAG,
    NUMBER,
    NUMBERS,
    OF_TRANSACTIONS,
    Asked,
    Declared,
    fields,
    list_of,
    maybe,
    record,
    small,
    tuple_of,
)
from shardbus.core.message import Message
from shardbus.core.messages.command import Settle, Ticket
from shardbus.core.sessions.command import SetState
from shardbus.core.stages.command import Publication, StageShare

Home = tuple[int, int]
"""Where a fragment is at home: the id of its entity, and its number."""
Reserved = tuple[int, Message]
"""A message to be scheduled, with the sequence number that was given out for it."""

HOME: Final = tuple_of(NUMBER, NUMBER)


class AboutTransactions(Asked):
    """A command about transactions."""

    FAMILY: ClassVar[int] = OF_TRANSACTIONS


@final
class Work(Declared):
    """What a transaction does in one fragment, all of it or nothing.

    It sends messages, settles others, publishes stages that have exactly so many messages here,
    and, only where it is decided, remembers that a batch of a producer is published: one that was
    published before is refused with ALREADY_PUBLISHED.

    `batch_key` is what that batch is known by where it is not remembered.

    It also schedules messages under numbers that `Enlist` gave out, cancels others that are
    scheduled, and sets the states of sessions that are held.
    """

    FIELDS = fields(
        messages=list_of(record(Message)),
        settlements=list_of(record(Settle)),
        stages=list_of(tuple_of(DATA, NUMBER)),
        publication=maybe(record(Publication)),
        batch_key=DATA,
        scheduled=list_of(tuple_of(NUMBER, record(Message))),
        cancelled=NUMBERS,
        states=list_of(record(SetState)),
    )

    def __init__(  # noqa: PLR0913 - a record, the rare ones by keyword
        self,
        messages: list[Message],
        settlements: list[Settle],
        stages: list[StageShare] | None = None,
        publication: Publication | None = None,
        *,
        batch_key: bytes = b"",
        scheduled: list[Reserved] | None = None,
        cancelled: list[int] | None = None,
        states: list[SetState] | None = None,
    ) -> None:
        self.messages = messages
        self.settlements = settlements
        self.stages: list[StageShare] = [] if stages is None else stages
        self.publication = publication
        self.batch_key = batch_key
        self.scheduled: list[Reserved] = [] if scheduled is None else scheduled
        self.cancelled: list[int] = [] if cancelled is None else cancelled
        self.states: list[SetState] = [] if states is None else states


@final
class Enlist(AboutTransactions):
    """Could this work be done now? And give out `count` sequence numbers. Answered by `Sent`.

    Refused as `Transact` would be. Nobody else gets the numbers, whatever becomes of them; what is
    scheduled under one of them can be cancelled by it.
    """

    FIELDS = fields(work=record(Work), count=COUNT)

    def __init__(self, work: Work, count: int = 0) -> None:
        self.work = work
        self.count = count


@final
class Transact(AboutTransactions):
    """Do the whole work of a transaction that concerns no other fragment. Answered by `Done`.

    Refused, and nothing has changed, when a lock is not held any more or a message is refused.
    """

    FIELDS = fields(work=record(Work), ticket=maybe(record(Ticket)))

    def __init__(self, work: Work, ticket: Ticket | None = None) -> None:
        self.work = work
        self.ticket = ticket


@final
class Prepare(AboutTransactions):
    """Promise to do the work if the transaction is committed. Answered by `Done`.

    From then on the messages that it settles are nobody's, and nothing that it needs is refused,
    until `Finish` says how the fragment `decider` has decided. After `wait_ms` anybody may ask it
    to roll back what is not decided yet. With `keeps_reply` the numbers that the messages get are
    kept for whoever wants to know them, until `ForgetDecision`.
    """

    FIELDS = fields(
        transaction_id=DATA, work=record(Work), decider=HOME, wait_ms=NUMBER, keeps_reply=FLAG
    )

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
class Decide(AboutTransactions):
    """Commit a transaction that all `others` have prepared, and do its work here.

    Answered by `Decided`; by what was decided before, if something was. With a ticket that keeps
    the reply a commit is answered by `Sent`. Refused when the work cannot be done: then nothing is
    decided, and the others must be told that nothing comes of it.
    """

    FIELDS = fields(
        transaction_id=DATA, work=record(Work), others=list_of(HOME), ticket=maybe(record(Ticket))
    )

    def __init__(
        self, transaction_id: bytes, work: Work, others: list[Home], ticket: Ticket | None = None
    ) -> None:
        self.transaction_id = transaction_id
        self.work = work
        self.others = others
        self.ticket = ticket


@final
class AskDecision(AboutTransactions):
    """How was this transaction decided? Answered by `Decided`.

    A transaction that is undecided when its time `is_over` is decided by this question: rolled
    back. Whoever promised has measured that.
    """

    FIELDS = fields(transaction_id=DATA, is_over=FLAG)

    def __init__(self, transaction_id: bytes, *, is_over: bool) -> None:
        self.transaction_id = transaction_id
        self.is_over = is_over


@final
class Finish(AboutTransactions):
    """Do what was promised, or let go of it. Answered by `Done`, also if nothing was promised.

    A commit of what was prepared to keep the reply is answered by `Sent`, however often.
    """

    FIELDS = fields(transaction_id=DATA, is_commit=FLAG)

    def __init__(self, transaction_id: bytes, *, is_commit: bool) -> None:
        self.transaction_id = transaction_id
        self.is_commit = is_commit


@final
class ForgetDecision(AboutTransactions):
    """All others have finished: the decision to commit need not be kept, nor the numbers of what
    was sent. Answered by `Done`.
    """

    FIELDS = fields(transaction_id=DATA)

    def __init__(self, transaction_id: bytes) -> None:
        self.transaction_id = transaction_id


@final
class ListTransactions(AboutTransactions):
    """Which transactions are not finished? Answered by `InDoubt`."""


TransactionCommand = (
    Enlist | Transact | Prepare | Decide | AskDecision | Finish | ForgetDecision | ListTransactions
)

UNDECIDED: Final = 0
COMMITTED: Final = 1
ROLLED_BACK: Final = 2


@final
class Decided(Declared):
    """`how` is UNDECIDED, COMMITTED or ROLLED_BACK."""

    FIELDS = fields(how=small(ROLLED_BACK, "decision"))

    def __init__(self, how: int) -> None:
        self.how = how


@final
class Promised(Declared):
    """A transaction that a fragment has prepared and not finished; `is_over`: it has waited for the
    decision as long as it was to.
    """

    FIELDS = fields(transaction_id=DATA, decider=HOME, is_over=FLAG)

    def __init__(self, transaction_id: bytes, decider: Home, *, is_over: bool) -> None:
        self.transaction_id = transaction_id
        self.decider = decider
        self.is_over = is_over


@final
class Owed(Declared):
    """A transaction that a fragment committed at a moment; not all `others` have finished, or not
    all are known to have.
    """

    FIELDS = fields(transaction_id=DATA, at_ms=NUMBER, others=list_of(HOME))

    def __init__(self, transaction_id: bytes, at_ms: int, others: list[Home]) -> None:
        self.transaction_id = transaction_id
        self.at_ms = at_ms
        self.others = others


@final
class InDoubt(Declared):
    """The transactions of one fragment that are under way, or that nobody has ended."""

    FIELDS = fields(promised=list_of(record(Promised)), owed=list_of(record(Owed)))

    def __init__(self, promised: list[Promised], owed: list[Owed]) -> None:
        self.promised = promised
        self.owed = owed


TransactionReply = Decided | InDoubt
