"""The $management node of an entity: which requests are allowed, and how long they may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, final

from shardbus.broker.access.auth import claims_required
from shardbus.broker.clock import Clock
from shardbus.codec.types import Array, Value, integer_of, text_of
from shardbus.core.errors import (
    ENTITY_DISABLED,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    TIMEOUT,
    Refused,
)
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND
from shardbus.core.namespace.address import Address, not_sendable
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.amqp.connection.throttle import MANAGEMENT_CREDITS, MESSAGE_CREDITS, Throttle
from shardbus.gateway.amqp.management.cbs import Grants
from shardbus.gateway.amqp.management.desk import Desk
from shardbus.gateway.amqp.management.enlisted_operations import EnlistedOperations
from shardbus.gateway.amqp.management.fields import RequestFields
from shardbus.gateway.amqp.management.message_operations import MessageOperations
from shardbus.gateway.amqp.management.requests import NodeRequest, NodeResponse
from shardbus.gateway.amqp.management.rule_operations import RuleOperations
from shardbus.gateway.amqp.management.session_operations import SessionOperations
from shardbus.gateway.amqp.transactions.open import Enlistment

_PREFIX: Final = "com.microsoft:"
SERVER_TIMEOUT: Final = "com.microsoft:server-timeout"
# Documents differ about the prefix; all SDKs leave it out.
LINK_NAMES: Final = ("associated-link-name", "com.microsoft:associated-link-name")
# How long a request may take by default, and at most.
TIMEOUT_MS: Final = 60_000
TIMEOUT_MS_MAX: Final = 600_000

Work = Callable[[RequestFields], Awaitable[NodeResponse]]
EnlistedWork = Callable[[bytes, RequestFields], Awaitable[NodeResponse]]


@final
class _Operation:
    """What an operation does and needs.

    Any one of `rights` is enough. `costs_by` names the field whose elements are charged one by one;
    without it the operation is charged once. `is_ending`: it ends or prolongs work that was begun,
    so neither the status of the entity nor the throttle prevents it. In a transaction it is
    `enlisted`, if possible, and done at the commit. An operation that `is_apart` is never part of a
    transaction, although clients mark it so: it reads, receives or renews.
    """

    def __init__(
        self,
        work: Work,
        rights: int,
        *,
        costs_by: str = "",
        is_ending: bool = False,
        is_apart: bool = False,
        enlisted: EnlistedWork | None = None,
    ) -> None:
        self.work = work
        self.rights = rights
        self.costs_by = costs_by
        self.is_ending = is_ending
        self.is_apart = is_apart
        self.enlisted = enlisted

    def is_possible(self, spec: EntitySpec) -> bool:
        """Whether the status of the entity allows it; the status does not matter for rules."""
        if self.is_ending or self.rights & MANAGE:
            return True
        return spec.is_sendable() if self.rights == SEND else spec.is_receivable()


@final
class ManagementNode:
    """Answers the requests of one link to the $management node of an entity's line."""

    def __init__(
        self,
        address: Address,
        desk: Desk,
        grants: Grants,
        enlistment: Enlistment,
        throttle: Throttle | None,
    ) -> None:
        self._address = address
        self._desk = desk
        self._grants = grants
        self._enlistment = enlistment
        self._throttle = throttle
        self._operations = _operations(desk, grants.clock, enlistment)

    async def handle(self, request: NodeRequest) -> NodeResponse:
        properties = request.message.application_properties
        name = text_of(properties.get("operation"))
        if name is None:
            raise Refused(
                INVALID_ARGUMENT, "A management request must have an 'operation' property."
            )
        operation = self._operations.get(name.removeprefix(_PREFIX))
        if operation is None:
            raise Refused(NOT_IMPLEMENTED, f"The operation '{name[:100]}' is not supported here.")
        self._check(operation)
        body = request.message.body
        fields = RequestFields(name.removeprefix(_PREFIX), body, _link_name(properties))
        if fields.link_name is not None:
            self._desk.touch(fields.link_name)
        self._pay(operation, fields)
        timeout_ms = _timeout_ms(properties)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if request.transaction_id is not None and not operation.is_apart:
                    return await self._enlist(operation, fields, request.transaction_id)
                return await operation.work(fields)
        except TimeoutError as error:
            raise timed_out(timeout_ms) from error

    def _check(self, operation: _Operation) -> None:
        if not self._grants.allow(operation.rights, self._address.entity):
            raise claims_required(operation.rights, self._address.name)
        spec = self._desk.spec
        if not operation.is_possible(spec):
            raise Refused(
                ENTITY_DISABLED,
                f"'{self._address.name}' is {spec.status}: this operation is not allowed.",
            )
        if operation.rights == SEND and not self._desk.is_sendable:
            raise not_sendable(self._address)

    async def _enlist(
        self, operation: _Operation, fields: RequestFields, transaction_id: bytes
    ) -> NodeResponse:
        """Do the operation when the transaction is committed; a refusal spoils the transaction."""
        try:
            if operation.enlisted is None:
                raise self._not_in_transaction(operation)
            return await operation.enlisted(transaction_id, fields)
        except Refused as refusal:
            self._enlistment.spoil(transaction_id, refusal)
            raise

    def _not_in_transaction(self, operation: _Operation) -> Refused:
        if operation.rights & MANAGE and self._desk.is_partitioned:
            return Refused(
                NOT_ALLOWED,
                "The rules of a partitioned topic's subscriptions cannot be changed in a "
                "transaction.",
            )
        return Refused(
            NOT_ALLOWED,
            "In a transaction messages can be sent, settled, scheduled and cancelled, and "
            "session states can be set; this operation is not supported in a transaction.",
        )

    def _pay(self, operation: _Operation, fields: RequestFields) -> None:
        if self._throttle is None:
            return
        cost = MANAGEMENT_CREDITS
        if operation.costs_by:
            cost = MESSAGE_CREDITS * _count(fields.value(operation.costs_by))
        if operation.is_ending:
            self._throttle.charge(cost)
        else:
            self._throttle.take(cost)


def _operations(desk: Desk, clock: Clock, enlistment: Enlistment) -> dict[str, _Operation]:
    """The operations of an entity; a topic has none about received messages."""
    messages, sessions = MessageOperations(desk, clock), SessionOperations(desk)
    enlisted = EnlistedOperations(enlistment, messages, sessions)
    sending = {
        "schedule-message": _Operation(
            messages.schedule, SEND, costs_by="messages", enlisted=enlisted.schedule
        ),
        "cancel-scheduled-message": _Operation(
            messages.cancel, SEND, costs_by="sequence-numbers", enlisted=enlisted.cancel
        ),
    }
    if desk.is_topic:
        return sending
    operations = {**sending, **_receiving(messages, sessions, enlisted)}
    if desk.has_rules:
        operations.update(_ruling(RuleOperations(desk)))
    return operations


def _receiving(
    messages: MessageOperations, sessions: SessionOperations, enlisted: EnlistedOperations
) -> dict[str, _Operation]:
    tokens, numbers = "lock-tokens", "sequence-numbers"
    return {
        "renew-lock": _Operation(
            messages.renew_lock, LISTEN, costs_by=tokens, is_ending=True, is_apart=True
        ),
        "update-disposition": _Operation(
            messages.update_disposition,
            LISTEN,
            costs_by=tokens,
            is_ending=True,
            enlisted=enlisted.settle,
        ),
        "peek-message": _Operation(
            messages.peek, LISTEN, costs_by="from-sequence-number", is_apart=True
        ),
        "receive-by-sequence-number": _Operation(
            messages.receive_deferred, LISTEN, costs_by=numbers, is_apart=True
        ),
        "batch-delete-messages": _Operation(messages.delete, LISTEN),
        "renew-session-lock": _Operation(
            sessions.renew_lock, LISTEN, is_ending=True, is_apart=True
        ),
        "get-session-state": _Operation(sessions.state, LISTEN, is_apart=True),
        "set-session-state": _Operation(sessions.set_state, LISTEN, enlisted=enlisted.set_state),
        "get-message-sessions": _Operation(sessions.list, LISTEN, is_apart=True),
    }


def _ruling(rules: RuleOperations) -> dict[str, _Operation]:
    # "Manage in docs; the service accepts Listen on the subscription".
    rights = MANAGE | LISTEN
    return {
        "add-rule": _Operation(rules.add, rights),
        "remove-rule": _Operation(rules.remove, rights),
        "enumerate-rules": _Operation(rules.list, rights, is_apart=True),
    }


def timed_out(timeout_ms: int) -> Refused:
    seconds, rest_ms = divmod(timeout_ms, 1000)
    span = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest_ms:03}0000"
    return Refused(
        TIMEOUT, f"The operation did not complete within the allotted timeout of {span}."
    )


def _timeout_ms(properties: dict[str, Value]) -> int:
    wanted_ms = integer_of(properties.get(SERVER_TIMEOUT))
    return TIMEOUT_MS if wanted_ms is None else max(0, min(wanted_ms, TIMEOUT_MS_MAX))


def _link_name(properties: dict[str, Value]) -> str | None:
    names = (text_of(properties.get(key)) for key in LINK_NAMES)
    return next((name for name in names if name is not None), None)


def _count(value: Value) -> int:
    """How many elements a field has; 1 for a field that is not an array."""
    items = value.values if isinstance(value, Array) else value
    return max(1, len(items)) if isinstance(items, list) else 1
