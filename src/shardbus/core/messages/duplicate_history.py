"""The message ids that a fragment accepted within its duplicate window.

The window is a duration: in memory it is measured by a clock that is never set. Stored ids have a
moment of the wall clock, because no other clock survives a restart.

An id is kept as a digest of 128 bits with the moment of its acceptance, 22 bytes in all, in one of
many buckets chosen by the digest. Records are appended, so the expired ones are a prefix of their
bucket. They are cut off when the bucket is used, and by a sweep that every send advances.
"""

from __future__ import annotations

from typing import Final, final

import xxhash

from shardbus.core.limits import DIGEST_BYTES
from shardbus.core.message import NEVER_MS, Message
from shardbus.core.sessions.key import session_key

# With a million ids a lookup takes 2.6 us. 16 times as many buckets make that 2.2 us, because
# memory access dominates, and cost half a megabyte in each fragment that remembers a single id.
BUCKETS: Final = 4_096
SWEEP_BUCKETS: Final = 4
# The store is asked to forget rows at most this often per window.
FORGETS_PER_WINDOW: Final = 16

_BUCKET_SHIFT: Final = 4
_MOMENT_BYTES: Final = 6
_RECORD_BYTES: Final = DIGEST_BYTES + _MOMENT_BYTES


def digest_of(message: Message, is_partitioned: bool) -> bytes:
    """The digest that a message shares with its duplicates; b"" for a message without an id, or
    for one subscription alone: the topic may have got the same message from its sender.

    On a partitioned entity a duplicate has the same partition key too; a session id is a partition
    key.
    """
    message_id = message.message_id
    if message_id is None or message.subscription_id:
        return b""
    encoded = message_id.encode("utf-8", "surrogatepass")
    if is_partitioned:
        session_id, key = message.session_id, message.partition_key
        if session_id is not None:
            key = session_key(session_id)
        # The length separates id and key: without it two different pairs could have the same bytes.
        start = len(encoded).to_bytes(4, "big") + encoded
        encoded = start if key is None else start + b":" + key.encode("utf-8", "surrogatepass")
    return xxhash.xxh3_128_digest(encoded)


@final
class Sifted:
    """Messages to store, the positions of the duplicates, and the digests of the new ids."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.duplicates: list[int] = []
        self.digests = b""


@final
class History:
    """Digests with the moments of their acceptance. Those accepted up to `until_ms` have
    expired.
    """

    def __init__(self) -> None:
        # Created with the first id: most fragments never remember one.
        self._buckets: list[bytearray | None] = []
        self._count = 0
        self._next_bucket = 0
        self._oldest_ms = NEVER_MS
        self._newest_ms = NEVER_MS
        # By the wall clock, as the rows of the store are.
        self._stored_from_ms = NEVER_MS
        self._stored_to_ms = NEVER_MS
        self._forgot_at_ms = NEVER_MS

    def __len__(self) -> int:
        """How many records are kept; a few of them may have expired."""
        return self._count

    def newest_ms(self) -> int:
        """When the last id was accepted; NEVER_MS when there is none."""
        return self._newest_ms

    def is_stored(self) -> bool:
        """Whether the store has rows, even if all their ids have expired."""
        return self._stored_from_ms != NEVER_MS

    def sift(
        self,
        messages: list[Message],
        is_partitioned: bool,
        until_ms: int,
        *,
        has_both_forms: bool = False,
    ) -> Sifted:
        """Separate duplicates from new messages; of several with the same id the first is new.

        With `has_both_forms` some digests were made while the entity had another number of
        fragments: those of ids alone, or those of ids and keys.
        """
        sifted = Sifted()
        seen: set[bytes] = set()
        digests: list[bytes] = []
        for position, message in enumerate(messages):
            digest = digest_of(message, is_partitioned)
            if digest and (digest in seen or self.has(digest, until_ms)):
                sifted.duplicates.append(position)
                continue
            if has_both_forms and self._has_other(message, is_partitioned, until_ms):
                sifted.duplicates.append(position)
                continue
            sifted.messages.append(message)
            if digest:
                seen.add(digest)
                digests.append(digest)
        sifted.digests = b"".join(digests)
        return sifted

    def _has_other(self, message: Message, is_partitioned: bool, until_ms: int) -> bool:
        """Whether the digest of the other form was accepted after `until_ms`."""
        digest = digest_of(message, not is_partitioned)
        return bool(digest) and self.has(digest, until_ms)

    def load(self, at_ms: int, digests: bytes, until_ms: int) -> None:
        """Take over the ids that a store remembered, in the order of their acceptance."""
        self.note_stored(at_ms)
        if at_ms > until_ms:
            self.add(at_ms, digests)

    def add(self, at_ms: int, digests: bytes) -> None:
        moment = at_ms.to_bytes(_MOMENT_BYTES, "big")
        if not self._buckets:
            self._buckets = [None] * BUCKETS
        buckets = self._buckets
        for start in range(0, len(digests), DIGEST_BYTES):
            digest = digests[start : start + DIGEST_BYTES]
            index = _bucket_of(digest)
            bucket = buckets[index]
            if bucket is None:
                buckets[index] = bytearray(digest + moment)
            else:
                bucket += digest
                bucket += moment
        self._count += len(digests) // DIGEST_BYTES
        if self._oldest_ms == NEVER_MS or at_ms < self._oldest_ms:
            self._oldest_ms = at_ms
        if at_ms > self._newest_ms:
            self._newest_ms = at_ms

    def page(self, start: int, at_ms: int, until_ms: int, bytes_max: int) -> tuple[bytes, int]:
        """The ids of some buckets from `start` on that have not expired, each a digest and its age
        at `at_ms`; and the bucket to continue with, or 0.
        """
        found = bytearray()
        for index in range(start, len(self._buckets)):
            if len(found) >= bytes_max:
                return bytes(found), index
            bucket = self._buckets[index]
            if bucket is None:
                continue
            for at in range(0, len(bucket), _RECORD_BYTES):
                moment_ms = _moment_at(bucket, at)
                if moment_ms > until_ms:
                    found += bucket[at : at + DIGEST_BYTES]
                    found += max(at_ms - moment_ms, 0).to_bytes(_MOMENT_BYTES, "big")
        return bytes(found), 0

    def note_stored(self, at_ms: int) -> None:
        """The store has a row of this moment, by the wall clock."""
        if self._stored_from_ms == NEVER_MS or at_ms < self._stored_from_ms:
            self._stored_from_ms = at_ms
        if at_ms > self._stored_to_ms:
            self._stored_to_ms = at_ms

    def has(self, digest: bytes, until_ms: int) -> bool:
        """Whether this digest was accepted after `until_ms`."""
        if self._count == 0:
            return False
        index = _bucket_of(digest)
        self._cut(index, until_ms)
        bucket = self._buckets[index]
        if bucket is None:
            return False
        at = bucket.find(digest)
        while at >= 0:
            # A match across two records is a coincidence. An expired record may stand behind newer
            # ones if the clock was set back, and the same id may have been accepted again after it.
            if at % _RECORD_BYTES == 0 and _moment_at(bucket, at) > until_ms:
                return True
            at = bucket.find(digest, at + 1)
        return False

    def has_room(self, count: int, count_max: int, until_ms: int) -> bool:
        """Whether `count` more ids fit, once the expired ones are forgotten."""
        room = count_max - count
        if self._count > room and self._oldest_ms <= until_ms:
            self._sweep_all(until_ms)
        return self._count <= room

    def sweep(self, until_ms: int) -> None:
        """Forget some of the expired ids."""
        if self._count == 0:
            return
        for _ in range(SWEEP_BUCKETS):
            self._cut(self._next_bucket, until_ms)
            self._next_bucket = (self._next_bucket + 1) % BUCKETS

    def clear_if_expired(self, until_ms: int) -> bool:
        """Forget everything at once if all ids have expired; False if some have not."""
        if self._newest_ms > until_ms:
            return False
        self._buckets = []
        self._count = 0
        self._oldest_ms = NEVER_MS
        self._newest_ms = NEVER_MS
        return True

    def must_forget(self, until_ms: int, now_ms: int, window_ms: int) -> bool:
        """Whether the store should forget the rows up to `until_ms` of the wall clock; True only
        once for each time. `now_ms` is a reading of the clock that is never set.
        """
        if self._stored_from_ms == NEVER_MS or self._stored_from_ms > until_ms:
            return False
        if now_ms - self._forgot_at_ms < window_ms // FORGETS_PER_WINDOW:
            return False
        self._forgot_at_ms = now_ms
        self._stored_from_ms = until_ms + 1 if self._stored_to_ms > until_ms else NEVER_MS
        return True

    def _cut(self, index: int, until_ms: int) -> None:
        bucket = self._buckets[index]
        if bucket is None:
            return
        end = 0
        while end < len(bucket) and _moment_at(bucket, end) <= until_ms:
            end += _RECORD_BYTES
        if end == 0:
            return
        self._count -= end // _RECORD_BYTES
        if end == len(bucket):
            self._buckets[index] = None
        else:
            del bucket[:end]

    def _sweep_all(self, until_ms: int) -> None:
        oldest_ms = NEVER_MS
        for index in range(len(self._buckets)):
            self._cut(index, until_ms)
            bucket = self._buckets[index]
            if bucket is not None:
                first_ms = _moment_at(bucket, 0)
                if oldest_ms == NEVER_MS or first_ms < oldest_ms:
                    oldest_ms = first_ms
        self._oldest_ms = oldest_ms


def count_in_page(page: bytes) -> int:
    return len(page) // _RECORD_BYTES


def by_age(page: bytes, unit_ms: int) -> dict[int, bytes]:
    """The digests of a page by their ages, the oldest first. Ages are multiples of a unit, so an id
    may be remembered for a unit longer.
    """
    found: dict[int, bytearray] = {}
    for at in range(0, len(page), _RECORD_BYTES):
        age_ms = int.from_bytes(page[at + DIGEST_BYTES : at + _RECORD_BYTES], "big")
        digests = found.setdefault(age_ms // unit_ms * unit_ms, bytearray())
        digests += page[at : at + DIGEST_BYTES]
    return {age_ms: bytes(found[age_ms]) for age_ms in sorted(found, reverse=True)}


def _bucket_of(digest: bytes) -> int:
    return (digest[0] << 8 | digest[1]) >> _BUCKET_SHIFT


def _moment_at(bucket: bytearray, at: int) -> int:
    return int.from_bytes(bucket[at + DIGEST_BYTES : at + _RECORD_BYTES], "big")
