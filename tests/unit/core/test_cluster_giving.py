"""What one broker decides about slots that it gives away, call by call."""

from shardbus.core.cluster.decision import (
    Drain,
    Drop,
    End,
    Resume,
    Serve,
)
from shardbus.core.cluster.rows import NOBODY, MemberRow, SlotRow
from shardbus.core.cluster.statement import Beat, Give, Leave, Take
from shardbus.core.cluster.terms import CALM_BEATS
from tests.unit.core.keeper_desk import ME, OTHER, Desk


def two(slots: int = 4) -> Desk:
    """We have all slots, and another member has just come."""
    desk = Desk(slots=slots).join().take()
    desk.add("b")
    return desk


def calm(desk: Desk) -> Desk:
    """Beats until slots are moved."""
    for _ in range(CALM_BEATS + 3):
        other = desk.members["b"]
        desk.add("b", other.incarnation, other.beat + 1)
        desk.beat()
        if desk.all(Drain):
            return desk
    raise AssertionError("nothing is given away")


def test_a_new_member_is_given_its_share() -> None:
    desk = calm(two())
    drains = [drain.slot for drain in desk.all(Drain)]
    assert len(drains) == 2
    assert not any(desk.serves(slot) for slot in drains)

    desk.note(desk.keeper.drained(drains[0], b"locks", desk.now_ms))
    [give] = desk.asked(Give)
    assert (give.slot, give.to, give.to_incarnation, give.data) == (
        drains[0],
        "b",
        OTHER,
        b"locks",
    )
    desk.note(desk.keeper.answered(give, True, desk.now_ms))
    assert [drop.slot for drop in desk.all(Drop)] == [drains[0]]


def test_a_drained_slot_still_stores_what_is_under_way() -> None:
    desk = calm(two())
    slot = desk.all(Drain)[0].slot

    assert desk.keeper.commit(slot, desk.now_ms) is not None


def test_a_taker_that_is_gone_gets_nothing() -> None:
    desk = calm(two())
    slot = desk.all(Drain)[0].slot
    del desk.members["b"]
    desk.beat()
    desk.note(desk.keeper.drained(slot, b"", desk.now_ms))

    assert not desk.asked(Give)
    assert [resume.slot for resume in desk.all(Resume)] == [slot]
    assert desk.serves(slot)


def test_a_hand_over_whose_answer_is_lost_is_fenced_before_the_slot_is_served() -> None:
    """Else it could take effect later, with locks as they were then."""
    desk = calm(two())
    slot = desk.all(Drain)[0].slot
    desk.note(desk.keeper.drained(slot, b"", desk.now_ms))
    desk.break_up().reconnect()

    assert not desk.serves(slot)
    assert [take.slot for take in desk.asked(Take)] == [slot]
    desk.take()
    assert [(serve.slot, serve.must_load) for serve in desk.all(Serve)] == [(slot, False)]
    assert desk.serves(slot)


def test_what_was_handed_over_is_used_once() -> None:
    desk = Desk(slots=1).join().take(data=b"locks")
    assert [serve.data for serve in desk.all(Serve)] == [b"locks"]
    fence = desk.keeper.commit(0, desk.now_ms)
    assert fence is not None
    desk.note(desk.keeper.committed(fence, False))
    assert len(desk.all(Drop)) == 1

    desk.beat().take(data=b"locks")
    assert [serve.data for serve in desk.all(Serve)] == [None]


def test_a_slot_that_comes_back_brings_its_locks() -> None:
    desk = calm(two(slots=2))
    slot = desk.all(Drain)[0].slot
    desk.note(desk.keeper.drained(slot, b"", desk.now_ms))
    [give] = desk.asked(Give)
    desk.slots[slot] = give.changed(desk.slots[slot])
    desk.note(desk.keeper.answered(give, True, desk.now_ms))
    desk.slots[slot] = SlotRow(slot, 4, 0, "a", ME)
    desk.beat().take(data=b"more")

    assert [serve.data for serve in desk.all(Serve)] == [b"more"]


def test_who_leaves_gives_everything_away_and_says_so() -> None:
    desk = two(slots=2).beat()
    desk.note(desk.keeper.stop(desk.now_ms))
    drains = [drain.slot for drain in desk.all(Drain)]
    assert drains == [0, 1]
    for slot in drains:
        desk.note(desk.keeper.drained(slot, b"", desk.now_ms))
        [give] = desk.asked(Give)
        assert give.to == "b"
        desk.slots[slot] = give.changed(desk.slots[slot])
        desk.note(desk.keeper.answered(give, True, desk.now_ms))
    desk.now_ms += 1
    desk.note(desk.keeper.tick(desk.now_ms))
    [beat] = desk.asked(Beat)
    assert beat.is_leaving
    desk.answer()
    [leave] = desk.asked(Leave)
    desk.note(desk.keeper.answered(leave, True, desk.now_ms))
    assert desk.all(End)


def test_the_last_who_leaves_gives_its_slots_to_nobody() -> None:
    desk = Desk(slots=1).join().take().beat()
    desk.note(desk.keeper.stop(desk.now_ms))
    desk.note(desk.keeper.drained(0, b"locks", desk.now_ms))

    [give] = desk.asked(Give)
    assert (give.to, give.to_incarnation, give.data) == ("a", NOBODY, b"locks")


def test_who_leaves_is_given_nothing() -> None:
    desk = two()
    for beat in range(6):
        desk.members["b"] = MemberRow("b", OTHER, beat, True, 0)
        desk.beat()
        assert not desk.all(Drain)
