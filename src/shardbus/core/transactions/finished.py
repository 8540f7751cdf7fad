"""The numbers of messages that a fragment stored when a transaction was finished.

The client that committed wants to know them, but any process may have finished the transaction, and
the answer may be lost. They are kept until the client confirms them, or for a bounded time.
"""

from __future__ import annotations

from typing import final

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.records import FINISHED
from shardbus.core.limits import FINISHED_KEPT_MS, FINISHED_MAX
from shardbus.core.messages.command import Sent
from shardbus.core.packing import Unpacker, packed_count, packed_integer


@final
class _Kept:
    def __init__(self, sent: Sent, until_ms: int) -> None:
        self.sent = sent
        self.until_ms = until_ms


@final
class Finished:
    """The numbers that one fragment keeps, by transaction."""

    def __init__(self, ledger: Ledger, records: dict[tuple[int, bytes], bytes]) -> None:
        self._ledger = ledger
        # The oldest first.
        self._kept: dict[bytes, _Kept] = {}
        until_ms = ledger.steady_ms + FINISHED_KEPT_MS
        for (kind, key), data in records.items():
            if kind == FINISHED:
                self._kept[key] = _Kept(_unpack(data), until_ms)

    def check_room(self, promised: int) -> None:
        """Refused when there is no room for the numbers of one more transaction."""
        self._forget_old()
        if len(self._kept) + promised >= FINISHED_MAX:
            raise Refused(
                SERVER_BUSY,
                f"A fragment keeps the sequence numbers of {len(self._kept)} batches that "
                "nobody has asked for yet, its maximum. Try again later.",
            )

    def keep(self, transaction_id: bytes, sent: Sent) -> None:
        self._kept[transaction_id] = _Kept(sent, self._ledger.steady_ms + FINISHED_KEPT_MS)
        self._ledger.changes.append(RecordChange(FINISHED, transaction_id, _pack(sent)))

    def find(self, transaction_id: bytes) -> Sent | None:
        kept = self._kept.get(transaction_id)
        return None if kept is None else kept.sent

    def forget(self, transaction_id: bytes) -> None:
        if self._kept.pop(transaction_id, None) is not None:
            self._ledger.changes.append(RecordChange(FINISHED, transaction_id, None))

    def _forget_old(self) -> None:
        old: list[bytes] = []
        for transaction_id, kept in self._kept.items():
            if kept.until_ms > self._ledger.steady_ms:
                break
            old.append(transaction_id)
        for transaction_id in old:
            self.forget(transaction_id)


def _pack(sent: Sent) -> bytes:
    parts = [packed_integer(sent.first), packed_count(sent.count)]
    parts.append(packed_count(len(sent.duplicates)))
    parts += [packed_count(position) for position in sent.duplicates]
    return b"".join(parts)


def _unpack(data: bytes) -> Sent:
    unpacker = Unpacker(data)
    first, count = unpacker.integer(), unpacker.count()
    duplicates = [unpacker.count() for _ in range(unpacker.count())]
    unpacker.end()
    return Sent(first, count, duplicates)
