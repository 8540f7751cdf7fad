"""The commands about transactions, and their replies (see `committing`)."""

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
"""The address of a fragment: the id of its entity, and its number."""
Reserved = tuple[int, Message]
"""A message to be scheduled, with the sequence number that was reserved for it."""

HOME: Final = tuple_of(NUMBER, NUMBER)


class AboutTransactions(Asked):
    """A command about transactions."""

    FAMILY: ClassVar[int] = OF_TRANSACTIONS


@final
class Work(Declared):
    """What a transaction does in one fragment, all of it or nothing.

    It sends messages, settles others, and publishes stages that have exactly the given numbers of
    messages here. The fragment that decides the transaction also remembers that a producer's batch
    is published; a batch that was published before is refused with ALREADY_PUBLISHED. The other
    fragments know that batch by `batch_key`.

    Work can also schedule messages under numbers that `Enlist` gave out, cancel scheduled ones, and
    set the states of held sessions.
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
    """Check whether this work could be done now, and reserve `count` sequence numbers. Answered by
    `Sent`.

    Refused as `Transact` would be. The numbers are never given out again. A message that is
    scheduled under one of them can be cancelled by it.
    """

    FIELDS = fields(work=record(Work), count=COUNT)

    def __init__(self, work: Work, count: int = 0) -> None:
        self.work = work
        self.count = count


@final
class Transact(AboutTransactions):
    """Do the whole work of a transaction in a single fragment. Answered by `Done`.

    Refused, and nothing has changed, when a lock is no longer held or a message is refused.
    """

    FIELDS = fields(work=record(Work), ticket=maybe(record(Ticket)))

    def __init__(self, work: Work, ticket: Ticket | None = None) -> None:
        self.work = work
        self.ticket = ticket


@final
class Prepare(AboutTransactions):
    """Promise to do the work if the transaction is committed. Answered by `Done`.

    From then on nobody else reaches the messages that the work settles, and nothing that it needs
    is refused, until `Finish` says how the fragment `decider` has decided. After `wait_ms` anybody
    may ask the decider to roll back an undecided transaction. With `keeps_reply` the numbers of the
    sent messages are kept until `ForgetDecision`.
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

    Answered by `Decided`; by the earlier decision, if there was one. With a ticket that keeps the
    reply a commit is answered by `Sent`. Refused when the work cannot be done: then nothing is
    decided, and the others must be told to drop their promises.
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
    """Ask how this transaction was decided. Answered by `Decided`.

    With `is_over`, the fragment that promised has waited long enough: a transaction that is still
    undecided is rolled back by this question.
    """

    FIELDS = fields(transaction_id=DATA, is_over=FLAG)

    def __init__(self, transaction_id: bytes, *, is_over: bool) -> None:
        self.transaction_id = transaction_id
        self.is_over = is_over


@final
class Finish(AboutTransactions):
    """Do what was promised, or drop the promise. Answered by `Done`, also if nothing was promised.

    A commit that was prepared to keep the reply is answered by `Sent`, however often it is
    repeated.
    """

    FIELDS = fields(transaction_id=DATA, is_commit=FLAG)

    def __init__(self, transaction_id: bytes, *, is_commit: bool) -> None:
        self.transaction_id = transaction_id
        self.is_commit = is_commit


@final
class ForgetDecision(AboutTransactions):
    """All others have finished: neither the decision to commit nor the numbers of the sent messages
    need be kept. Answered by `Done`.
    """

    FIELDS = fields(transaction_id=DATA)

    def __init__(self, transaction_id: bytes) -> None:
        self.transaction_id = transaction_id


@final
class ListTransactions(AboutTransactions):
    """Ask which transactions are not finished. Answered by `InDoubt`."""


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
    """A transaction that a fragment has prepared and not finished; `is_over`: its time to wait for
    the decision is over.
    """

    FIELDS = fields(transaction_id=DATA, decider=HOME, is_over=FLAG)

    def __init__(self, transaction_id: bytes, decider: Home, *, is_over: bool) -> None:
        self.transaction_id = transaction_id
        self.decider = decider
        self.is_over = is_over


@final
class Owed(Declared):
    """A transaction that a fragment committed at a moment; not all `others` are known to have
    finished.
    """

    FIELDS = fields(transaction_id=DATA, at_ms=NUMBER, others=list_of(HOME))

    def __init__(self, transaction_id: bytes, at_ms: int, others: list[Home]) -> None:
        self.transaction_id = transaction_id
        self.at_ms = at_ms
        self.others = others


@final
class InDoubt(Declared):
    """The transactions of one fragment that are not finished."""

    FIELDS = fields(promised=list_of(record(Promised)), owed=list_of(record(Owed)))

    def __init__(self, promised: list[Promised], owed: list[Owed]) -> None:
        self.promised = promised
        self.owed = owed


TransactionReply = Decided | InDoubt
