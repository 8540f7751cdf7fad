"""Batches whose messages belong to several fragments: stored in all of them, or in none (R49).

Each message goes to the fragment of its key, and messages without a key go along to one of those.
It is a transaction that only sends: all fragments but one promise, that one decides, and the others
finish, whatever crashes in between (see `transactions`). A message with one of its keys waits until
the batch is done, so each key keeps its order of sending. See
docs/adr/0045-batches-of-several-keys.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.operations.transactions import TransactionPart, Transactor
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.broker.routing.key_turns import KeyTurns, Turn
from shardbus.broker.routing.outbox import DOUBT_MS_MAX, Outbox
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.limits import PROMISE_LATE_MS
from shardbus.core.message import Message
from shardbus.core.messages.command import Sent
from shardbus.core.transactions.command import Home, Work

log = logging.getLogger(__name__)

_Task = asyncio.Task[Answer] | asyncio.Task[dict[Home, Sent]] | asyncio.Task[object]

# Shorter than for transactions: after a gateway dies half-way, senders with the keys of the batch
# wait this long.
DECIDE_MS: Final = 5_000
LATE_TEXT: Final = (
    "The batch took too long to be stored in all of its fragments: nothing was stored. Send it "
    "again."
)
NUMBERS_TEXT: Final = (
    "The batch is stored, but a fragment with some of its messages is unavailable, so that "
    "not all sequence numbers are known."
)
CUT_SHORT_TEXT: Final = "The gateway stopped while the batch was being stored."


@final
class BatchFragments:
    """The fragments of one entity, as a batch needs them; lists run parallel."""

    def __init__(
        self,
        entity_id: int,
        ports: list[FragmentPort],
        numbers: list[int],
        outboxes: list[Outbox],
    ) -> None:
        self._entity_id = entity_id
        self._ports = ports
        self._numbers = numbers
        self._outboxes = outboxes

    def home(self, index: int) -> Home:
        return self._entity_id, self._numbers[index]

    def part(self, index: int, messages: list[Message]) -> TransactionPart:
        work = Work(messages, [])
        return TransactionPart(self._ports[index], self.home(index), work, self._outboxes[index])


@final
class BatchSpread:
    """A batch and where its messages go: `shares` has their ascending positions by fragment."""

    def __init__(self, messages: list[Message], keys: list[str | None]) -> None:
        """`keys` runs parallel to the messages."""
        self.messages = messages
        self.keys = keys
        self.shares: dict[int, list[int]] = {}

    def place(self, index_of_key: Callable[[str], int], free: int) -> None:
        """Messages without a key go along with others: the `free`-th of the needed fragments gets
        them.
        """
        indexes: dict[str, int] = {}
        unkeyed: list[int] = []
        for position, key in enumerate(self.keys):
            if key is None:
                unkeyed.append(position)
                continue
            index = indexes.get(key, -1)
            if index < 0:
                index = indexes[key] = index_of_key(key)
            self.shares.setdefault(index, []).append(position)
        if unkeyed:
            needed = list(self.shares)
            chosen = needed[free % len(needed)]
            self.shares[chosen] = sorted(self.shares[chosen] + unkeyed)

    def different_keys(self) -> list[str]:
        return list(dict.fromkeys(key for key in self.keys if key is not None))

    def share(self, index: int) -> list[Message]:
        return [self.messages[position] for position in self.shares[index]]


@final
class Batches:
    """Sends the batches of one entity that need several fragments."""

    def __init__(
        self,
        fragments: BatchFragments,
        turns: KeyTurns,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        new_seed: Callable[[], bytes],
    ) -> None:
        self._fragments = fragments
        self._turns = turns
        self._loop = loop
        self._new_seed = new_seed
        # Once a promise is late, its fragment keeps the order of its keys.
        self._plain = Transactor(clock, DECIDE_MS, finish_ms=PROMISE_LATE_MS, late_text=LATE_TEXT)
        self._numbered = Transactor(
            clock, DECIDE_MS, finish_ms=DOUBT_MS_MAX, late_text=LATE_TEXT, keeps_replies=True
        )
        self._under_way: set[asyncio.Task[Answer]] = set()

    def send(self, spread: BatchSpread, reply_to: ReplyTo, *, keeps_reply: bool) -> None:
        """Store all of it or nothing when its turn has come; `reply_to` is called once."""

        def begin(turn: Turn) -> None:
            task = self._loop.create_task(self._send(spread, keeps_reply))
            self._under_way.add(task)
            task.add_done_callback(lambda ended: self._ended(ended, turn, reply_to))

        self._turns.take(spread.different_keys(), begin)

    def tasks(self) -> list[_Task]:
        """The tasks under way, to be ended with the process."""
        return [*self._under_way, *self._plain.tasks(), *self._numbered.tasks()]

    def _ended(self, task: asyncio.Task[Answer], turn: Turn, reply_to: ReplyTo) -> None:
        self._under_way.discard(task)
        self._turns.end(turn)
        reply_to(_answer_of(task))

    async def _send(self, spread: BatchSpread, keeps_reply: bool) -> Answer:
        transactor = self._numbered if keeps_reply else self._plain
        parts = [self._fragments.part(index, spread.share(index)) for index in spread.shares]
        try:
            replies = await transactor.commit(self._new_seed() + self._new_seed(), parts)
        except (Refused, Unavailable) as failure:
            return failure
        if keeps_reply:
            return self._numbers(spread, replies)
        return Sent(0, len(spread.messages))

    def _numbers(self, spread: BatchSpread, replies: dict[Home, Sent]) -> Sent | Unavailable:
        numbers = [0] * len(spread.messages)
        for index, positions in spread.shares.items():
            reply = replies.get(self._fragments.home(index))
            if reply is None:
                return Unavailable(NUMBERS_TEXT, is_unknown=True)
            for position, number in zip(positions, reply.numbers(), strict=True):
                numbers[position] = number
        duplicates = [position for position, number in enumerate(numbers) if number == 0]
        return Sent(0, len(numbers) - len(duplicates), duplicates, numbers)


def _answer_of(task: asyncio.Task[Answer]) -> Answer:
    if task.cancelled():
        return Unavailable(CUT_SHORT_TEXT, is_unknown=True)
    error = task.exception()
    if error is None:
        return task.result()
    log.error("a batch failed", exc_info=error)
    return Unavailable("The batch failed because of an internal error.", is_unknown=True)
