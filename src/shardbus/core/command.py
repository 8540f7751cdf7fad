"""Every request a fragment accepts, and what it answers."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import Entry, Message

COMPLETE: Final = 0
ABANDON: Final = 1
DEAD_LETTER: Final = 2
RELEASE: Final = 3
"""Hand back unused: unlocked, but the delivery does not count as failed."""


@final
class FragmentRules:
    """What an entity's description means for each of its fragments."""

    def __init__(
        self,
        *,
        lock_ms: int,
        max_delivery_count: int,
        default_ttl_ms: int,
        dead_letters_on_expiry: bool,
        size_bytes_max: int,
    ) -> None:
        self.lock_ms = lock_ms
        self.max_delivery_count = max_delivery_count
        self.default_ttl_ms = default_ttl_ms  # -1: messages live for ever
        self.dead_letters_on_expiry = dead_letters_on_expiry
        self.size_bytes_max = size_bytes_max


@final
class Send:
    """Store all these messages in this order, or none. Answered by `Sent`."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages


@final
class Receive:
    """Take up to `count_max` messages from the front of a line. Answered by `Received`.

    `token_seed` is 8 fresh random bytes; it makes the lock tokens of this receive unguessable.
    Without a lock the messages are removed at once (receive-and-delete).
    """

    def __init__(self, line: int, count_max: int, *, is_locking: bool, token_seed: bytes) -> None:
        self.line = line
        self.count_max = count_max
        self.is_locking = is_locking
        self.token_seed = token_seed


@final
class Settle:
    """End deliveries by their lock tokens. Answered by `Settled`: lost locks change nothing."""

    def __init__(
        self,
        how: int,
        tokens: list[bytes],
        *,
        reason: str | None = None,
        description: str | None = None,
        modified: bytes = b"",
    ) -> None:
        self.how = how
        self.tokens = tokens
        self.reason = reason
        self.description = description
        self.modified = modified


@final
class Renew:
    """Extend locks to the full lock duration from now, all or none. Answered by `Renewed`."""

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens


@final
class Purge:
    """Remove up to `count_max` unlocked messages from the front of a line. Answered by `Purged`."""

    def __init__(self, line: int, count_max: int) -> None:
        self.line = line
        self.count_max = count_max


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
    """Time has passed: let go of expired locks and messages."""


Command = Send | Receive | Settle | Renew | Purge | SetAside | Configure | Tick


@final
class Sent:
    """The messages have the sequence numbers `first` to `first + count - 1`."""

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.count = count


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
    def __init__(self, count: int) -> None:
        self.count = count


@final
class Done:
    """Nothing more to say."""


Reply = Sent | Received | Settled | Renewed | Purged | Done
