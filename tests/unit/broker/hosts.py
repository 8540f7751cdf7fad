"""Brokers without fragments behind them, for tests of what is above brokers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardbus.broker.clock import Timer
from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE, FragmentStatistics
from shardbus.broker.survey import Survey
from shardbus.core.errors import Unavailable
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.store import FragmentId, StoreError

T = TypeVar("T")


class SetClock:
    """A clock that stands until it is set; `ahead_ms` sets the wall clock alone."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.value_ms = now_ms
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self.value_ms + self.ahead_ms

    def steady_ms(self) -> int:
        return self.value_ms - 1_700_000_000_000

    @property
    def may_jump(self) -> bool:
        return True

    def call_later(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, callback: Callable[[], None]
    ) -> Timer:
        return loop.call_later(delay_ms / 1000, callback)


class InlineWorker:
    """Runs jobs where they are submitted; their results come later, as from a thread."""

    def submit(self, job: Callable[[], T], then: Callable[[T | StoreError], None]) -> None:
        try:
            result: T | StoreError = job()
        except StoreError as error:
            result = error
        asyncio.get_running_loop().call_soon(then, result)

    def close(self) -> None:
        """Nothing is ever left to do."""


class FakeHost:
    """A broker that keeps its fragments in a dict, and is down when told so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fragments: dict[FragmentId, Entity] = {}
        self.lost = ""
        self.statistics_of: dict[FragmentId, FragmentStatistics] = {}
        self.published: dict[int, list[Entity]] = {}
        """By topic: the subscriptions that it publishes to."""
        self.highest_entity_id = 0
        self.clock = SetClock()
        self.used_ms: dict[FragmentId, int] = {}
        """When somebody used a fragment, by the steady clock; the others nobody ever did."""
        self.outage = ""
        self.step: Callable[[], None] = _go_on
        """Called before and after each effect: the place to crash."""

    async def reach(self) -> None:
        await asyncio.sleep(0)
        if self.outage:
            raise Unavailable(self.outage)
        self.step()

    async def join(self, namespace_id: str, *, is_empty_expected: bool) -> int:
        await self.reach()
        return self.highest_entity_id

    async def create_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        await self.reach()
        self.highest_entity_id = max(self.highest_entity_id, entity.entity_id)
        for number in numbers:
            self.fragments.setdefault(FragmentId(entity.entity_id, number), entity)
        self.step()

    async def update_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        await self.reach()
        for number in numbers:
            self.fragments[FragmentId(entity.entity_id, number)] = entity
        self.step()

    async def update_topic(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        await self.reach()
        homeless = [
            subscription.name
            for subscription in subscriptions
            for number in numbers
            if FragmentId(subscription.entity_id, number) not in self.fragments
        ]
        assert not homeless, f"{self.name} was told to publish to nowhere: {homeless}"
        self.published[topic.entity_id] = list(subscriptions)
        self.step()

    async def delete_fragments(self, entity_id: int, numbers: Sequence[int]) -> None:
        await self.reach()
        publishing = [
            one.name
            for subs in self.published.values()
            for one in subs
            if one.entity_id == entity_id
        ]
        assert not publishing, f"{self.name} lost what it publishes to: {publishing}"
        for number in numbers:
            self.fragments.pop(FragmentId(entity_id, number), None)
        self.published.pop(entity_id, None)
        self.step()

    async def fragment_ids(self, *, is_timed: bool = False) -> list[FragmentId]:
        await self.reach()
        return list(self.fragments)

    async def in_doubt(self) -> list[FragmentId]:
        await self.reach()
        return []

    async def transferring(self) -> list[FragmentId]:
        await self.reach()
        return []

    async def loss(self) -> str:
        await self.reach()
        return self.lost

    async def statistics(self, entity_id: int, numbers: Sequence[int]) -> list[FragmentStatistics]:
        await self.reach()
        return [self._counted(FragmentId(entity_id, number)) for number in numbers]

    async def survey(self, since: int) -> Survey:
        await self.reach()
        return Survey(1, [], is_new=True, is_complete=True)

    def _counted(self, fragment: FragmentId) -> FragmentStatistics:
        empty = FragmentStatistics(fragment.number, [0, 0, 0], 0, FRAGMENT_AVAILABLE, "")
        found = self.statistics_of.get(fragment, empty)
        found.unused_ms = self.clock.steady_ms() - self.used_ms.get(fragment, 0)
        return found


def _go_on() -> None:
    """Nothing happens at this step."""


class Crash(BaseException):
    """The process ends here."""


class CrashAt:
    """Ends the process at the nth step from now on."""

    def __init__(self, step: int) -> None:
        self.steps_left = step

    def __call__(self) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise Crash
