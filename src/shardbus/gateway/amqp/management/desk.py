"""The context of management requests: an entity's line, and the sessions of the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from shardbus.broker.bus import EntityHandle
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.operations.entity import Operations
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import NO_SESSION
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.amqp.links.session_hold import SessionHold, SessionHolds, session_lost
from shardbus.gateway.amqp.management.fields import RequestFields

# SDKs ask for so many at once when they empty an entity, in every tier.
DELETE_COUNT_MAX: Final = 4_000


@final
class Desk:
    """What the requests of one link may refer to."""

    def __init__(
        self,
        entity: EntityHandle,
        line: int,
        holds: SessionHolds,
        namespace: Namespace,
        touch: Callable[[str], None],
    ) -> None:
        """`touch` is called with the name of each link that a request names."""
        self.line = line
        self.namespace = namespace
        self.touch = touch
        self._entity = entity
        self._holds = holds

    @property
    def operations(self) -> Operations:
        return self._entity.operations

    @property
    def spec(self) -> EntitySpec:
        return self._entity.entity.spec

    @property
    def entity_name(self) -> str:
        return self._entity.entity.name

    @property
    def is_topic(self) -> bool:
        return self._entity.entity.is_topic()

    @property
    def is_subscription(self) -> bool:
        return self._entity.entity.is_subscription()

    @property
    def has_rules(self) -> bool:
        """Whether this is a subscription, and not its dead letters."""
        return self._entity.entity.is_subscription() and self.line == MAIN_LINE

    @property
    def is_sendable(self) -> bool:
        """Whether messages can be sent here: not to subscriptions, and not to dead letters."""
        return not self._entity.entity.is_subscription() and self.line == MAIN_LINE

    @property
    def is_partitioned(self) -> bool:
        return self._entity.router.is_partitioned

    @property
    def is_sessionful(self) -> bool:
        """Whether messages are received by session here; dead letters never are."""
        return self.spec.requires_session and self.line == MAIN_LINE

    def require_sessions(self, operation: str) -> None:
        if not self.is_sessionful:
            raise Refused(NOT_ALLOWED, f"{operation}: the entity has no sessions.")

    def hold(self, fields: RequestFields) -> SessionHold:
        """The session that a request is about, if the connection holds it; Refused otherwise."""
        self.require_sessions(fields.operation)
        found = self._find(fields)
        if found is None:
            raise session_lost()
        return found

    def session_token(self, fields: RequestFields) -> bytes:
        """The session token for a request about messages; NO_SESSION where there are no
        sessions.
        """
        if not self.is_sessionful:
            return NO_SESSION
        if fields.text("session-id") is None and self._find(fields) is None:
            # The bus itself refuses what it cannot do without a session.
            return NO_SESSION
        return self.hold(fields).token

    def shared_hold(self, fields: RequestFields) -> SessionHold | None:
        """The session that a request is about, if another receiver can take it over."""
        found = self._find(fields) if self.is_sessionful else None
        return found if found is not None and found.is_shared else None

    def _find(self, fields: RequestFields) -> SessionHold | None:
        return self._holds.find(
            self._entity.entity.entity_id,
            link_name=fields.link_name,
            session_id=fields.text("session-id"),
        )
