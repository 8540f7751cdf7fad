"""Who holds which message until when."""

from shardbus.core.fragment.lock import LockTable
from shardbus.core.limits import LOCKS_ENDED_MAX
from shardbus.core.message import NEVER_MS, Entry


def entry(number: int) -> Entry:
    return Entry(number, b"p", 1, enqueued_at_ms=0)


def token(number: int) -> bytes:
    return number.to_bytes(16, "big")


def held(table: LockTable, *numbers: int, until_ms: int) -> list[Entry]:
    entries = [entry(number) for number in numbers]
    table.hold(entries, [token(number) for number in numbers], until_ms)
    return entries


def test_a_lock_is_held_until_just_before_its_deadline() -> None:
    table = LockTable()
    [message] = held(table, 1, until_ms=100)

    assert table.held(token(1), 99) is message
    assert table.held(token(1), 100) is None


def test_the_deadline_decides_even_before_anyone_looked() -> None:
    table = LockTable()
    held(table, 1, until_ms=100)

    assert table.release(token(1), 100) is None
    assert table.is_locked(1)
    assert [message.sequence_number for message in table.expire(100)] == [1]
    assert not table.is_locked(1)


def test_a_lock_ends_once() -> None:
    table = LockTable()
    [message] = held(table, 1, until_ms=100)

    assert table.release(token(1), 50) is message
    assert table.release(token(1), 50) is None
    assert table.expire(200) == []
    assert len(table) == 0


def test_an_unknown_token_holds_nothing() -> None:
    table = LockTable()
    held(table, 1, until_ms=100)

    assert table.held(token(2), 0) is None
    assert table.release(token(2), 0) is None
    assert len(table) == 1


def test_locks_expire_in_the_order_of_their_deadlines() -> None:
    table = LockTable()
    held(table, 1, 2, until_ms=300)
    held(table, 3, until_ms=100)
    held(table, 4, until_ms=200)

    assert table.next_deadline_ms() == 100
    assert [message.sequence_number for message in table.expire(200)] == [3, 4]
    assert table.next_deadline_ms() == 300
    assert [message.sequence_number for message in table.expire(300)] == [1, 2]
    assert table.next_deadline_ms() == NEVER_MS


def test_a_renewed_lock_has_only_its_new_deadline() -> None:
    table = LockTable()
    held(table, 1, 2, until_ms=100)

    table.renew([token(2)], 500)

    assert [message.sequence_number for message in table.expire(100)] == [1]
    assert table.held(token(2), 499) is not None
    assert [message.sequence_number for message in table.expire(500)] == [2]


def test_renewing_the_same_lock_twice_in_one_request_holds_it_once() -> None:
    table = LockTable()
    held(table, 1, until_ms=100)

    table.renew([token(1), token(1)], 200)

    assert table.release(token(1), 150) is not None
    assert table.next_deadline_ms() == NEVER_MS
    assert table.expire(1_000) == []


def test_renewing_nothing_leaves_nothing_behind() -> None:
    table = LockTable()
    for _ in range(1_000):
        table.renew([], 100)

    assert table.next_deadline_ms() == NEVER_MS
    assert table._deadlines == []


def test_the_next_deadline_is_that_of_a_lock_still_held() -> None:
    table = LockTable()
    held(table, 1, until_ms=100)
    held(table, 2, until_ms=200)

    table.release(token(1), 0)

    assert table.next_deadline_ms() == 200


def test_dropping_messages_ends_their_locks_whoever_holds_them() -> None:
    table = LockTable()
    held(table, 1, 2, 3, until_ms=100)

    dropped = table.drop({2, 3, 9})

    assert sorted(message.sequence_number for message in dropped) == [2, 3]
    assert table.held(token(2), 0) is None
    assert table.held(token(1), 0) is not None


def test_memory_follows_the_held_locks_and_not_the_traffic() -> None:
    """D3: a lock that was settled must not wait in memory for its deadline."""
    table = LockTable()
    held(table, 0, until_ms=50_000)
    for number in range(1, 20_000):
        held(table, number, until_ms=60_000 + number)
        table.renew([token(number)], 90_000 + number)
        table.release(token(number), 0)

    assert len(table) == 1
    assert len(table._deadlines) < 200


def test_so_many_locks_end_in_one_step_and_the_others_in_the_next() -> None:
    table = LockTable()
    count = 3 * LOCKS_ENDED_MAX
    for first in range(0, count, 256):
        numbers = range(first + 1, first + 257)
        table.hold([entry(number) for number in numbers], [token(n) for n in numbers], 1_000)

    steps: list[int] = []
    while table.next_deadline_ms() == 1_000:
        steps.append(len(table.expire(2_000)))

    assert sum(steps) == count and max(steps) <= LOCKS_ENDED_MAX + 256
    assert len(steps) == 3 and len(table) == 0
