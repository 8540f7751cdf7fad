"""A gateway over brokers of other processes, before it serves."""

from shardbus.app.server.cluster import TURN_S_MAX, in_turn
from shardbus.broker.remote.catalogue_answerer import TURN_MS_MAX, TURN_TAKEN_TEXT, TURN_WAIT_MS
from shardbus.core.errors import Unavailable
from tests.simulation.world import VirtualLoop
from tests.support.refusals import unavailability


class Recovery:
    """Fails so often, each time after as long as the door lets one wait."""

    def __init__(self, loop: VirtualLoop, failures: int, reason: str) -> None:
        self.tries = 0
        self._loop = loop
        self._failures = failures
        self._reason = reason

    async def recover(self) -> None:
        self.tries += 1
        if self.tries <= self._failures:
            await self._wait()
            raise Unavailable(self._reason)

    async def _wait(self) -> None:
        waited = self._loop.create_future()
        self._loop.call_later(TURN_WAIT_MS / 1000, waited.set_result, None)
        await waited


def play(failures: int, reason: str = TURN_TAKEN_TEXT) -> int:
    loop = VirtualLoop()
    recovery = Recovery(loop, failures, reason)
    try:
        loop.finish(loop.create_task(in_turn(recovery.recover)))
    finally:
        tries = recovery.tries
    return tries


def test_a_gateway_that_starts_waits_until_another_has_finished_its_turn() -> None:
    turns = TURN_MS_MAX // TURN_WAIT_MS

    assert play(turns) == turns + 1


def test_it_does_not_wait_for_ever() -> None:
    with unavailability():
        play(int(TURN_S_MAX * 1000 / TURN_WAIT_MS) + 1)


def test_what_waiting_does_not_mend_is_said_at_once() -> None:
    with unavailability():
        play(1, "The catalogue cannot be read: the disk is gone")
