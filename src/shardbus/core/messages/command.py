"""What fragments are asked about messages, and what they answer."""

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
    small,
    unless,
)
from shardbus.core.message import LINE, NEVER_MS, Entry, Message
from shardbus.core.sequence import SEED

COMPLETE: Final = 0
ABANDON: Final = 1
DEAD_LETTER: Final = 2
RELEASE: Final = 3
"""Hand back unused: unlocked, but the delivery does not count as failed."""
DEFER: Final = 4
"""Keep it, but give it only to who asks for its sequence number; not a failed delivery."""

NO_SESSION: Final = b""
"""As a session token: none."""


class AboutMessages(Asked):
    """A command about messages."""

    FAMILY: ClassVar[int] = OF_MESSAGES


@final
class Ticket(Declared):
    """The number of a command, under which its sender can ask about it later.

    `sender` tells senders apart. Each numbers what it gives to a fragment 1, 2, 3 …, in that order,
    and will never ask about a number below `front`. With `keeps_reply` the answer to such a
    question also says what the reply was.
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

    One with a `scheduled_at_ms` in the future waits for it, and gets another sequence number then.
    With a `ticket` its sender can ask later what became of it.
    """

    FIELDS = fields(ticket=maybe(record(Ticket)), messages=list_of(record(Message)))

    def __init__(self, messages: list[Message], ticket: Ticket | None = None) -> None:
        self.messages = messages
        self.ticket = ticket


@final
class Receive(AboutMessages):
    """Take up to `count_max` messages from the front of a line. Answered by `Received`.

    `token_seed` is 8 fresh random bytes; it makes the lock tokens of this receive unguessable.
    Without a lock the messages are removed at once (receive-and-delete).
    With `session`, the token of a held session, only messages of that session are taken, locked
    until the session's own deadline. Refused with SESSION_LOCK_LOST when it is not held (any more).
    The main line of a fragment that requires sessions is received by session only: NOT_ALLOWED.
    """

    FIELDS = fields(line=LINE, count_max=COUNT, is_locking=FLAG, token_seed=SEED, session=DATA)

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
class ReceiveDeferred(AboutMessages):
    """Take exactly these deferred messages of a line, in this order. Answered by `Received`.

    Refused with MESSAGE_NOT_FOUND, all of them, when one is not there, not deferred or locked.
    On the main line of a fragment that requires sessions they must be of the held `session`.
    At most DEFERRED_COUNT_MAX numbers.
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
class Settle(AboutMessages):
    """End deliveries by their lock tokens. Answered by `Settled`: lost locks change nothing.

    `modified` (packed by `properties.pack`) is merged into what earlier settlements modified.
    A deferred message that is abandoned stays deferred. `delay_ms` keeps an abandoned message from
    being delivered again so long; it then waits at its own place in the order.
    """

    FIELDS = fields(
        how=small(DEFER, "way to settle"),
        reason=maybe(TEXT),
        description=maybe(TEXT),
        delay_ms=unless(0, NUMBER),
        modified=DATA,
        tokens=list_of(DATA),
    )

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
class Renew(AboutMessages):
    """Extend locks to the full lock duration from now, all or none. Answered by `Renewed`."""

    FIELDS = fields(tokens=NAMES)

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens


@final
class Purge(AboutMessages):
    """Remove up to `count_max` unlocked active messages from the front of a line, or of a held
    session. Answered by `Purged`. With `enqueued_until_ms` it stops at the first message that was
    enqueued later.
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

    Refused with MESSAGE_NOT_FOUND when one is not there or not scheduled (any more).
    """

    FIELDS = fields(sequence_numbers=NUMBERS)

    def __init__(self, sequence_numbers: list[int]) -> None:
        self.sequence_numbers = sequence_numbers


MessageCommand = Send | Receive | Settle | Renew | Purge | ReceiveDeferred | Cancel


@final
class Sent(Declared):
    """The `count` messages that were stored have the sequence numbers from `first` on.

    `duplicates` are the positions, rising, of those that were dropped because the fragment had
    them before; they have no number. What went to several fragments has its numbers `apart`, one
    for each message; no fragment answers so.
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
class Received(Declared):
    """`has_more` says that asking again would find more, perhaps only in the store."""

    FIELDS = fields(has_more=FLAG, deliveries=list_of(record(Delivery)))

    def __init__(self, deliveries: list[Delivery], has_more: bool) -> None:
        self.deliveries = deliveries
        self.has_more = has_more


@final
class Settled(Declared):
    """`lost[i]` says that the lock of `tokens[i]` was not held (any more): nothing was done."""

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
    """`has_more` says that asking again may remove more, even if nothing was removed now."""

    FIELDS = fields(count=COUNT, has_more=FLAG)

    def __init__(self, count: int, has_more: bool = False) -> None:
        self.count = count
        self.has_more = has_more


@final
class Done(Declared):
    """Nothing more to say."""


MessageReply = Sent | Received | Settled | Renewed | Purged | Done
