"""How many entities a namespace may have (R8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from shardbus.broker.namespace.directory import Directory
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.namespace.entity import EntitySpec


@final
class Quota:
    """Counts the entities that there are and those that are being created."""

    def __init__(self, directory: Directory, settings: NamespaceSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._creating = 0
        self._creating_partitioned = 0

    @contextmanager
    def creating(self, spec: EntitySpec) -> Iterator[None]:
        """An entity is being created; Refused when there are too many."""
        self.check(spec)
        self._creating += 1
        self._creating_partitioned += spec.is_partitioned
        try:
            yield
        finally:
            self._creating -= 1
            self._creating_partitioned -= spec.is_partitioned

    def check(self, spec: EntitySpec) -> None:
        """Refused when there is no room for one more entity."""
        limit = self._settings.entities_max
        if len(self._directory) + self._creating >= limit:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The namespace has {limit} entities, its maximum: delete some of them first.",
            )
        self.check_partitioned(spec)

    def check_partitioned(self, spec: EntitySpec) -> None:
        """Refused when there is no room for one more partitioned entity."""
        partitioned = self._directory.partitioned_count + self._creating_partitioned
        limit = self._settings.partitioned_entities_max  # 0: there is none
        if spec.is_partitioned and 0 < limit <= partitioned:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The namespace has {limit} partitioned entities, its maximum: "
                "delete some of them, or create the entity without partitioning.",
            )
