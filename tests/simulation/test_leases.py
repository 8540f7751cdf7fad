"""Brokers that lease the slots of a shared database, and a database that fails in every way."""

import os
from collections import Counter
from functools import cache

import pytest

from shardbus.core.cluster.shares import cap
from shardbus.core.cluster.statement import Bury
from tests.simulation import lease_life
from tests.simulation.lease_scenario import LeaseTown, run_leases
from tests.simulation.seeds import failure_of, seeds_in
from tests.simulation.sending import Violation

# 123: a failover that lost a hand-over. 1464: one after which a slot came back to who had it.
# 3318, 3400: who slept after a failover took its name back from the process that replaced it.
FIXED = "1-24,123,1464,3318,3400"


@cache
def played(seed: int) -> LeaseTown:
    return run_leases(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_one_owner_and_nothing_lost(seed: int) -> None:
    """R40, R41."""
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_leases() -> None:
    assert played(7).digest() == run_leases(7).digest()


def test_the_fixed_histories_of_leases_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        seen.update(played(seed).events)
        seen.update(played(seed).alarms)

    for event in (
        *("killed", "paused", "frozen", "cut off", "broken link", "stopped", "joined", "twin"),
        *("clock set", "database restart", "database stall", "failover", "lossy failover"),
        *("acknowledged", "acknowledged and lost", "sent again", "handed out", "handed over"),
        *("buried", "taken", "retaken", "given", "new timeline", "commits lost"),
    ):
        assert seen[event] >= 2, f"{event}: {seen}"


# One fault at a time: what is promised of each.


def calm_town(brokers: int = 3, slots: int = 12) -> LeaseTown:
    """Brokers that have shared the slots out, and whose database is never slow."""
    town = LeaseTown(1, brokers, slots)
    town.server.is_calm = True
    for name in town.names:
        town.start(name)
    town.look()
    town.wait_until(town.is_even, 30.0, "shares are not even")
    town.agenda.run(town.agenda.now_s + 10.0)
    town.checks.most_owned = 0
    return town


def owners(town: LeaseTown) -> dict[int, list[int]]:
    return {slot: list(incarnations) for slot, incarnations in town.checks.owners.items()}


def test_slots_of_a_dead_broker_are_served_by_others_within_seconds() -> None:
    """R40: nobody takes more than a fair share, and each slot moves once."""
    town = calm_town()
    before = owners(town)
    town.database.asked.clear()

    town.alive()[0].die()
    seconds = town.wait_until(lambda: not town.unserved(), 10.0, "slots are not served")

    assert seconds > 3
    moved = [slot for slot, after in owners(town).items() if after != before[slot]]
    assert len(moved) == 4
    assert all(len(owners(town)[slot]) == len(before[slot]) + 1 for slot in moved)
    assert town.database.asked["Take"] == 4
    assert town.checks.most_owned <= cap(12, 2)
    assert town.shares() == [6, 6]
    town.finish()


def _lose(town: LeaseTown, sends: bool, hears: bool, is_dead: bool) -> float:
    """How long the slots of a broker are away that dies, or is cut off from the database."""
    victim, *others = town.alive()
    mine = [slot for slot, row in town.database.slots.items() if row.owner == victim.name]
    if is_dead:
        victim.die()
    victim.wire.carries_questions, victim.wire.carries_answers = sends, hears
    town.trouble(victim.name, 60.0)

    def are_served() -> bool:
        return all(any(each.keeper.serves(slot, each.now_ms()) for each in others) for slot in mine)

    assert mine
    return town.wait_until(are_served, 10.0, "not served")


@pytest.mark.parametrize("brokers", [2, 3, 5])
@pytest.mark.parametrize(
    ("sends", "hears", "is_dead"),
    [(True, True, True), (False, False, False), (False, True, False), (True, False, False)],
)
def test_slots_of_a_lost_broker_are_served_in_six_seconds_whenever_it_is_lost(
    brokers: int, sends: bool, hears: bool, is_dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R40: and gateways have to notice it. Whatever the phases of the beats are: the victim beats
    at another time than the others. (Clocks that run slowly, as in other histories, wait longer.)
    """
    monkeypatch.setattr(lease_life, "RATES", (1.0, 1.0))
    slowest_s = 0.0
    for phase in range(0, 5, 2):
        for moment in range(0, 5, 2):
            town = LeaseTown(1, brokers, 12)
            town.server.is_calm = True
            for number, name in enumerate(town.names):
                town.start(name)
                town.agenda.run(town.agenda.now_s + (phase / 10 if number == 0 else 0.0))
            town.wait_until(town.is_even, 30.0, "shares are not even")
            town.agenda.run(town.agenda.now_s + 5.0 + moment / 10)
            slowest_s = max(slowest_s, _lose(town, sends, hears, is_dead))

    assert slowest_s <= 5.5


def test_many_slots_of_a_dead_broker_are_shared_out_without_a_herd() -> None:
    town = calm_town(brokers=5, slots=40)

    town.alive()[0].die()
    town.wait_until(lambda: not town.unserved(), 12.0, "slots are not served")

    assert town.checks.most_owned <= cap(40, 4)
    town.finish()


def test_a_broker_that_starts_again_has_its_slots_at_once() -> None:
    town = calm_town()
    before = {slot: row.owner for slot, row in town.database.slots.items()}
    dead = town.alive()[0]

    dead.die()
    town.start(dead.name)
    town.wait_until(lambda: not town.unserved(), 2.0, "slots are not served")

    assert {slot: row.owner for slot, row in town.database.slots.items()} == before


@pytest.mark.parametrize("seconds", [0.1, 2.0, 10.0, 60.0])
def test_a_database_that_was_away_finds_every_slot_where_it_was(seconds: float) -> None:
    """R41: whoever comes back first takes nothing from the others."""
    town = calm_town()
    before = owners(town)

    town.server.go_down(seconds)
    # A connection that died without a word is given up after three seconds.
    town.agenda.run(town.agenda.now_s + seconds + 4.5)

    assert town.unserved() == []
    town.agenda.run(town.agenda.now_s + 20.0)
    assert owners(town) == before
    town.finish()


@pytest.mark.parametrize("seconds", [2.0, 10.0])
def test_a_database_that_hangs_changes_no_owner(seconds: float) -> None:
    town = calm_town()
    before = owners(town)

    town.server.stalls_until_s = town.agenda.now_s + seconds
    town.agenda.run(town.agenda.now_s + seconds + 20.0)

    assert owners(town) == before
    town.finish()


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_the_clock_of_the_database_decides_nothing(ahead_ms: int) -> None:
    town = calm_town()
    before = owners(town)

    town.wall_ahead_ms = ahead_ms
    town.agenda.run(town.agenda.now_s + 20.0)

    assert owners(town) == before
    town.finish()


@pytest.mark.parametrize("seconds", [0.1, 10.0])
def test_a_failover_that_loses_nothing_changes_no_owner(seconds: float) -> None:
    """R41."""
    town = calm_town()
    before = owners(town)

    town.server.fail_over(seconds, 0)
    town.agenda.run(town.agenda.now_s + seconds + 10.0)

    assert town.unserved() == []
    assert owners(town) == before
    assert town.alarms["commits lost"] == 0
    assert town.timeline == 2
    town.finish()


def test_commits_that_a_failover_lost_are_told() -> None:
    town = calm_town()

    town.fail_over(2.0, 30)
    town.agenda.run(town.agenda.now_s + 15.0)

    assert town.alarms["commits lost"] > 0
    town.finish()


def test_a_broker_that_sleeps_serves_nothing_when_it_wakes_and_joins_again() -> None:
    """R40."""
    town = calm_town()
    sleeper = town.alive()[0]
    mine = [slot for slot in town.database.slots if sleeper.keeper.serves(slot, sleeper.now_ms())]
    incarnation = sleeper.keeper.incarnation

    sleeper.pause(60.0, clock_stands=False)
    town.agenda.run(town.agenda.now_s + 59.0)
    assert not any(sleeper.keeper.serves(slot, sleeper.now_ms()) for slot in mine)
    assert town.unserved() == []
    town.agenda.run(town.agenda.now_s + 20.0)

    assert sleeper.keeper.incarnation not in (0, incarnation)
    assert town.shares() == [4, 4, 4]
    town.finish()


def test_a_burial_that_comes_late_hits_nobody_who_beats_again() -> None:
    town = calm_town(brokers=2, slots=2)
    before = owners(town)
    town.server.late_s[Bury] = 3.0
    town.database.asked.clear()

    town.alive()[0].pause(7.0, clock_stands=False)
    town.agenda.run(town.agenda.now_s + 30.0)

    assert town.database.asked["Bury"] > 0
    assert town.events["buried"] == 0
    assert owners(town) == before
    town.finish()


def test_a_planned_restart_of_every_broker_keeps_all_locks() -> None:
    """R40, R42: a hand-over costs no lock, and no slot is away for more than two beats."""
    town = calm_town()
    away_since: dict[int, float] = {}
    longest_s = 0.0
    for name in list(town.names):
        leaver = town.life_of(name)
        assert leaver is not None
        leaver.stop()
        for _ in range(150):
            town.agenda.run(town.agenda.now_s + 0.1)
            away = town.unserved()
            away_since = {slot: away_since.get(slot, town.agenda.now_s) for slot in away}
            waits_s = [town.agenda.now_s - since_s for since_s in away_since.values()]
            longest_s = max([longest_s, *waits_s])
        assert leaver.is_dead
        town.start(name)
        town.agenda.run(town.agenda.now_s + 15.0)

    assert longest_s <= 2.0
    assert town.events["handed over"] > 20
    assert town.events["buried"] == 0
    town.finish()


def test_two_brokers_that_serve_a_slot_are_seen() -> None:
    town = calm_town(brokers=2, slots=1)
    server, other = sorted(town.alive(), key=lambda life: not life.memories)
    other.keeper._tenures[0] = server.keeper._tenures[0]

    with pytest.raises(Violation, match="served by"):
        town.check_holders(0)
