"""The $management node of an entity (reference 7)."""

from __future__ import annotations

import asyncio
from typing import Final, final

from shardbus.amqp.codes import TIMESTAMP
from shardbus.amqp.message import Message
from shardbus.amqp.types import Array, Timestamp, Uuid, Value, integer_of
from shardbus.broker.browse import BrowseCursor, browse
from shardbus.broker.bus import EntityHandle
from shardbus.broker.runner import Answer
from shardbus.core.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    Command,
    Renew,
    Renewed,
    Settle,
    Settled,
)
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    NOT_IMPLEMENTED,
    Refused,
    Unavailable,
)
from shardbus.core.fragment import LOCK_LOST_TEXT
from shardbus.core.limits import REASON_CHARACTERS_MAX
from shardbus.gateway.amqp.outbound import encode_entry, encode_modified
from shardbus.gateway.amqp.requests import Response

_PREFIX: Final = "com.microsoft:"
TOKENS_MAX: Final = 5_000

_DISPOSITIONS: Final = {"completed": COMPLETE, "abandoned": ABANDON, "suspended": DEAD_LETTER}


@final
class ManagementNode:
    """Answers the requests that one link sends to the $management node of an entity's line."""

    def __init__(self, entity: EntityHandle, line: int) -> None:
        self._entity = entity
        self._line = line
        self._cursor = BrowseCursor()

    async def handle(self, request: Message) -> Response:
        operation = request.application_properties.get("operation")
        body = request.body
        if not isinstance(operation, str) or not isinstance(body, dict):
            raise Refused(
                INVALID_ARGUMENT,
                "A management request needs an 'operation' property and a map as its body.",
            )
        name = operation.removeprefix(_PREFIX)
        if name == "renew-lock":
            return await self._renew_lock(body)
        if name == "peek-message":
            return await self._peek(body)
        if name == "update-disposition":
            return await self._update_disposition(body)
        raise Refused(NOT_IMPLEMENTED, f"The operation '{operation}' is not available yet.")

    async def _renew_lock(self, body: dict[Value, Value]) -> Response:
        tokens = _tokens(body)
        deadlines: dict[bytes, int] = {}
        for index, share in self._shares(tokens).items():
            answer = await self._ask(index, Renew(share))
            assert isinstance(answer, Renewed)
            for token in share:
                deadlines[token] = answer.locked_until_ms
        expirations = Array(TIMESTAMP, [Timestamp(deadlines[token]) for token in tokens])
        return Response(200, "OK", {"expirations": expirations})

    async def _update_disposition(self, body: dict[Value, Value]) -> Response:
        status = body.get("disposition-status")
        if status in ("defered", "deferred"):
            raise Refused(NOT_IMPLEMENTED, "Deferring messages is not available yet.")
        how = _DISPOSITIONS.get(status) if isinstance(status, str) else None
        if how is None:
            raise Refused(INVALID_ARGUMENT, f"Unknown disposition-status {status!r}.")
        modified = _properties(body.get("properties-to-modify"))
        for index, share in self._shares(_tokens(body)).items():
            command = Settle(
                how,
                share,
                reason=_text_or_none(body.get("deadletter-reason")),
                description=_text_or_none(body.get("deadletter-description")),
                modified=modified,
            )
            answer = await self._ask(index, command)
            if isinstance(answer, Settled) and any(answer.lost):
                raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
        return Response(200, "OK", {})

    async def _peek(self, body: dict[Value, Value]) -> Response:
        start = integer_of(body.get("from-sequence-number"))
        count = integer_of(body.get("message-count"))
        if start is None or count is None or count < 1:
            raise Refused(
                INVALID_ARGUMENT,
                "peek-message needs 'from-sequence-number' and a 'message-count' of at least 1.",
            )
        entries = await browse(
            self._entity.runners, self._line, start=start, count_max=count, cursor=self._cursor
        )
        if not entries:
            return Response(204, "No Content", {"messages": []})
        messages = [
            {
                "message": encode_entry(
                    entry,
                    entry.payload or b"",
                    delivery_count=entry.delivery_count,
                    locked_until_ms=-1,
                    is_partitioned=self._entity.router.is_partitioned,
                )
            }
            for entry in entries
        ]
        return Response(200, "OK", {"messages": messages})

    def _shares(self, tokens: list[bytes]) -> dict[int, list[bytes]]:
        """The tokens of each fragment, by its position among the ports."""
        shares: dict[int, list[bytes]] = {}
        for token in tokens:
            index = self._entity.router.index_of_token(token)
            if index < 0:
                raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
            shares.setdefault(index, []).append(token)
        return shares

    async def _ask(self, index: int, command: Command) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        self._entity.router.ports[index].submit(command, answered)
        answer = await future
        if isinstance(answer, Refused | Unavailable):
            raise answer
        return answer


def _tokens(body: dict[Value, Value]) -> list[bytes]:
    """Lock tokens as the delivery tags they came with: a Guid's bytes, not a UUID's."""
    values = body.get("lock-tokens")
    items = values.values if isinstance(values, Array) else values
    if not isinstance(items, list) or not 0 < len(items) <= TOKENS_MAX:
        raise Refused(INVALID_ARGUMENT, f"'lock-tokens' must hold 1 to {TOKENS_MAX} tokens.")
    return [_tag(item) for item in items]


def _tag(item: Value) -> bytes:
    network = item.value if isinstance(item, Uuid) else item
    if not isinstance(network, bytes) or len(network) != 16:
        raise Refused(INVALID_ARGUMENT, "A lock token must be a uuid.")
    return network[3::-1] + network[5:3:-1] + network[7:5:-1] + network[8:]


def _properties(value: Value) -> bytes:
    """Application properties to change, encoded; Refused when they are not a map."""
    if value is not None and not isinstance(value, dict):
        raise Refused(INVALID_ARGUMENT, "'properties-to-modify' must be a map.")
    return encode_modified(value)


def _text_or_none(value: Value) -> str | None:
    return value[:REASON_CHARACTERS_MAX] if isinstance(value, str) and value else None
