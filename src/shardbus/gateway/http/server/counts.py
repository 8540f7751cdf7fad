"""What happened over HTTP since the process started, counted for the metrics."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, final

ENTITIES_MAX: Final = 200
"""Entities that are counted, and shown in metrics, separately."""
OTHER: Final = "(other)"
"""In place of an entity's name, which never has parentheses: all further entities."""

_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "POST", "PUT"})

SENT: Final = "sent"
LOCKED: Final = "locked"
DELETED: Final = "deleted"
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
RENEWED: Final = "renewed"


@final
class HttpCounts:
    """Ascending counters with bounded labels."""

    def __init__(self, entities_max: int = ENTITIES_MAX) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.messages: dict[tuple[str, str], int] = {}
        self.throttled = 0
        self._entities: set[str] = set()
        self._entities_max = entities_max

    def answered(self, method: str, status: int) -> None:
        key = (method if method in _METHODS else "other", status)
        self.requests[key] = self.requests.get(key, 0) + 1

    def count(self, entity: str, what: str, messages: int = 1) -> None:
        """Count messages of an entity by operation: sent, locked, deleted, completed and so on."""
        key = (self._label(entity), what)
        self.messages[key] = self.messages.get(key, 0) + messages

    def unauthorized(self) -> int:
        """Requests refused because of a missing token or right."""
        refused = HTTPStatus.UNAUTHORIZED
        return sum(count for (_, status), count in self.requests.items() if status == refused)

    def forget(self, entity: str) -> None:
        """The entity was deleted: its label is free for another."""
        self._entities.discard(entity)
        for key in [key for key in self.messages if key[0] == entity]:
            del self.messages[key]

    def _label(self, entity: str) -> str:
        if entity not in self._entities:
            if len(self._entities) >= self._entities_max:
                return OTHER
            self._entities.add(entity)
        return entity
