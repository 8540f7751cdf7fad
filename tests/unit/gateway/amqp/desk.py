"""A client's way to ask the $management node, and to read its answers."""

from collections.abc import Mapping

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, TransactionalState
from shardbus.codec.codes import UUID
from shardbus.codec.types import Array, Int, Uuid, Value
from shardbus.message.sections import DecodedMessage
from tests.support.messages import Seen, seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client

# Some requests read one fragment after another; a second is plenty for each.
ANSWER_TURNS = 10


class Desk:
    """A client's pair of links to the $management node of an entity."""

    def __init__(self, bench: Bench, client: Client, entity: str) -> None:
        self.client = client
        self._bench = bench
        self.node = f"{entity}/$management"
        self.requests = client.sender(self.node, f"requests {entity}")
        self.responses = client.receiver(
            self.node, 1000, name=f"responses {entity}", target=self.node
        )
        bench.pass_s()

    def ask(
        self,
        operation: str,
        body: Mapping[str, Value],
        link: Link | None = None,
        transaction_id: bytes | None = None,
    ) -> DecodedMessage:
        """Ask, naming the link that the request belongs to, as SDKs do, if there is one.

        As part of a transaction the transfer says so, and the request is the same.
        """
        properties: dict[str, Value] = {"operation": f"com.microsoft:{operation}"}
        if link is not None:
            properties["associated-link-name"] = link.name
        return self.ask_raw(dict(body), properties, transaction_id)

    def ask_raw(
        self, body: Value, properties: Mapping[str, Value], transaction_id: bytes | None = None
    ) -> DecodedMessage:
        before = len(self.client.answers(self.responses))
        state = None if transaction_id is None else TransactionalState(transaction_id, None)
        [ident] = self.client.ask(self.requests, body, properties, reply_to=self.node, state=state)
        for _ in range(ANSWER_TURNS):
            self._bench.pass_s()
            if len(self.client.answers(self.responses)) > before:
                break
        [answer] = self.client.answers(self.responses)[before:]
        if transaction_id is not None:
            expected = TransactionalState(transaction_id, ACCEPTED)
            assert self.client.outcomes(self.requests)[ident] == expected
        return answer

    def peek(self, start: int, count: int) -> list[Seen]:
        """The page of messages; [] only for 204."""
        answer = self.ask("peek-message", {"from-sequence-number": start, "message-count": count})
        assert isinstance(answer.body, dict)
        messages = answer.body["messages"]
        assert isinstance(messages, list)
        assert status_of(answer) == (Int(200) if messages else Int(204))
        return [seen(item["message"]) for item in messages]


def status_of(answer: DecodedMessage) -> Value:
    return answer.application_properties["statusCode"]


def condition_of(answer: DecodedMessage) -> Value:
    return answer.application_properties.get("errorCondition")


def tokens_of(deliveries: list[IncomingDelivery]) -> Array:
    """Lock tokens as SDKs send them: the tag is a .NET Guid, the uuid has network order."""
    return Array(UUID, [Uuid(_network(delivery.tag)) for delivery in deliveries])


def _network(tag: bytes) -> bytes:
    return tag[3::-1] + tag[5:3:-1] + tag[7:5:-1] + tag[8:]


def locked(bench: Bench, client: Client, name: str, count: int) -> list[IncomingDelivery]:
    """Fill a queue and lock what is in it."""
    bench.fill(name, *(b"%d" % number for number in range(count)))
    link = client.receiver(name, count)
    bench.pass_s(1)
    deliveries = client.received(link)
    assert len(deliveries) == count
    return deliveries
