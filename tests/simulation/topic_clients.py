"""Clients of topics: who publishes, who subscribes, and who changes subscriptions and rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from shardbus.broker.operations.asking import ask
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    Delivery,
    Receive,
    Received,
    Settle,
    Settled,
)
from shardbus.core.namespace.entity import EntitySpec, subscription_path
from tests.simulation.payloads import RULES, new_letter
from tests.simulation.sites import SitePort
from tests.simulation.topic_book import Publication, Rules
from tests.simulation.topic_town import TopicPlan, TopicTown
from tests.simulation.town import Gateway, outcome_of, sent

KEYS = ("a", "b", "c")
SUBSCRIPTIONS = ("s0", "s1", "s2", "s3")
RECENT_MAX = 10
LOCK_MS = 5_000

Work = Coroutine[object, object, object]


class Publisher:
    def __init__(self, town: TopicTown, plan: TopicPlan) -> None:
        self._town = town
        self._plan = plan
        self._number = town.new_mark()
        self._recent: list[Message] = []
        self._scheduled: list[Publication] = []

    async def run(self) -> None:
        town = self._town
        while not town.is_over:
            await asyncio.sleep(town.chance.expovariate(5.0))
            gateway = await town.open_gateway()
            await self._publish(gateway)
            if self._scheduled and town.chance.random() < 0.3:
                await self._cancel(gateway, self._scheduled.pop(0))

    async def _publish(self, gateway: Gateway) -> None:
        town = self._town
        handle = gateway.bus.find(self._plan.name)
        assert handle is not None
        messages = self._messages()
        publications = [
            Publication(self._plan.name, message, self._number, town.now_ms())
            for message in messages
        ]
        for publication in publications:
            has_key = publication.message.partition_key is not None
            is_whole = not (self._plan.is_partitioned or town.has_maps)
            publication.is_ordered = has_key or is_whole
            town.book.attempted(publication)
        router = handle.router
        answer = await town.attempt(
            gateway, sent(lambda reply_to: router.send_batch(messages, reply_to, keeps_reply=True))
        )
        town.book.told(publications, answer, town.now_ms())
        marks = [publication.letter.mark for publication in publications]
        town.note(f"published {marks}: {outcome_of(answer)}")
        if outcome_of(answer) == "accepted":
            scheduled = [each for each in publications if each.is_scheduled and each.number]
            self._scheduled += scheduled[:1]

    def _messages(self) -> list[Message]:
        chance, plan = self._town.chance, self._plan
        key = chance.choice(KEYS) if plan.detects_duplicates or chance.random() < 0.6 else None
        # A batch of several keys, which may be in several fragments (R49).
        is_mixed = key is not None and chance.random() < 0.3
        messages = [
            self._message(chance.choice(KEYS) if is_mixed else key)
            for _ in range(chance.choice([1, 1, 2, 4]))
        ]
        same = [message for message in self._recent if message.partition_key == key]
        if plan.detects_duplicates and same and chance.random() < 0.3:
            messages[-1] = self._again(chance.choice(same))
        self._recent = [*self._recent, *messages][-RECENT_MAX:]
        return messages

    def _message(self, key: str | None) -> Message:
        town, chance = self._town, self._town.chance
        letter = new_letter(town.new_mark(), chance)
        scheduled_at_ms = NEVER_MS
        if chance.random() < 0.1:
            scheduled_at_ms = town.now_ms() + chance.randint(1, 6_000)
        return Message(
            letter.payload(),
            message_id=str(letter.mark) if self._plan.detects_duplicates else None,
            partition_key=key,
            scheduled_at_ms=scheduled_at_ms,
        )

    def _again(self, message: Message) -> Message:
        letter = new_letter(self._town.new_mark(), self._town.chance)
        return Message(
            letter.payload(), message_id=message.message_id, partition_key=message.partition_key
        )

    async def _cancel(self, gateway: Gateway, publication: Publication) -> None:
        handle = gateway.bus.find(self._plan.name)
        assert handle is not None
        publication.may_be_cancelled = True
        answer = await self._town.attempt(gateway, handle.operations.cancel([publication.number]))
        outcome = outcome_of(answer)
        publication.is_cancelled = outcome == "accepted"
        publication.may_be_cancelled = outcome == "unknown"
        self._town.events[f"cancel {outcome}"] += 1


class Subscriber:
    """Reads what a subscription gets, whenever it exists."""

    def __init__(self, town: TopicTown, path: str) -> None:
        self._town = town
        self._path = path

    async def run(self) -> None:
        while not self._town.is_over:
            await asyncio.sleep(self._town.chance.expovariate(1.0))
            await self.read(await self._town.open_gateway())

    async def read(self, gateway: Gateway) -> int:
        """Look once at every fragment; how many messages there were."""
        handle = gateway.bus.find(self._path)
        count = 0
        for port in [] if handle is None else handle.runners:
            assert isinstance(port, SitePort)
            for line in (MAIN_LINE, DEAD_LETTER_LINE):
                count += await self._receive(gateway, port, line)
        return count

    async def _receive(self, gateway: Gateway, port: SitePort, line: int) -> int:
        town, fragment = self._town, port.fragment_id
        command = Receive(line, 20, is_locking=True, token_seed=town.seed())
        answer = await town.attempt(gateway, ask(port, command))
        if not isinstance(answer, Received):
            if outcome_of(answer) == "unknown":
                town.book.unheard(fragment)
            return 0
        town.book.delivered(fragment, line, answer.deliveries)
        if answer.deliveries:
            await self._settle(gateway, port, answer.deliveries)
        return len(answer.deliveries)

    async def _settle(self, gateway: Gateway, port: SitePort, deliveries: list[Delivery]) -> None:
        town = self._town
        is_wanted = town.is_over or town.chance.random() < 0.9
        tokens = [delivery.token for delivery in deliveries]
        if is_wanted:
            town.book.completing(port.fragment_id, deliveries)
        command = Settle(COMPLETE if is_wanted else ABANDON, tokens)
        answer = await town.attempt(gateway, ask(port, command))
        if not isinstance(answer, Settled):
            town.book.unheard(port.fragment_id)
            return
        for delivery, is_lost in zip(deliveries, answer.lost, strict=True):
            if is_wanted and not is_lost:
                town.book.completed(port.fragment_id, delivery.entry.sequence_number)


class Manager:
    """Creates and deletes the subscriptions of a topic, and changes their rules."""

    def __init__(self, town: TopicTown, plan: TopicPlan) -> None:
        self._town = town
        self._plan = plan

    async def run(self) -> None:
        town = self._town
        while not town.is_over:
            gateway = await town.open_gateway()
            await self.change(gateway, town.chance.choice(SUBSCRIPTIONS))
            await asyncio.sleep(town.chance.expovariate(1.5))

    async def change(self, gateway: Gateway, name: str) -> None:
        chance, namespace = self._town.chance, gateway.namespace
        path = subscription_path(self._plan.name, name)
        subscription = namespace.find(path.lower())
        if subscription is None:
            await self._create(gateway, name)
            return
        held = [rule.name for rule in subscription.rules]
        free = [rule for rule in RULES if rule not in held]
        dice = chance.random()
        if dice < 0.15:
            await self._change(gateway, path, namespace.delete(path), lambda rules: None)
        elif held and (dice < 0.55 or not free):
            gone = chance.choice(held)
            work = namespace.remove_rule(path, gone)
            await self._change(gateway, path, work, lambda rules: _without(rules, gone))
        else:
            new = chance.choice(free)
            adding = namespace.add_rule(path, RULES[new].spec(new))
            await self._change(gateway, path, adding, lambda rules: _with(rules, new))

    async def _create(self, gateway: Gateway, name: str) -> None:
        chosen = self._town.chance.sample(sorted(RULES), self._town.chance.randint(1, 4))
        spec = EntitySpec()
        spec.lock_ms = LOCK_MS
        spec.delivery_count_max = 1_000
        specs = [RULES[rule].spec(rule) for rule in chosen]
        work = gateway.namespace.create_subscription(self._plan.name, name, spec, specs)
        path = subscription_path(self._plan.name, name)
        await self._change(gateway, path, work, lambda rules: frozenset(chosen))

    async def _change(
        self, gateway: Gateway, path: str, work: Work, change: Callable[[Rules], Rules]
    ) -> None:
        town, possible = self._town, self._town.book.of(path)
        possible.begin(town.now_ms(), change)
        answer = await town.attempt(gateway, work)
        town.events[f"change {outcome_of(answer)}"] += 1
        town.note(f"{path}: {outcome_of(answer)}")
        if outcome_of(answer) == "accepted":
            entity = gateway.namespace.find(path.lower())
            rules = None if entity is None else frozenset(rule.name for rule in entity.rules)
            if entity is not None:
                town.created.add(entity.entity_id)
            possible.confirm(town.now_ms(), rules)


def _with(rules: Rules, name: str) -> Rules:
    return None if rules is None else rules | {name}


def _without(rules: Rules, name: str) -> Rules:
    return None if rules is None else rules - {name}
