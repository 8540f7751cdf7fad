"""Translates management requests about sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, final

from shardbus.codec.codes import STRING32
from shardbus.codec.types import Array, Int, Timestamp
from shardbus.core.errors import SESSION_NOT_FOUND
from shardbus.gateway.amqp.links.session_hold import held_answer
from shardbus.gateway.amqp.management.desk import Desk
from shardbus.gateway.amqp.management.fields import RequestFields
from shardbus.gateway.amqp.management.requests import NodeResponse
from shardbus.message.stored import LATEST_MS

# As the moment of the last update: list every session. SDKs say so by the maximum moment, which
# they round up or down, and .NET takes it for local time: hours before it still mean the same.
ALL_SESSIONS_MS: Final = LATEST_MS - 86_400_000
EVERY_MOMENT_MS: Final = -1
SESSIONS_PAGE_MAX: Final = 1_000
_INT_MAX: Final = (1 << 31) - 1


@final
class SessionOperations:
    """The requests of one link about sessions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def renew_lock(self, fields: RequestFields) -> NodeResponse:
        hold = self._desk.hold(fields)
        hold.renewing()
        deadline_ms: int | None = None
        try:
            deadline_ms = await held_answer(hold, self._desk.operations.renew_session(hold.token))
        finally:
            hold.renewed(is_done=deadline_ms is not None)
        return NodeResponse(200, "OK", {"expiration": Timestamp(deadline_ms)})

    async def state(self, fields: RequestFields) -> NodeResponse:
        hold = self._desk.hold(fields)
        state = await held_answer(hold, self._desk.operations.state(hold.token))
        return NodeResponse(200, "OK", {"session-state": state})

    async def set_state(self, fields: RequestFields) -> NodeResponse:
        return await self.set_with(fields, self._desk.operations.set_state)

    async def set_with(
        self, fields: RequestFields, setting: Callable[[bytes, bytes | None], Awaitable[None]]
    ) -> NodeResponse:
        """Set the state of the session in a request by calling `setting`."""
        state = fields.binary("session-state")
        hold = self._desk.hold(fields)
        await held_answer(hold, setting(hold.token, state))
        return NodeResponse(200, "OK", {})

    async def list(self, fields: RequestFields) -> NodeResponse:
        """A page of session ids; a page shorter than asked for is the last."""
        self._desk.require_sessions(fields.operation)
        skip = fields.integer("skip", least=0, default=0)
        top = fields.integer("top", least=1)
        if skip > _INT_MAX - SESSIONS_PAGE_MAX:
            raise fields.bad("skip", "is more than the number of possible sessions")
        if top > SESSIONS_PAGE_MAX:
            raise fields.bad("top", f"must be at most {SESSIONS_PAGE_MAX}")
        after_ms = fields.moment_ms("last-updated-time")
        found = await self._desk.operations.list_sessions(
            updated_after_ms=EVERY_MOMENT_MS if after_ms >= ALL_SESSIONS_MS else max(0, after_ms),
            skip=skip,
            count_max=top,
        )
        if not found:
            # No empty array: the Python SDK reads past its end.
            return NodeResponse(204, "No Content", {}, SESSION_NOT_FOUND.condition)
        body = {"skip": Int(skip + len(found)), "sessions-ids": Array(STRING32, list(found))}
        return NodeResponse(200, "OK", body)
