"""A process that can stand still and die: all that runs in it goes through a loop of its own."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

from tests.simulation.world import VirtualLoop

Ts = TypeVarTuple("Ts")


class ProcessLoop(asyncio.BaseEventLoop):
    """The loop of one process inside the virtual one. Tasks are not for it: only callbacks.

    While it stands still nothing runs, and time goes on; what came due meanwhile runs afterwards.
    """

    def __init__(self, world: VirtualLoop) -> None:
        super().__init__()
        # It never runs: the virtual loop does.
        self.close()
        self.is_dead = False
        self.is_paused = False
        self._world = world
        self._late_ready: list[Callable[[], None]] = []
        self._late_timers: list[Callable[[], None]] = []

    def time(self) -> float:
        return self._world.time()

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._world, context)
        self._world.call_soon(self._run, self._late_ready, _once(handle, callback, args))
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._world, context)
        self._world.call_at(when, self._run, self._late_timers, _once(handle, callback, args))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def arrive(self, callback: Callable[[], None]) -> None:
        """Something comes from outside, now: it is seen when the process looks."""
        self._run(self._late_ready, callback)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self, *, timers_first: bool) -> None:
        """Go on: a process that wakes may look at its timers or at what arrived first."""
        if not self.is_paused:
            return
        self.is_paused = False
        ready, timers = self._late_ready.copy(), self._late_timers.copy()
        self._late_ready.clear()
        self._late_timers.clear()
        for late in timers + ready if timers_first else ready + timers:
            self._run(self._late_ready, late)

    def die(self) -> None:
        self.is_dead = True

    def _run(self, late: list[Callable[[], None]], callback: Callable[[], None]) -> None:
        if self.is_dead:
            return
        if self.is_paused:
            late.append(callback)
        else:
            callback()


def _once(
    handle: asyncio.Handle, callback: Callable[[Unpack[Ts]], object], args: tuple[*Ts]
) -> Callable[[], None]:
    def run() -> None:
        if not handle.cancelled():
            callback(*args)

    return run
