"""Readers of entities that require sessions hold the sessions of their claims (P2)."""

import pytest

from shardbus.core.errors import SERVER_BUSY, SESSION_CANNOT_BE_LOCKED, ErrorKind, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.limits import CLAIM_PAGES_MAX, CLAIM_RUNS_PER_SESSION
from shardbus.core.message import MAIN_LINE, SESSIONS, Message
from shardbus.core.messages.command import ABANDON, COMPLETE, DEFER
from shardbus.core.readers.record import OpenClaim, pack_claim, unpack_claim
from shardbus.core.runs import runs_of
from shardbus.core.sessions.command import (
    AcceptSession,
    AskHolds,
    HoldsTold,
    NoSession,
    ReleaseSession,
    SessionAccepted,
)
from tests.unit.core.claims import ReadingDesk
from tests.unit.core.desk import HELD_MS, rules


def session_desk(bounds: Bounds | None = None) -> ReadingDesk:
    return ReadingDesk(rules(requires_session=True), bounds=bounds)


def send(desk: ReadingDesk, *names: str, ttl_ms: int = -1) -> None:
    """A message of each session, in this order."""
    desk.send_all(
        [Message(b"%s" % name.encode(), session_id=name, ttl_ms=ttl_ms) for name in names]
    )


def accepted(desk: ReadingDesk) -> str | None:
    """The next free session, which is held from then on."""
    reply = desk.do(AcceptSession(None, desk.seed()))
    if isinstance(reply, NoSession):
        return None
    assert isinstance(reply, SessionAccepted)
    return reply.session_id


def refusal(desk: ReadingDesk, session_id: str) -> str:
    with pytest.raises(Refused) as refused:
        desk.accept(session_id)
    assert refused.value.kind is SESSION_CANNOT_BE_LOCKED
    return refused.value.message


def test_a_claim_holds_its_sessions_and_leaves_the_others_to_receivers() -> None:
    desk = session_desk()
    send(desk, "red", "blue", "red", "green")
    desk.open()

    assert desk.claim(1, 2) == [1, 2]

    assert "reader 'lake' has claimed messages" in refusal(desk, "RED")
    refusal(desk, "blue")
    assert accepted(desk) == "green"
    assert accepted(desk) is None


def test_a_session_that_a_receiver_holds_is_not_claimed() -> None:
    desk = session_desk()
    send(desk, "red", "blue", "red", "blue")
    held = desk.accept("Red")
    desk.open()

    assert desk.claim(1) == [2, 4]
    assert desk.claim(2) == []
    desk.do(ReleaseSession(held.token))

    assert desk.claim(2) == [1, 3]


def test_new_messages_of_a_claimed_session_go_to_its_reader_or_wait() -> None:
    desk = session_desk()
    send(desk, "red")
    desk.open()
    desk.open("pond")
    desk.claim(1)
    send(desk, "red", "red")

    assert accepted(desk) is None
    assert desk.claim(1, name="pond") == []
    assert desk.claim(2, 1) == [2]
    desk.complete(1)
    refusal(desk, "red")
    desk.complete(2)

    assert desk.claim(1, name="pond") == [3]


def test_a_completed_session_is_free_and_what_came_meanwhile_waits_in_it() -> None:
    desk = session_desk()
    send(desk, "red", "blue")
    desk.open()
    desk.claim(1)
    send(desk, "red")
    assert not desk.fragment.is_ready(SESSIONS)

    desk.complete(1)

    assert desk.fragment.is_ready(SESSIONS)
    assert [accepted(desk), accepted(desk)] == ["red", None]


def test_the_claim_that_completes_another_keeps_its_sessions() -> None:
    desk = session_desk()
    send(desk, "red", "red")
    desk.open()
    desk.claim(1, 1)

    desk.claimed(2, done=1)

    refusal(desk, "red")
    assert desk.read(2) == [b"red"]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_lost_claims_return_whole_sessions_in_order(is_dropped: bool) -> None:
    desk = session_desk()
    send(desk, "red", "blue", "red")
    desk.open()
    desk.claim(1, 1)
    desk.claim(2, 1)

    desk.drop() if is_dropped else desk.release()

    held = desk.accept("red")
    entries = [each.entry for each in desk.receive(9, session=held.token)]
    assert [entry.sequence_number for entry in entries] == [1, 3]
    assert accepted(desk) == "blue"


def test_a_reader_claims_lost_messages_again() -> None:
    """Also another reader, which had looked at all of them before."""
    desk = session_desk()
    send(desk, "red", "blue", "red")
    desk.open()
    desk.open("pond")
    assert desk.claim(1) == [1, 2, 3]
    assert desk.claim(1, name="pond") == []

    desk.release()

    assert desk.claim(2) == [1, 2, 3]
    desk.release()
    assert desk.claim(1, name="pond") == [1, 2, 3]


def test_the_end_of_a_lease_gives_sessions_back_whatever_the_wall_clock_does() -> None:
    desk = session_desk()
    send(desk, "red")
    desk.open(lease_ms=10_000)
    desk.claim(1)
    desk.set_clock(1_000_000)
    refusal(desk, "red")
    desk.set_clock(-1_000_000)

    desk.wait(10_000)

    assert accepted(desk) == "red"


def test_a_hold_that_ends_gives_its_session_to_a_reader() -> None:
    desk = session_desk()
    send(desk, "red", "red")
    held = desk.accept("red")
    desk.receive(1, session=held.token)
    desk.open()
    assert desk.claim(1) == []

    desk.wait(HELD_MS)

    assert desk.claim(1) == [1, 2]


def test_claims_hold_their_sessions_after_a_restart() -> None:
    desk = session_desk()
    send(desk, "red", "blue", "red")
    desk.open()
    desk.claim(1, 2)

    desk.reload()

    refusal(desk, "red")
    assert accepted(desk) is None
    assert desk.claim(2) == [3]
    assert [desk.complete(2), desk.complete(2)] == [1, 2]
    assert desk.fragment.counters.lines[MAIN_LINE].count == 0


def test_what_returns_to_a_claimed_session_is_in_a_later_claim() -> None:
    """A deferred message is nobody's, and an abandoned one comes back before what is claimed."""
    desk = session_desk()
    send(desk, "red", "red", "red")
    held = desk.accept("red")
    first, second, _ = desk.receive(3, session=held.token)
    desk.settle(DEFER, first)
    desk.settle(ABANDON, second, delay_ms=1_000)
    desk.do(ReleaseSession(held.token))
    desk.open()
    assert desk.claim(1) == [3]

    desk.wait(1_000)

    assert desk.claim(2) == [2]
    assert accepted(desk) is None


def test_expired_messages_are_not_claimed() -> None:
    desk = session_desk()
    send(desk, "red", ttl_ms=500)
    send(desk, "red")
    desk.open()
    desk.now_ms += 500

    assert desk.claim(1) == [2]


def test_many_messages_of_a_held_session_are_passed_a_few_pages_at_a_time() -> None:
    desk = session_desk(Bounds(page_count_max=2, page_bytes_max=100))
    count = 2 * 2 * CLAIM_PAGES_MAX + 1
    send(desk, *["red"] * count, "blue")
    held = desk.accept("red")
    desk.open()

    looks = [desk.claimed(1, 1) for _ in range(3)]

    assert [(each.claim is not None, each.is_more) for each in looks[:2]] == [(False, True)] * 2
    assert looks[2].claim is not None and looks[2].claim.first == count + 1
    desk.settle(COMPLETE, *desk.receive(9, session=held.token))
    desk.do(ReleaseSession(held.token))
    assert desk.claim(2, 3) == [10, 11, 12]


def test_claims_hold_a_bounded_number_of_sessions() -> None:
    desk = session_desk(Bounds(claim_runs_max=3 * CLAIM_RUNS_PER_SESSION))
    send(desk, "a", "b", "c", "d", "a")
    desk.open()

    assert desk.claim(1) == [1, 2, 3]
    assert busy(desk, 2) is SERVER_BUSY
    assert desk.claimed(2, done=1).claim is not None
    assert desk.numbers(2) == [4, 5]


def busy(desk: ReadingDesk, ordinal: int) -> ErrorKind:
    with pytest.raises(Refused) as refused:
        desk.claim(ordinal)
    return refused.value.kind


def test_who_asks_for_holds_is_told_until_when_a_reader_holds_a_session() -> None:
    desk = session_desk()
    send(desk, "red", "blue")
    desk.open(lease_ms=60_000)
    desk.claim(1, 1)

    told = desk.do(AskHolds(["RED", "blue"]))

    assert isinstance(told, HoldsTold)
    facts = [(each.session_id, each.locked_until_ms, each.locked) for each in told.holds]
    assert facts == [("RED", desk.now_ms + 60_000, 0)]


def test_the_record_of_a_claim_has_its_sessions() -> None:
    claim = OpenClaim(7, runs_of([3, 4, 9]), 21, ["red", "", "b\udc80lue"])

    found = unpack_claim(7, pack_claim(claim))

    assert (found.ordinal, found.runs.numbers(), found.size_bytes) == (7, [3, 4, 9], 21)
    assert found.sessions == claim.sessions
    for damaged in (pack_claim(claim)[:-1], pack_claim(claim) + b"x", b"\x80"):
        with pytest.raises(ValueError, match=r"fragment|runs|record"):
            unpack_claim(7, damaged)
