"""What a runner does because time passes, and what it remembers over a restart."""

from shardbus.broker.fragment.runner import Runner
from shardbus.core.errors import MESSAGE_NOT_FOUND, Refused, Unavailable
from shardbus.core.limits import LOCKS_ENDED_MAX
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import (
    ABANDON,
    DEFER,
    Cancel,
    Delivery,
    Done,
    Received,
    ReceiveDeferred,
    Send,
    Sent,
    Settle,
)
from tests.unit.broker.house import SEED, House, payloads_of, send_of
from tests.unit.core.desk import LOCK_MS, rules

WINDOW_MS = 20_000


def send_in(house: House, seconds: float, *payloads: bytes) -> Send:
    at_ms = house.clock.now_ms() + int(seconds * 1000)
    return Send([Message(payload, scheduled_at_ms=at_ms) for payload in payloads])


def deferred_of(*numbers: int, is_locking: bool = True) -> ReceiveDeferred:
    return ReceiveDeferred(MAIN_LINE, list(numbers), is_locking=is_locking, token_seed=SEED)


def received_deferred(house: House, runner: Runner, *numbers: int) -> list[Delivery]:
    answer = house.answer(runner, deferred_of(*numbers))
    assert isinstance(answer, Received)
    return answer.deliveries


def send_with_ids(*message_ids: str) -> Send:
    return Send([Message(b"m", message_id=message_id) for message_id in message_ids])


def duplicates(house: House, runner: Runner, *message_ids: str) -> list[int]:
    answer = house.answer(runner, send_with_ids(*message_ids))
    assert isinstance(answer, Sent)
    return answer.duplicates


def test_a_scheduled_message_wakes_a_receiver_at_its_moment(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    woken: list[int] = []
    runner.watch(MAIN_LINE, lambda: woken.append(house.clock.now_ms()))
    due_ms = house.clock.now_ms() + 60_000
    house.answer(runner, send_in(house, 60, b"a"))

    house.pass_s(70)

    [woken_ms] = woken
    assert 0 <= woken_ms - due_ms < 1_000
    assert payloads_of(house.receive(runner)) == [b"a"]


def test_a_moment_that_came_while_the_bus_was_down_is_made_up_for(house: House) -> None:
    first = house.runner()
    house.answer(first, send_in(house, 60, b"a"))
    first.stop()
    house.pass_s(3_600)

    runner = house.runner()
    house.pass_s()

    assert payloads_of(house.receive(runner)) == [b"a"]


def test_a_failed_read_of_what_is_due_is_tried_again(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_in(house, 10, b"a"))
    house.disk.failing_reads.add("due")
    house.pass_s(15)
    house.disk.failing_reads.clear()

    house.pass_s(10)

    assert payloads_of(house.receive(runner)) == [b"a"]


def test_a_cancelled_message_is_not_activated(house: House) -> None:
    runner = house.runner()
    sent = house.answer(runner, send_in(house, 10, b"a", b"b"))
    assert isinstance(sent, Sent)

    assert isinstance(house.answer(runner, Cancel([sent.first])), Done)
    house.pass_s(15)

    assert payloads_of(house.receive(runner)) == [b"b"]


def test_a_delayed_message_comes_back_without_anyone_asking(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    [delivery] = house.receive(runner)
    house.answer(runner, Settle(ABANDON, [delivery.token], delay_ms=5_000))
    woken: list[str] = []
    runner.watch(MAIN_LINE, lambda: woken.append("woken"))

    house.pass_s(4)
    assert woken == []
    house.pass_s(2)

    assert woken == ["woken"]
    assert house.receive(runner)[0].delivery_count == 1


def test_deferred_messages_are_read_by_their_numbers(house: House) -> None:
    runner = house.runner()
    sent = house.answer(runner, send_of(b"a", b"b"))
    assert isinstance(sent, Sent)
    house.settle(runner, DEFER, *house.receive(runner))

    deliveries = received_deferred(house, runner, sent.first + 1, sent.first)

    assert payloads_of(deliveries) == [b"b", b"a"]
    assert house.disk.reads.count("entries") == 1


def test_two_who_want_the_same_deferred_message_do_not_both_get_it(house: House) -> None:
    runner = house.runner()
    sent = house.answer(runner, send_of(b"a"))
    assert isinstance(sent, Sent)
    house.settle(runner, DEFER, *house.receive(runner))

    first = house.ask(runner, deferred_of(sent.first))
    second = house.ask(runner, deferred_of(sent.first, is_locking=False))
    house.pass_s()

    assert isinstance(first[0], Received)
    assert isinstance(second[0], Refused) and second[0].kind is MESSAGE_NOT_FOUND


def test_a_lock_that_expires_while_a_deferred_message_is_read_changes_nothing(
    house: House,
) -> None:
    """Between reading for a command and deciding it nothing is applied, not even time."""
    runner = house.runner()
    sent = house.answer(runner, send_of(b"a", b"b"))
    assert isinstance(sent, Sent)
    house.settle(runner, DEFER, *house.receive(runner))
    received_deferred(house, runner, sent.first)
    house.pass_s(LOCK_MS / 1000 - 1)
    house.latency_s = 2.0

    answers = house.ask(runner, deferred_of(sent.first + 1))
    house.pass_s(30)

    assert isinstance(answers[0], Received)
    assert payloads_of(answers[0].deliveries) == [b"b"]
    house.latency_s = 0.001
    house.pass_s(10)
    assert received_deferred(house, runner, sent.first)[0].delivery_count == 2


def test_a_failed_read_by_number_is_unavailable(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.disk.failing_reads.add("entries")

    answer = house.answer(runner, deferred_of(1))

    assert isinstance(answer, Unavailable) and not answer.is_unknown


def test_ids_are_remembered_by_the_next_runner(house: House) -> None:
    fragment_rules = rules(duplicate_window_ms=WINDOW_MS)
    first = house.runner(0, fragment_rules)
    assert duplicates(house, first, "1", "2") == []
    first.stop()

    second = house.runner(0, fragment_rules)

    assert duplicates(house, second, "2", "3") == [0]
    counters = house.disk.kept.load(second.fragment_id).counters
    assert counters.duplicates == 1


def test_an_id_whose_commit_failed_is_not_remembered_unless_it_was_stored(house: House) -> None:
    runner = house.runner(0, rules(duplicate_window_ms=WINDOW_MS))
    house.pass_s()

    for message_id in ("before", "after"):
        house.disk.commit_failures.append(message_id)
        answer = house.answer(runner, send_with_ids(message_id))
        assert isinstance(answer, Unavailable) and answer.is_unknown
        house.pass_s(10)

    assert duplicates(house, runner, "before", "after") == [1]


def test_duplicates_sent_together_are_one_commit_and_the_first_wins(house: House) -> None:
    runner = house.runner(0, rules(duplicate_window_ms=WINDOW_MS))

    answers = [house.ask(runner, send_with_ids("1")) for _ in range(3)]
    house.pass_s()

    assert [isinstance(a, Sent) and a.count for [a] in answers] == [1, 0, 0]
    assert len(house.disk.transactions) == 1


def test_ids_are_forgotten_when_their_time_is_over_and_nobody_sends(house: House) -> None:
    runner = house.runner(0, rules(duplicate_window_ms=WINDOW_MS))
    duplicates(house, runner, "1")

    house.pass_s(WINDOW_MS / 1000 + 1)

    assert house.disk.kept.load(runner.fragment_id).remembered == []
    assert duplicates(house, runner, "1") == []


def test_the_last_use_is_the_last_command_of_a_client(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    start_ms = house.clock.now_ms()
    house.answer(runner, send_of(b"a", ttl_ms=60_000))

    house.pass_s(600)

    assert 0 <= house.clock.now_ms() - runner.unused_ms - start_ms < 1_000


def test_a_fragment_somebody_waits_for_is_in_use(house: House) -> None:
    runner = house.runner()
    house.pass_s()

    def wake() -> None:
        """Nothing comes."""

    runner.watch(MAIN_LINE, wake)
    house.pass_s(600)
    assert runner.unused_ms == 0

    runner.unwatch(MAIN_LINE, wake)
    assert runner.unused_ms > 0


def test_many_locks_that_end_together_end_in_several_commits(house: House) -> None:
    """What comes back all at once holds nobody else up."""
    runner = house.runner()
    count = 2 * LOCKS_ENDED_MAX
    for _ in range(count // 1_024):
        house.answer(runner, send_of(*[b"a"] * 1_024))
    deliveries: list[Delivery] = []
    while more := house.receive(runner, 1_024):
        deliveries += more
    house.disk.transactions.clear()

    house.pass_s(LOCK_MS / 1_000 + 1)

    assert len(deliveries) == count
    assert len(house.disk.transactions) >= 2
    again = house.receive(runner, 1)
    assert [(each.entry.sequence_number, each.delivery_count) for each in again] == [(1, 1)]
    fragment = runner.statistics()
    assert fragment is not None and fragment.locked() == 1
