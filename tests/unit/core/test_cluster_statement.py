"""What each statement expects of its row, and what it makes of it."""

import pytest

from shardbus.core.cluster.rows import NOBODY, MemberRow, SlotRow
from shardbus.core.cluster.statement import (
    UPDATE,
    Beat,
    Bury,
    Commit,
    Give,
    Join,
    Leave,
    MemberStatement,
    SlotStatement,
    Take,
)

ROW = SlotRow(3, 5, 10, "a", 7)


def told(row: SlotRow) -> tuple[int, int, int, str, int]:
    return row.slot, row.epoch, row.commits, row.owner, row.incarnation


def member(beat: int = 4, incarnation: int = 7) -> MemberRow:
    return MemberRow("a", incarnation, beat, False, 1_000)


def test_a_commit_counts() -> None:
    commit = Commit(3, 5, 7, 11)

    assert commit.holds(ROW)
    assert told(commit.changed(ROW)) == (3, 5, 11, "a", 7)


@pytest.mark.parametrize(
    "commit",
    [Commit(3, 4, 7, 11), Commit(3, 6, 7, 11), Commit(3, 5, 8, 11), Commit(3, 5, 7, 10)],
    ids=["epoch before", "epoch after", "incarnation", "number"],
)
def test_a_commit_is_refused_that_does_not_follow_the_last_one_of_its_owner(commit: Commit) -> None:
    assert not commit.holds(ROW)
    assert not Give(commit, "b", 8, b"").holds(ROW)


def test_a_slot_is_taken_at_the_epoch_that_was_seen() -> None:
    take = Take(3, 5, "b", 8)

    assert take.holds(ROW)
    assert told(take.changed(ROW)) == (3, 6, 10, "b", 8)
    assert not take.holds(SlotRow(3, 6, 10, "c", 9))


def test_a_slot_that_is_given_away_has_another_owner_and_epoch() -> None:
    give = Give(Commit(3, 5, 7, 11), "b", 8, b"locks")

    assert give.holds(ROW)
    assert told(give.changed(ROW)) == (3, 6, 10, "b", 8)


def test_what_was_handed_over_is_for_the_first_who_takes_the_slot() -> None:
    given = SlotRow(3, 6, 10, "b", 8)

    assert Take(3, 6, "b", 8).inherits(given, 6)
    assert Take(3, 6, "c", 9).inherits(given, 6)


def test_who_took_a_slot_and_did_not_hear_of_it_inherits_still() -> None:
    taken = SlotRow(3, 7, 10, "b", 8)

    assert Take(3, 7, "b", 8).inherits(taken, 6)
    assert not Take(3, 7, "c", 9).inherits(taken, 6)


def test_a_beat_raises_the_counter_of_its_own_incarnation() -> None:
    beat = Beat("a", 7, True)
    row = beat.changed(member(), 2_000)

    assert row is not None
    assert (row.beat, row.is_leaving, row.beat_at_ms) == (5, True, 2_000)
    assert beat.holds(member())
    assert not beat.holds(member(incarnation=8))
    assert not beat.holds(None)


def test_only_a_counter_that_did_not_move_is_buried() -> None:
    bury = Bury("a", 7, 4)

    assert bury.holds(member())
    assert not bury.holds(member(beat=5))
    assert not bury.holds(member(incarnation=8))
    assert not bury.holds(None)
    assert bury.changed(member(), 0) is None


def test_a_broker_joins_in_place_of_the_one_that_it_saw() -> None:
    assert Join("a", 8, 7).holds(member())
    assert not Join("a", 8, 6).holds(member())
    assert not Join("a", 8, NOBODY).holds(member())
    assert Join("a", 8, NOBODY).holds(None)
    assert not Join("a", 8, 7).holds(None)
    row = Join("a", 8, 7).changed(member(), 0)
    assert row is not None
    assert (row.incarnation, row.beat) == (8, 0)


def test_a_member_leaves_by_its_own_incarnation() -> None:
    assert Leave("a", 7).holds(member())
    assert not Leave("a", 8).holds(member())
    assert Leave("a", 7).changed(member(), 0) is None


@pytest.mark.parametrize(
    "statement", [Commit, Take, Give, Beat, Join, Bury, Leave], ids=lambda kind: str(kind.__name__)
)
def test_every_statement_waits_for_who_changes_its_row(
    statement: type[SlotStatement] | type[MemberStatement],
) -> None:
    assert statement.LOCK == UPDATE
