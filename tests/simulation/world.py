"""Virtual time: an event loop that never waits, and workers that take time without spending any."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from shardbus.broker.clock import Timer
from shardbus.stores.base.store import StoreError
from tests.simulation.tally import passed

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
# Far from the wall clock, so that whoever takes one for the other is found out.
STEADY_FROM_MS: Final = 5_000_000


class Deadlock(Exception):
    """Nothing is ready and nothing is scheduled: what everyone waits for will never come."""


_NOBODY: Final = logging.NullHandler()


class Crash(Exception):
    """Raised by a store: the process dies at this very write."""


class Planted(Exception):
    """Raised by a client on purpose: it is to hurt nobody else."""


def say_nothing() -> None:
    """Keep this process from printing what every planted fault is told with.

    Not by `logging.disable`: the witness of each history goes by what is logged.
    """
    told = logging.getLogger("shardbus")
    told.setLevel(logging.ERROR)
    told.propagate = False
    told.addHandler(_NOBODY)


def say_all() -> None:
    """As it was before."""
    told = logging.getLogger("shardbus")
    told.setLevel(logging.NOTSET)
    told.propagate = True
    told.removeHandler(_NOBODY)


class _Witness(logging.Handler):
    """What is logged with an exception went wrong, although somebody caught it."""

    def __init__(self, loop: "VirtualLoop") -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        if failure is not None and not isinstance(failure, self._loop.tolerated):
            self._loop.fail(failure)


class _Impatience:
    """Stands where a loop's selector stands; waiting advances the time instead."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Deadlock(f"at {self._loop.time():.3f} s")
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without files, sockets or threads; its time passes only when it would wait."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        # BaseEventLoop asks this and nothing else to wait for it.
        self._selector = _Impatience(self)
        # Coarse enough that a timer is due when its moment has come, however late the hour.
        self._clock_resolution = 1e-6
        self.failures: list[BaseException] = []
        # What may be caught and logged.
        self.tolerated: tuple[type[BaseException], ...] = (Planted,)
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        self._now += seconds

    def finish(self, main: "asyncio.Future[T]") -> T:
        """Run until `main` is done; a failure in any callback ends the run with that failure."""
        witness = _Witness(self)
        logging.getLogger("shardbus").addHandler(witness)
        try:
            result = self.run_until_complete(main)
        except RuntimeError:
            if self.failures:
                raise self.failures[0] from None
            raise
        finally:
            passed(self._now)
            logging.getLogger("shardbus").removeHandler(witness)
            self._cancel_all()
        if self.failures:
            raise self.failures[0]
        return result

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        failure = context.get("exception")
        if not isinstance(failure, BaseException):
            failure = AssertionError(str(context.get("message")))
        self.fail(failure)

    def fail(self, failure: BaseException) -> None:
        self.failures.append(failure)
        self.stop()

    def _cancel_all(self) -> None:
        self.set_exception_handler(lambda loop, context: None)
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.close()

    def _process_events(self, events: list[object]) -> None:
        assert not events

    def _write_to_self(self) -> NoReturn:
        raise AssertionError("threads end determinism")


class Wall:
    """By how much the wall clock of a machine is wrong; that outlives its processes."""

    def __init__(self) -> None:
        self.ahead_ms = 0


class VirtualClock:
    """The clocks of a virtual loop; the wall clock may be set."""

    def __init__(self, loop: VirtualLoop, wall: Wall | None = None) -> None:
        self.loop = loop
        self.wall = Wall() if wall is None else wall

    def now_ms(self) -> int:
        return EPOCH_MS + self.wall.ahead_ms + self._passed_ms()

    def steady_ms(self) -> int:
        return STEADY_FROM_MS + self._passed_ms()

    @property
    def may_jump(self) -> bool:
        return True

    def call_later(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, callback: Callable[[], None]
    ) -> Timer:
        return loop.call_later(delay_ms / 1000, callback)

    def _passed_ms(self) -> int:
        # A moment that was asked for in milliseconds may come a rounding error early.
        return int(self.loop.time() * 1000 + 1e-6)


class VirtualWorker:
    """A Worker whose jobs take virtual time before and after they run, one job after another."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        latency_s: Callable[[], float],
        crash: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._latency_s = latency_s
        self._crash = crash
        self._free_at = 0.0
        self._is_dead = False

    def submit(self, job: Callable[[], T], then: Callable[[T | StoreError], None]) -> None:
        run_at = max(self._loop.time(), self._free_at) + self._latency_s()
        done_at = run_at + self._latency_s()
        self._free_at = done_at

        def run() -> None:
            if self._is_dead:
                return
            try:
                result: T | StoreError = job()
            except StoreError as error:
                result = error
            except Crash:
                self._crash()
                return
            self._loop.call_at(done_at, done, result)

        def done(result: T | StoreError) -> None:
            if not self._is_dead:
                then(result)

        self._loop.call_at(run_at, run)

    def die(self) -> None:
        """Run and answer nothing any more, whatever was submitted."""
        self._is_dead = True

    def close(self) -> None:
        self.die()
