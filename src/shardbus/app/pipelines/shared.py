"""The pipelines of a cluster: any gateway manages them, and one node at a time runs each.

They are rows of the first database. A node with the role `pipelines` takes those that are to run,
reports their progress, and ends their drivers if it can no longer report.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Final, final

from shardbus.app.leased.leases import LOOK_S, Leases
from shardbus.app.leased.tenancy import Tenancy
from shardbus.app.pipelines.definition import KINDS, Definition, definition_from, read_definition
from shardbus.app.pipelines.driver_keeper import (
    FAILING,
    FINISHED,
    STARTING,
    STOPPED,
    STOPPING,
    DriverKeeper,
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
    exists,
    hold_all,
)
from shardbus.app.pipelines.letter_reports import report_of
from shardbus.app.pipelines.pipelines import RESTART_MS, Launcher, Shown
from shardbus.app.pipelines.report import Report
from shardbus.app.pipelines.shelf import Intent
from shardbus.app.pipelines.task import Task
from shardbus.broker.fragment.storage import Worker
from shardbus.core.errors import NOT_ALLOWED, Refused, Unavailable
from shardbus.gateway.http.api.documents import PipelineHours
from shardbus.gateway.http.api.letter_report import PipelineReport
from shardbus.gateway.http.observing.readers import Follower
from shardbus.stores.base.leased import LeasedHead, LeasedRow, LeasedTable

log = logging.getLogger(__name__)

# A driver with Java and its Python processes takes one to two gigabytes.
RUNNING_MAX: Final = 8
# The intents with which a node takes a pipeline.
_RUNNING: Final = (Intent.RUN, Intent.FINISH)
# Log lines of a pipeline that nodes show on which it does not run.
LINES_TOLD: Final = 40


@final
class SharedPipelines:
    """All pipelines in the database; `run` follows their changes."""

    kinds: Mapping[str, type[Task]] = KINDS

    def __init__(  # noqa: PLR0913 - its parts
        self,
        entities: Entities,
        table: LeasedTable,
        worker: Worker,
        owner: str,
        *,
        locate: Callable[[str], str],
        forget: Callable[[Definition], None],
        check_texts: CheckTexts = check_no_texts,
        restart_ms: int = RESTART_MS,
    ) -> None:
        """`worker` makes the calls of the table; `owner` is a name that no other process has, or
        had. `check_texts` refuses a new definition with a mistake.
        """
        self._entities = entities
        self._locate = locate
        self._forget = forget
        self._check_texts = check_texts
        self._restart_ms = restart_ms
        self._known = KnownPipelines(entities)
        self._rows: dict[str, LeasedRow] = {}
        self._table = table
        leases = Leases(owner, RUNNING_MAX)
        self._tenancy = Tenancy("pipeline", table, worker, leases, self, _RUNNING)
        self._keepers: dict[str, DriverKeeper] = {}
        self._launcher: Launcher | None = None
        self._finishing: set[str] = set()
        self._problem = "they have not been read yet"
        self._changing = asyncio.Lock()

    async def run(self, launcher: Launcher | None, missing: Callable[[], str]) -> None:
        """Follow the table until cancelled, and run the pipelines of this node; without a launcher,
        none.

        At the end all drivers have ended, and others may run them.
        """
        self._launcher = launcher
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tenancy.fence())
                if launcher is not None:
                    tasks.create_task(self._hold())
                while True:
                    await self._round(missing)
                    await self._pause()
        finally:
            await asyncio.gather(*(keeper.kill() for keeper in self._keepers.values()))
            self._tenancy.give_all_up()

    async def _pause(self) -> None:
        """Until the next round, which comes sooner when a driver that is told to stop has ended."""
        ending = [
            asyncio.ensure_future(keeper.wait())
            for keeper in self._keepers.values()
            if keeper.state == STOPPING
        ]
        if not ending:
            await asyncio.sleep(LOOK_S)
            return
        try:
            await asyncio.wait(ending, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ending:
                one.cancel()

    async def _hold(self) -> None:
        """Several nodes may do this: renewing a lease twice is harmless."""
        while True:
            known = self._known.all
            resting = [known[name] for name in known if self._state(name) == STOPPED]
            await hold_all(self._entities, resting)
            await asyncio.sleep(HOLD_S)

    # Queries of the API and metrics.

    def followers(self) -> list[Follower]:
        """The captures that browse and run here."""
        return [
            Follower(name, task.entity, keeper.report.incarnation, keeper.report.following)
            for name, keeper in self._keepers.items()
            if name in self._known.all
            and (task := self._known.all[name].task).is_follower
            and keeper.state != FINISHED
        ]

    def progresses(self) -> dict[str, dict[str, object]]:
        return {
            name: {**self._told(name)[2], "state": self._state(name)} for name in self._known.all
        }

    def problems(self) -> list[str]:
        own = [f"pipelines: {self._problem}"] if self._problem else []
        return own + [
            f"pipeline {name} fails: {keeper.report.error}"
            for name, keeper in self._keepers.items()
            if keeper.state == FAILING
        ]

    def all(self) -> list[Shown]:
        return [self.show(name) for name in sorted(self._known.all)]

    def show(self, name: str) -> Shown:
        definition = self._known.found(name)
        starts, error, progress = self._told(name)
        return {
            **definition.to_document(),
            "location": self._locate(definition.task.path) if definition.task.path else "",
            "state": self._state(name),
            "starts": starts,
            "last_error": error,
            "progress": progress,
        }

    async def create(self, name: str, wanted: Task) -> Shown:
        asked = read_definition(name, wanted)
        async with self._changing:
            await self._read()
            definition, is_new = self._known.settled(asked)
        if is_new:
            await self._check_texts(definition)
        async with self._changing:
            await self._read()
            definition, is_new = self._known.settled(asked)
            document = json.dumps(definition.to_document())
            if is_new and not await self._tenancy.ask(
                lambda: self._table.add(name, document, Intent.REST)
            ):
                raise exists(name)
            await self._read()
        return self.show(name)

    async def start(self, name: str) -> Shown:
        async with self._changing:
            await self._read()
            definition = self._known.found(name)
            if self._state(name) == STOPPING:
                raise Refused(
                    NOT_ALLOWED, f"Pipeline {name} is stopping: start it again when it has stopped."
                )
            if self._rows[name].intent != Intent.RUN:
                self._entities.check(definition)
                await self._run_alone(definition)
        return self.show(name)

    async def _run_alone(self, definition: Definition) -> None:
        """Refused when another pipeline fills the same subscription, also when another node starts
        it at this moment: then neither is started.
        """
        check_fills_alone(definition, self._to_run())
        before = Intent(self._rows[definition.name].intent)
        await self._intend(definition.name, Intent.RUN)
        try:
            check_fills_alone(definition, self._to_run())
        except Refused:
            await self._intend(definition.name, before)
            raise

    def _to_run(self) -> list[Definition]:
        """Those that run, or that some node is going to run."""
        return [
            self._known.all[name]
            for name, row in self._rows.items()
            if row.intent in _RUNNING or (row.owner and row.intent != Intent.FINISHED)
        ]

    async def stop(self, name: str, *, is_finishing: bool = False) -> Shown:
        async with self._changing:
            await self._read()
            definition = self._known.found(name)
            intent = self._rows[name].intent
            if is_finishing:
                is_owned = bool(self._rows[name].owner)
                if is_owned or await self._entities.hold_claims(definition):
                    await self._intend(name, Intent.FINISH)
            elif intent in _RUNNING:
                await self._intend(name, Intent.REST)
            keeper = self._keepers.get(name)
            if keeper is not None and keeper.is_alive and not is_finishing:
                keeper.stop()
        return self.show(name)

    async def delete(self, name: str, *, is_abandoned: bool = False) -> None:
        async with self._changing:
            await self._read()
            definition = self._known.found(name)
            row = self._rows[name]
            if row.owner or row.intent in _RUNNING:
                raise Refused(
                    NOT_ALLOWED,
                    f"Pipeline {name} is {self._state(name)}: stop it before deleting it.",
                )
            if not is_abandoned:
                await check_unclaimed(self._entities, definition)
            await self._entities.drop_reader(definition)
            if not await self._tenancy.ask(lambda: self._table.remove(name)):
                raise Refused(NOT_ALLOWED, f"Pipeline {name} was started again: stop it first.")
            await asyncio.to_thread(self._forget, definition)
            await self._read()

    async def hours(self, name: str) -> PipelineHours:
        return await hours_of(self._known.found(name), self._locate)

    async def report(self, name: str, *, has_page: bool = False) -> PipelineReport:
        return await report_of(self._known.found(name), self._locate, has_page=has_page)

    def log(self, name: str) -> list[str]:
        self._known.found(name)
        keeper = self._keepers.get(name)
        if keeper is not None:
            return keeper.report.lines()
        lines = _report(self._rows[name]).get("lines")
        return [str(line) for line in lines] if isinstance(lines, list) else []

    def _state(self, name: str) -> str:
        row, keeper = self._rows[name], self._keepers.get(name)
        if row.intent == Intent.FINISHED:
            return FINISHED
        if keeper is not None and keeper.is_alive:
            is_ending = row.intent != Intent.RUN
            return STOPPING if is_ending else keeper.state
        if not row.owner and row.intent != Intent.FINISH:
            return STARTING if row.intent == Intent.RUN else STOPPED
        if row.intent != Intent.RUN:
            return STOPPING
        return str(_report(row).get("state", STARTING))

    def _told(self, name: str) -> tuple[int, str, dict[str, object]]:
        """Starts, error and progress, from the local driver or as reported by the owner."""
        keeper = self._keepers.get(name)
        if keeper is not None:
            return keeper.starts, keeper.report.error, keeper.report.progress()
        said = _report(self._rows[name]) if name in self._rows else {}
        starts, progress = said.get("starts"), said.get("progress")
        return (
            starts if isinstance(starts, int) else 0,
            str(said.get("last_error", "")),
            progress if isinstance(progress, dict) else Report().progress(),
        )

    # Following the table.

    async def _intend(self, name: str, intent: Intent) -> None:
        await self._tenancy.ask(lambda: self._table.intend(name, intent))
        await self._read()

    async def _read(self) -> None:
        rows = await self._tenancy.ask(self._table.rows)
        self._rows.clear()
        definitions = self._known.all
        definitions.clear()
        for row in rows:
            try:
                definitions[row.name] = definition_from(json.loads(row.document))
                self._rows[row.name] = row
            except (ValueError, Refused) as error:
                # Perhaps of a later build, whose nodes run it.
                log.error("pipeline %s has an unknown definition: %s", row.name, error)

    async def _round(self, missing: Callable[[], str]) -> None:
        try:
            async with self._changing:
                await self._read()
            self._problem = ""
            if self._launcher is not None:
                await self._tenancy.care(list(self._rows.values()), lambda: not missing())
        except Unavailable as error:
            self._tenancy.leases.disconnected()
            if not self._problem:
                log.warning("%s", error)
            self._problem = str(error)

    async def carry_on(self, head: LeasedHead, epoch: int) -> None:
        name = head.name
        if not await self._tenancy.beat(name, epoch, self._report(name)):
            await self._tenancy.drop(name)
            return
        keeper = self._keeper(name)
        if head.intent == Intent.RUN and not keeper.is_alive:
            if keeper.state == FINISHED:
                await self._tenancy.ask(lambda: self._table.intend(name, Intent.FINISHED))
            else:
                keeper.start()
        elif head.intent == Intent.FINISH:
            await self._finish(name, keeper)
        elif head.intent != Intent.RUN and keeper.is_alive:
            keeper.stop()
        elif head.intent != Intent.RUN:
            await self._tenancy.give_up(name, epoch)

    async def _finish(self, name: str, keeper: DriverKeeper) -> None:
        """Let the running driver complete its batch; without one, start a driver for that, once."""
        if name in self._finishing and not keeper.is_alive:
            self._finishing.discard(name)
            await self._tenancy.ask(lambda: self._table.intend(name, Intent.REST))
        elif name not in self._finishing:
            self._finishing.add(name)
            keeper.finish()

    async def drop(self, name: str) -> None:
        self._finishing.discard(name)
        keeper = self._keepers.pop(name, None)
        if keeper is not None:
            await keeper.kill()

    def _keeper(self, name: str) -> DriverKeeper:
        keeper = self._keepers.get(name)
        launcher, definition = self._launcher, self._known.all[name]
        if keeper is None:
            assert launcher is not None, "a node that runs none owns none"
            keeper = DriverKeeper(
                name,
                lambda: launcher(definition),
                restart_ms=self._restart_ms,
                is_once=definition.task.is_once,
                ended=_nothing,
            )
            self._keepers[name] = keeper
        return keeper

    def _report(self, name: str) -> str:
        keeper = self._keepers.get(name)
        starts, error, progress = self._told(name)
        document = {
            "state": STARTING if keeper is None else keeper.state,
            "starts": starts,
            "last_error": error,
            "progress": progress,
            "lines": [] if keeper is None else keeper.report.lines()[-LINES_TOLD:],
        }
        return json.dumps(document)


def _report(row: LeasedRow) -> dict[str, object]:
    try:
        found: object = json.loads(row.report)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _nothing() -> None:
    """The next round handles it."""
