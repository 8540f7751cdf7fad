"""A queue or topic gets other fragments again and again; processes die and clocks are set (P6).

Every key has one sender, which waits for each answer, and the queue, or each subscription of the
topic, has one receiver, which completes all it gets. So the messages of a key must come in the
order of their marks, wherever they are; each accepted one once into a store of the queue or
subscription, and once at least to the receiver. Some messages of topics are scheduled: they come
once, whenever that is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.change import Append
from shardbus.core.message import MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import COMPLETE, Delivery, Settle
from shardbus.core.namespace.entity import EntitySpec
from shardbus.stores.base.store import FragmentCommit
from tests.simulation.payloads import RULES, Letter, new_letter
from tests.simulation.sending import Violation, mark_of, payload_of
from tests.simulation.town import Gateway, Town, outcome_of, sent

QUEUE: Final = "q"
CHAOS_S: Final = (4.0, 12.0)
DRAIN_S_MAX: Final = 300.0
LOCK_MS: Final = 5_000
# Longer than clocks are set.
WINDOW_MS: Final = 7 * 24 * 3_600_000
SENDERS: Final = 6
COUNTS: Final = (1, 2, 3, 4, 7)
CREDIT: Final = 5
SUBSCRIPTIONS: Final = {"all": "all", "red": "red", "big": "big"}


class MapTown(Town):
    """`places`: the queue, or the subscriptions of the topic, with the rule of each."""

    def __init__(self, seed: int, *, is_topic: bool = False) -> None:
        self.is_topic = is_topic
        self.places = {QUEUE: "all"}
        if is_topic:
            self.places = {f"{QUEUE}/subscriptions/{n}": rule for n, rule in SUBSCRIPTIONS.items()}
        self.told: dict[int, str] = {}
        self.keys: dict[int, str] = {}
        # Of a topic, by mark; and those that come when they are due.
        self.letters: dict[int, Letter] = {}
        self.scheduled: set[int] = set()
        self.stored_marks: Counter[tuple[int, int]] = Counter()
        self.seen: set[tuple[str, int]] = set()
        self.last: dict[tuple[str, str], int] = {}
        super().__init__(seed, sites=3)

    def new_message(self, key: str, *, is_session: bool = False) -> Message:
        mark = self.new_mark()
        self.keys[mark] = key
        payload, at_ms = payload_of(mark, 0), NEVER_MS
        if self.is_topic:
            self.letters[mark] = new_letter(mark, self.chance)
            payload = self.letters[mark].payload()
            if self.chance.random() < 0.1:
                self.scheduled.add(mark)
                at_ms = self.now_ms() + self.chance.randint(1, 5_000)
        session = key if is_session else None
        return Message(
            payload,
            partition_key=None if is_session else key,
            session_id=session,
            scheduled_at_ms=at_ms,
        )

    def goes_to(self, place: str, mark: int) -> bool:
        return not self.is_topic or RULES[self.places[place]].takes(self.letters[mark])

    async def all_is_well(self) -> Gateway:
        gateway = await self.whole()
        if self.is_topic:
            # A broker may have returned before the gateway was open, which has not told it yet who
            # subscribes.
            await gateway.namespace.sweep()
        return gateway

    async def found(self, gateway: Gateway, spec: EntitySpec) -> None:
        """Create the queue, or the topic with its subscriptions."""
        namespace = gateway.namespace
        if not self.is_topic:
            await namespace.create_queue(QUEUE, spec)
            return
        topic = spec.copy()
        topic.requires_session = False
        await namespace.create_topic(QUEUE, topic)
        spec.requires_duplicate_detection = False
        for name, rule in SUBSCRIPTIONS.items():
            await namespace.create_subscription(QUEUE, name, spec, [RULES[rule].spec(rule)])

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            for change in commit.changes:
                if isinstance(change, Append):
                    self._appended(commit.fragment.entity_id, change)

    def _appended(self, entity_id: int, change: Append) -> None:
        for entry in change.entries:
            mark = mark_of(entry.payload or b"")
            self.stored_marks[entity_id, mark] += 1
            # One that was scheduled gets another number when it is due.
            if self.stored_marks[entity_id, mark] > 1 and mark not in self.scheduled:
                raise Violation(f"message {mark} was stored twice")
            if self.told.get(mark) == "refused":
                raise Violation(f"message {mark} was refused, and stored later")

    def received(self, place: str, delivery: Delivery) -> None:
        self.first_seen(place, mark_of(delivery.payload or b""))

    def first_seen(self, place: str, mark: int) -> None:
        """Somebody got a message, perhaps not for the first time."""
        if (place, mark) in self.seen:
            return
        self.seen.add((place, mark))
        if not self.goes_to(place, mark):
            raise Violation(f"message {mark} came to {place}")
        if mark in self.scheduled:
            self.events["scheduled received"] += 1
            return
        of_key = (place, self.keys[mark])
        if self.told.get(mark) == "accepted" and mark < self.last.get(of_key, 0):
            raise Violation(f"message {mark} came after {self.last[of_key]}: {of_key}")
        if self.told.get(mark) == "accepted":
            self.last[of_key] = mark

    def finish(self) -> None:
        for mark, outcome in self.told.items():
            for place in self.places:
                is_expected = outcome == "accepted" and self.goes_to(place, mark)
                if is_expected and (place, mark) not in self.seen:
                    key = self.keys[mark]
                    raise Violation(f"message {mark} of {key} was accepted, and is lost: {place}")


class _Customer:
    """A receiver with little credit, which completes what it gets."""

    def __init__(self, town: MapTown, gateway: Gateway, place: str) -> None:
        self.is_locking = True
        self.is_draining = False
        self._town = town
        self._place = place
        self._gateway = gateway
        self._held = 0

    def credit(self) -> int:
        return 0 if self._gateway.is_dead else CREDIT - self._held

    def deliver(self, deliveries: list[Delivery]) -> int:
        for delivery in deliveries:
            self._town.received(self._place, delivery)
        self._held += len(deliveries)
        self._gateway.start(self._complete(deliveries))
        return len(deliveries)

    def drained(self) -> None:
        self.is_draining = False

    def lost(self, failure: Refused) -> None:
        raise Violation(f"a receiver without a session lost it: {failure}")

    async def _complete(self, deliveries: list[Delivery]) -> None:
        town = self._town
        handle = self._gateway.bus.find(self._place)
        assert handle is not None
        await asyncio.sleep(town.chance.uniform(0, 0.2))
        tokens = [delivery.token for delivery in deliveries]
        try:
            await handle.operations.settle(Settle(COMPLETE, tokens))
        except (Refused, Unavailable) as failure:
            town.note(f"not completed: {failure}")
        self._held -= len(deliveries)
        handle.router.dispatcher(MAIN_LINE).wake(self)


async def _receive(town: MapTown, place: str) -> None:
    """One receiver for each gateway, which begins when the locks of a dead one are over."""
    while True:
        gateway = await town.open_gateway()
        await asyncio.sleep(2 * LOCK_MS / 1000)
        handle = None if gateway.is_dead else gateway.bus.find(place)
        if handle is None:
            continue
        customer = _Customer(town, gateway, place)
        dispatcher = handle.router.dispatcher(MAIN_LINE)
        dispatcher.add(customer)
        dispatcher.wake(customer)
        while not gateway.is_dead:
            await asyncio.sleep(1)
            # As a link does when it is up again: nobody wakes who watched a broker that died.
            for source in [each for each in dispatcher._sources if each.is_watched]:
                source.wake()


async def _send_again(town: MapTown, gateway: Gateway, key: str) -> None:
    """What was accepted is a duplicate, wherever its fragment is now."""
    accepted = [
        mark for mark, of in town.keys.items() if of == key and town.told.get(mark) == "accepted"
    ]
    if not accepted:
        return
    handle = gateway.bus.find(QUEUE)
    assert handle is not None
    mark = town.chance.choice(accepted)
    payload = town.letters[mark].payload() if town.is_topic else payload_of(mark, 0)
    message = Message(payload, partition_key=key, message_id=str(mark))
    answer = await town.attempt(gateway, sent(partial(handle.router.send_batch, [message])))
    town.events[f"sent again {outcome_of(answer)}"] += 1


async def _send(town: MapTown, key: str, *, has_ids: bool) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(8.0))
        gateway = await town.open_gateway()
        handle = gateway.bus.find(QUEUE)
        assert handle is not None
        router = handle.router
        messages = [town.new_message(key) for _ in range(town.chance.choice([1, 1, 1, 3]))]
        marks = [mark_of(message.payload) for message in messages]
        if len(marks) > 1 and town.chance.random() < 0.5:
            # In several fragments, mostly.
            messages[-1].partition_key = f"{key}-beside"
        for mark, message in zip(marks, messages, strict=True):
            town.keys[mark] = message.partition_key or ""
            message.message_id = str(mark) if has_ids else None
        sending = sent(partial(router.send_batch, messages))
        answer = await town.attempt(gateway, sending)
        for mark in marks:
            town.told[mark] = outcome_of(answer)
        town.events[f"sent {outcome_of(answer)}"] += 1
        if has_ids and town.chance.random() < 0.5:
            await _send_again(town, await town.open_gateway(), key)


async def _repartition(town: MapTown) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(1.5))
        gateway = await town.open_gateway()
        await change_map(town, gateway, town.chance.choice(COUNTS))


async def change_map(town: MapTown, gateway: Gateway, count: int) -> str:
    is_balanced = town.chance.random() < 0.3
    changing = gateway.namespace.maps.change(QUEUE, count, is_balanced=is_balanced)
    answer = await town.attempt(gateway, changing)
    outcome = outcome_of(answer)
    town.events[f"repartitioned {outcome}"] += 1
    town.note(f"{count} fragments: {outcome}")
    return outcome


def run_maps(seed: int) -> MapTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = MapTown(seed)
    town.play(_play(town))
    return town


def run_id_maps(seed: int) -> MapTown:
    """The same with a queue that detects duplicates: what is sent again is not stored again."""
    town = MapTown(seed)
    town.play(_play(town, has_ids=True))
    return town


def run_topic_maps(seed: int) -> MapTown:
    """The same with a topic, in half of the histories one that detects duplicates: each
    subscription keeps the order.
    """
    town = MapTown(seed, is_topic=True)
    town.play(_play(town, has_ids=seed % 2 == 0))
    return town


async def _play(town: MapTown, *, has_ids: bool = False) -> None:
    town.faults.is_paused = True
    town.start_gateway()
    gateway = await town.open_gateway()
    spec = EntitySpec()
    spec.lock_ms = LOCK_MS
    spec.delivery_count_max = 1_000
    spec.is_partitioned = town.chance.random() < 0.5
    spec.requires_duplicate_detection = has_ids
    spec.duplicate_window_ms = WINDOW_MS
    await town.found(gateway, spec)
    town.faults.is_paused = False
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)
    receiving = [town.loop.create_task(_receive(town, place)) for place in town.places]
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(_repartition(town))
        for number in range(SENDERS):
            clients.create_task(_send(town, f"key-{number}", has_ids=has_ids))
    gateway = await town.all_is_well()
    await _drain(town)
    if await change_map(town, gateway, 5) == "unknown":
        raise Violation("without faults the entity cannot be repartitioned")
    town.finish()
    for each in receiving:
        each.cancel()


async def _drain(town: MapTown) -> None:
    deadline_s = town.loop.time() + DRAIN_S_MAX
    while not town.is_empty():
        if town.loop.time() > deadline_s:
            raise Violation("it takes too long until everything has been received")
        await asyncio.sleep(1)
