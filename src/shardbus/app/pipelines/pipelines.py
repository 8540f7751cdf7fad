"""All pipelines of a namespace: the JSON API, and the drivers that run while the bus serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, final

from shardbus.app.pipelines.definition import KINDS, Definition, read_definition
from shardbus.app.pipelines.driver_keeper import (
    FAILING,
    FINISHED,
    STARTING,
    STOPPED,
    STOPPING,
    DriverKeeper,
    Launch,
)
from shardbus.app.pipelines.hours import hours_of
from shardbus.app.pipelines.known import (
    HOLD_S,
    CheckTexts,
    Entities,
    KnownPipelines,
    check_fills_alone,
    check_no_texts,
    check_unclaimed,
    hold_all,
)
from shardbus.app.pipelines.letter_reports import report_of
from shardbus.app.pipelines.report import Report
from shardbus.app.pipelines.shelf import Intent, Shelf
from shardbus.app.pipelines.task import Task
from shardbus.core.errors import (
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    Refused,
    Unavailable,
)
from shardbus.gateway.http.api.documents import PipelineHours
from shardbus.gateway.http.api.letter_report import PipelineReport
from shardbus.gateway.http.observing.readers import Follower

log = logging.getLogger(__name__)

# A driver with Java and its Python processes takes one to two gigabytes.
RUNNING_MAX: Final = 8
RESTART_MS: Final = 1_000

Shown = dict[str, object]
"""The document of a pipeline in the API."""
Launcher = Callable[[Definition], Launch]
"""How to start a driver; called for each start, since access to the bus expires."""


@final
class KeptPipelines:
    """Pipelines whose definitions are on a shelf, and whose drivers run here."""

    kinds: Mapping[str, type[Task]] = KINDS

    def __init__(
        self,
        entities: Entities,
        shelf: Shelf,
        *,
        locate: Callable[[str], str],
        forget: Callable[[Definition], None],
        check_texts: CheckTexts = check_no_texts,
        restart_ms: int = RESTART_MS,
    ) -> None:
        """`locate` returns the location of a definition's path, `forget` removes what a driver
        left, and `check_texts` refuses a new definition with a mistake.
        """
        self._entities = entities
        self._shelf = shelf
        self._locate = locate
        self._forget = forget
        self._check_texts = check_texts
        self._restart_ms = restart_ms
        self._launcher: Launcher | None = None
        self._missing: Callable[[], str] = lambda: "the bus has not begun to serve"
        self._known = KnownPipelines(entities)
        self._definitions = self._known.all
        self._keepers: dict[str, DriverKeeper] = {}
        # The pipelines that had finished, or are to run, when the bus starts.
        self._finished_before: set[str] = set()
        self._wanted: set[str] = set()
        # One change at a time: each is a check, a slow write, and a step.
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Read the shelf, so that pipelines can be shown and created before they run."""
        for name, (definition, intent) in (await asyncio.to_thread(self._shelf.load)).items():
            self._definitions[name] = definition
            if intent is Intent.FINISHED:
                self._finished_before.add(name)
            elif intent is Intent.RUN:
                self._wanted.add(name)

    async def run(self, launcher: Launcher, missing: Callable[[], str] = lambda: "") -> None:
        """Run until cancelled: start the pipelines that were running, and stop them at the end.

        While `missing` returns a reason nothing can be started. It is called at each start, because
        missing libraries may be installed while the bus serves.
        """
        async with self._changing:
            await self.load()
            self._launcher, self._missing = launcher, missing
            why = missing()
            for name in sorted(self._wanted):
                if why:
                    log.error("pipeline %s is not started: %s", name, why)
                else:
                    self._keeper(self._definitions[name]).start()
            self._wanted.clear()
        try:
            while True:
                await hold_all(self._entities, self._resting())
                await asyncio.sleep(HOLD_S)
        finally:
            await asyncio.gather(*(keeper.kill() for keeper in self._keepers.values()))

    def _resting(self) -> list[Definition]:
        return [one for one in self._definitions.values() if self._state(one.name) == STOPPED]

    def followers(self) -> list[Follower]:
        """The captures that browse and are not finished; their drivers reported where they are."""
        return [
            Follower(name, task.entity, keeper.report.incarnation, keeper.report.following)
            for name, keeper in self._keepers.items()
            if (task := self._definitions[name].task).is_follower and keeper.state != FINISHED
        ]

    def progresses(self) -> dict[str, dict[str, object]]:
        """The last progress of each pipeline, and its state."""
        return {
            name: {**self._report(name).progress(), "state": self._state(name)}
            for name in self._definitions
        }

    def _report(self, name: str) -> Report:
        return self._keepers[name].report if name in self._keepers else Report()

    def problems(self) -> list[str]:
        """Why each pipeline that should run does not."""
        return [
            f"pipeline {name} fails: {keeper.report.error}"
            for name, keeper in self._keepers.items()
            if keeper.state == FAILING
        ]

    def all(self) -> list[Shown]:
        return [self.show(name) for name in sorted(self._definitions)]

    def show(self, name: str) -> Shown:
        definition = self._found(name)
        keeper = self._keepers.get(name)
        report = Report() if keeper is None else keeper.report
        return {
            **definition.to_document(),
            "location": self._locate(definition.task.path) if definition.task.path else "",
            "state": self._state(name),
            "starts": 0 if keeper is None else keeper.starts,
            "last_error": report.error,
            "progress": report.progress(),
        }

    def _state(self, name: str) -> str:
        if name in self._keepers:
            return self._keepers[name].state
        if name in self._wanted:
            return STARTING
        return FINISHED if name in self._finished_before else STOPPED

    async def create(self, name: str, wanted: Task) -> Shown:
        asked = read_definition(name, wanted)
        definition, is_new = self._known.settled(asked)
        if is_new:
            # It takes a second, in which others are started and stopped.
            await self._check_texts(definition)
        async with self._changing:
            definition, is_new = self._known.settled(asked)
            if is_new:
                await self._write(definition, Intent.REST)
                self._definitions[name] = definition
        return self.show(name)

    async def start(self, name: str) -> Shown:
        async with self._changing:
            definition = self._found(name)
            if self._launcher is None:
                await self._start_later(definition)
                return self.show(name)
            keeper = self._keeper(definition)
            if keeper.state == STOPPING:
                raise Refused(
                    NOT_ALLOWED, f"Pipeline {name} is stopping: start it again when it has stopped."
                )
            if not keeper.is_alive:
                self._check_startable(definition)
                await self._write(definition, Intent.RUN)
                keeper.start()
        return self.show(name)

    async def _start_later(self, definition: Definition) -> None:
        """Start the pipeline when the bus, which is being set up, serves."""
        self._entities.check(definition)
        check_fills_alone(definition, map(self._found, self._wanted))
        await self._write(definition, Intent.RUN)
        self._wanted.add(definition.name)

    async def stop(self, name: str, *, is_finishing: bool = False) -> Shown:
        async with self._changing:
            definition = self._found(name)
            if self._state(name) != FINISHED:
                await self._write(definition, Intent.REST)
            self._wanted.discard(name)
            keeper = self._keepers.get(name)
            if is_finishing:
                await self._finish(definition)
            elif keeper is not None:
                keeper.stop()
        return self.show(name)

    async def _finish(self, definition: Definition) -> None:
        """Complete what was claimed; without claims there is nothing to start a driver for."""
        keeper = self._keepers.get(definition.name)
        if keeper is not None and keeper.is_alive:
            keeper.finish()
        elif await self._entities.hold_claims(definition):
            self._check_startable(definition)
            self._keeper(definition).finish()

    async def delete(self, name: str, *, is_abandoned: bool = False) -> None:
        async with self._changing:
            definition = self._found(name)
            keeper = self._keepers.get(name)
            if keeper is not None and keeper.is_alive:
                raise Refused(
                    NOT_ALLOWED, f"Pipeline {name} is {keeper.state}: stop it before deleting it."
                )
            if not is_abandoned:
                await check_unclaimed(self._entities, definition)
            await self._entities.drop_reader(definition)
            await asyncio.to_thread(self._shelf.remove, name)
            await asyncio.to_thread(self._forget, definition)
            self._definitions.pop(name)
            self._keepers.pop(name, None)
            self._finished_before.discard(name)
            self._wanted.discard(name)

    async def hours(self, name: str) -> PipelineHours:
        return await hours_of(self._known.found(name), self._locate)

    async def report(self, name: str, *, has_page: bool = False) -> PipelineReport:
        return await report_of(self._known.found(name), self._locate, has_page=has_page)

    def log(self, name: str) -> list[str]:
        self._found(name)
        keeper = self._keepers.get(name)
        return [] if keeper is None else keeper.report.lines()

    def _found(self, name: str) -> Definition:
        return self._known.found(name)

    def _keeper(self, definition: Definition) -> DriverKeeper:
        name = definition.name
        if name not in self._keepers:
            self._keepers[name] = DriverKeeper(
                name,
                lambda: self._launch(definition),
                restart_ms=self._restart_ms,
                is_once=definition.task.is_once,
                ended=lambda: self._finished(definition),
            )
        return self._keepers[name]

    def _launch(self, definition: Definition) -> Launch:
        assert self._launcher is not None, "checked before the keeper was started"
        return self._launcher(definition)

    def _finished(self, definition: Definition) -> None:
        """The pipeline is finished; a restart of the bus neither runs nor forgets it."""
        try:
            self._shelf.put(definition, Intent.FINISHED)
        except OSError as error:
            log.error("pipeline %s has finished, but that cannot be stored: %s", definition, error)

    def _check_startable(self, definition: Definition) -> None:
        why = self._missing()
        if why or self._launcher is None:
            raise Refused(NOT_ALLOWED, f"No pipeline can run here: {why}.")
        if sum(keeper.is_alive for keeper in self._keepers.values()) >= RUNNING_MAX:
            raise Refused(
                QUOTA_EXCEEDED, f"{RUNNING_MAX} pipelines are running, the maximum: stop one first."
            )
        alive = [name for name, keeper in self._keepers.items() if keeper.is_alive]
        check_fills_alone(definition, map(self._found, alive))
        self._entities.check(definition)

    async def _write(self, definition: Definition, intent: Intent) -> None:
        try:
            await asyncio.to_thread(self._shelf.put, definition, intent)
        except OSError as error:
            raise Unavailable(
                f"The definition of pipeline {definition.name} cannot be written: {error.strerror}"
            ) from error
