"""The lease of one slot, for the thread that writes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from shardbus.core.cluster.statement import Commit
from shardbus.stores.base.store import Fenced, StoreError

if TYPE_CHECKING:
    from shardbus.broker.cluster.driver import LeaseDriver

# How long a commit waits for a database that restarts or fails over before it is *unknown*.
WAIT_S: Final = 10.0
_LOOK_S: Final = 0.5


@final
class LeasedSlot:
    """A `base_lease.SlotLease`, from one loading of the slot to its loss."""

    def __init__(self, driver: LeaseDriver, slot: int, epoch: int, commits: int) -> None:
        self.slot = slot
        self.is_dropped = False
        self._driver = driver
        self._began = (epoch, commits)
        # The generation of connections over which the last commit was sent, and its outcome.
        self._generation = 0
        self._settled: tuple[int, bool] | None = None
        self.hang_up: Callable[[], None] = _nothing

    def call_when_lost(self, hang_up: Callable[[], None]) -> None:
        self.hang_up = hang_up

    def held(self) -> tuple[int, int]:
        return self._began

    def begin(self) -> Commit:
        driver = self._driver
        deadline = time.monotonic() + WAIT_S
        with driver.changed:
            while True:
                self._check_held()
                commit = driver.keeper.commit(self.slot, driver.now_ms())
                if commit is not None:
                    self._generation = driver.generation
                    self._settled = None
                    return commit
                self._wait(deadline)

    def committed(self, commit: Commit) -> bool:
        driver = self._driver
        with driver.changed:
            if self._generation != driver.generation:
                return False
            driver.note(driver.keeper.committed(commit, True))
            return True

    def refused(self, commit: Commit) -> bool:
        driver = self._driver
        with driver.changed:
            if self._generation != driver.generation:
                return False
            driver.note(driver.keeper.committed(commit, False))
            return True

    def withdrawn(self, commit: Commit) -> None:
        driver = self._driver
        with driver.changed:
            if self._generation == driver.generation:
                driver.keeper.withdraw(commit)
                driver.changed.notify_all()

    def lost(self, commit: Commit) -> None:
        self._driver.lost_elsewhere(self._generation, f"a commit of slot {commit.slot} was lost")

    def outcome(self, commit: Commit) -> bool:
        deadline = time.monotonic() + WAIT_S
        with self._driver.changed:
            while True:
                settled = self._settled
                if settled is not None and settled[0] == commit.number:
                    return settled[1]
                self._check_held()
                self._wait(deadline)

    def settle(self, number: int, *, is_stored: bool) -> None:
        """Called by the driver, with its lock."""
        self._settled = (number, is_stored)

    def _check_held(self) -> None:
        if self.is_dropped:
            raise Fenced(f"this broker does not own slot {self.slot} any more")

    def _wait(self, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise StoreError(
                f"slot {self.slot}: for {WAIT_S:g} s the broker could not verify that it still "
                f"owns the slot; {self._driver.problem or 'the slot is being given away'}"
            )
        self._driver.changed.wait(min(left_s, _LOOK_S))


def _nothing() -> None:
    """There is no connection yet."""
