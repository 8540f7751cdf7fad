"""The keys of messages that are promised to transactions: nothing may overtake those that are late.

What is promised gets its place when its transaction is finished, a moment later. After a crash that
moment is long: whoever sent it was told that it is stored, or that this is not known, and sends the
next with the same key, which must not come before it. So it is refused as busy, until what was
promised is done or undone; but not for ever, should the decider stay away.
See docs/adr/0045-batches-of-several-keys.md.
"""

from __future__ import annotations

from typing import final

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.core.limits import KEYS_BARRED_MS, PROMISE_LATE_MS
from shardbus.core.message import Message
from shardbus.core.namespace.placement import key_of


@final
class _Promise:
    """The messages of one transaction, promised at a moment of the steady clock."""

    def __init__(self, messages: list[Message], since_ms: int) -> None:
        self.since_ms = since_ms
        self._messages = messages
        self._keys: set[str] | None = None

    def keys(self, detects_duplicates: bool) -> set[str]:
        if self._keys is None:
            found = [key_of(message, detects_duplicates) for message in self._messages]
            self._keys = {key for key in found if key is not None}
        return self._keys


@final
class PromisedKeys:
    """Of one fragment."""

    def __init__(self) -> None:
        # The oldest first.
        self.promises: dict[bytes, _Promise] = {}

    def add(self, transaction_id: bytes, messages: list[Message], steady_ms: int) -> None:
        if messages:
            self.promises[transaction_id] = _Promise(messages, steady_ms)

    def load(self, transaction_id: bytes, messages: list[Message], steady_ms: int) -> None:
        """What was promised before the fragment was loaded is late at once."""
        self.add(transaction_id, messages, steady_ms - PROMISE_LATE_MS)

    def remove(self, transaction_id: bytes) -> None:
        self.promises.pop(transaction_id, None)

    def check(self, messages: list[Message], detects_duplicates: bool, steady_ms: int) -> None:
        """Refused when one of these would overtake a message that is promised and late."""
        keys: set[str] | None = None
        for promise in self.promises.values():
            if promise.since_ms + PROMISE_LATE_MS > steady_ms:
                # So are all that follow.
                return
            if promise.since_ms + KEYS_BARRED_MS <= steady_ms:
                continue
            if keys is None:
                found = [key_of(message, detects_duplicates) for message in messages]
                keys = {key for key in found if key is not None}
            both = keys & promise.keys(detects_duplicates)
            if both:
                raise Refused(
                    SERVER_BUSY,
                    f"Messages with the key '{min(both)}' that were sent before are being stored "
                    "still, after an outage: try again in a moment.",
                )
