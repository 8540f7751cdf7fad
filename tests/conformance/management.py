"""The `$management` node asked frame by frame, for what the Python and JavaScript SDKs lack."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from shardbus.amqp.events import IncomingDelivery
from shardbus.codec.types import Array, Int, Symbol, Timestamp, Uint, Uuid, Value, integer_of
from shardbus.message.sections import decode_message
from tests.support.amqp_client import AmqpClient, Requests

UUID: Final = 0x98
LONG: Final = 0x81
TIMESTAMP: Final = 0x83

FAR_FUTURE_MS: Final = 4_000_000_000_000
"""After everything that a test enqueues."""


class Answer(NamedTuple):
    """What the node said: `condition` is "" and `body` empty when there is none."""

    status: int
    condition: str
    body: dict[str, Value]


class Management:
    """Asks the management node of one entity; each method is one of its operations."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def ask(self, operation: str, body: dict[str, Value], link: str | None = None) -> Answer:
        """`link` is the name of the link that holds the session which the request is about."""
        properties: dict[str, Value] = {"operation": f"com.microsoft:{operation}"}
        if link is not None:
            properties["associated-link-name"] = link
        answer = await self._requests.ask(body, properties)
        status = integer_of(answer.application_properties["statusCode"])
        condition = answer.application_properties.get("errorCondition")
        assert status is not None
        assert condition is None or isinstance(condition, Symbol)
        return Answer(
            status,
            condition.value if condition is not None else "",
            _by_name(answer.body),
        )

    async def renew(self, deliveries: Sequence[IncomingDelivery]) -> Answer:
        return await self.ask("renew-lock", {"lock-tokens": tokens_of(deliveries)})

    async def settle(
        self,
        how: str,
        deliveries: Sequence[IncomingDelivery],
        changes: dict[str, Value] | None = None,
    ) -> Answer:
        body: dict[str, Value] = {
            "disposition-status": how,
            "lock-tokens": tokens_of(deliveries),
        }
        if changes is not None:
            body["properties-to-modify"] = changes
        return await self.ask("update-disposition", body)

    async def delete(
        self,
        count: int,
        until_ms: int = FAR_FUTURE_MS,
        session: str | None = None,
        link: str | None = None,
    ) -> Answer:
        body: dict[str, Value] = {
            "message-count": Int(count),
            "enqueued-time-utc": Timestamp(until_ms),
        }
        if session is not None:
            body["session-id"] = session
        return await self.ask("batch-delete-messages", body, link)

    async def peek(self, count: int, from_number: int = 1) -> list[bytes]:
        """Encoded messages; none when there are none."""
        answer = await self.ask(
            "peek-message", {"from-sequence-number": from_number, "message-count": Int(count)}
        )
        return [] if answer.status == 204 else messages_of(answer)

    async def receive_deferred(self, numbers: Sequence[int]) -> Answer:
        return await self.ask(
            "receive-by-sequence-number",
            {
                "sequence-numbers": Array(LONG, list(numbers)),
                "receiver-settle-mode": Uint(1),
            },
        )


async def management_of(client: AmqpClient, entity: str) -> Management:
    return Management(await client.requests(f"{entity}/$management"))


def tokens_of(deliveries: Sequence[IncomingDelivery]) -> Array:
    """The lock tokens of deliveries, in network order as the node wants them."""
    return Array(UUID, [Uuid(uuid.UUID(bytes_le=delivery.tag).bytes) for delivery in deliveries])


def messages_of(answer: Answer) -> list[bytes]:
    """The encoded messages in an answer, in its order."""
    found: list[bytes] = []
    messages = answer.body["messages"]
    assert isinstance(messages, list)
    for entry in messages:
        message = _by_name(entry)["message"]
        assert isinstance(message, bytes)
        found.append(message)
    return found


def properties_of(payload: bytes) -> dict[str, Value]:
    """The application properties of a delivered message."""
    return dict(decode_message(payload).application_properties)


def _by_name(value: Value) -> dict[str, Value]:
    assert value is None or isinstance(value, dict)
    return {str(key): item for key, item in (value or {}).items()}
