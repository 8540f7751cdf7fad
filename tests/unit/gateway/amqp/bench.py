"""The AMQP gateway in virtual time: a real bus over a store in memory, and clients on wires."""

from collections.abc import Coroutine, Sequence
from itertools import count
from typing import TypeVar

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.outcomes import ACCEPTED
from shardbus.broker.access.auth import (
    DEVELOPMENT_KEY,
    DEVELOPMENT_KEY_NAME,
    Authorizer,
)
from shardbus.broker.access.sas import mint_token
from shardbus.broker.broker import Broker
from shardbus.broker.bus import Bus
from shardbus.broker.fragment.publishing import Publisher
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.core.namespace.entity import Entity, EntitySpec
from shardbus.core.namespace.rule_spec import RuleSpec
from shardbus.core.namespace.tier import NEWER, STANDARD, tier_named
from shardbus.gateway.amqp.connection.server import AmqpServer
from shardbus.gateway.amqp.connection.throttle import Throttle
from shardbus.gateway.amqp.transactions.open import TransactionRules
from shardbus.message.sections import (
    DecodedMessage,
    MessageHead,
    decode_message,
    encode_data_message,
    scan_message,
)
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.simulation.world import EPOCH_MS, VirtualWorker
from tests.support.entities import development_rule
from tests.unit.broker.house import House
from tests.unit.gateway.amqp.client import RECEIVE_AND_DELETE, Client, plain

T = TypeVar("T")


class Bench(House):
    """A gateway with the queues `q` (one fragment) and `many` (sixteen)."""

    def __init__(  # noqa: PLR0913 - all by keyword, and most tests choose none or one
        self,
        config: ConnectionConfig | None = None,
        *,
        connections_max: int = 10,
        fragment_bytes_max: int = 0,
        receivers_max: int = 5_000,
        credits_per_s: int = 0,
        transaction_rules: TransactionRules | None = None,
        tier: str = STANDARD,
    ) -> None:
        super().__init__()
        self.broker = Broker(
            "b0",
            self.storage,
            self.clock,
            self.loop,
            fragment_bytes_max=fragment_bytes_max,
            new_publisher=lambda: Publisher(b"12345678"),
        )
        self.namespace = Namespace(
            MemoryCatalogue(EPOCH_MS),
            [self.broker],
            self.clock,
            NamespaceSettings(tier_named(tier, NEWER), development_rule()),
            VirtualWorker(self.loop, lambda: 0.001, self._crash),
        )
        seeds = count()
        self.bus = Bus(
            self.namespace,
            [self.broker],
            Authorizer(self.namespace, self.clock),
            clock=self.clock,
            loop=self.loop,
            new_seed=lambda: next(seeds).to_bytes(8, "big"),
        )
        self.server = AmqpServer(
            self.bus,
            config or ConnectionConfig(),
            connections_max=connections_max,
            receivers_max=receivers_max,
            throttle=Throttle(credits_per_s, self.clock, self.loop) if credits_per_s else None,
            transaction_rules=transaction_rules,
        )
        self.run(self.namespace.recover())
        self.create("q")
        self.create("many", is_partitioned=True)

    def create(
        self, name: str, *, is_partitioned: bool = False, spec: EntitySpec | None = None
    ) -> Entity:
        chosen = spec or self.namespace.new_spec()
        chosen.is_partitioned = is_partitioned
        return self.run(self.namespace.create_queue(name, chosen))

    def create_sessions(self, name: str, *, is_partitioned: bool = False) -> Entity:
        spec = self.namespace.new_spec()
        spec.requires_session = True
        return self.create(name, is_partitioned=is_partitioned, spec=spec)

    def create_topic(
        self, name: str, *, is_partitioned: bool = False, spec: EntitySpec | None = None
    ) -> Entity:
        chosen = spec or EntitySpec()
        chosen.is_partitioned = is_partitioned
        return self.run(self.namespace.create_topic(name, chosen))

    def subscribe(
        self,
        topic: str,
        name: str,
        rules: Sequence[RuleSpec] = (),
        *,
        spec: EntitySpec | None = None,
    ) -> str:
        """Make a subscription; its address."""
        creating = self.namespace.create_subscription(topic, name, spec or EntitySpec(), rules)
        return self.run(creating).name

    def publish(self, topic: str, *payloads: bytes) -> None:
        """Send encoded messages to a topic, each stored before the next is sent."""
        client = self.client()
        link = client.sender(topic)
        self.pass_s()
        for payload in payloads:
            client.send_raw(link, payload)
            self.pass_s(0.05)
        outcomes = client.outcomes(link)
        assert list(outcomes.values()) == [ACCEPTED] * len(payloads)
        self.leave(client)

    def raw(self, address: str) -> list[tuple[bytes, MessageHead]]:
        """What a receiver gets right now, taken out: each message as encoded, and its scan."""
        client = self.client()
        link = client.receiver(address, 1000, modes=RECEIVE_AND_DELETE)
        self.pass_s(1)
        payloads = [delivery.payload for delivery in client.received(link)]
        self.leave(client)
        return [(payload, scan_message(payload)) for payload in payloads]

    def messages_of(self, address: str) -> list[DecodedMessage]:
        """The same, decoded."""
        return [decode_message(payload) for payload, _ in self.raw(address)]

    def set_status(self, name: str, status: str) -> None:
        spec = self.namespace.get(name).spec.copy()
        spec.status = status
        self.run(self.namespace.update_queue(name, spec))

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(work)

    def client(self, config: ConnectionConfig | None = None) -> Client:
        """A client whose connection is open, with every right unless told otherwise."""
        client = Client(self.server.new_protocol(), config or plain(), self.loop)
        self.loop.call_soon(client.connect)
        self.loop.call_soon(client.beat)
        self.pass_s()
        return client

    def token(
        self,
        resource: str = "sb://shardbus/",
        *,
        key_name: str = DEVELOPMENT_KEY_NAME,
        key: str = DEVELOPMENT_KEY,
        valid_s: int = 3600,
    ) -> str:
        return mint_token(resource, key_name, key, self.clock.now_ms() // 1000 + valid_s)

    def fill(self, name: str, *contents: bytes) -> None:
        """Put messages into a queue, each stored before the next is sent."""
        client = self.client()
        link = client.sender(name)
        self.pass_s()
        for content in contents:
            client.send(link, content)
            self.pass_s(0.01)
        assert len(client.outcomes(link)) == len(contents)
        self.leave(client)

    def send_to(self, name: str, session_id: str, *contents: bytes) -> None:
        """Put messages of one session into a queue."""
        client = self.client()
        link = client.sender(name)
        self.pass_s()
        for content in contents:
            client.send_raw(link, encode_data_message(content, session_id=session_id))
            self.pass_s(0.01)
        assert set(client.outcomes(link).values()) == {ACCEPTED}
        self.leave(client)

    def leave(self, client: Client) -> None:
        client.connection.close()
        client.flush()
        self.pass_s()

    def left(self, name: str) -> list[object]:
        """What another receiver can receive of a queue right now, in the order it comes."""
        client = self.client()
        link = client.receiver(name, 1000)
        self.pass_s(1)
        bodies = client.bodies(link)
        self.leave(client)
        return bodies
