"""The pipelines of a server, put together: their definitions, and the keeper of each driver."""

from __future__ import annotations

from typing import Final, final

from shardbus.app.pipelines.definition import Definition
from shardbus.app.pipelines.entities import BusEntities
from shardbus.app.pipelines.keeper import Launch
from shardbus.app.pipelines.launching import (
    PROGRAM,
    RENEW_MS,
    access_to_lane,
    forget_work,
    inherited_environment,
    job,
    location,
    missing_libraries,
)
from shardbus.app.pipelines.pipelines import KeptPipelines
from shardbus.app.pipelines.shelf import Shelf
from shardbus.app.server.settings import Settings
from shardbus.broker.bus import Bus
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.server.counts import HttpCounts

DIRECTORY: Final = "pipelines"


@final
class PipelineChild:
    """Pipelines with the settings of a server."""

    def __init__(self, settings: Settings, bus: Bus) -> None:
        self._settings = settings
        self._bus = bus
        self._places = EntityPlaces(bus, HttpCounts(), None)
        self._shelf = Shelf(settings.data_dir / DIRECTORY)
        self.kept = KeptPipelines(
            BusEntities(self._places),
            self._shelf,
            locate=lambda path: location(settings, path),
            forget=lambda definition: forget_work(settings, definition),
        )

    def problems(self) -> list[str]:
        return self.kept.problems()

    async def run(self, *, has_lane: bool) -> None:
        """Run until cancelled; then all drivers have ended."""
        await self.kept.run(self._launch, lambda: _missing(has_lane=has_lane))

    def _launch(self, definition: Definition) -> Launch:
        root = self._bus.namespace.settings.root_rule
        access = access_to_lane(self._settings, root.name)
        now_ms = self._bus.clock.now_ms()
        computed = definition.task.compute(self._places)
        file = self._shelf.put_job(definition.name, job(self._settings, definition, computed))
        return Launch(
            [*PROGRAM, str(file)],
            access.environment(definition, inherited_environment(), now_ms),
            RENEW_MS,
        )


def _missing(*, has_lane: bool) -> str:
    """Why no driver can be started now; empty when one can."""
    if not has_lane:
        return "the bulk lane is off: set flight-port, and install pyarrow"
    libraries = " and ".join(missing_libraries())
    if not libraries:
        return ""
    return (
        f"{libraries} must be installed beside the bus: "
        "`pip install 'shardbus[spark]'`, or shardbus-spark where there is Java 17"
    )
