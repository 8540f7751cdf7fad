"""The pipelines of a server, put together: their definitions, and the keeper of each driver."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from shardbus.app.pipelines.definition import Definition
from shardbus.app.pipelines.driver_inputs import (
    CHECK,
    PROGRAM,
    RENEW_MS,
    access_to_lane,
    forget_work,
    inherited_environment,
    job,
    location,
    missing_libraries,
    without_settings,
)
from shardbus.app.pipelines.driver_keeper import Launch
from shardbus.app.pipelines.entities import BusEntities
from shardbus.app.pipelines.pipelines import KeptPipelines
from shardbus.app.pipelines.shared import SharedPipelines
from shardbus.app.pipelines.shelf import Shelf
from shardbus.app.pipelines.text_check import TextCheck
from shardbus.app.server.settings import Settings
from shardbus.broker.bus import Bus
from shardbus.broker.fragment.storage import Worker
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.stores.base.leased import LeasedTable

log = logging.getLogger(__name__)

DIRECTORY: Final = "pipelines"


@final
@dataclass(frozen=True, slots=True)
class PipelineShare:
    """Pipelines that belong to a cluster; `is_runner`: whether this node runs some of them.

    `owner` is a name that no other process has, or had.
    """

    table: LeasedTable
    worker: Worker
    owner: str
    is_runner: bool


@final
class PipelineChild:
    """Pipelines with the settings of a server, or of a node of a cluster."""

    def __init__(self, settings: Settings, bus: Bus, share: PipelineShare | None = None) -> None:
        self._settings = settings
        self._bus = bus
        self._places = EntityPlaces(bus, HttpCounts(), None)
        self._shelf = Shelf(settings.data_dir / DIRECTORY)
        self._share = share
        environment = partial(without_settings, inherited_environment())
        self._text_check = TextCheck(CHECK, environment, self._job)
        self.kept: KeptPipelines | SharedPipelines = (
            self._own() if share is None else self._shared(share)
        )

    def _own(self) -> KeptPipelines:
        settings = self._settings
        return KeptPipelines(
            BusEntities(self._places, settings.pipeline_code),
            self._shelf,
            locate=lambda path: location(settings, path),
            forget=lambda definition: forget_work(settings, definition),
            check_texts=self._check_texts,
        )

    def _shared(self, share: PipelineShare) -> SharedPipelines:
        settings = self._settings
        if left := sorted(self._shelf.load()):
            log.warning(
                "%s has pipelines of a single server, which a cluster does not run: create them "
                "again (%s)",
                settings.data_dir / DIRECTORY,
                ", ".join(left),
            )
        return SharedPipelines(
            BusEntities(self._places, settings.pipeline_code),
            share.table,
            share.worker,
            share.owner,
            locate=lambda path: location(settings, path),
            forget=lambda definition: forget_work(settings, definition),
            check_texts=self._check_texts,
        )

    def problems(self) -> list[str]:
        return self.kept.problems()

    async def load(self) -> None:
        """Load the existing pipelines before the bus is set up and serves."""
        if isinstance(self.kept, KeptPipelines):
            await self.kept.load()

    async def run(self, *, has_lane: bool) -> None:
        """Run until cancelled; then all drivers have ended."""
        kept, missing = self.kept, partial(_missing, has_lane=has_lane)
        if isinstance(kept, SharedPipelines):
            is_runner = self._share is not None and self._share.is_runner
            await kept.run(self._launch if is_runner else None, missing)
        else:
            await kept.run(self._launch, missing)

    async def _check_texts(self, definition: Definition) -> None:
        """Without the connector nothing can be checked, nor started."""
        if not missing_libraries():
            await self._text_check(definition)

    def _job(self, definition: Definition) -> dict[str, object]:
        computed = definition.task.compute(self._places, self._settings.pipeline_code)
        return job(self._settings, definition, computed)

    def _launch(self, definition: Definition) -> Launch:
        root = self._bus.namespace.settings.root_rule
        access = access_to_lane(self._settings, root.name)
        now_ms = self._bus.clock.now_ms()
        file = self._shelf.put_job(definition.name, self._job(definition))
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
