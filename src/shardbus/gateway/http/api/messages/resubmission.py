"""Sends dead letters again: each of them once, whatever fails in between.

A dead letter is completed and sent again in one transaction, which in a queue is one commit of one
fragment, unless the fragment belongs to a former map. The dead letters of a subscription go to its
topic, and all subscriptions whose rules match get them; jobs can put them into the subscription
alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final, final

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.asking import failure_of
from shardbus.broker.operations.transactions import TransactionPart, Transactor
from shardbus.codec.errors import DecodeError
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import COMPLETE, Delivery, Settle
from shardbus.core.transactions.command import Work
from shardbus.gateway.http.api.messages.batch_receiver import BatchReceiver
from shardbus.gateway.http.api.messages.message import modified_payload, time_to_live_ms
from shardbus.gateway.http.jobs.undo_marks import unmarked
from shardbus.gateway.http.messaging.head_receiver import release
from shardbus.message.sections import scan_message

COUNT_MAX: Final = 1_000
# Dead letters that are examined and locked at once to find some by their numbers.
LOOK_COUNT_MAX: Final = 10_000
_CHUNK_COUNT: Final = 100
_TRANSACTION_ID_BYTES: Final = 16


@final
class Resubmission:
    """One request to resubmit; `line` is where the dead letters of `source` are."""

    def __init__(
        self, source: EntityHandle, target: EntityHandle, line: int, transactor: Transactor
    ) -> None:
        """`target` is the source itself, or the topic of a subscription."""
        self._source = source
        self._target = target
        self._line = line
        self._transactor = transactor
        self._failure: Refused | Unavailable | None = None
        self._passed: list[Delivery] = []

    async def oldest(self, count_max: int) -> list[int]:
        """Resubmit the first `count_max`; returns their sequence numbers as dead letters."""
        moved: list[int] = []
        try:
            while len(moved) < count_max and self._is_going_on():
                deliveries = await self._lock(min(count_max - len(moved), _CHUNK_COUNT))
                if not deliveries:
                    break
                moved += await self._move(deliveries)
        finally:
            release(self._source.router, *self._passed)
        return self._answer(moved)

    async def numbered(self, numbers: Sequence[int]) -> list[int]:
        """Resubmit those of these dead letters that exist and are not locked."""
        wanted, moved = set(numbers), list[int]()
        try:
            while wanted and self._is_going_on():
                deliveries = await self._lock(_CHUNK_COUNT)
                if not deliveries:
                    break
                chosen = [each for each in deliveries if each.entry.sequence_number in wanted]
                self._passed += [each for each in deliveries if each not in chosen]
                moved += await self._move(chosen)
                wanted.difference_update(each.entry.sequence_number for each in chosen)
        finally:
            release(self._source.router, *self._passed)
        return self._answer(moved)

    @property
    def has_failed(self) -> bool:
        """Whether some dead letters could not be resubmitted."""
        return self._failure is not None

    def _is_going_on(self) -> bool:
        return self._failure is None and len(self._passed) < LOOK_COUNT_MAX

    def _answer(self, moved: list[int]) -> list[int]:
        """The result so far; the client repeats the request for the rest."""
        if self._failure is not None and not moved:
            raise self._failure
        return moved

    async def _lock(self, count: int) -> list[Delivery]:
        router = self._source.router
        dispatcher = router.dispatcher(self._line)
        receiver = BatchReceiver(router, dispatcher, count_max=count, wait_ms=0)
        return await receiver.receive()

    async def _move(self, deliveries: list[Delivery]) -> list[int]:
        shares: dict[int, list[Delivery]] = {}
        for delivery in deliveries:
            index = self._source.router.index_of_token(delivery.token)
            shares.setdefault(index, []).append(delivery)
        moved = await asyncio.gather(*(self._move_share(*share) for share in shares.items()))
        return [number for numbers in moved for number in numbers]

    async def _move_share(self, index: int, deliveries: list[Delivery]) -> list[int]:
        """Move dead letters of one fragment: all of them or, on failure, none."""
        messages: list[Message] = []
        readable: list[Delivery] = []
        for delivery in deliveries:
            message = message_again(delivery, self._target)
            if message is None:
                self._passed.append(delivery)
            else:
                messages.append(message)
                readable.append(delivery)
        if not readable:
            return []
        tokens = [delivery.token for delivery in readable]
        try:
            parts = self._parts(index, messages, Settle(COMPLETE, tokens), readable[0])
            await self._transactor.commit(secrets.token_bytes(_TRANSACTION_ID_BYTES), parts)
        except (Refused, Unavailable) as failure:
            known = self._failure
            self._failure = failure if known is None else failure_of([known, failure])
            self._passed += readable
            return []
        return [delivery.entry.sequence_number for delivery in readable]

    def _parts(
        self, index: int, messages: list[Message], settlement: Settle, first: Delivery
    ) -> list[TransactionPart]:
        source, target = self._source, self._target
        if target is source and index >= source.router.former_count:
            return [part_of(source, index, Work(messages, [settlement]))]
        if target is source:
            return [
                *_parts_anywhere(source, messages),
                part_of(source, index, Work([], [settlement])),
            ]
        # What a topic's fragment published is in the fragments of the same number.
        target_index = target.router.index_of_number(first.entry.sequence_number)
        assert target_index >= 0, "a subscription has the fragments of its topic"
        settling = part_of(source, index, Work([], [settlement]))
        if target_index < target.router.former_count:
            return [*_parts_anywhere(target, messages), settling]
        return [part_of(target, target_index, Work(messages, [])), settling]


def _parts_anywhere(handle: EntityHandle, messages: Sequence[Message]) -> list[TransactionPart]:
    """To the present fragments: that of the messages is a former one, which accepts none."""
    works: dict[int, list[Message]] = {}
    router = handle.router
    for message in messages:
        key = router.key_of(message)
        at = router.next_index() if key is None else router.index_of_key(key)
        works.setdefault(at, []).append(message)
    return [part_of(handle, at, Work(some, [])) for at, some in works.items()]


def part_of(handle: EntityHandle, index: int, work: Work) -> TransactionPart:
    """The part of one fragment in a transaction."""
    router = handle.router
    home = (handle.entity.entity_id, router.numbers[index])
    return TransactionPart(router.ports[index], home, work, router.outboxes[index])


def message_again(
    delivery: Delivery, target: EntityHandle, change: Callable[[bytes], bytes] | None = None
) -> Message | None:
    """The message as its sender wrote it, with its full time to live; None if it is unreadable.

    `change` modifies the payload. A dead letter that an earlier job redrove has been received since
    then, so an undo of that job must not find it.
    """
    try:
        payload = modified_payload(delivery.entry, delivery.payload or b"")
        if change is not None:
            payload = change(payload)
        if delivery.entry.line != MAIN_LINE:
            payload = unmarked(payload)
        head = scan_message(payload)
    except DecodeError:
        return None
    is_deduplicated = target.entity.spec.requires_duplicate_detection
    return Message(
        payload,
        # It was sent before: with its id it would be dropped as a duplicate, and lost.
        message_id=None if is_deduplicated else head.message_id,
        session_id=head.session_id,
        partition_key=head.partition_key,
        ttl_ms=time_to_live_ms(head),
    )
