"""The transactions of one connection: their work, and how they end.

Nothing of a transaction has happened before it is committed: sent messages wait here, and settled
ones stay locked. So a rollback only drops the work.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Protocol, final

from shardbus.broker.bus import EntityHandle
from shardbus.broker.clock import Timer
from shardbus.broker.operations.transactions import TransactionPart, Transactor
from shardbus.broker.routing.router import part_of
from shardbus.core.errors import (
    MESSAGE_LOCK_LOST,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    TRANSACTION_UNKNOWN,
    Refused,
)
from shardbus.core.message import Message
from shardbus.core.messages.command import Settle
from shardbus.core.messages.settling import LOCK_LOST_TEXT
from shardbus.core.transactions.command import Home, Work
from shardbus.gateway.amqp.connection.counts import AmqpCounts
from shardbus.gateway.amqp.connection.totals import Totals
from shardbus.gateway.amqp.transactions.binding import Binding, via_key_of
from shardbus.gateway.amqp.transactions.ways import Way

# "100 messages per transaction", "2 min".
COMPATIBLE_MESSAGES_MAX: Final = 100
LIFETIME_MS: Final = 120_000
TRANSACTION_ID_BYTES: Final = 16
# Transactions that a connection may have open at once, and the bytes that all of them may hold.
OPEN_MAX: Final = 100
BYTES_MAX: Final = 32 * 1024 * 1024
# The same for a client without a token.
STRANGER_OPEN_MAX: Final = 4
# Ids that are remembered only to report that their transactions timed out.
TIMED_OUT_MAX: Final = 1_000


@final
class TransactionRules:
    """What a transaction may do in this namespace.

    `is_extended`: messages without a key, or with different ones, may be sent to partitioned
    entities in one transaction; otherwise they are refused as by the service (R23, R24).
    """

    def __init__(
        self,
        *,
        is_extended: bool = False,
        messages_max: int = COMPATIBLE_MESSAGES_MAX,
        lifetime_ms: int = LIFETIME_MS,
    ) -> None:
        self.is_extended = is_extended
        self.messages_max = messages_max if is_extended else COMPATIBLE_MESSAGES_MAX
        self.lifetime_ms = lifetime_ms


class Timers(Protocol):
    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer: ...


@final
class OpenTransaction:
    """The work of a client so far; `spoiled` is why the transaction can only be rolled back.

    `way` is that of the session on which it was declared.
    """

    def __init__(self, transaction_id: bytes, owner: object, way: Way) -> None:
        self.transaction_id = transaction_id
        self.owner = owner
        self.way = way
        self.parts: dict[Home, TransactionPart] = {}
        self.binding = Binding()
        # The entities by way of which messages are sent, where links say so.
        self.ways: set[int] = set()
        self.sent = 0
        self.scheduled = 0
        self.settled = 0
        self.cancelled = 0
        # Requests that wait for an answer of a fragment.
        self.pending = 0
        self.size_bytes = 0
        self.spoiled: Refused | None = None
        self.timer: Timer | None = None

    def check(self) -> None:
        """Refused when a part of it was refused."""
        if self.spoiled is not None:
            raise Refused(
                TRANSACTION_ROLLBACK,
                "The transaction is rolled back, because a part of it was refused: "
                f"{self.spoiled.message}",
            )

    def answered(self) -> None:
        self.pending -= 1

    def work_at(self, handle: EntityHandle, index: int) -> Work:
        home = (handle.entity.entity_id, handle.router.numbers[index])
        part = self.parts.get(home)
        if part is None:
            router = handle.router
            part = TransactionPart(router.ports[index], home, Work([], []), router.outboxes[index])
            self.parts[home] = part
        return part.work

    def settlements(self) -> list[Settle]:
        """The settlements in it, by fragment."""
        return [each for part in self.parts.values() for each in part.work.settlements]

    def index_in(self, handle: EntityHandle) -> int:
        """A fragment of the entity that already takes part; -1 if none does."""
        entity_id, numbers = handle.entity.entity_id, handle.router.numbers
        for index, number in enumerate(numbers):
            if (entity_id, number) in self.parts:
                return index
        return -1


def _nobody_waits() -> None:
    """For a transaction that is not open."""


@final
class OpenTransactions:
    """The open transactions of one connection."""

    def __init__(
        self,
        rules: TransactionRules,
        transactor: Transactor,
        timers: Timers,
        counts: AmqpCounts,
        totals: Totals,
    ) -> None:
        self.rules = rules
        self._totals = totals
        self.open_max = STRANGER_OPEN_MAX
        self._transactor = transactor
        self._timers = timers
        self._counts = counts
        self._open: dict[bytes, OpenTransaction] = {}
        self._timed_out: OrderedDict[bytes, None] = OrderedDict()
        self._size_bytes = 0

    def declare(self, owner: object, way: Way) -> bytes:
        """Begin a transaction, which ends with its owner at the latest."""
        if len(self._open) >= self.open_max:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The connection has {self.open_max} open transactions, its maximum: "
                "discharge some of them.",
            )
        self._totals.check_transactions()
        self._totals.transactions += 1
        opened = OpenTransaction(secrets.token_bytes(TRANSACTION_ID_BYTES), owner, way)
        self._open[opened.transaction_id] = opened
        opened.timer = self._timers.call_later(
            self.rules.lifetime_ms, lambda: self._time_out(opened)
        )
        return opened.transaction_id

    def take(self, transaction_id: bytes) -> OpenTransaction:
        """Take a transaction that is about to end: nothing more can be enlisted in it."""
        opened = self.find(transaction_id)
        self._close(opened)
        if opened.pending and opened.spoiled is None:
            opened.spoiled = Refused(
                TRANSACTION_ROLLBACK,
                f"{opened.pending} requests of the transaction were not answered when it was "
                "discharged. Wait for the answers first.",
            )
        return opened

    async def commit(self, taken: OpenTransaction) -> None:
        """See `Transactor.commit`; refused when the transaction was spoiled."""
        taken.check()
        await self._transactor.commit(taken.transaction_id, list(taken.parts.values()))

    def roll_back_of(self, owner: object) -> None:
        """Roll back the transactions of an owner that has gone."""
        for opened in [each for each in self._open.values() if each.owner is owner]:
            self._close(opened)
            self._counts.rolled_back += 1

    def find(self, transaction_id: bytes) -> OpenTransaction:
        opened = self._open.get(transaction_id)
        if opened is not None:
            return opened
        if transaction_id in self._timed_out:
            raise Refused(
                TRANSACTION_TIMEOUT,
                f"The transaction was rolled back: it was open for more than "
                f"{self.rules.lifetime_ms} ms.",
            )
        raise Refused(
            TRANSACTION_UNKNOWN,
            "There is no such transaction: it does not exist, or has already ended.",
        )

    def expect(self, transaction_id: bytes) -> Callable[[], None]:
        """A request has arrived; nothing can be committed before it is answered."""
        opened = self._open.get(transaction_id)
        if opened is None:
            return _nobody_waits
        opened.pending += 1
        return opened.answered

    def spoil(self, transaction_id: bytes, refusal: Refused) -> None:
        """A part of it was refused: the transaction can only be rolled back."""
        opened = self._open.get(transaction_id)
        if opened is not None and opened.spoiled is None:
            opened.spoiled = refusal
            self._forget_bytes(opened)
            opened.parts = {}

    def spoil_at(self, entity_id: int, refusal: Refused, *, is_gone: bool) -> None:
        """An entity accepts no more messages: transactions that send to it are spoiled.

        If it `is_gone`, so are all transactions that use it; otherwise received messages can still
        be settled.
        """
        for opened in list(self._open.values()):
            is_sending = entity_id in opened.ways
            for (home_id, _), part in opened.parts.items():
                if home_id == entity_id:
                    work = part.work
                    is_sending = is_sending or is_gone or bool(work.messages or work.scheduled)
            if is_sending:
                self.spoil(opened.transaction_id, refusal)

    def add_bytes(self, opened: OpenTransaction, size_bytes: int) -> None:
        if self._size_bytes + size_bytes > BYTES_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The open transactions of a connection may hold at most {BYTES_MAX} bytes of "
                "messages: commit some of them first.",
            )
        self._totals.check_transactions(size_bytes)
        self._totals.transaction_bytes += size_bytes
        self._size_bytes += size_bytes
        opened.size_bytes += size_bytes

    def _forget_bytes(self, opened: OpenTransaction) -> None:
        self._totals.transaction_bytes -= opened.size_bytes
        self._size_bytes -= opened.size_bytes
        opened.size_bytes = 0

    def _close(self, opened: OpenTransaction) -> None:
        del self._open[opened.transaction_id]
        self._totals.transactions -= 1
        self._forget_bytes(opened)
        if opened.timer is not None:
            opened.timer.cancel()

    def _time_out(self, opened: OpenTransaction) -> None:
        if self._open.get(opened.transaction_id) is opened:
            self._close(opened)
            self._counts.rolled_back += 1
            self._timed_out[opened.transaction_id] = None
            if len(self._timed_out) > TIMED_OUT_MAX:
                self._timed_out.popitem(last=False)


@final
class Enlistment:
    """How the links of one entity take part in transactions.

    A refusal spoils the transaction, if it is known.
    """

    def __init__(
        self, transactions: OpenTransactions, handle: EntityHandle, way: EntityHandle | None = None
    ) -> None:
        """`way` is the entity by way of which the link sends, where it says so."""
        self.transactions = transactions
        self.handle = handle
        self._way = way

    def send(self, transaction_id: bytes, messages: list[Message]) -> None:
        """Send when the transaction is committed."""
        opened = self.transactions.find(transaction_id)
        try:
            self._send(opened, messages)
        except Refused as refusal:
            self.spoil(transaction_id, refusal)
            raise

    def settle(self, transaction_id: bytes, command: Settle) -> None:
        """Settle when the transaction is committed; until then the locks must last."""
        opened = self.transactions.find(transaction_id)
        try:
            self._settle(opened, command)
        except Refused as refusal:
            self.spoil(transaction_id, refusal)
            raise

    def spoil(self, transaction_id: bytes, refusal: Refused) -> None:
        self.transactions.spoil(transaction_id, refusal)

    def _send(self, opened: OpenTransaction, messages: list[Message]) -> None:
        indexes = self.place(opened, messages)
        if self._way is not None:
            opened.ways.add(self._way.entity.entity_id)
        opened.sent += len(messages)
        for index, message in zip(indexes, messages, strict=True):
            opened.work_at(self.handle, index).messages.append(message)

    def place(self, opened: OpenTransaction, messages: list[Message]) -> list[int]:
        """The fragments of messages; Refused when the transaction cannot take them."""
        opened.check()
        messages_max = self.transactions.rules.messages_max
        if opened.sent + opened.scheduled + len(messages) > messages_max:
            raise Refused(
                NOT_ALLOWED,
                f"Cannot send more than {messages_max} messages in a single transaction.",
            )
        indexes = [self._place(opened, message) for message in messages]
        size_bytes = sum(len(message.payload) for message in messages)
        self.transactions.add_bytes(opened, size_bytes)
        return indexes

    def _place(self, opened: OpenTransaction, message: Message) -> int:
        router = self.handle.router
        key = router.key_of(message)
        if not self.transactions.rules.is_extended:
            key = self._bound_key(opened, message, key)
        if not router.is_partitioned:
            return 0
        if key is not None:
            return router.index_of_key(key)
        index = opened.index_in(self.handle)
        return index if index >= 0 else router.next_index()

    def _bound_key(self, opened: OpenTransaction, message: Message, key: str | None) -> str | None:
        """The key that chooses the fragment: R23, and R24 because a session id is the key."""
        handle, way = self.handle, self._way
        if way is None:
            way = opened.way.first
        via_key = None if way is None else via_key_of(message)
        if way is not None and via_key is not None:
            if way.entity.entity_id != handle.entity.entity_id:
                opened.binding.bind_way(way, via_key)
                return key
            # The message stays with the entity of its way.
            key = via_key if key is None else key
        if handle.router.is_partitioned:
            opened.binding.bind_key(handle, key)
        return key

    def _settle(self, opened: OpenTransaction, command: Settle) -> None:
        opened.check()
        messages_max = self.transactions.rules.messages_max
        if opened.settled + len(command.tokens) > messages_max:
            raise Refused(
                NOT_ALLOWED,
                f"Cannot settle more than {messages_max} messages in a single transaction.",
            )
        router = self.handle.router
        shares: dict[int, list[bytes]] = {}
        for token in command.tokens:
            shares.setdefault(router.index_of_token(token), []).append(token)
        if -1 in shares:
            raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
        self.bind(opened, shares)
        opened.settled += len(command.tokens)
        for index, tokens in shares.items():
            opened.work_at(self.handle, index).settlements.append(part_of(command, tokens))

    def bind(self, opened: OpenTransaction, indexes: Iterable[int]) -> None:
        """These fragments take part; the rules say how many may."""
        if not self.transactions.rules.is_extended:
            for index in indexes:
                opened.binding.bind_fragment(self.handle, index)
