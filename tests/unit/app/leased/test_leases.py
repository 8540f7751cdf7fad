"""Who may work on a leased document of a cluster, and who may take it."""

from dataclasses import replace

from shardbus.app.leased.leases import DEAD_S, FENCE_S, LOOK_S, Leases
from shardbus.stores.base.leased import LeasedHead

HELD_MAX = 8
FREE = LeasedHead("archive", "run", "", 4, 0)
THEIRS = replace(FREE, owner="b/1", beat=7)


def test_one_that_nobody_has_is_taken_if_it_is_to_run() -> None:
    leases = Leases("a/1", HELD_MAX)
    leases.see([FREE], 0.0)

    assert leases.takeable([FREE], ("run",), 0.0) == FREE
    assert leases.takeable([replace(FREE, intent="rest")], ("run",), 0.0) is None


def test_a_dead_owner_is_observed_by_a_counter_that_stands() -> None:
    """R41"""
    leases = Leases("a/1", HELD_MAX)
    leases.see([THEIRS], 0.0)
    beaten = replace(THEIRS, beat=8)
    leases.see([beaten], DEAD_S - 1)

    leases.see([beaten], DEAD_S + 1)
    assert leases.takeable([beaten], ("run",), DEAD_S + 1) is None
    leases.see([beaten], 2 * DEAD_S)
    assert leases.takeable([beaten], ("run",), 2 * DEAD_S) == beaten


def test_a_database_that_was_away_makes_nobody_dead() -> None:
    leases = Leases("a/1", HELD_MAX)
    leases.see([THEIRS], 0.0)
    leases.disconnected()

    leases.see([THEIRS], 2 * DEAD_S)

    assert leases.takeable([THEIRS], ("run",), 2 * DEAD_S) is None


def test_who_cannot_beat_ends_before_another_may_take() -> None:
    """R40: counted from when the beat was sent, because that is when the counter was raised."""
    leases = Leases("a/1", HELD_MAX)
    leases.taken("archive", 5, 0.0)
    leases.beaten("archive", 2.0)

    assert leases.expired(2.0 + FENCE_S - 0.1) == []
    assert leases.expired(2.0 + FENCE_S) == ["archive"]
    assert FENCE_S + 2 * LOOK_S < DEAD_S


def test_what_another_has_taken_is_lost() -> None:
    leases = Leases("a/1", HELD_MAX)
    leases.taken("archive", 5, 0.0)
    mine = replace(FREE, owner="a/1", epoch=5)

    assert leases.see([mine], 1.0) == []
    assert leases.see([replace(mine, epoch=6)], 2.0) == ["archive"]
    assert leases.see([replace(mine, owner="b/1")], 3.0) == ["archive"]
    assert leases.see([], 4.0) == ["archive"]


def test_who_has_more_waits_longer_and_there_is_an_end() -> None:
    leases = Leases("a/1", HELD_MAX)
    leases.taken("other", 1, 0.0)
    leases.see([FREE], 0.0)
    assert leases.takeable([FREE], ("run",), 0.0) is None
    assert leases.takeable([FREE], ("run",), LOOK_S) == FREE

    for number in range(HELD_MAX):
        leases.taken(f"other-{number}", 1, 0.0)
    assert leases.takeable([FREE], ("run",), 1_000.0) is None
