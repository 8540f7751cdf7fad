"""A topic with subscriptions at a broker in a house, and payloads that rules can read.

A payload is `name=value` pairs and a body: `color=red;label=x|body`. `label` and `session` are
system properties; all values are text. One that starts with `!` cannot be read.
"""

import asyncio

from shardbus.broker.broker import Broker
from shardbus.broker.fragment.publishing import Publisher
from shardbus.broker.fragment.runner import Runner
from shardbus.core import message_fields
from shardbus.core.message import MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import COMPLETE, Send, Sent
from shardbus.core.namespace.entity import (
    Entity,
    EntitySpec,
    FragmentHome,
    new_subscription,
)
from shardbus.core.namespace.rule_spec import RuleSpec, default_rule, sql_filter
from shardbus.core.properties import pack
from shardbus.message.rule_view import PayloadFormat
from shardbus.rules import system
from shardbus.rules.action import Changes
from shardbus.rules.values import TEXT, Property, Value, fold
from shardbus.stores.base.store import FragmentId
from tests.support.entities import new_topic
from tests.unit.broker.house import House

TOPIC_ID = 100
SEED = bytes(8)

SYSTEM_NAMES = {"label": message_fields.LABEL, "session": message_fields.SESSION_ID}
NAMES = {number: name for name, number in SYSTEM_NAMES.items()}


class TextView:
    """What rules see of such a payload."""

    def __init__(self, payload: bytes) -> None:
        if payload.startswith(b"!"):
            raise ValueError("it is not text")
        self._pairs = pairs_of(payload)

    def system(self, number: int) -> Value:
        return self._pairs.get(NAMES.get(number, ""))

    def properties(self) -> dict[str, Property]:
        return {
            fold(name): Property(name, TEXT, value)
            for name, value in self._pairs.items()
            if name not in SYSTEM_NAMES
        }


def pairs_of(payload: bytes) -> dict[str, str]:
    head, bar, _ = payload.decode().partition("|")
    if not bar:
        return {}
    pairs = [pair.partition("=") for pair in head.split(";")]
    return {name: value for name, _, value in pairs}


def rewritten(payload: bytes, changes: Changes) -> bytes:
    pairs = pairs_of(payload)
    for number, value in changes.system.items():
        pairs[NAMES.get(number, system.ALL[number].name)] = str(value)
    head = ";".join(f"{name}={value}" for name, value in pairs.items())
    return f"{head}|{payload.decode().rpartition('|')[2]}".encode()


def packed(payload: bytes, changes: Changes) -> bytes:
    return pack(
        {
            name if each is None else each.name: b"" if each is None else str(each.value).encode()
            for name, each in changes.properties.items()
        }
    )


FORMAT = PayloadFormat(TextView, rewritten, packed)


def new_publisher() -> Publisher:
    return Publisher(SEED, payloads=FORMAT)


def sql_rule(name: str, expression: str, action: str = "") -> RuleSpec:
    rule = RuleSpec(name, sql_filter(expression), 0)
    rule.action = action
    return rule


class Topic:
    """One topic at one broker; each subscription has as many fragments as the topic."""

    def __init__(self, house: House, fragments: int = 1, spec: EntitySpec | None = None) -> None:
        self.house = house
        self.entity = new_topic(TOPIC_ID, "news", spec or EntitySpec(), 1)
        self.entity.fragments = [FragmentHome(number, 0) for number in range(fragments)]
        self.entity.hash_starts = list(range(fragments))
        self.numbers = list(range(fragments))
        self.subscriptions: dict[str, Entity] = {}
        self._last_id = TOPIC_ID
        self._tasks: list[asyncio.Task[None]] = []
        self.broker = self.new_broker()
        house.disk.create([FragmentId(TOPIC_ID, number) for number in self.numbers])

    def new_broker(self) -> Broker:
        house = self.house
        return Broker("b", house.storage, house.clock, house.loop, new_publisher=new_publisher)

    def restart(self) -> None:
        """Another broker on the same store, which has been told nothing."""
        for runner in self.broker._runners.values():
            runner.stop()
        self.broker = self.new_broker()

    def runner(self, number: int = 0) -> Runner:
        return self.broker.runner(self.entity, number)

    def reader(self, name: str, number: int = 0) -> Runner:
        return self.broker.runner(self.subscriptions[name], number)

    def subscribe(self, name: str, *rules: RuleSpec, spec: EntitySpec | None = None) -> Entity:
        """A subscription with fragments; without rules given it gets everything."""
        self._last_id += 1
        made = new_subscription(self._last_id, self.entity, name, spec or EntitySpec(), 1)
        made.rules = list(rules) or [default_rule(1)]
        self.house.disk.create([FragmentId(made.entity_id, number) for number in self.numbers])
        self.subscriptions[name] = made
        self.tell()
        return made

    def unsubscribe(self, name: str) -> Entity:
        gone = self.subscriptions.pop(name)
        self.tell()
        self.delete(gone)
        return gone

    def delete(self, entity: Entity) -> None:
        """Begin to; it is done when some time has passed."""
        work = self.broker.delete_fragments(entity.entity_id, self.numbers)
        self._tasks.append(self.house.loop.create_task(work))

    def tell(self) -> None:
        subscriptions = list(self.subscriptions.values())
        work = self.broker.update_topic(self.entity, subscriptions, self.numbers)
        self.house.loop.run_until_complete(work)

    def publish(self, *payloads: bytes, number: int = 0) -> Sent:
        answer = self.house.answer(self.runner(number), publish_of(*payloads))
        assert isinstance(answer, Sent), answer
        return answer

    def drain(self, name: str, number: int = 0, *, line: int = MAIN_LINE) -> list[bytes | None]:
        """Receive and complete everything."""
        runner = self.reader(name, number)
        payloads: list[bytes | None] = []
        while deliveries := self.house.receive(runner, 100, line=line):
            payloads += [delivery.payload for delivery in deliveries]
            self.house.settle(runner, COMPLETE, *deliveries)
        return payloads

    def stored(self, entity_id: int, number: int = 0) -> list[bytes | None]:
        """What the store has on the main line of a fragment, as if nothing ran."""
        page = self.house.disk.kept.browse(
            FragmentId(entity_id, number), MAIN_LINE, start=0, count_max=10_000, bytes_max=1 << 30
        )
        return [entry.payload for entry in page.entries]


def publish_of(*payloads: bytes, scheduled_at_ms: int = NEVER_MS, ttl_ms: int = -1) -> Send:
    return Send(
        [
            Message(
                payload,
                message_id=payload.decode(),
                session_id=pairs_of(payload).get("session"),
                scheduled_at_ms=scheduled_at_ms,
                ttl_ms=ttl_ms,
            )
            for payload in payloads
        ]
    )
