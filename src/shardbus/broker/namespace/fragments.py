"""The fragments of all entities on all brokers: created, changed, counted and removed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, TypeVar, final

from shardbus.broker.namespace.host import (
    EntityStatistics,
    FragmentHost,
    FragmentStatistics,
    out_of_reach,
)
from shardbus.core.errors import Unavailable
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.store import FragmentId

log = logging.getLogger(__name__)

T = TypeVar("T")

HOST_WAIT_MS: Final = 15_000
DELETED: Final = "deleted"
# Subscriptions of one topic that brokers are asked about at once.
AT_ONCE_MAX: Final = 32


@final
class Fragments:
    """Calls the brokers in the order of their index, each for a limited time."""

    def __init__(self, hosts: Sequence[FragmentHost], host_wait_ms: int = HOST_WAIT_MS) -> None:
        self._hosts = list(hosts)
        self._host_wait_ms = host_wait_ms
        # Brokers that still hold fragments of deleted entities, and why these could not be removed.
        self._unswept: dict[str, str] = {}

    def broker_count(self) -> int:
        return len(self._hosts)

    async def create(self, entity: Entity) -> None:
        """Create all fragments of an entity or none of them."""
        begun: list[int] = []
        for index in _broker_indexes(entity):
            begun.append(index)
            host = self._hosts[index]
            try:
                await self._answer(host, host.create_fragments(entity, entity.numbers_at(index)))
            except Unavailable as error:
                await self._delete_at(entity, begun)
                raise Unavailable(
                    f"'{entity.name}' was not created, because not all of its fragments could "
                    f"be created: {error.message}"
                ) from error

    async def create_coming(self, entity: Entity) -> None:
        """Create the fragments of the next map of an entity; those that exist stay as they are."""
        for index, numbers in _coming_by_broker(entity):
            host = self._hosts[index]
            await self._answer(host, host.create_fragments(entity, numbers))

    async def delete_coming(self, entity: Entity) -> None:
        """Remove the fragments of the next map of an entity."""
        for index, numbers in _coming_by_broker(entity):
            await self.delete_numbers(index, entity.entity_id, numbers)

    async def update(self, entity: Entity) -> None:
        """Apply an entity's new description everywhere."""
        for index in _broker_indexes(entity):
            host = self._hosts[index]
            await self._answer(host, host.update_fragments(entity, entity.numbers_at(index)))

    async def delete(self, entity: Entity) -> bool:
        """Remove the fragments of an entity; False when some are left for the next sweep."""
        return await self._delete_at(entity, _broker_indexes(entity))

    async def create_topic(self, topic: Entity) -> None:
        """Create all fragments of a topic, ready to accept messages, or none of them."""
        await self.create(topic)
        try:
            await self.tell(topic, [])
        except Unavailable as error:
            await self.delete(topic)
            raise Unavailable(
                f"'{topic.name}' was not created, because not all of its fragments could be "
                f"created: {error.message}"
            ) from error

    async def create_subscription(
        self, topic: Entity, subscription: Entity, others: Sequence[Entity]
    ) -> None:
        """Create all fragments of a subscription and let the topic publish to it; all or nothing.

        On return every message that the topic accepts from now on reaches it.
        """
        await self.create(subscription)
        try:
            await self.tell(topic, [*others, subscription])
        except Unavailable as error:
            await self.delete_subscription(topic, subscription, others)
            raise Unavailable(
                f"'{subscription.name}' was not created, because not every broker of its "
                f"topic could be told: {error.message}"
            ) from error

    async def delete_subscription(
        self, topic: Entity, subscription: Entity, others: Sequence[Entity]
    ) -> bool:
        """Let the topic publish only to the others, then remove the subscription's fragments.

        False when some are left for the next sweep.
        """
        is_gone = True
        for index in _broker_indexes(topic):
            try:
                await self.tell_at(index, topic, others)
            except Unavailable as error:
                # Its publisher may still use the fragments: they are removed when it has been told.
                self._leave_for_sweep(subscription, self._hosts[index], error)
                is_gone = False
                continue
            is_gone &= await self._delete_at(subscription, [index])
        return is_gone

    async def delete_topic(self, topic: Entity, subscriptions: Sequence[Entity]) -> bool:
        """Remove the fragments of a topic, so that it publishes nothing more, then those of its
        subscriptions; False when some are left for the next sweep.
        """
        is_gone = True
        for index in _broker_indexes(topic):
            if not await self._delete_at(topic, [index]):
                is_gone = False
                continue
            for some in _portions(subscriptions):
                gone = await asyncio.gather(*(self._delete_at(one, [index]) for one in some))
                is_gone &= all(gone)
        return is_gone

    async def tell(self, topic: Entity, subscriptions: Sequence[Entity]) -> None:
        """Let a topic publish to exactly these subscriptions, everywhere."""
        for index in _broker_indexes(topic):
            await self.tell_at(index, topic, subscriptions)

    async def tell_at(self, index: int, topic: Entity, subscriptions: Sequence[Entity]) -> None:
        """Let a topic publish to exactly these subscriptions, at one broker."""
        host, numbers = self._hosts[index], topic.numbers_at(index)
        if numbers:
            await self._answer(host, host.update_topic(topic, subscriptions, numbers))

    async def check_whole(self, entity: Entity, verb: str) -> None:
        """Unavailable when a fragment is down, so that nothing is half done (R28).

        A fragment that its store does not have does not prevent a deletion.
        """
        found = await self.statistics(entity)
        problems = found.problems(is_missing_one=verb != DELETED)
        if problems:
            raise Unavailable(
                f"'{entity.name}' cannot be {verb} while not all of its fragments are available: "
                + "; ".join(problems)
            )

    async def statistics(self, entity: Entity) -> EntityStatistics:
        """The sums over all fragments; an unreachable broker makes them partial (R29)."""
        parts: list[FragmentStatistics] = []
        for index in _broker_indexes(entity):
            host = self._hosts[index]
            numbers = [home.number for home in entity.fragments if home.broker_index == index]
            try:
                parts += await self._answer(host, host.statistics(entity.entity_id, numbers))
            except Unavailable as error:
                parts += [out_of_reach(number, error.message) for number in numbers]
        parts.sort(key=lambda part: part.number)
        return EntityStatistics(parts)

    async def topic_statistics(
        self, topic: Entity, subscriptions: Sequence[Entity]
    ) -> EntityStatistics:
        """The statistics of the topic itself, with the size of all its subscriptions (R29)."""
        found = await self.statistics(topic)
        parts = await self.statistics_of(subscriptions)
        for subscription, part in zip(subscriptions, parts, strict=True):
            found.add_subscription(part, subscription.updated_at_ms)
        return found

    async def statistics_of(self, entities: Sequence[Entity]) -> list[EntityStatistics]:
        """The statistics of each of these entities."""
        parts: list[EntityStatistics] = []
        for some in _portions(entities):
            parts += await asyncio.gather(*map(self.statistics, some))
        return parts

    def name_of(self, index: int) -> str:
        return self._hosts[index].name

    async def join(self, index: int, namespace_id: str, *, is_empty_expected: bool) -> int:
        """See `host.FragmentHost`."""
        host = self._hosts[index]
        joining = host.join(namespace_id, is_empty_expected=is_empty_expected)
        return await self._answer(host, joining)

    async def held(self, index: int) -> list[FragmentId]:
        """Every fragment that a broker holds."""
        host = self._hosts[index]
        return await self._answer(host, host.fragment_ids())

    async def loss(self, index: int) -> str:
        """See `host.FragmentHost`."""
        host = self._hosts[index]
        return await self._answer(host, host.loss())

    async def statistics_at(
        self, index: int, entity_id: int, numbers: Sequence[int]
    ) -> list[FragmentStatistics]:
        """What fragments at one broker hold."""
        host = self._hosts[index]
        return await self._answer(host, host.statistics(entity_id, numbers))

    async def delete_at(self, entity: Entity, index: int) -> None:
        """Remove the fragments of an entity at one broker."""
        await self.delete_numbers(index, entity.entity_id, entity.numbers_at(index))

    async def delete_numbers(self, index: int, entity_id: int, numbers: Sequence[int]) -> None:
        host = self._hosts[index]
        await self._answer(host, host.delete_fragments(entity_id, numbers))

    def note_swept(self, index: int) -> None:
        """The broker has no fragments left to remove."""
        self._unswept.pop(self._hosts[index].name, None)

    def note_unswept(self, index: int, error: Unavailable) -> None:
        self._unswept[self._hosts[index].name] = error.message

    async def timed(self, broker_index: int) -> list[FragmentId]:
        """The fragments of a broker in which messages are or will be due."""
        host = self._hosts[broker_index]
        return await self._answer(host, host.fragment_ids(is_timed=True))

    def problems(self) -> list[str]:
        return [
            f"broker {name} may hold fragments of deleted entities: {reason}"
            for name, reason in self._unswept.items()
        ]

    async def _delete_at(self, entity: Entity, indexes: Sequence[int]) -> bool:
        """Delete an entity's fragments; returns whether nothing is left."""
        is_gone = True
        for index in indexes:
            try:
                await self.delete_at(entity, index)
            except Unavailable as error:
                self._leave_for_sweep(entity, self._hosts[index], error)
                is_gone = False
        return is_gone

    def _leave_for_sweep(self, entity: Entity, host: FragmentHost, error: Unavailable) -> None:
        log.warning("fragments of '%s' left for the next sweep: %s", entity.name, error)
        self._unswept[host.name] = error.message

    async def _answer(self, host: FragmentHost, question: Coroutine[object, object, T]) -> T:
        try:
            async with asyncio.timeout(self._host_wait_ms / 1000):
                return await question
        except TimeoutError as error:
            raise Unavailable(
                f"broker {host.name} did not answer within {self._host_wait_ms} ms", is_unknown=True
            ) from error


def _broker_indexes(entity: Entity) -> list[int]:
    return sorted({home.broker_index for home in entity.every_home()})


def _coming_by_broker(entity: Entity) -> list[tuple[int, list[int]]]:
    indexes = sorted({home.broker_index for home in entity.coming})
    return [
        (index, [home.number for home in entity.coming if home.broker_index == index])
        for index in indexes
    ]


async def for_each(
    entities: Sequence[Entity], work: Callable[[Entity], Coroutine[object, object, None]]
) -> None:
    """Do the work for all of them. After a failure nothing is left under way."""
    for some in _portions(entities):
        for answer in await asyncio.gather(*map(work, some), return_exceptions=True):
            if answer is not None:
                raise answer


def _portions(entities: Sequence[Entity]) -> list[Sequence[Entity]]:
    return [entities[at : at + AT_ONCE_MAX] for at in range(0, len(entities), AT_ONCE_MAX)]
