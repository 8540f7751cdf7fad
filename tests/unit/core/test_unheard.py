"""What was locked or held for an answer that was lost: let go by the seed of its tokens (R18)."""

from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import (
    COMPLETE,
    RELEASE,
    Done,
    Receive,
    Received,
    Settle,
    Settled,
)
from shardbus.core.sequence import is_of_seed, lock_token, token_of_seed
from shardbus.core.sessions.command import AcceptSession, ReleaseSession, SessionAccepted
from tests.unit.core.desk import LOCK_MS, Desk, rules

MINE = b"mine...."
OTHER = b"other..."
ALL_OF_MINE = token_of_seed(0, MINE)


def take(desk: Desk, count: int, seed: bytes, session: bytes = b"") -> Received:
    reply = desk.do(Receive(MAIN_LINE, count, is_locking=True, token_seed=seed, session=session))
    assert isinstance(reply, Received)
    return reply


def payloads(received: Received) -> list[tuple[bytes | None, int]]:
    return [(delivery.payload, delivery.delivery_count) for delivery in received.deliveries]


def test_locks_that_nobody_heard_of_end_uncounted_and_those_of_others_stay() -> None:
    desk = Desk(rules())
    for payload in (b"one", b"two", b"three"):
        desk.send(payload)
    take(desk, 2, MINE)
    [others] = take(desk, 1, OTHER).deliveries

    settled = desk.do(Settle(RELEASE, [ALL_OF_MINE]))

    assert isinstance(settled, Settled) and settled.lost == [True]
    assert payloads(take(desk, 5, OTHER)) == [(b"one", 0), (b"two", 0)]
    settled = desk.do(Settle(COMPLETE, [others.token]))
    assert isinstance(settled, Settled) and settled.lost == [False]


def test_nothing_but_a_release_goes_by_the_seed() -> None:
    desk = Desk(rules())
    desk.send(b"one")
    [mine] = take(desk, 1, MINE).deliveries

    settled = desk.do(Settle(COMPLETE, [ALL_OF_MINE]))

    assert isinstance(settled, Settled) and settled.lost == [True]
    settled = desk.do(Settle(COMPLETE, [mine.token]))
    assert isinstance(settled, Settled) and settled.lost == [False]


def test_locks_that_have_run_out_count_as_failed_all_the_same() -> None:
    desk = Desk(rules())
    desk.send(b"one")
    take(desk, 1, MINE)
    desk.wait(LOCK_MS)

    desk.do(Settle(RELEASE, [ALL_OF_MINE]))

    assert payloads(take(desk, 5, OTHER)) == [(b"one", 1)]


def test_a_session_keeps_its_holder_and_its_order() -> None:
    desk = Desk(rules(requires_session=True))
    for payload in (b"one", b"two"):
        desk.send(payload, session_id="s")
    held = desk.do(AcceptSession("s", OTHER))
    assert isinstance(held, SessionAccepted)
    take(desk, 1, MINE, held.token)

    desk.do(Settle(RELEASE, [ALL_OF_MINE]))

    assert payloads(take(desk, 5, OTHER, held.token)) == [(b"one", 0), (b"two", 0)]


def test_a_session_that_nobody_heard_of_is_free() -> None:
    desk = Desk(rules(requires_session=True))
    desk.send(b"one", session_id="s")
    other = desk.do(AcceptSession("other", OTHER))
    assert isinstance(other, SessionAccepted)
    desk.do(AcceptSession("s", MINE))

    assert isinstance(desk.do(ReleaseSession(ALL_OF_MINE)), Done)
    assert isinstance(desk.do(ReleaseSession(ALL_OF_MINE)), Done)

    assert isinstance(desk.do(AcceptSession("s", b"next....")), SessionAccepted)
    assert take(desk, 1, MINE, other.token).deliveries == []


def test_no_token_of_a_lock_is_taken_for_one_of_a_seed() -> None:
    assert is_of_seed(ALL_OF_MINE)
    assert not any(is_of_seed(lock_token(0, counter, MINE)) for counter in (1, 255, 1 << 47))
    assert not is_of_seed(b"")
