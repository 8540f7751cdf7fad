"""What a runner does when somebody sets the wall clock: alarms neither ring early nor oversleep."""

import pytest

from shardbus.broker.fragment.alarm import LOOK_MS_MAX, Alarm
from shardbus.core.message import MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import COMPLETE, Send, Settled
from tests.unit.broker.house import House, payloads_of, send_of
from tests.unit.core.desk import LOCK_MS

HOUR_MS = 3_600_000
LOOK_S = LOOK_MS_MAX / 1000

forward_and_back = pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])


def scheduled(house: House, in_ms: int) -> Send:
    return Send([Message(b"a", scheduled_at_ms=house.clock.now_ms() + in_ms)])


@forward_and_back
def test_a_lock_is_kept_by_its_receiver_and_lost_by_a_dead_one(house: House, by_ms: int) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"kept", b"left"))
    kept, _ = house.receive(runner, 2)

    house.clock.wall.ahead_ms += by_ms
    house.pass_s(LOCK_MS / 1000 - 2)
    answer = house.settle(runner, COMPLETE, kept)
    assert isinstance(answer, Settled) and answer.lost == [False]

    house.pass_s(3)
    [again] = house.receive(runner)
    assert (again.payload, again.delivery_count) == (b"left", 1)


def test_a_lock_ends_although_nobody_asks_and_the_clock_was_set_back(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.receive(runner)
    woken: list[float] = []
    runner.watch(MAIN_LINE, lambda: woken.append(house.loop.time()))
    started_s = house.loop.time()

    house.clock.wall.ahead_ms -= HOUR_MS
    house.pass_s(2 * LOCK_MS / 1000)

    [woken_s] = woken
    assert woken_s - started_s <= LOCK_MS / 1000 + 1


def test_what_a_jump_forward_makes_due_is_due_within_a_bound(house: House) -> None:
    runner = house.runner()
    house.answer(runner, scheduled(house, HOUR_MS))
    house.pass_s(1)

    house.clock.wall.ahead_ms += HOUR_MS
    house.pass_s(LOOK_S + 1)

    assert payloads_of(house.receive(runner)) == [b"a"]


def test_an_alarm_that_was_set_in_a_wrong_moment_does_not_oversleep(house: House) -> None:
    """The clock is an hour behind for half a second, in which the alarm is set."""
    runner = house.runner()
    send = scheduled(house, 30_000)
    house.clock.wall.ahead_ms -= HOUR_MS
    house.answer(runner, send)
    house.pass_s(0.5)

    house.clock.wall.ahead_ms += HOUR_MS
    house.pass_s(30 + LOOK_S)

    assert payloads_of(house.receive(runner)) == [b"a"]


def test_what_is_due_later_after_a_jump_back_waits_for_its_moment(house: House) -> None:
    runner = house.runner()
    house.answer(runner, scheduled(house, 30_000))

    house.clock.wall.ahead_ms -= 60_000
    house.pass_s(80)
    assert house.receive(runner) == []

    house.pass_s(10 + LOOK_S)
    assert payloads_of(house.receive(runner)) == [b"a"]


def test_an_alarm_for_a_deadline_alone_looks_at_nothing_before(house: House) -> None:
    rung: list[float] = []
    alarm = Alarm(house.clock, house.loop, lambda: rung.append(house.loop.time()))
    started_s = house.loop.time()
    alarm.set(NEVER_MS, house.clock.steady_ms() + HOUR_MS)

    house.clock.wall.ahead_ms += HOUR_MS
    house.pass_s(HOUR_MS / 1000 - 1)
    assert rung == []

    house.pass_s(2)
    [rung_s] = rung
    assert rung_s - started_s == pytest.approx(HOUR_MS / 1000, abs=0.01)


def test_a_cancelled_alarm_never_rings(house: House) -> None:
    rung: list[int] = []
    alarm = Alarm(house.clock, house.loop, lambda: rung.append(1))
    alarm.set(house.clock.now_ms() + 1_000, house.clock.steady_ms() + 2_000)

    alarm.cancel()
    house.pass_s(2 * LOOK_S)

    assert rung == []
