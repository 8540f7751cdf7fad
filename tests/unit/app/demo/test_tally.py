"""Counts and rates of the demo."""

from itertools import pairwise

from shardbus.demo.tally import SAMPLES_MAX, WAVE_S, Counts, Rate, orders_due


def test_counts_are_added_member_by_member() -> None:
    assert Counts(1, 2, 3, 4, 5, 6, 7) + Counts(sent=10, delivered=10) == Counts(
        11, 2, 3, 4, 5, 6, 17
    )


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()

    assert rate.add(0.0, 1_000) == 0.0
    assert rate.add(1.0, 1_010) == 10.0
    assert [rate.add(float(second), 1_010) for second in range(2, 60)][-1] == 0.0


def test_a_total_that_was_set_back_is_no_negative_rate() -> None:
    rate = Rate()
    rate.add(0.0, 500)

    assert rate.add(1.0, 3) == 0.0
    assert rate.add(2.0, 5) == 2.0


def test_a_rate_that_is_asked_often_keeps_a_bounded_number_of_samples() -> None:
    rate = Rate()

    shown = [rate.add(second / 1_000, second) for second in range(10 * SAMPLES_MAX)]

    assert round(shown[-1]) == 1_000


def test_orders_come_in_waves_around_their_mean_rate() -> None:
    assert orders_due(0.0, 20) == 0
    assert orders_due(10 * WAVE_S, 20) == int(10 * WAVE_S * 20)
    due = [orders_due(float(second), 20) for second in range(81)]
    steps = [after - before for before, after in pairwise(due)]
    assert min(steps) < 10 and max(steps) > 30
