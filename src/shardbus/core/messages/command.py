"""The commands about messages, and their replies."""

from __future__ import annotations

from typing import ClassVar, Final, final

from shardbus.core.declared import (
    COUNT,
    DATA,
    FLAG,
    FLAGS,
    NAMES,
    NUMBER,
    NUMBERS,
    OF_MESSAGES,
    TEXT,
    Asked,
    Declared,
    fields,
    list_of,
    maybe,
    record,
    since,
    small,
    unless,
)
from shardbus.core.message import LINE, NEVER_MS, Entry, Message
from shardbus.core.sequence import SEED

COMPLETE: Final = 0
ABANDON: Final = 1
DEAD_LETTER: Final = 2
RELEASE: Final = 3
"""Return the message unused: it is unlocked, and the delivery does not count as failed."""
DEFER: Final = 4
"""Keep the message for receivers that ask for its sequence number; not a failed delivery."""

NO_SESSION: Final = b""
"""As a session token: no session."""


class AboutMessages(Asked):
    """A command about messages."""

    FAMILY: ClassVar[int] = OF_MESSAGES


@final
class Ticket(Declared):
    """The number of a command, by which its sender can ask about it later.

    `sender` identifies the sender. Each sender numbers its commands to a fragment 1, 2, 3 …, in
    that order, and will never ask about a number below `front`. With `keeps_reply` the fragment
    keeps the reply too, for the answer to such a question.
    """

    FIELDS = fields(sender=DATA, number=NUMBER, front=NUMBER, keeps_reply=FLAG)

    def __init__(
        self, sender: bytes, number: int, front: int, *, keeps_reply: bool = False
    ) -> None:
        self.sender = sender
        self.number = number
        self.front = front
        self.keeps_reply = keeps_reply


@final
class Send(AboutMessages):
    """Store all these messages in this order, or none. Answered by `Sent`.

    A message with a `scheduled_at_ms` in the future waits for that moment and then gets a new
    sequence number. With a `ticket` the sender can ask later whether the command was stored.
    """

    FIELDS = fields(ticket=maybe(record(Ticket)), messages=list_of(record(Message)))

    def __init__(self, messages: list[Message], ticket: Ticket | None = None) -> None:
        self.messages = messages
        self.ticket = ticket


@final
class Receive(AboutMessages):
    """Take up to `count_max` messages from the front of a line. Answered by `Received`.

    `token_seed` is 8 fresh random bytes; it makes the lock tokens of this receive unguessable.
    Without a lock the messages are removed at once (receive-and-delete). With `session`, the token
    of a held session, only messages of that session are taken, locked until the session's own
    deadline. Refused with SESSION_LOCK_LOST when the session is no longer held. The main line of a
    fragment that requires sessions is received by session only: NOT_ALLOWED. `receiver` is a name
    for lifecycle records; it decides nothing.
    """

    FIELDS = fields(
        line=LINE,
        count_max=COUNT,
        is_locking=FLAG,
        token_seed=SEED,
        session=DATA,
        receiver=since(12, unless("", TEXT), is_dispensable=True),
    )

    def __init__(
        self,
        line: int,
        count_max: int,
        *,
        is_locking: bool,
        token_seed: bytes,
        session: bytes = NO_SESSION,
        receiver: str = "",
    ) -> None:
        self.line = line
        self.count_max = count_max
        self.is_locking = is_locking
        self.token_seed = token_seed
        self.session = session
        self.receiver = receiver


@final
class ReceiveDeferred(AboutMessages):
    """Take exactly these deferred messages of a line, in this order. Answered by `Received`.

    Refused with MESSAGE_NOT_FOUND, all of them, when one of them does not exist, is not deferred,
    or is locked. On the main line of a fragment that requires sessions they must be of the held
    `session`. At most DEFERRED_COUNT_MAX numbers.
    """

    FIELDS = fields(
        line=LINE, sequence_numbers=NUMBERS, is_locking=FLAG, token_seed=SEED, session=DATA
    )

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
class ReceiveNumbered(AboutMessages):
    """Lock those of these active messages of a line that are there and not taken. Answered by
    `Received`, in the order of the numbers; perhaps not all, if they are too many bytes.

    At most DEFERRED_COUNT_MAX numbers. `session` as in `Receive`: only those of its messages.
    """

    FIELDS = fields(
        line=LINE,
        sequence_numbers=NUMBERS,
        token_seed=SEED,
        session=since(12, unless(NO_SESSION, DATA)),
    )

    def __init__(
        self,
        line: int,
        sequence_numbers: list[int],
        *,
        token_seed: bytes,
        session: bytes = NO_SESSION,
    ) -> None:
        self.line = line
        self.sequence_numbers = sequence_numbers
        self.token_seed = token_seed
        self.session = session


@final
class Settle(AboutMessages):
    """End deliveries by their lock tokens. Answered by `Settled`: lost locks change nothing.

    `modified` (packed by `properties.pack`) is merged into what earlier settlements modified. A
    deferred message that is abandoned stays deferred. An abandoned message is not delivered again
    for `delay_ms`; after that it waits at its own place in the order. With a `session`, refused
    with SESSION_LOCK_LOST when that token is not held: locks of a shared session outlive its
    holder.
    """

    FIELDS = fields(
        how=small(DEFER, "way to settle"),
        reason=maybe(TEXT),
        description=maybe(TEXT),
        delay_ms=unless(0, NUMBER),
        session=since(12, unless(NO_SESSION, DATA), is_dispensable=True),
        modified=DATA,
        tokens=list_of(DATA),
    )

    def __init__(  # noqa: PLR0913 - a record, all but the first two by keyword
        self,
        how: int,
        tokens: list[bytes],
        *,
        reason: str | None = None,
        description: str | None = None,
        modified: bytes = b"",
        delay_ms: int = 0,
        session: bytes = NO_SESSION,
    ) -> None:
        self.how = how
        self.tokens = tokens
        self.session = session
        self.reason = reason
        self.description = description
        self.modified = modified
        self.delay_ms = delay_ms


@final
class Renew(AboutMessages):
    """Extend locks to the full lock duration from now, all or none. Answered by `Renewed`."""

    FIELDS = fields(tokens=NAMES)

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens


@final
class Purge(AboutMessages):
    """Remove up to `count_max` unlocked active messages from the front of a line, or of a held
    session. Answered by `Purged`. With `enqueued_until_ms` the removal stops at the first message
    that was enqueued later.
    """

    FIELDS = fields(line=LINE, count_max=COUNT, enqueued_until_ms=NUMBER, session=DATA)

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
class Cancel(AboutMessages):
    """Remove scheduled messages, all or none. Answered by `Done`.

    Refused with MESSAGE_NOT_FOUND when one of them does not exist or is no longer scheduled.
    """

    FIELDS = fields(sequence_numbers=NUMBERS)

    def __init__(self, sequence_numbers: list[int]) -> None:
        self.sequence_numbers = sequence_numbers


MessageCommand = (
    Send | Receive | Settle | Renew | Purge | ReceiveDeferred | Cancel | ReceiveNumbered
)


@final
class Sent(Declared):
    """The `count` messages that were stored have consecutive sequence numbers from `first`.

    `duplicates` are the ascending positions of messages that were dropped as duplicates; they have
    no number. When the messages went to several fragments, `apart` has one number for each message;
    a fragment itself never answers so.
    """

    FIELDS = fields(first=NUMBER, count=COUNT, duplicates=list_of(COUNT))

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
        """The sequence number of each sent message, 0 for a duplicate."""
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
class Received(Declared):
    """`has_more` says that another receive would find more messages, perhaps only in the store."""

    FIELDS = fields(has_more=FLAG, deliveries=list_of(record(Delivery)))

    def __init__(self, deliveries: list[Delivery], has_more: bool) -> None:
        self.deliveries = deliveries
        self.has_more = has_more


@final
class Settled(Declared):
    """`lost[i]` says that the lock of `tokens[i]` was no longer held, and nothing was done."""

    FIELDS = fields(lost=FLAGS)

    def __init__(self, lost: list[bool]) -> None:
        self.lost = lost


@final
class Renewed(Declared):
    FIELDS = fields(locked_until_ms=NUMBER)

    def __init__(self, locked_until_ms: int) -> None:
        self.locked_until_ms = locked_until_ms


@final
class Purged(Declared):
    """`has_more` says that another purge may remove more, even if this one removed nothing."""

    FIELDS = fields(count=COUNT, has_more=FLAG)

    def __init__(self, count: int, has_more: bool = False) -> None:
        self.count = count
        self.has_more = has_more


@final
class Done(Declared):
    """The command is done; there is nothing to report."""


MessageReply = Sent | Received | Settled | Renewed | Purged | Done
