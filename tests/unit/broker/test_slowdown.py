"""How wrong keys are counted by address, and what is kept about whom (R34)."""

import asyncio

import pytest

from shardbus.broker.access.slowdown import (
    DELAY_MS_MAX,
    FORGIVEN_EACH_MS,
    FREE_FAILURES,
    PEERS_MAX,
    WAITING_MAX,
    WAITING_OF_PEER_MAX,
    Slowdown,
)
from tests.unit.broker.house import House

PEER = "192.0.2.7"


def hold_all(house: House, slowdown: Slowdown, *peers: str) -> list[bool]:
    """What became of wrong keys shown at the same time."""

    async def work() -> list[bool]:
        return list(await asyncio.gather(*(slowdown.hold(peer) for peer in peers)))

    return house.loop.run_until_complete(work())


def waited_ms(house: House, slowdown: Slowdown, peer: str = PEER) -> int:
    before_ms = house.clock.now_ms()
    hold_all(house, slowdown, peer)
    return house.clock.now_ms() - before_ms


def test_the_first_failures_cost_nothing_and_later_ones_more_and_more(house: House) -> None:
    slowdown = Slowdown(house.clock)

    free = [waited_ms(house, slowdown) for _ in range(FREE_FAILURES)]
    slowed = [waited_ms(house, slowdown) for _ in range(20)]

    assert free == [0] * FREE_FAILURES
    assert slowed[:4] == [100, 200, 400, 800]
    assert max(slowed) == slowed[-1] == DELAY_MS_MAX


def test_failures_are_forgotten_with_time_alone(house: House) -> None:
    slowdown = Slowdown(house.clock)
    for _ in range(FREE_FAILURES + 1):
        waited_ms(house, slowdown)

    house.pass_s((FREE_FAILURES + 2) * FORGIVEN_EACH_MS / 1000)

    assert waited_ms(house, slowdown) == 0


def test_addresses_do_not_answer_for_each_other(house: House) -> None:
    slowdown = Slowdown(house.clock)
    hold_all(house, slowdown, *[PEER] * (FREE_FAILURES + 5))

    assert waited_ms(house, slowdown, "192.0.2.8") == 0
    assert waited_ms(house, slowdown) > 0


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_forgives_nobody_and_harms_nobody(house: House, by_ms: int) -> None:
    slowdown = Slowdown(house.clock)
    hold_all(house, slowdown, *[PEER] * (FREE_FAILURES + 5))
    before_ms = waited_ms(house, slowdown)

    house.clock.wall.ahead_ms += by_ms

    assert before_ms <= waited_ms(house, slowdown) <= DELAY_MS_MAX


def test_the_table_is_bounded_and_forgets_who_failed_longest_ago(house: House) -> None:
    slowdown = Slowdown(house.clock)
    hold_all(house, slowdown, *["first"] * (FREE_FAILURES + 3))
    hold_all(house, slowdown, *["second"] * (FREE_FAILURES + 3))

    hold_all(house, slowdown, *(str(number) for number in range(PEERS_MAX - 1)))

    assert waited_ms(house, slowdown, "second") > 0
    assert waited_ms(house, slowdown, "first") == 0


def test_few_wait_for_one_address_and_not_many_in_all(house: House) -> None:
    slowdown = Slowdown(house.clock)
    crowd = [str(number) for number in range(30)]
    for peer in crowd:
        hold_all(house, slowdown, *[peer] * FREE_FAILURES)

    one = hold_all(house, slowdown, *[PEER] * (FREE_FAILURES + 60))
    many = hold_all(house, slowdown, *crowd * 40)

    assert one.count(False) == 60 - WAITING_OF_PEER_MAX
    assert many.count(False) == 30 * 40 - WAITING_MAX
    assert slowdown.turned_away == one.count(False) + many.count(False)
    assert slowdown.waiting == 0


def test_where_the_key_is_public_failures_are_counted_and_not_slowed(house: House) -> None:
    slowdown = Slowdown(house.clock, is_on=False)

    assert waited_ms(house, slowdown) == 0
    assert all(hold_all(house, slowdown, *[PEER] * 500))
    assert slowdown.wrong_keys == 501
