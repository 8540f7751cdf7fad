"""What one broker decides about its lease, the others and its commits, call by call."""

from shardbus.core.cluster.decision import (
    Alarm,
    Confirm,
    Drop,
    End,
    Reconnect,
    Resend,
    Resume,
    Serve,
    Settled,
    Stop,
)
from shardbus.core.cluster.rows import JOIN_BITS, NOBODY, SlotRow, Taken, raised
from shardbus.core.cluster.shares import ranked
from shardbus.core.cluster.statement import Beat, Bury, Join, Take
from shardbus.core.cluster.terms import BEAT_MS, SILENCE_MS
from shardbus.core.message import NEVER_MS
from tests.unit.core.keeper_desk import ME, OTHER, Desk


def test_a_broker_that_is_alone_takes_everything() -> None:
    desk = Desk().join().take()

    assert [(serve.slot, serve.epoch, serve.must_load) for serve in desk.all(Serve)] == [
        (0, 1, True),
        (1, 1, True),
    ]
    assert desk.serves(0) and desk.serves(1)
    assert desk.keeper.incarnation == ME


def test_four_slots_are_taken_at_a_time() -> None:
    desk = Desk(slots=10).join()
    assert [take.slot for take in desk.asked(Take)] == [0, 1, 2, 3]

    [first, *_] = desk.asked(Take)
    desk.note(desk.keeper.answered(first, Taken(1, 0, None), desk.now_ms))
    assert [take.slot for take in desk.asked(Take)] == [4]


def test_a_slot_that_somebody_else_took_is_left_alone() -> None:
    desk = Desk().join()
    [first, second] = desk.asked(Take)
    desk.add("b")
    desk.slots[0] = SlotRow(0, 1, 0, "b", OTHER)

    desk.note(desk.keeper.answered(first, False, desk.now_ms))
    desk.note(desk.keeper.answered(second, Taken(1, 0, None), desk.now_ms))
    desk.slots[1] = SlotRow(1, 1, 0, "a", ME)
    desk.beat()

    assert not desk.serves(0) and desk.serves(1)
    assert not desk.asked(Take)


# The lease.


def test_a_lease_counts_from_the_sending_of_the_beat() -> None:
    desk = Desk().join().take()
    desk.now_ms += 1_000
    desk.note(desk.keeper.tick(desk.now_ms))
    desk.answer(after_ms=1_500)

    desk.now_ms += 1_499
    assert desk.serves()
    desk.now_ms += 1
    assert not desk.serves()


def test_who_cannot_beat_stops_and_goes_on_when_its_slots_are_still_its_own() -> None:
    desk = Desk().join().take()
    desk.break_up()
    assert desk.serves()

    desk.now_ms += 3_000
    assert not desk.serves()
    assert desk.keeper.next_ms() <= desk.now_ms
    desk.note(desk.keeper.tick(desk.now_ms))
    assert [stop.slot for stop in desk.all(Stop)] == [0, 1]
    assert desk.keeper.next_ms() == NEVER_MS

    desk.now_ms += 60_000
    desk.reconnect()
    assert [resume.slot for resume in desk.all(Resume)] == [0, 1]
    assert desk.serves(0) and not desk.asked(Take)


def test_a_slot_that_was_taken_over_meanwhile_is_dropped() -> None:
    desk = Desk().join().take()
    desk.break_up()
    desk.now_ms += 3_000
    desk.add("b")
    desk.slots[0] = SlotRow(0, 2, 0, "b", OTHER)
    desk.reconnect()

    assert [drop.slot for drop in desk.all(Drop)] == [0]
    assert not desk.serves(0) and desk.serves(1)


def test_a_beat_that_is_not_answered_ends_the_connection() -> None:
    desk = Desk().join().take()
    desk.now_ms += 1_000
    desk.note(desk.keeper.tick(desk.now_ms))
    desk.now_ms += 2_999
    desk.note(desk.keeper.tick(desk.now_ms))
    assert not desk.all(Reconnect)

    desk.now_ms += 1
    assert desk.keeper.next_ms() == desk.now_ms
    desk.note(desk.keeper.tick(desk.now_ms))
    assert desk.all(Reconnect)


def test_who_was_declared_dead_forgets_its_slots_and_joins_again() -> None:
    desk = Desk().join().take()
    del desk.members["a"]
    desk.beat()

    assert [drop.slot for drop in desk.all(Drop)] == [0, 1]
    assert not desk.serves(0)
    [joining] = desk.asked(Join)
    assert (joining.incarnation, joining.seen) == (ME + 1, NOBODY)


def test_who_has_lost_its_name_to_another_process_ends() -> None:
    desk = Desk().join().take()
    desk.add("a", incarnation=5 << JOIN_BITS | 1)
    desk.beat()

    assert [alarm.kind for alarm in desk.all(Alarm)] == ["name taken"]
    assert len(desk.all(Drop)) == 2
    assert desk.all(End)
    assert not desk.asked(Join)


def test_a_new_life_takes_the_slots_of_its_name_at_once() -> None:
    desk = Desk()
    desk.add("a", incarnation=5 << JOIN_BITS | 1)
    desk.add("b")
    desk.slots = {
        0: SlotRow(0, 3, 8, "a", 5 << JOIN_BITS | 1),
        1: SlotRow(1, 3, 8, "b", OTHER),
    }
    desk.join()

    assert [(take.slot, take.epoch) for take in desk.asked(Take)] == [(0, 3)]


# Who is dead.


def watched(desk: Desk, beats: int) -> list[Bury]:
    buried: list[Bury] = []
    for _ in range(beats):
        desk.beat()
        buried += desk.asked(Bury)
    return buried


def test_a_counter_that_stands_for_five_seconds_is_that_of_a_dead_member() -> None:
    desk = Desk()
    desk.add("b", beat=7)
    desk.join()

    assert watched(desk, 4) == []
    [bury] = watched(desk, 1)
    assert (bury.name, bury.incarnation, bury.beat) == ("b", OTHER, 7)


def test_who_does_not_move_is_looked_at_again_as_soon_as_that_is_death() -> None:
    desk = Desk()
    desk.join()
    desk.add("b", beat=8)
    desk.now_ms += 1_000
    desk.note(desk.keeper.tick(desk.now_ms))
    desk.answer(after_ms=300)
    seen_ms = desk.now_ms
    for _ in range(SILENCE_MS // BEAT_MS + 1):
        desk.now_ms = desk.keeper.next_ms()
        desk.note(desk.keeper.tick(desk.now_ms))
        desk.answer()
        if desk.asked(Bury):
            break

    assert desk.now_ms - seen_ms == SILENCE_MS


def test_a_counter_that_moves_is_watched_from_then_on() -> None:
    desk = Desk()
    desk.add("b", beat=7)
    desk.join()
    assert watched(desk, 4) == []
    desk.add("b", beat=8)

    assert watched(desk, 5) == []
    assert len(watched(desk, 1)) == 1


def test_a_new_connection_watches_anew() -> None:
    desk = Desk()
    desk.add("b", beat=7)
    desk.join()
    assert watched(desk, 4) == []
    desk.break_up().reconnect()

    assert watched(desk, 4) == []
    assert len(watched(desk, 1)) == 1


def test_who_could_not_beat_itself_watches_anew() -> None:
    desk = Desk()
    desk.add("b", beat=7)
    desk.join()
    desk.now_ms += 1_000
    desk.note(desk.keeper.tick(desk.now_ms))
    desk.answer(after_ms=9_000).beat()

    assert not desk.asked(Bury)


def test_a_free_slot_is_taken_at_once_by_the_first_and_later_by_the_others() -> None:
    """Each waits a beat for everyone who comes before."""
    ranks: set[int] = set()
    for number in range(12):
        desk = Desk(slots=1)
        others = {f"{name}{number}": (ord(name) << JOIN_BITS) + 1 for name in "bc"}
        for name, incarnation in others.items():
            desk.add(name, incarnation)
        desk.join()
        beats = 0
        while not desk.asked(Take):
            beats += 1
            for name, incarnation in others.items():
                desk.add(name, incarnation, beats)
            desk.beat()
        assert beats == ranked(0, "", dict.fromkeys(["a", *others], 0), 1).index("a")
        ranks.add(beats)

    assert ranks == {0, 1, 2}


# Commits whose answers are lost.


def test_a_commit_has_the_next_number_and_only_one_is_under_way() -> None:
    desk = Desk().join().take(commits=10)
    fence = desk.keeper.commit(0, desk.now_ms)

    assert fence is not None
    assert (fence.epoch, fence.incarnation, fence.number) == (1, ME, 11)
    assert desk.keeper.commit(0, desk.now_ms) is None
    desk.note(desk.keeper.committed(fence, True))
    again = desk.keeper.commit(0, desk.now_ms)
    assert again is not None and again.number == 12


def test_a_fenced_commit_ends_the_slot() -> None:
    desk = Desk().join().take()
    fence = desk.keeper.commit(0, desk.now_ms)
    assert fence is not None
    desk.note(desk.keeper.committed(fence, False))

    assert [drop.slot for drop in desk.all(Drop)] == [0]
    assert not desk.serves(0)


def unsure() -> Desk:
    """Slot 0 has 10 commits; the answer to the eleventh was lost."""
    desk = Desk().join().take(commits=10)
    for slot in desk.slots:
        desk.slots[slot] = SlotRow(slot, 1, 10, "a", ME)
    assert desk.keeper.commit(0, desk.now_ms) is not None
    desk.break_up()
    assert not desk.serves(0) and desk.serves(1)
    desk.reconnect()
    assert [(take.slot, take.epoch) for take in desk.asked(Take)] == [(0, 1)]
    return desk


def test_a_lost_answer_to_a_stored_commit_is_success() -> None:
    desk = unsure().take(commits=11)

    assert [confirm.slot for confirm in desk.all(Confirm)] == [0]
    assert [serve.must_load for serve in desk.all(Serve)] == [False]
    assert desk.keeper.fence(0).number == 12


def test_a_commit_that_is_not_stored_is_sent_again_with_the_new_epoch() -> None:
    desk = unsure().take(commits=10)

    assert [resend.slot for resend in desk.all(Resend)] == [0]
    fence = desk.keeper.fence(0)
    assert (fence.epoch, fence.number) == (2, 11)
    assert desk.keeper.commit(0, desk.now_ms) is None


def test_fewer_commits_than_were_acknowledged_are_an_alarm() -> None:
    desk = unsure().take(commits=9)

    assert [(alarm.kind, alarm.slot) for alarm in desk.all(Alarm)] == [("commits lost", 0)]
    assert [serve.must_load for serve in desk.all(Serve)] == [True]


def test_a_commit_is_unknown_if_somebody_else_has_the_slot() -> None:
    desk = Desk().join().take()
    assert desk.keeper.commit(0, desk.now_ms) is not None
    desk.break_up()
    desk.slots[0] = SlotRow(0, 2, 0, "b", OTHER)
    desk.reconnect()

    assert [drop.slot for drop in desk.all(Drop)] == [0]
    assert not desk.all(Confirm) and not desk.all(Resend)


def test_nothing_is_committed_over_a_new_connection_before_a_beat() -> None:
    desk = Desk().join().take()
    desk.break_up()
    desk.note(desk.keeper.connected(desk.now_ms))
    assert desk.keeper.commit(0, desk.now_ms) is None

    desk.answer()
    assert desk.keeper.commit(0, desk.now_ms) is not None


def test_a_view_from_before_a_take_is_not_believed() -> None:
    """The beat saw the row, then the slot was taken, and then the beat was answered."""
    desk = Desk().join()
    takes = desk.asked(Take)
    view = desk.view()
    desk.now_ms += 1_000
    desk.note(desk.keeper.tick(desk.now_ms))
    [beat] = desk.asked(Beat)
    for take in takes:
        desk.keeper.answered(take, Taken(1, 0, None), desk.now_ms)
    desk.note(desk.keeper.answered(beat, view, desk.now_ms))

    assert not desk.all(Drop)
    assert desk.serves(0) and desk.serves(1)


# Timelines and clusters.


def test_a_lower_timeline_is_refused() -> None:
    desk = Desk(timeline=2)
    desk.note(desk.keeper.connected(desk.now_ms))
    desk.answer()

    assert [alarm.kind for alarm in desk.all(Alarm)] == ["old timeline"]
    assert desk.all(Reconnect) and not desk.asked(Join)


def test_another_cluster_is_refused() -> None:
    desk = Desk()
    desk.cluster_id = "c2"
    desk.note(desk.keeper.connected(desk.now_ms))
    desk.answer()

    assert [alarm.kind for alarm in desk.all(Alarm)] == ["other cluster"]
    assert desk.all(Reconnect) and not desk.asked(Join)


def test_on_a_new_timeline_who_kept_its_lease_goes_on() -> None:
    desk = Desk().join().take()
    desk.break_up()
    desk.timeline = 2
    desk.now_ms += 1_000
    desk.reconnect()

    assert [alarm.kind for alarm in desk.all(Alarm)] == ["new timeline"]
    assert desk.serves(0) and desk.serves(1)


def test_on_a_new_timeline_who_lost_its_lease_waits() -> None:
    desk = Desk().join().take()
    desk.break_up()
    desk.timeline = 2
    desk.now_ms += 10_000
    desk.reconnect()

    for _ in range(5):
        assert not desk.serves(0) and not desk.asked(Take)
        desk.beat()
    assert [settled.timeline for settled in desk.all(Settled)] == [2]
    assert [resume.slot for resume in desk.all(Resume)] == [0, 1]
    assert desk.serves(0) and desk.serves(1)


def test_nothing_is_taken_in_the_first_seconds_of_a_timeline() -> None:
    desk = Desk()
    desk.timeline = 2
    desk.join()

    for _ in range(5):
        assert not desk.asked(Take)
        desk.beat()
    assert len(desk.asked(Take)) == 2


def test_a_slot_that_went_back_to_an_owner_before_is_told_as_lost() -> None:
    desk = Desk().join().take().commit().beat()
    desk.break_up()
    desk.timeline = 2
    desk.slots[0] = SlotRow(0, 0, 0, "b", OTHER)
    desk.reconnect()

    assert ("commits lost", 0) in [(alarm.kind, alarm.slot) for alarm in desk.all(Alarm)]
    assert [drop.slot for drop in desk.all(Drop)] == [0]


def test_a_slot_that_came_to_us_on_a_new_timeline_is_not_the_one_that_we_had() -> None:
    """A failover lost our take; then the owner before gave us the slot, with commits of its own."""
    desk = Desk(slots=1).join().take(data=b"before").commit().beat()
    desk.break_up()
    desk.timeline = 2
    desk.slots[0] = SlotRow(0, raised(0, 2), 1, "a", ME)
    desk.reconnect()
    assert [drop.slot for drop in desk.all(Drop)] == [0]

    for _ in range(5):
        assert not desk.serves(0)
        desk.beat()
    desk.take(commits=1, data=b"after")
    assert [(serve.must_load, serve.data) for serve in desk.all(Serve)] == [(True, b"after")]


def test_no_two_timelines_have_an_epoch_in_common() -> None:
    assert raised(5, 1) == 6
    assert raised(5, 2) == 1 << 32
    assert raised(1 << 32, 2) == (1 << 32) + 1
    assert raised((1 << 32) + 7, 3) == 2 << 32
