"""How many receivers each entity has, over all connections."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import SERVER_BUSY, Refused

RECEIVERS_MAX: Final = 5_000


@final
class ReceiverCounts:
    """Receiving links by the id of their entity, including those that wait for a session."""

    def __init__(self, receivers_max: int = RECEIVERS_MAX) -> None:
        self._receivers_max = receivers_max
        self._counts: dict[int, int] = {}

    def enter(self, entity_id: int) -> None:
        """Count one more; Refused with SERVER_BUSY at the maximum."""
        count = self._counts.get(entity_id, 0)
        if count >= self._receivers_max:
            raise Refused(
                SERVER_BUSY,
                f"The entity has {count} receivers, its maximum: try again when some are closed.",
            )
        self._counts[entity_id] = count + 1

    def leave(self, entity_id: int) -> None:
        count = self._counts[entity_id] - 1
        if count:
            self._counts[entity_id] = count
        else:
            del self._counts[entity_id]
