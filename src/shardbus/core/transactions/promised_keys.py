"""The keys of promised messages: nothing may overtake a promised message that is late.

A promised message gets its place when its transaction is finished, usually a moment later. After a
crash that can take long. Its sender was told that it is stored, or that this is unknown, and sends
the next message with the same key, which must not come first. So that message is refused as busy
until the promise is finished, but only for a bounded time, in case the decider stays away. See
docs/adr/0045-batches-of-several-keys.md.
"""

from __future__ import annotations

from typing import final

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.core.limits import KEYS_BARRED_MS, PROMISE_LATE_MS
from shardbus.core.message import Message
from shardbus.core.namespace.placement import key_of


@final
class _Promise:
    """The messages of one transaction, promised at a reading of the steady clock."""

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
    """The promised keys of one fragment."""

    def __init__(self) -> None:
        # The oldest first.
        self.promises: dict[bytes, _Promise] = {}

    def add(self, transaction_id: bytes, messages: list[Message], steady_ms: int) -> None:
        if messages:
            self.promises[transaction_id] = _Promise(messages, steady_ms)

    def load(self, transaction_id: bytes, messages: list[Message], steady_ms: int) -> None:
        """Promises made before the fragment was loaded are late at once."""
        self.add(transaction_id, messages, steady_ms - PROMISE_LATE_MS)

    def remove(self, transaction_id: bytes) -> None:
        self.promises.pop(transaction_id, None)

    def check(self, messages: list[Message], detects_duplicates: bool, steady_ms: int) -> None:
        """Refused when one of these messages would overtake a promised message that is late."""
        keys: set[str] | None = None
        for promise in self.promises.values():
            if promise.since_ms + PROMISE_LATE_MS > steady_ms:
                # All promises that follow are younger.
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
                    f"Earlier messages with the key '{min(both)}' are still being stored "
                    "after an outage: try again in a moment.",
                )
