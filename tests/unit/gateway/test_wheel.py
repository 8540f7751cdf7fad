"""One timer for many: everybody is looked at in time, and nobody who has left."""

import asyncio
from itertools import pairwise

from shardbus.gateway.listening.wheel import NEVER, SLOT_MS, SLOTS, Wheel
from tests.simulation.world import VirtualLoop

TURN_MS = SLOT_MS * SLOTS


class Rider:
    """Notes when it is looked at, and asks for the next of these delays."""

    def __init__(self, *delays_ms: int) -> None:
        self.looks_ms: list[int] = []
        self._delays_ms = list(delays_ms)

    def look(self, now_ms: int) -> int:
        self.looks_ms.append(now_ms)
        return self._delays_ms.pop(0) if self._delays_ms else NEVER


def pass_ms(loop: VirtualLoop, delay_ms: int) -> None:
    loop.run_until_complete(asyncio.sleep(delay_ms / 1000))


def test_a_rider_is_looked_at_within_a_slot_of_its_time() -> None:
    loop = VirtualLoop()
    wheel, riders = Wheel(loop), {}
    for delay_ms in (0, 1, SLOT_MS, 1_000, 20_000, TURN_MS - 2 * SLOT_MS):
        riders[delay_ms] = Rider()
        wheel.put(riders[delay_ms], delay_ms)

    pass_ms(loop, TURN_MS + SLOT_MS)

    for delay_ms, rider in riders.items():
        [look_ms] = rider.looks_ms
        assert abs(look_ms - delay_ms) <= SLOT_MS + 1
    assert len(wheel) == 0
    loop.close()


def test_who_wants_to_wait_longer_than_a_turn_is_asked_in_between() -> None:
    loop = VirtualLoop()
    wheel, rider = Wheel(loop), Rider()
    wheel.put(rider, 10 * TURN_MS)

    pass_ms(loop, TURN_MS + SLOT_MS)

    assert len(rider.looks_ms) == 1
    loop.close()


def test_a_rider_says_when_to_look_again() -> None:
    loop = VirtualLoop()
    wheel, rider = Wheel(loop), Rider(1_000, 5_000)
    wheel.put(rider, 1_000)

    pass_ms(loop, 20_000)

    gaps = [later - sooner for sooner, later in pairwise(rider.looks_ms)]
    assert [round(gap / 1_000) for gap in gaps] == [1, 5]
    loop.close()


def test_only_the_last_time_that_was_asked_for_counts() -> None:
    loop = VirtualLoop()
    wheel, rider = Wheel(loop), Rider()
    wheel.put(rider, 1_000)
    wheel.put(rider, 10_000)

    pass_ms(loop, 20_000)

    [look_ms] = rider.looks_ms
    assert look_ms >= 10_000
    loop.close()


def test_who_was_removed_is_not_looked_at_and_an_empty_wheel_stands_still() -> None:
    loop = VirtualLoop()
    wheel, rider = Wheel(loop), Rider()
    wheel.put(rider, 1_000)
    wheel.remove(rider)
    wheel.remove(rider)

    pass_ms(loop, 5_000)

    assert rider.looks_ms == []
    assert len(wheel) == 0
    wheel.put(rider, 1_000)
    pass_ms(loop, 2_000)
    assert len(rider.looks_ms) == 1
    loop.close()
