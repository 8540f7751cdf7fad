"""What clients ask of an entity over all of its fragments (R20, R26, R32)."""

import asyncio
from collections.abc import Callable

import pytest

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.operations.asking import failure_of
from shardbus.broker.operations.browse import BrowseCursor
from shardbus.broker.routing.outbox import Outbox
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    ErrorKind,
    Refused,
    Unavailable,
)
from shardbus.core.fragment.command import Command
from shardbus.core.limits import DEFERRED_COUNT_MAX
from shardbus.core.message import (
    DEAD_LETTER_LINE,
    DEFERRED,
    MAIN_LINE,
    SCHEDULED,
    Entry,
    Message,
)
from shardbus.core.messages.command import ABANDON, COMPLETE, DEFER, Delivery, Settle
from shardbus.core.sequence import fragment_of, lock_token, sequence_number
from tests.unit.broker.house import House
from tests.unit.broker.queues import LOCK_MS, Queue, queue_rules


class Failing:
    """A fragment that answers every command with a failure."""

    def __init__(self, failure: Refused | Unavailable) -> None:
        self.failure = failure
        self.is_available = False

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        reply_to(self.failure)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = b"") -> None:
        raise AssertionError("nobody receives here")

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = b"") -> None:
        raise AssertionError("nobody receives here")


class Taking:
    """A receiver that keeps what it gets."""

    is_locking = True
    is_draining = False

    def __init__(self) -> None:
        self.got: list[Delivery] = []

    def credit(self) -> int:
        return 10

    def deliver(self, deliveries: list[Delivery]) -> int:
        self.got += deliveries
        return len(deliveries)

    def drained(self) -> None:
        raise AssertionError("nobody drains here")

    def lost(self, failure: Refused) -> None:
        raise AssertionError(failure)


def refused_with(kind: ErrorKind, work: Callable[[], object]) -> None:
    with pytest.raises(Refused) as refusal:
        work()
    assert refusal.value.kind is kind, refusal.value.message


def locked(queue: Queue, per_fragment: int = 1) -> list[Delivery]:
    """So many messages of each fragment, sent and received."""
    deliveries: list[Delivery] = []
    for index, runner in enumerate(queue.runners):
        queue.send(index, *(Message(b"%d.%d" % (index, n)) for n in range(per_fragment)))
        deliveries += queue.house.receive(runner, per_fragment)
    return deliveries


def deferred(queue: Queue, per_fragment: int = 1) -> list[int]:
    """The numbers of so many deferred messages of each fragment."""
    deliveries = locked(queue, per_fragment)
    queue.do(queue.operations.settle(Settle(DEFER, [one.token for one in deliveries])))
    return [one.entry.sequence_number for one in deliveries]


def peeked(queue: Queue, line: int = MAIN_LINE) -> list[Entry]:
    return queue.do(queue.operations.peek(line, start=0, count_max=100, cursor=BrowseCursor()))


def payloads(deliveries: list[Delivery]) -> list[bytes | None]:
    return [one.payload for one in deliveries]


# Locks.


def test_locks_of_several_fragments_are_renewed_in_the_order_asked_for(house: House) -> None:
    queue = Queue(house, 3)
    tokens = [one.token for one in reversed(locked(queue))]
    house.pass_s(5)

    deadlines = queue.do(queue.operations.renew(tokens))

    assert deadlines == [house.clock.now_ms() + LOCK_MS] * 3


@pytest.mark.parametrize(
    "token", [b"short", lock_token(0, 99, bytes(8)), lock_token(9, 1, b"." * 8)]
)
def test_a_lock_that_is_not_held_is_not_renewed(house: House, token: bytes) -> None:
    queue = Queue(house, 2)

    refused_with(MESSAGE_LOCK_LOST, lambda: queue.do(queue.operations.renew([token])))


def test_messages_of_several_fragments_are_settled_at_once(house: House) -> None:
    queue = Queue(house, 3)
    deliveries = locked(queue, 2)

    queue.do(queue.operations.settle(Settle(COMPLETE, [one.token for one in deliveries])))

    assert peeked(queue) == []


def test_a_lost_lock_is_told_and_the_others_are_settled(house: House) -> None:
    queue = Queue(house, 2)
    first, second = locked(queue)
    house.settle(queue.runners[0], ABANDON, first)

    refused_with(
        MESSAGE_LOCK_LOST,
        lambda: queue.do(queue.operations.settle(Settle(COMPLETE, [first.token, second.token]))),
    )

    assert [entry.payload for entry in peeked(queue)] == [b"0.0"]


def test_an_abandoned_message_is_delayed_when_that_is_asked_for(house: House) -> None:
    queue = Queue(house, 1)
    [delivery] = locked(queue)

    queue.do(queue.operations.settle(Settle(ABANDON, [delivery.token], delay_ms=10_000)))

    assert house.receive(queue.runners[0]) == []
    house.pass_s(10)
    assert payloads(house.receive(queue.runners[0])) == [b"0.0"]


# Deferred messages.


def test_deferred_messages_of_several_fragments_come_in_the_order_asked_for(house: House) -> None:
    """R32: going beyond the original, the numbers need not be of one fragment."""
    queue = Queue(house, 3)
    numbers = deferred(queue, 2)
    asked = [numbers[4], numbers[0], numbers[3]]

    found = queue.do(queue.operations.receive_deferred(MAIN_LINE, asked, is_locking=True))

    assert [one.entry.sequence_number for one in found] == asked
    assert payloads(found) == [b"2.0", b"0.0", b"1.1"]
    queue.do(queue.operations.settle(Settle(COMPLETE, [one.token for one in found])))
    assert len(peeked(queue)) == 3


def test_when_one_deferred_message_is_not_there_none_stays_locked(house: House) -> None:
    queue = Queue(house, 2)
    numbers = deferred(queue)
    missing = sequence_number(1, 77)

    refused_with(
        MESSAGE_NOT_FOUND,
        lambda: queue.do(
            queue.operations.receive_deferred(MAIN_LINE, [*numbers, missing], is_locking=True)
        ),
    )
    house.pass_s()

    found = queue.do(queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=True))
    assert [one.delivery_count for one in found] == [1, 1]


def test_a_fragment_that_is_away_leaves_no_deferred_message_locked(house: House) -> None:
    queue = Queue(house, 2)
    numbers = deferred(queue)
    house.disk.broken_fragments.add(queue.runners[1].fragment_id)

    with pytest.raises(Unavailable):
        queue.do(queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=True))
    house.disk.broken_fragments.clear()
    house.pass_s(10)

    found = queue.do(queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=True))
    assert len(found) == 2


def test_without_a_lock_deferred_messages_are_gone_once_they_are_received(house: House) -> None:
    queue = Queue(house, 3)
    numbers = deferred(queue)

    found = queue.do(queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=False))

    assert payloads(found) == [b"0.0", b"1.0", b"2.0"]
    assert peeked(queue) == []


def test_whoever_stops_waiting_for_deferred_messages_leaves_none_locked(house: House) -> None:
    queue = Queue(house, 2)
    numbers = deferred(queue)

    async def give_up() -> None:
        async with asyncio.timeout(0):
            await queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=True)

    with pytest.raises(TimeoutError):
        queue.do(give_up())
    house.pass_s()

    found = queue.do(queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=True))
    assert [one.delivery_count for one in found] == [1, 1]


@pytest.mark.parametrize("number", [-1, 0x7FFF << 48 | 1, sequence_number(5, 1)])
def test_a_number_of_no_fragment_is_not_found(house: House, number: int) -> None:
    queue = Queue(house, 2)
    operations = queue.operations

    refused_with(
        MESSAGE_NOT_FOUND,
        lambda: queue.do(operations.receive_deferred(MAIN_LINE, [number], is_locking=True)),
    )
    refused_with(MESSAGE_NOT_FOUND, lambda: queue.do(operations.cancel([number])))


def test_only_so_many_deferred_messages_are_received_at_once(house: House) -> None:
    queue = Queue(house, 2)
    numbers = [sequence_number(0, n) for n in range(1, DEFERRED_COUNT_MAX + 2)]

    refused_with(
        INVALID_ARGUMENT,
        lambda: queue.do(queue.operations.receive_deferred(MAIN_LINE, numbers, is_locking=True)),
    )


# Scheduled messages.


def later(house: House, seconds: int, *keys: str | None) -> list[Message]:
    at_ms = house.clock.now_ms() + seconds * 1000
    return [
        Message(b"%d" % position, partition_key=key, scheduled_at_ms=at_ms)
        for position, key in enumerate(keys)
    ]


def test_scheduled_messages_get_numbers_in_order_and_become_active_in_time(house: House) -> None:
    queue = Queue(house, 4)

    numbers = queue.do(queue.operations.schedule(later(house, 60, "a", "b", None, "a")))

    assert len(set(numbers)) == 4
    entries = {entry.sequence_number: entry for entry in peeked(queue)}
    assert [entries[number].payload for number in numbers] == [b"0", b"1", b"2", b"3"]
    assert {entry.state for entry in entries.values()} == {SCHEDULED}
    house.pass_s(61)
    received = [one for runner in queue.runners for one in house.receive(runner)]
    assert sorted(payloads(received), key=str) == [b"0", b"1", b"2", b"3"]


def test_messages_with_one_key_are_scheduled_where_they_would_be_sent(house: House) -> None:
    """R10, R25."""
    queue = Queue(house, 4)

    numbers = queue.do(queue.operations.schedule(later(house, 60, "a", "a")))

    assert {fragment_of(number) for number in numbers} == {queue.router.index_of_key("a")}


def test_scheduled_messages_of_several_fragments_are_cancelled(house: House) -> None:
    queue = Queue(house, 4)
    numbers = queue.do(queue.operations.schedule(later(house, 60, "a", "b", "c", "d", None)))

    queue.do(queue.operations.cancel(numbers))

    assert peeked(queue) == []
    refused_with(MESSAGE_NOT_FOUND, lambda: queue.do(queue.operations.cancel(numbers[:1])))


@pytest.mark.parametrize("failure", [Unavailable("away"), Refused(SERVER_BUSY, "busy")])
@pytest.mark.parametrize("seconds", [0, 60])
def test_nothing_is_scheduled_when_a_fragment_cannot_take_its_share(
    house: House, failure: Refused | Unavailable, seconds: int
) -> None:
    """R49."""
    queue = Queue(house, 2)
    keys = [queue.session_ids(index, 1)[0] for index in (0, 1)]
    queue.router.ports[1] = Failing(failure)
    queue.router.outboxes[1] = Outbox(
        queue.router.ports[1], b"sender", loop=house.loop, clock=house.clock
    )

    with pytest.raises(type(failure)) as raised:
        queue.do(queue.operations.schedule(later(house, seconds, *keys)))

    assert not isinstance(raised.value, Unavailable) or not raised.value.is_unknown
    assert peeked(queue) == []


def test_what_was_scheduled_for_somebody_who_stopped_waiting_is_cancelled(house: House) -> None:
    queue = Queue(house, 2)
    keys = [queue.session_ids(index, 1)[0] for index in (0, 1)]

    async def give_up() -> None:
        async with asyncio.timeout(0):
            await queue.operations.schedule(later(house, 60, *keys))

    with pytest.raises(TimeoutError):
        queue.do(give_up())
    house.pass_s()

    assert peeked(queue) == []


def test_a_message_at_odds_with_itself_keeps_all_from_being_scheduled(house: House) -> None:
    """R12."""
    queue = Queue(house, 2)
    bad = Message(b"bad", session_id="s", partition_key="k", scheduled_at_ms=1)

    refused_with(
        NOT_ALLOWED, lambda: queue.do(queue.operations.schedule([*later(house, 60, "a"), bad]))
    )

    assert peeked(queue) == []


def test_a_duplicate_gets_no_number(house: House) -> None:
    queue = Queue(house, 2, queue_rules(duplicate_window_ms=60_000))
    at_ms = house.clock.now_ms() + 60_000
    same = [Message(b"x", message_id="one", scheduled_at_ms=at_ms) for _ in range(2)]

    first, second = queue.do(queue.operations.schedule(same))

    assert first > 0 and second == 0
    assert len(peeked(queue)) == 1


# Purging.


def test_the_oldest_messages_of_all_fragments_are_purged_first(house: House) -> None:
    queue = Queue(house, 3)
    for number in range(12):
        queue.send(number % 2 if number < 6 else 2, Message(b"%d" % number))

    removed = queue.do(queue.operations.purge(MAIN_LINE, count_max=7))

    assert removed == 7
    assert [entry.payload for entry in peeked(queue)] == [b"7", b"8", b"9", b"10", b"11"]


def test_a_purge_stops_at_messages_that_were_enqueued_later(house: House) -> None:
    queue = Queue(house, 2)
    for number in range(4):
        queue.send(number % 2, Message(b"old"))
    until_ms = house.clock.now_ms()
    house.pass_s(1)
    for number in range(4):
        queue.send(number % 2, Message(b"new"))

    removed = queue.do(queue.operations.purge(MAIN_LINE, count_max=100, enqueued_until_ms=until_ms))

    assert removed == 4
    assert {entry.payload for entry in peeked(queue)} == {b"new"}


@pytest.mark.parametrize("fragments", [1, 3])
def test_a_purge_passes_over_what_is_locked_deferred_or_scheduled(
    house: House, fragments: int
) -> None:
    queue = Queue(house, fragments)
    deferred(queue)
    queue.do(queue.operations.schedule(later(house, 60, "a")))
    locked(queue)
    for index in range(fragments):
        queue.send(index, Message(b"x"), Message(b"y"))

    removed = queue.do(queue.operations.purge(MAIN_LINE, count_max=1_000))

    assert removed == 2 * fragments
    assert len(peeked(queue)) == 2 * fragments + 1


@pytest.mark.parametrize("fragments", [1, 2])
def test_thousands_of_messages_are_purged(house: House, fragments: int) -> None:
    queue = Queue(house, fragments)
    for index in range(fragments):
        queue.send(index, *(Message(b"x") for _ in range(3_000)))

    assert queue.do(queue.operations.purge(MAIN_LINE, count_max=2_900)) == 2_900
    assert (
        queue.do(queue.operations.purge(MAIN_LINE, count_max=10_000)) == 3_000 * fragments - 2_900
    )


def test_dead_letters_are_purged_on_their_own_line(house: House) -> None:
    queue = Queue(house, 2)
    queue.send(0, Message(b"x"))

    assert queue.do(queue.operations.purge(DEAD_LETTER_LINE, count_max=10)) == 0
    assert len(peeked(queue)) == 1


def test_a_purge_removes_what_it_can_reach(house: House) -> None:
    """R3."""
    queue = Queue(house, 2)
    for index in (0, 1):
        queue.send(index, Message(b"%d" % index))
    house.disk.broken_fragments.add(queue.runners[0].fragment_id)

    assert queue.do(queue.operations.purge(MAIN_LINE, count_max=10)) == 1
    with pytest.raises(Unavailable):
        queue.do(queue.operations.purge(MAIN_LINE, count_max=10))


# Sessions.


@pytest.fixture
def sessions(house: House) -> Queue:
    return Queue(house, 3, queue_rules(requires_session=True))


def test_a_session_is_renewed_and_has_a_state_as_long_as_it_is_held(sessions: Queue) -> None:
    """R26."""
    operations = sessions.operations
    token = sessions.accept("s").token
    sessions.house.pass_s(5)

    assert sessions.do(operations.state(token)) is None
    sessions.do(operations.set_state(token, b"here"))
    assert sessions.do(operations.state(token)) == b"here"
    assert sessions.do(operations.renew_session(token)) == sessions.house.clock.now_ms() + LOCK_MS

    sessions.house.pass_s(LOCK_MS / 1000 + 1)
    refused_with(SESSION_LOCK_LOST, lambda: sessions.do(operations.state(token)))
    refused_with(SESSION_LOCK_LOST, lambda: sessions.do(operations.set_state(token, None)))
    refused_with(SESSION_LOCK_LOST, lambda: sessions.do(operations.renew_session(token)))
    assert sessions.do(operations.state(sessions.accept("s").token)) == b"here"


@pytest.mark.parametrize("token", [b"short", lock_token(9, 1, bytes(8))])
def test_a_session_token_of_no_fragment_is_lost(sessions: Queue, token: bytes) -> None:
    refused_with(SESSION_LOCK_LOST, lambda: sessions.do(sessions.operations.state(token)))
    refused_with(
        SESSION_LOCK_LOST,
        lambda: sessions.do(sessions.operations.purge(MAIN_LINE, count_max=1, session=token)),
    )


def test_the_messages_of_one_session_are_peeked_alone(sessions: Queue) -> None:
    sessions.send_to_session("a", b"a1", b"a2")
    sessions.send_to_session("b", b"b1")
    operations, cursor = sessions.operations, BrowseCursor()

    first = sessions.do(
        operations.peek(MAIN_LINE, start=0, count_max=1, cursor=cursor, session_id="a")
    )
    rest = sessions.do(
        operations.peek(
            MAIN_LINE,
            start=first[0].sequence_number + 1,
            count_max=9,
            cursor=cursor,
            session_id="a",
        )
    )

    assert [entry.payload for entry in [*first, *rest]] == [b"a1", b"a2"]
    assert len(peeked(sessions)) == 3


def test_a_session_is_found_in_its_fragment_by_any_spelling(sessions: Queue) -> None:
    """It is accepted, peeked and listed where its messages were placed."""
    for name in ("Alpha", "alphA", "ALPHA"):
        sessions.do(sessions.operations.schedule([Message(name.encode(), session_id=name)]))

    for name in ("alpha", "aLPHA"):
        peek = sessions.operations.peek(
            MAIN_LINE, start=0, count_max=9, cursor=BrowseCursor(), session_id=name
        )
        assert [e.payload for e in sessions.do(peek)] == [b"Alpha", b"alphA", b"ALPHA"]
    listed = sessions.operations.list_sessions(updated_after_ms=-1, skip=0, count_max=9)
    assert sessions.do(listed) == ["Alpha"]
    home = sessions.router.index_of_key("alpha")
    for name in ("alpha", "ALPHa"):
        accepted = sessions.accept(name)
        assert accepted.session_id == name
        assert sessions.router.index_of_token(accepted.token) == home
        sessions.router.release_session(accepted.token)


def test_a_session_that_cannot_be_read_is_not_shown_as_empty(sessions: Queue) -> None:
    sessions.send_to_session("a", b"a1")
    home = sessions.router.index_of_key("a")
    sessions.house.disk.broken_fragments.add(sessions.runners[home].fragment_id)
    peek = sessions.operations.peek(
        MAIN_LINE, start=0, count_max=1, cursor=BrowseCursor(), session_id="a"
    )

    with pytest.raises(Unavailable):
        sessions.do(peek)


def test_only_an_entity_with_sessions_has_a_session_to_peek(house: House) -> None:
    queue = Queue(house, 2)
    peek = queue.operations.peek(
        MAIN_LINE, start=0, count_max=1, cursor=BrowseCursor(), session_id="a"
    )

    refused_with(NOT_ALLOWED, lambda: queue.do(peek))


def test_a_deferred_message_of_a_session_needs_the_session(sessions: Queue) -> None:
    sessions.send_to_session("a", b"a1")
    accepted = sessions.accept("a")
    [entry] = peeked(sessions)
    receiver = Taking()
    dispatcher = sessions.router.session_dispatcher(accepted, MAIN_LINE)
    dispatcher.add(receiver)
    dispatcher.wake(receiver)
    sessions.house.pass_s()
    [delivery] = receiver.got
    sessions.do(sessions.operations.settle(Settle(DEFER, [delivery.token])))
    numbers = [entry.sequence_number]
    receive = sessions.operations.receive_deferred

    home = sessions.router.index_of_key("a")
    elsewhere = sessions.session_ids((home + 1) % 3, 1)[0]
    other = sessions.accept(elsewhere).token

    with pytest.raises(Refused):
        sessions.do(receive(MAIN_LINE, numbers, is_locking=True))
    refused_with(
        MESSAGE_NOT_FOUND,
        lambda: sessions.do(receive(MAIN_LINE, numbers, is_locking=True, session=other)),
    )
    found = sessions.do(receive(MAIN_LINE, numbers, is_locking=True, session=accepted.token))
    assert payloads(found) == [b"a1"]
    assert found[0].entry.state == DEFERRED


def test_only_the_messages_of_a_held_session_are_purged(sessions: Queue) -> None:
    sessions.send_to_session("a", *(b"a%d" % n for n in range(100)))
    sessions.send_to_session("b", b"b1")
    token = sessions.accept("a").token

    removed = sessions.do(sessions.operations.purge(MAIN_LINE, count_max=1_000, session=token))

    assert removed == 100
    assert [entry.payload for entry in peeked(sessions)] == [b"b1"]


def test_answers_that_are_unknown_are_told_before_others() -> None:
    refusal, unknown = Refused(NOT_ALLOWED, "no"), Unavailable("perhaps", is_unknown=True)
    answers: list[Answer] = [refusal, unknown]

    assert failure_of(answers) is unknown
    assert failure_of([refusal]) is refusal
    assert failure_of([]) is None
