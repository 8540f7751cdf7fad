"""A broker: one message store and its fragments, each with its runner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar, final

from shardbus.broker.clock import TimedClock
from shardbus.broker.fragment.led import Led
from shardbus.broker.fragment.outlet import Outlet
from shardbus.broker.fragment.publishing import Publisher
from shardbus.broker.fragment.runner import UNAVAILABLE, Runner
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.namespace.host import (
    FRAGMENT_AVAILABLE,
    FRAGMENT_UNAVAILABLE,
    FragmentStatistics,
    out_of_reach,
)
from shardbus.broker.survey import Survey, Surveyor, stored_oldest
from shardbus.broker.turn import Turns
from shardbus.core.errors import NOT_IMPLEMENTED, Refused, Unavailable
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import Counters
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.fragment.handover import HandOver
from shardbus.core.fragment.records import DECISION, PREPARED, PUBLISHING, STAGE, TRANSFERRED
from shardbus.core.namespace.entity import Entity, EntitySpec
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.core.readers.record import ReaderStanding, standings_in
from shardbus.core.stages.record import staged_in
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError, UnknownFragment

log = logging.getLogger(__name__)

T = TypeVar("T")

Counted: TypeAlias = tuple[Counters, int, list[ReaderStanding], int] | StoreError | Unavailable
"""What a fragment holds, how many messages were ever sent, how far its readers are and how many
bytes are staged; or why that is unknown.
"""


class Membership(Protocol):
    """Which namespace a store belongs to. Blocking; may raise StoreError."""

    @property
    def namespace_id(self) -> str:
        """The id of its namespace; empty as long as it belongs to none."""
        ...

    def join(self, namespace_id: str, *, is_empty_expected: bool) -> None:
        """See `host.FragmentHost`."""
        ...


@final
class Broker:
    """Runs the fragments of one store. Implements `host.FragmentHost`.

    `fragment_bytes_max` caps every fragment, whatever its entity allows; 0 means no cap. Each topic
    has a publisher, which evaluates its rules; without `new_publisher` there are no topics. Without
    a `membership` the broker serves any namespace.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        name: str,
        storage: Storage,
        clock: TimedClock,
        loop: asyncio.AbstractEventLoop,
        *,
        fragment_bytes_max: int = 0,
        new_publisher: Callable[[], Publisher] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """`bounds` are those of each fragment."""
        self.name = name
        self._bounds = bounds
        self._fragment_bytes_max = fragment_bytes_max
        self._storage = storage
        self.membership: Membership | None = None
        self._clock = clock
        self._loop = loop
        self._running_since_ms = clock.steady_ms()
        self._is_sweeping = False
        self._runners: dict[FragmentId, Runner] = {}
        # What another broker handed over, of fragments that nobody has asked for yet.
        self._handed: dict[FragmentId, HandOver] = {}
        self._new_publisher = new_publisher
        # By topic: all its fragments here publish by the same rules.
        self._publishers: dict[int, Publisher] = {}
        self._telling = Turns()
        # Higher than the versions of an earlier process, however often it was asked.
        self._surveyor = Surveyor(storage, self._runners, clock.now_ms() * Survey.VERSIONS_PER_MS)

    @property
    def storage(self) -> Storage:
        """The storage, which a backup holds for a moment."""
        return self._storage

    def runner(self, entity: Entity, number: int) -> Runner:
        """The runner of a fragment, started when it is first asked for."""
        fragment_id = FragmentId(entity.entity_id, number)
        runner = self._runners.get(fragment_id)
        if runner is None:
            outlet, led = None, None
            if entity.is_topic():
                outlet = Outlet(number, self._publisher(entity), self)
            elif entity.is_subscription():
                led = Led(FragmentId(entity.topic_id, number), entity.is_former(number), self)
            runner = Runner(
                fragment_id,
                self._rules(entity, number),
                self._storage,
                self._clock,
                self._loop,
                outlet,
                self._bounds,
                self._handed.pop(fragment_id, None),
                led,
            )
            self._runners[fragment_id] = runner
        return runner

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way in any running fragment."""
        return all(runner.is_quiet for runner in self._runners.values())

    def running(self, fragment_id: FragmentId) -> Runner | None:
        """The runner of a fragment if it has been started."""
        return self._runners.get(fragment_id)

    def inherit(self, handed: dict[FragmentId, HandOver]) -> None:
        """Go on with locks and sessions of the broker that had the store before."""
        self._handed = handed

    @property
    def is_resting(self) -> bool:
        """Whether nothing is under way in any fragment."""
        return all(runner.is_resting for runner in self._runners.values())

    def hand_over(self) -> dict[FragmentId, HandOver]:
        """The locks and held sessions of all fragments; nothing may be under way."""
        handed = dict(self._handed)
        steady_ms = self._clock.steady_ms()
        for fragment_id, runner in self._runners.items():
            fragment = runner.statistics()
            one = None if fragment is None else fragment.hand_over(steady_ms)
            if one is not None and one.locks:
                handed[fragment_id] = one
        return handed

    @property
    def namespace_id(self) -> str:
        """The namespace to which its store belongs; empty when that is not known."""
        return "" if self.membership is None else self.membership.namespace_id

    async def join(self, namespace_id: str, *, is_empty_expected: bool) -> int:
        membership = self.membership
        if membership is not None:
            await self._write(
                lambda _: membership.join(namespace_id, is_empty_expected=is_empty_expected)
            )
        # In turn with creations that are still under way for a caller that has gone.
        return await self._write(lambda store: store.highest_entity_id())

    async def create_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        fragments = [FragmentId(entity.entity_id, number) for number in numbers]
        await self._write(lambda store: store.create(fragments))
        self._surveyor.created(fragments)

    async def update_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        self.configure(entity, numbers)
        publisher = self._publishers.get(entity.entity_id)
        if publisher is not None:
            publisher.default_ttl_ms = entity.spec.default_ttl_ms

    async def update_topic(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        """See `host.FragmentHost`. The topic's fragments run from now on: messages scheduled there
        become due whether or not anyone publishes.
        """
        publisher = self._publisher(topic)
        async with self._telling.take(str(topic.entity_id)):
            former = publisher.subscriptions
            publisher.hold()
            try:
                await self._teach(publisher, topic, subscriptions)
            finally:
                publisher.let_go()
        if self._publishers.get(topic.entity_id) is not publisher:
            # The topic was deleted in the meantime.
            return
        changed = [each for each in subscriptions if former.get(each.entity_id) is not each]
        for entity in (topic, *changed):
            self.configure(entity, numbers)
        for number in numbers:
            self.runner(topic, number).start()

    def publishes_as(self, topic: Entity, subscriptions: Sequence[Entity]) -> bool:
        """Whether `update_topic` with these would change nothing."""
        publisher = self._publishers.get(topic.entity_id)
        if publisher is None or not publisher.is_told:
            return False
        known = {one.entity_id: one.updated_at_ms for one in publisher.subscriptions.values()}
        is_alike = publisher.default_ttl_ms == topic.spec.default_ttl_ms
        is_alike = is_alike and publisher.spread == topic.spread_numbers()
        return is_alike and known == {one.entity_id: one.updated_at_ms for one in subscriptions}

    async def _teach(
        self, publisher: Publisher, topic: Entity, subscriptions: Sequence[Entity]
    ) -> None:
        """Give a publisher its rules, in several turns of the loop if there are many."""
        while publisher.is_busy:
            await self._stand_still(publisher)
        lesson = publisher.lesson(topic, subscriptions)
        try:
            for _ in lesson:
                await asyncio.sleep(0)
        finally:
            # The caller may be gone, but the rules must not be left incomplete.
            for _ in lesson:
                pass

    async def _stand_still(self, publisher: Publisher) -> None:
        """Wait until no message is half published."""
        still: asyncio.Future[None] = self._loop.create_future()

        def told() -> None:
            if not still.done():
                still.set_result(None)

        publisher.when_still(told)
        await still

    def configure(self, entity: Entity, numbers: Sequence[int]) -> None:
        """Apply a description to the running fragments."""
        for number in numbers:
            runner = self._runners.get(FragmentId(entity.entity_id, number))
            if runner is not None:
                runner.configure(self._rules(entity, number))

    async def delete_fragments(self, entity_id: int, numbers: Sequence[int]) -> None:
        fragments = [FragmentId(entity_id, number) for number in numbers]
        for fragment in fragments:
            runner = self._runners.pop(fragment, None)
            if runner is not None:
                runner.stop()
        if entity_id in self._publishers and not self._is_running(entity_id):
            del self._publishers[entity_id]
        self._surveyor.deleted(fragments)
        await self._write(lambda store: store.delete(fragments))
        self._surveyor.deleted(fragments)
        self._sweep_soon()

    async def fragment_ids(self, *, is_timed: bool = False) -> list[FragmentId]:
        if not is_timed:
            return await self._read(lambda store: store.fragments())
        # Stages expire, too.
        found = await self._read(lambda store: store.timed() + store.recorded((STAGE,)))
        return list(dict.fromkeys(found))

    async def in_doubt(self) -> list[FragmentId]:
        # A publication continues as soon as its fragment is started.
        kinds = (PREPARED, DECISION, PUBLISHING)
        return await self._read(lambda store: store.recorded(kinds))

    async def transferring(self) -> list[FragmentId]:
        return await self._read(lambda store: store.recorded((TRANSFERRED,)))

    async def loss(self) -> str:
        return await self._read(lambda store: store.loss)

    async def statistics(self, entity_id: int, numbers: Sequence[int]) -> list[FragmentStatistics]:
        fragments = [FragmentId(entity_id, number) for number in numbers]
        found = self._running_counters(fragments)
        others = [each for each in fragments if each not in found]
        found.update(await self._stored_counters(others))
        # A fragment that was loaded in the meantime may be storing more, and reports it itself. The
        # older number from the store would be reported after it.
        found.update(self._running_counters(others))
        return [self._described(fragment, found[fragment]) for fragment in fragments]

    async def survey(self, since: int) -> Survey:
        surveyor = self._surveyor
        if not surveyor.has_begun:
            surveyor.begin(await self._read(lambda store: store.fragments()))
        return await surveyor.survey(since, self._counters_of, self._oldest_of)

    async def _counters_of(
        self, fragments: Sequence[FragmentId]
    ) -> dict[FragmentId, Counters | str]:
        found: dict[FragmentId, Counters | str] = {}
        for fragment, counted in (await self._stored_counters(fragments)).items():
            if isinstance(counted, UnknownFragment):
                # Deleted in the meantime, or lost: then `statistics` tells.
                continue
            found[fragment] = counted[0] if isinstance(counted, tuple) else str(counted)
        return found

    async def _oldest_of(self, fragments: Sequence[FragmentId]) -> dict[FragmentId, int]:
        def look(store: MessageStore) -> list[int]:
            return [stored_oldest(store, each) for each in fragments]

        try:
            return dict(zip(fragments, await self._read(look), strict=True))
        except Unavailable:
            return {}

    def close(self) -> None:
        """Stop the runners, let the last commit finish, close the store."""
        self.stop()
        self._storage.close()

    def stop(self) -> None:
        """Stop the runners; the store is left open."""
        for runner in self._runners.values():
            runner.stop()

    def _is_running(self, entity_id: int) -> bool:
        return any(fragment.entity_id == entity_id for fragment in self._runners)

    def _rules(self, entity: Entity, number: int) -> FragmentRules:
        rules = rules_of(entity.spec, self._fragment_bytes_max)
        rules.is_topic = entity.is_topic()
        if entity.is_coming(number):
            # It is used from the moment of the switch, before it is told of that.
            rules.is_partitioned = len(entity.coming) > 1
        return rules

    def _publisher(self, topic: Entity) -> Publisher:
        publisher = self._publishers.get(topic.entity_id)
        if publisher is None:
            if self._new_publisher is None:
                raise Refused(NOT_IMPLEMENTED, f"Broker {self.name} does not run topics.")
            publisher = self._new_publisher()
            self._publishers[topic.entity_id] = publisher
        return publisher

    def _running_counters(self, fragments: Sequence[FragmentId]) -> dict[FragmentId, Counted]:
        found: dict[FragmentId, Counted] = {}
        for fragment_id in fragments:
            runner = self._runners.get(fragment_id)
            fragment = runner.statistics() if runner is not None else None
            if runner is not None and fragment is not None:
                counters, sent_total = fragment.counters, runner.stored_counter
                staged_bytes = fragment.size_bytes() - counters.total_bytes()
                readers = fragment.reader_standings()
                found[fragment_id] = (counters, sent_total, readers, staged_bytes)
        return found

    async def _stored_counters(self, fragments: Sequence[FragmentId]) -> dict[FragmentId, Counted]:
        """The stored counters of fragments that do not run, in one read."""
        if not fragments:
            return {}

        def load(store: MessageStore, fragment: FragmentId) -> Counted:
            try:
                image = store.load(fragment)
                counters, records = image.counters, image.records
                readers = standings_in(records, counters)
                return counters, counters.last_counter, readers, staged_in(records)
            except StoreError as error:
                return error

        try:
            found = await self._read(lambda store: [load(store, each) for each in fragments])
        except Unavailable as error:
            return dict.fromkeys(fragments, error)
        return dict(zip(fragments, found, strict=True))

    def _described(self, fragment_id: FragmentId, counted: Counted) -> FragmentStatistics:
        runner = self._runners.get(fragment_id)
        number = fragment_id.number
        if isinstance(counted, Unavailable):
            found = out_of_reach(number, counted.message)
        elif isinstance(counted, StoreError):
            found = out_of_reach(number, f"Broker {self.name}: {counted}")
            found.is_missing = isinstance(counted, UnknownFragment)
        else:
            counters, sent_total, readers, staged_bytes = counted
            found = _statistics(number, counters)
            found.sent_total = sent_total
            found.size_bytes += staged_bytes
            found.readers = readers
            found.claimed_count = sum(reader.claimed for reader in readers)
            if runner is not None and runner.state == UNAVAILABLE:
                # A store that cannot be written can often be read: the numbers are right, but
                # nobody is served.
                found.state, found.reason = FRAGMENT_UNAVAILABLE, runner.reason
            else:
                found.reason = self._storage.shortage
        found.unused_ms = self._clock.steady_ms() - self._running_since_ms
        if runner is not None:
            found.unused_ms, found.last_used_ms = runner.unused_ms, runner.last_used_ms
        return found

    def _sweep_soon(self) -> None:
        """Remove the data of deleted fragments, a piece at a time between commits."""
        if self._is_sweeping:
            return
        self._is_sweeping = True

        def swept(more: bool | StoreError) -> None:
            self._is_sweeping = False
            if isinstance(more, StoreError):
                log.warning("%s: removing deleted fragments failed: %s", self.name, more)
            elif more:
                self._loop.call_soon(self._sweep_soon)

        self._storage.write(lambda store: store.sweep(), swept)

    async def _write(self, job: Callable[[MessageStore], T]) -> T:
        return await self._ask(self._storage.write, job)

    async def _read(self, job: Callable[[MessageStore], T]) -> T:
        return await self._ask(self._storage.read, job)

    async def _ask(
        self,
        submit: Callable[[Callable[[MessageStore], T], Callable[[T | StoreError], None]], None],
        job: Callable[[MessageStore], T],
    ) -> T:
        future: asyncio.Future[T | StoreError] = self._loop.create_future()

        def then(result: T | StoreError) -> None:
            if not future.done():
                future.set_result(result)

        submit(job, then)
        result = await future
        if isinstance(result, StoreError):
            raise Unavailable(f"Broker {self.name}: {result}")
        return result


def _statistics(number: int, counters: Counters) -> FragmentStatistics:
    main, *others = counters.lines
    # Everything in a dead-letter line is a dead letter, deferred or not.
    counts = [main.count, *(line.count + line.deferred + line.scheduled for line in others)]
    found = FragmentStatistics(number, counts, counters.total_bytes(), FRAGMENT_AVAILABLE, "")
    found.deferred_count = main.deferred
    found.scheduled_count = main.scheduled
    found.set_aside_count = counters.set_aside
    found.duplicate_count = counters.duplicates
    found.state_count = counters.states
    return found


def rules_of(spec: EntitySpec, cap_bytes: int) -> FragmentRules:
    """What an entity's description means for each of its fragments, under the operator's cap."""
    size_bytes_max = spec.fragment_bytes_max()
    return FragmentRules(
        lock_ms=spec.lock_ms,
        delivery_count_max=spec.delivery_count_max,
        default_ttl_ms=-1 if spec.default_ttl_ms >= INFINITE_MS else spec.default_ttl_ms,
        dead_letters_on_expiration=spec.dead_letters_on_expiration,
        size_bytes_max=min(size_bytes_max, cap_bytes) if cap_bytes else size_bytes_max,
        requires_session=spec.requires_session,
        duplicate_window_ms=spec.duplicate_window_ms if spec.requires_duplicate_detection else 0,
        is_partitioned=spec.is_partitioned,
        state_bytes_max=spec.state_bytes_max(),
        lifecycle=spec.lifecycle,
    )
