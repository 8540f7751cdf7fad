"""Translates management requests that are part of a transaction."""

from __future__ import annotations

from functools import partial
from typing import final

from shardbus.gateway.amqp.management.fields import RequestFields
from shardbus.gateway.amqp.management.message_operations import MessageOperations, scheduled
from shardbus.gateway.amqp.management.requests import NodeResponse
from shardbus.gateway.amqp.management.session_operations import SessionOperations
from shardbus.gateway.amqp.transactions.enlisted import EnlistedRequests
from shardbus.gateway.amqp.transactions.open import Enlistment


@final
class EnlistedOperations:
    """The requests of one link in transactions."""

    def __init__(
        self, enlistment: Enlistment, messages: MessageOperations, sessions: SessionOperations
    ) -> None:
        self._enlistment = enlistment
        self._requests = EnlistedRequests(enlistment)
        self._messages = messages
        self._sessions = sessions

    async def settle(self, transaction_id: bytes, fields: RequestFields) -> NodeResponse:
        self._enlistment.settle(transaction_id, self._messages.settlement(fields))
        return NodeResponse(200, "OK", {})

    async def schedule(self, transaction_id: bytes, fields: RequestFields) -> NodeResponse:
        messages = self._messages.to_schedule(fields)
        return scheduled(await self._requests.schedule(transaction_id, messages))

    async def cancel(self, transaction_id: bytes, fields: RequestFields) -> NodeResponse:
        await self._requests.cancel(transaction_id, fields.numbers())
        return NodeResponse(200, "OK", {})

    async def set_state(self, transaction_id: bytes, fields: RequestFields) -> NodeResponse:
        setting = partial(self._requests.set_state, transaction_id)
        return await self._sessions.set_with(fields, setting)
