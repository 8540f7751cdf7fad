"""Who should have which slot."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.core.cluster.shares import cap, moves, ranked

NAMES = ["a", "b", "c", "d"]


@pytest.mark.parametrize(("slots", "members", "most"), [(32, 3, 11), (32, 4, 8), (1, 5, 1)])
def test_nobody_has_more_than_a_fair_share(slots: int, members: int, most: int) -> None:
    assert cap(slots, members) == most


def test_the_owner_before_comes_first_in_a_new_life() -> None:
    for slot in range(20):
        assert ranked(slot, "c", dict.fromkeys(NAMES, 0), 5)[0] == "c"


def test_who_has_enough_is_left_out() -> None:
    assert "a" not in ranked(1, "a", {"a": 5, "b": 4}, 5)


def test_slots_are_spread_over_the_members() -> None:
    firsts = Counter(ranked(slot, "", dict.fromkeys(NAMES, 0), 999)[0] for slot in range(400))

    assert all(60 < firsts[name] < 140 for name in NAMES)


def test_a_member_that_goes_changes_the_order_of_no_others() -> None:
    for slot in range(50):
        order = ranked(slot, "", dict.fromkeys(NAMES, 0), 5)
        without = ranked(slot, "", {"a": 0, "b": 0, "d": 0}, 5)
        assert without == [name for name in order if name != "c"]


@given(
    owners=st.dictionaries(st.integers(0, 63), st.sampled_from(NAMES), max_size=40),
    names=st.sets(st.sampled_from(NAMES), min_size=1).map(sorted),
)
def test_moves_make_shares_even_and_move_nothing_in_vain(
    owners: dict[int, str], names: list[str]
) -> None:
    owners = {slot: owner for slot, owner in owners.items() if owner in names}
    planned = moves(owners, names)
    for move in planned:
        assert owners[move.slot] == move.giver != move.taker
        owners[move.slot] = move.taker

    counts = [list(owners.values()).count(name) for name in names]
    assert max(counts) - min(counts) <= 1
    assert len({move.slot for move in planned}) == len(planned)
    assert not moves(owners, names)
