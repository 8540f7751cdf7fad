"""A wall clock that is set ends nothing that lasts, and makes nothing last longer (D14)."""

import pytest

from shardbus.core.errors import READER_IN_USE, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.calendar import DUE_RETRY_MS
from shardbus.core.limits import (
    LEASE_MS_MIN,
    OWNER_MS_MAX,
    PRODUCER_KEPT_MS,
    STAGE_MS_MIN,
)
from shardbus.core.message import MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import ABANDON, COMPLETE, RELEASE, Receive, Renew, Renewed
from shardbus.core.sessions.command import RenewSession, SetState
from tests.unit.core.claims import ReadingDesk
from tests.unit.core.desk import HELD_MS, LOCK_MS, START_MS, Desk, rules
from tests.unit.core.staged import NAME, PRODUCER, StagingDesk

HOUR_MS = 3_600_000
WINDOW_MS = 20_000

forward_and_back = pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, 600_000, -600])


@forward_and_back
def test_a_lock_lasts_as_long_as_was_said(by_ms: int) -> None:
    desk = Desk()
    desk.send(b"kept", b"left")
    kept, left = desk.receive(2)

    desk.set_clock(by_ms)
    desk.wait(LOCK_MS - 1)
    assert desk.receive() == []
    assert desk.settle(COMPLETE, kept) == [False]

    desk.wait(1)
    [again] = desk.receive()
    assert (again.payload, again.delivery_count) == (left.payload, 1)


@forward_and_back
def test_a_renewed_lock_is_told_by_the_wall_clock_of_now(by_ms: int) -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()
    assert delivery.locked_until_ms == desk.now_ms + LOCK_MS

    desk.set_clock(by_ms)
    desk.wait(LOCK_MS // 2)
    renewed = desk.do(Renew([delivery.token]))

    assert isinstance(renewed, Renewed)
    assert renewed.locked_until_ms == desk.now_ms + LOCK_MS


@forward_and_back
def test_a_session_is_held_as_long_as_was_said(by_ms: int) -> None:
    desk = Desk(rules(requires_session=True))
    desk.send(b"a", session_id="s")
    held = desk.accept("s")
    assert held.locked_until_ms == desk.now_ms + LOCK_MS

    desk.set_clock(by_ms)
    desk.wait(HELD_MS - 1)
    desk.do(SetState(held.token, b"state"))
    renewed = desk.do(RenewSession(held.token))
    assert isinstance(renewed, Renewed)
    assert renewed.locked_until_ms == desk.now_ms + LOCK_MS
    received = Receive(MAIN_LINE, 1, is_locking=True, token_seed=bytes(8), session=held.token)
    desk.do(received)

    desk.set_clock(-by_ms)
    desk.wait(HELD_MS)
    assert desk.accept("s").token != held.token


@forward_and_back
def test_claims_of_a_reader_that_is_heard_are_kept_and_those_of_a_dead_one_are_lost(
    by_ms: int,
) -> None:
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    desk.open(lease_ms=LEASE_MS_MIN)
    assert desk.claimed(1, 1).claim is not None

    desk.set_clock(by_ms)
    desk.wait(LEASE_MS_MIN - 1)
    desk.keep()
    desk.set_clock(-by_ms)
    desk.wait(LEASE_MS_MIN - 1)
    assert desk.open(lease_ms=LEASE_MS_MIN).claims

    desk.set_clock(by_ms)
    desk.wait(LEASE_MS_MIN)
    assert not desk.open(lease_ms=LEASE_MS_MIN).claims


@forward_and_back
def test_a_reader_is_in_use_for_as_long_as_its_owner_may_be_silent(by_ms: int) -> None:
    desk = ReadingDesk()
    desk.open(owner=b"one")

    desk.set_clock(by_ms)
    desk.wait(OWNER_MS_MAX - 1)
    with pytest.raises(Refused) as refused:
        desk.open(owner=b"two")
    assert refused.value.kind is READER_IN_USE

    desk.wait(1)
    desk.open(owner=b"two")
    [status] = desk.readers()
    assert status.heard_ms == desk.now_ms


@forward_and_back
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_stage_is_kept_as_long_as_was_said(is_reloaded: bool, by_ms: int) -> None:
    desk = StagingDesk()
    desk.stage(b"a", lifetime_ms=STAGE_MS_MIN)

    desk.set_clock(by_ms)
    if is_reloaded:
        desk.reload()
    desk.wait(STAGE_MS_MIN - 1)
    assert desk.held() == {NAME: 1}

    desk.wait(1)
    assert desk.held() == {}


def test_a_clock_that_is_far_ahead_forgets_no_producer() -> None:
    desk = StagingDesk(bounds=Bounds(producers_max=1))
    desk.publish(batch=1)

    desk.set_clock(2 * PRODUCER_KEPT_MS)
    with pytest.raises(Refused):
        desk.publish(producer=b"other", batch=1)
    assert desk.batches() == {PRODUCER: 1}

    desk.now_ms += PRODUCER_KEPT_MS
    desk.publish(producer=b"other", batch=1)
    assert desk.batches() == {b"other": 1}


def duplicates(desk: Desk, message_id: str) -> list[int]:
    return desk.send_all([Message(b"m", message_id=message_id)]).duplicates


@forward_and_back
def test_an_id_is_remembered_for_the_whole_window(by_ms: int) -> None:
    desk = Desk(rules(duplicate_window_ms=WINDOW_MS))
    duplicates(desk, "1")

    desk.set_clock(by_ms)
    for number in range(2_000):
        # Each send sweeps a piece of what is remembered.
        duplicates(desk, f"other {number}")
    desk.now_ms += WINDOW_MS - 1
    assert duplicates(desk, "1") == [0]

    desk.now_ms += 1
    assert duplicates(desk, "1") == []


def test_ids_from_a_clock_that_was_ahead_are_remembered_for_a_window_after_a_restart() -> None:
    desk = Desk(rules(duplicate_window_ms=WINDOW_MS))
    desk.set_clock(HOUR_MS)
    duplicates(desk, "1")
    desk.set_clock(-HOUR_MS)

    desk.reload()
    assert duplicates(desk, "1") == [0]

    desk.now_ms += WINDOW_MS
    assert duplicates(desk, "1") == []


@pytest.mark.parametrize("comes_back", ["lock ends", ABANDON, RELEASE])
def test_a_message_that_was_locked_while_the_clock_was_ahead_expires_in_its_time(
    comes_back: str | int,
) -> None:
    """Found by the simulator (moments, seed 224): nobody remembered that it was due."""
    desk = Desk()
    desk.send(b"locked", b"free", ttl_ms=LOCK_MS + 60_000)
    [locked] = desk.receive()

    desk.set_clock(HOUR_MS)
    desk.wait(1)
    assert len(desk.shelf.entries) == 1
    desk.set_clock(-HOUR_MS)
    if isinstance(comes_back, int):
        desk.settle(comes_back, locked)
    else:
        desk.wait(LOCK_MS)

    assert desk.fragment.due_at_ms() == START_MS + LOCK_MS + 60_000
    desk.wait(LOCK_MS + 60_000)
    assert desk.shelf.entries == {}


def test_whoever_looks_again_at_what_is_locked_goes_by_the_steady_clock() -> None:
    """All that a read may hold is locked, and more is due: it is read again a little later."""
    desk = Desk()
    desk.send(b"a", ttl_ms=500)
    [delivery] = desk.receive()
    desk.set_clock(HOUR_MS)
    for _ in range(2):
        assert desk.fragment.due_in([delivery.entry], [], START_MS + 500, desk.now_ms) == []

    desk.set_clock(-HOUR_MS)

    assert desk.fragment.due_at_ms() == NEVER_MS
    assert desk.fragment.deadline_ms() == desk.steady_ms + DUE_RETRY_MS
    desk.wait(DUE_RETRY_MS)
    assert list(desk.shelf.entries) == [delivery.entry.sequence_number]
    assert desk.settle(COMPLETE, delivery) == [False]
