"""A message: what its sender wrote, and what a fragment remembers about it."""

from __future__ import annotations

from typing import Final, final

NEVER_MS: Final = 0
"""As a moment: never (no expiry)."""

MAIN_LINE: Final = 0
DEAD_LETTER_LINE: Final = 1
TRANSFER_DEAD_LETTER_LINE: Final = 2

ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2
SET_ASIDE: Final = 3
"""The stored record is damaged: kept as evidence, never served, not counted as active."""


@final
class Message:
    """What a sender wrote, with what the bus read from it in order to place and expire it.

    `payload` holds the AMQP sections as sent; the core never looks inside.
    `ttl_ms` is -1 when the sender set none.
    """

    def __init__(
        self,
        payload: bytes,
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        ttl_ms: int = -1,
    ) -> None:
        self.payload = payload
        self.message_id = message_id
        self.session_id = session_id
        self.partition_key = partition_key
        self.ttl_ms = ttl_ms


@final
class Entry:
    """A message in a line of a fragment.

    The fragment owns and changes it; a store copies what it needs during `commit` and keeps no
    reference. `payload` is None while only the store holds the bytes; `size_bytes` is the
    payload's length either way. `modified` is an encoded map of application properties that
    settling changed, opaque to the core.
    """

    def __init__(  # noqa: PLR0913 - a record: all but the first three go by keyword
        self,
        sequence_number: int,
        payload: bytes | None,
        size_bytes: int,
        *,
        enqueued_at_ms: int,
        expires_at_ms: int = NEVER_MS,
        delivery_count: int = 0,
        line: int = MAIN_LINE,
        state: int = ACTIVE,
        reason: str | None = None,
        description: str | None = None,
        modified: bytes = b"",
    ) -> None:
        self.sequence_number = sequence_number
        self.payload = payload
        self.size_bytes = size_bytes
        self.enqueued_at_ms = enqueued_at_ms
        self.expires_at_ms = expires_at_ms
        self.delivery_count = delivery_count
        self.line = line
        self.state = state
        self.reason = reason
        self.description = description
        self.modified = modified

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms != NEVER_MS and self.expires_at_ms <= now_ms

    def __repr__(self) -> str:
        return (
            f"Entry({self.sequence_number}, line={self.line}, state={self.state}, "
            f"delivery_count={self.delivery_count}, size_bytes={self.size_bytes})"
        )
