"""The pipelines of a cluster in the first of its databases."""

from __future__ import annotations

from typing import Final, final

from shardbus.stores.base.pipelines import PipelineRow
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import settings_of

_ROWS: Final = """
SELECT name, document, intent, owner, epoch, beat, report FROM pipeline ORDER BY name
"""
_ADD: Final = """
INSERT INTO pipeline (name, document, intent) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING 1
"""
_INTEND: Final = "UPDATE pipeline SET intent = $2 WHERE name = $1 RETURNING 1"
_REMOVE: Final = "DELETE FROM pipeline WHERE name = $1 AND owner = ''"
_THERE: Final = "SELECT FROM pipeline WHERE name = $1"
_TAKE: Final = """
UPDATE pipeline SET owner = $2, epoch = epoch + 1, beat = 0
WHERE name = $1 AND epoch = $3 AND beat = $4 RETURNING 1
"""
_BEAT: Final = """
UPDATE pipeline SET beat = beat + 1, report = $4
WHERE name = $1 AND owner = $2 AND epoch = $3 RETURNING 1
"""
# The epoch is raised here too, so that a delayed beat finds no row.
_GIVE_UP: Final = """
UPDATE pipeline SET owner = '', epoch = epoch + 1 WHERE name = $1 AND owner = $2 AND epoch = $3
"""


@final
class PostgresPipelines:
    """A `base_pipelines.PipelineTable`."""

    def __init__(self, address: Address, name: str) -> None:
        self._link = Link(address, settings_of(f"{name} pipelines"))

    def rows(self) -> list[PipelineRow]:
        return [PipelineRow(*row) for row in self._link.fetch(_ROWS)]

    def add(self, name: str, document: str, intent: str) -> bool:
        return bool(self._link.fetch(_ADD, name, document, intent))

    def intend(self, name: str, intent: str) -> bool:
        return bool(self._link.fetch(_INTEND, name, intent))

    def remove(self, name: str) -> bool:
        self._link.fetch(_REMOVE, name)
        return not self._link.fetch(_THERE, name)

    def take(self, row: PipelineRow, owner: str) -> bool:
        return bool(self._link.fetch(_TAKE, row.name, owner, row.epoch, row.beat))

    def beat(self, name: str, owner: str, epoch: int, report: str) -> bool:
        return bool(self._link.fetch(_BEAT, name, owner, epoch, report))

    def give_up(self, name: str, owner: str, epoch: int) -> None:
        self._link.fetch(_GIVE_UP, name, owner, epoch)

    def close(self) -> None:
        try:
            self._link.close()
        except StoreError:
            self._link.drop()
