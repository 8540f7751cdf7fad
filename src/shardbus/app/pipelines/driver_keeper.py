"""Keeps the driver of one pipeline running: starts it, restarts it, and stops it on request.

The driver writes events to its standard output and its log to its standard error, and ends when its
standard input does, so that it never outlives the bus.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, final

from shardbus.app.pipelines.report import Report
from shardbus.app.server.supervisor import WELL_MS, pass_on
from shardbus.core.errors import Refused

log = logging.getLogger(__name__)

RESTART_MS_MAX: Final = 60_000
# A driver that is told to finish ends its batch, and another pass completes the written messages.
FINISH_MS: Final = 120_000
# Together less than the three seconds in which a stop ends the driver: a batch that takes longer is
# cut off, and run again under its number by the next start.
GRACE_MS: Final = 1_000
CUT_DRAIN_MS: Final = 500
DRAIN_MS: Final = 5_000
CUT_SIGNAL: Final = signal.SIGUSR1
"""The signal that ends a driver within its batch; SIGTERM lets it complete the batch."""
FINISH_OPTION: Final = "--finish"
"""The argument of a driver that only completes the work of an earlier one."""

STOPPED: Final = "stopped"
STARTING: Final = "starting"
RUNNING: Final = "running"
FAILING: Final = "failing"
STOPPING: Final = "stopping"
FINISHED: Final = "finished"

_BY_SIGNAL: Final = "was ended by signal"


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a driver; after `renew_ms` it is restarted with new access."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    renew_ms: int


@final
class DriverKeeper:
    """One pipeline that was started at least once, and its state."""

    def __init__(
        self,
        name: str,
        launch: Callable[[], Launch],
        *,
        restart_ms: int,
        is_once: bool,
        ended: Callable[[], None],
    ) -> None:
        """`ended` is called when a pipeline that runs once is finished."""
        self._name = name
        self._launch = launch
        self._restart_ms = restart_ms
        self._is_once = is_once
        self._ended = ended
        self._task: asyncio.Task[None] | None = None
        self._told_to_stop = asyncio.Event()
        self._told_to_cut = asyncio.Event()
        self._is_finishing = False
        self._was_cut = False
        self._outcome = STOPPED
        self._is_waiting = False
        self._is_renewing = False
        self.report = Report()
        self.starts = 0

    @property
    def state(self) -> str:
        if self._task is None or self._task.done():
            return self._outcome
        if self._told_to_stop.is_set():
            return STOPPING
        if self._is_waiting or self.report.error:
            return FAILING
        return RUNNING if self.report.is_running else STARTING

    @property
    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start the driver; does nothing while it runs."""
        if not self.is_alive:
            self._told_to_stop.clear()
            self._told_to_cut.clear()
            self._is_finishing = False
            self._outcome = STOPPED
            self.report.error = ""
            self._task = asyncio.get_running_loop().create_task(self._keep())

    def stop(self) -> None:
        """End the driver within three seconds. If its batch takes longer it is cut off, and run
        again under its number by the next start.
        """
        self._told_to_stop.set()
        self._told_to_cut.set()

    def finish(self) -> None:
        """Let the driver end its batch and complete what it claimed, which may take minutes. One
        that does not run is started for that.
        """
        if not self.is_alive:
            self.start()
            self._is_finishing = True
        self._told_to_stop.set()

    async def wait(self) -> None:
        """Wait until nothing runs."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def kill(self) -> None:
        """End the driver at once; the next start continues from where it was."""
        if self._task is not None:
            self._task.cancel()
            await self.wait()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        wait_ms = self._restart_ms
        while self._is_finishing or not self._told_to_stop.is_set():
            started_s = loop.time()
            self.starts += 1
            self.report.begin()
            how = await self._life()
            self._is_finishing = False
            if how == "" and self._is_once and self.report.is_finished:
                self._outcome = FINISHED
                self._ended()
                return
            if how == "" and self._told_to_stop.is_set():
                return
            if how == "" and not self._is_renewing:
                how = "ended by itself"
            if (loop.time() - started_s) * 1000 >= WELL_MS:
                wait_ms = self._restart_ms
            if how:
                self.report.end(how, is_killed=how.startswith(_BY_SIGNAL))
                await self._pause(wait_ms)
                wait_ms = max(self._restart_ms, min(wait_ms * 2, RESTART_MS_MAX))

    async def _pause(self, wait_ms: int) -> None:
        if self._told_to_stop.is_set():
            return
        log.error("pipeline %s: %s; restart in %d ms", self._name, self.report.error, wait_ms)
        self._is_waiting = True
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._told_to_stop.wait()
        self._is_waiting = False

    async def _life(self) -> str:
        """One run of a driver; returns how it ended, empty for a normal end."""
        self._is_renewing = self._was_cut = False
        try:
            return await self._live(self._launch())
        except (OSError, Refused) as error:
            return f"could not be started: {error}"

    async def _live(self, launch: Launch) -> str:
        process = await asyncio.create_subprocess_exec(
            *launch.command,
            *([FINISH_OPTION] if self._is_finishing else []),
            env=launch.environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # Java and its Python processes are in the group that the driver leads.
            start_new_session=True,
        )
        log.info("the driver of pipeline %s runs as process %d", self._name, process.pid)
        assert process.stdout is not None and process.stderr is not None
        hearing = asyncio.gather(
            pass_on(process.stdout, self.report.hear_event),
            pass_on(process.stderr, self.report.hear),
        )
        try:
            code = await self._until_end(process, launch.renew_ms)
            _kill(process)
            # A process started by Java may hold the pipes for a moment longer.
            drain_ms = CUT_DRAIN_MS if self._was_cut else DRAIN_MS
            await asyncio.wait([hearing], timeout=drain_ms / 1000)
        finally:
            hearing.cancel()
            _kill(process)
            with suppress(asyncio.CancelledError):
                await hearing
            await process.wait()
        if self._was_cut:
            self.report.hear(
                "the driver was stopped within a batch, which the next start runs again"
            )
        if code == 0 or self._was_cut:
            return ""
        return f"{_BY_SIGNAL} {-code}" if code < 0 else f"ended with code {code}"

    async def _until_end(self, process: Process, renew_ms: int) -> int:
        """The exit code of the driver, which is told to end when its access must be renewed."""
        ending = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._told_to_stop.wait())
        cutting = asyncio.ensure_future(self._told_to_cut.wait())
        try:
            if not self._is_finishing:
                await asyncio.wait(
                    [ending, stopping], timeout=renew_ms / 1000, return_when=asyncio.FIRST_COMPLETED
                )
            if not ending.done() and not self._is_finishing:
                self._is_renewing = not stopping.done()
                if not cutting.done():
                    process.terminate()
            await asyncio.wait(
                [ending, cutting], timeout=FINISH_MS / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            if not ending.done() and cutting.done():
                with suppress(ProcessLookupError):
                    process.send_signal(CUT_SIGNAL)
                await asyncio.wait([ending], timeout=GRACE_MS / 1000)
                # A driver that has hardly begun has no handler yet.
                self._was_cut = not ending.done() or ending.result() < 0
            if not ending.done():
                log.info("the driver of pipeline %s is ended within its batch", self._name)
                _kill(process)
            return await ending
        finally:
            stopping.cancel()
            cutting.cancel()
            ending.cancel()


def _kill(process: Process) -> None:
    """Kill the driver, and everything that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
