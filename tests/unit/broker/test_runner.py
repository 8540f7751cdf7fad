"""Runs one fragment: drain the inbox, apply everything, commit once, then answer (D1)."""

from typing import Final

import pytest

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.runner import AVAILABLE, INBOX_MAX, RECOVERING, UNAVAILABLE, Runner
from shardbus.core.errors import QUOTA_EXCEEDED, Refused, Unavailable
from shardbus.core.fragment.command import Tick
from shardbus.core.limits import LACKING_BYTES_MAX, PAGE_BYTES_MAX, WINDOW_COUNT_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    RELEASE,
    Delivery,
    Purge,
    Purged,
    Receive,
    Received,
    Renew,
    Sent,
    Settle,
)
from shardbus.core.sequence import token_of_seed
from shardbus.core.sessions.command import (
    AcceptSession,
    GetState,
    SessionAccepted,
    SessionState,
    SetState,
)
from shardbus.stores.base.store import Page
from tests.unit.broker.house import SEED, House, payloads_of, send_of
from tests.unit.core.desk import LOCK_MS, rules

STATE_BYTES: Final = 1024 * 1024


def deliveries_of(answer: Answer) -> list[Delivery]:
    assert isinstance(answer, Received)
    return answer.deliveries


def unknown(answer: Answer) -> bool:
    assert isinstance(answer, Unavailable)
    return answer.is_unknown


def test_commands_wait_for_the_first_load(house: House) -> None:
    runner = house.runner()
    assert (runner.state, runner.is_available) == (RECOVERING, False)

    answers = house.ask(runner, send_of(b"a"))
    house.pass_s()

    assert isinstance(answers[0], Sent)
    assert (runner.state, runner.is_available) == (AVAILABLE, True)


def test_nothing_is_answered_before_it_is_stored(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.latency_s = 1.0

    answers = house.ask(runner, send_of(b"a"))
    house.pass_s(1.5)
    assert answers == []
    assert house.disk.kept.load(runner.fragment_id).counters.lines[MAIN_LINE].count == 1
    house.pass_s(1)

    assert isinstance(answers[0], Sent)


def test_all_that_waits_in_the_inbox_is_one_commit(house: House) -> None:
    runner = house.runner()

    answers = [house.ask(runner, send_of(b"a")) for _ in range(10)]
    house.pass_s()

    assert len(house.disk.transactions) == 1
    assert all(isinstance(answer, Sent) for [answer] in answers)


def test_fragments_woken_together_share_a_transaction(house: House) -> None:
    runners = [house.runner(number) for number in range(4)]
    house.pass_s()

    for runner in runners:
        house.ask(runner, send_of(b"a"))
    house.pass_s()

    assert [len(transaction) for transaction in house.disk.transactions] == [4]


def test_what_changes_nothing_is_answered_without_a_commit(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    [delivery] = house.receive(runner)

    house.settle(runner, RELEASE, delivery)

    assert len(house.disk.transactions) == 1


def test_a_refusal_does_not_disturb_its_neighbours(house: House) -> None:
    runner = house.runner(0, rules(size_bytes_max=1))

    first = house.ask(runner, send_of(b"a"))
    second = house.ask(runner, send_of(b"b"))
    third = house.ask(runner, Renew([b"no such lock"]))
    house.pass_s()

    assert isinstance(first[0], Sent)
    assert isinstance(second[0], Refused) and second[0].kind is QUOTA_EXCEEDED
    assert isinstance(third[0], Refused)


def test_a_full_inbox_turns_commands_down(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    for _ in range(INBOX_MAX):
        runner.submit(Tick(), lambda _: None)

    [answer] = house.ask(runner, send_of(b"a"))

    assert not unknown(answer)
    house.pass_s()
    assert isinstance(house.answer(runner, send_of(b"a")), Sent)


def test_an_expired_lock_returns_the_message_without_anyone_asking(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.receive(runner)
    woken: list[float] = []
    runner.watch(MAIN_LINE, lambda: woken.append(house.loop.time()))

    house.pass_s(LOCK_MS / 1000 + 1)

    assert len(woken) == 1
    assert house.receive(runner)[0].delivery_count == 1


def test_messages_expire_without_anyone_asking(house: House) -> None:
    runner = house.runner(0, rules(dead_letters_on_expiration=True))
    house.answer(runner, send_of(b"a", b"b", ttl_ms=5_000))

    house.pass_s(6)

    lines = house.disk.kept.load(runner.fragment_id).counters.lines
    assert [line.count for line in lines] == [0, 2, 0]


def test_a_quiet_fragment_leaves_the_store_alone(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    reads = len(house.disk.reads)

    house.pass_s(3_600)

    assert len(house.disk.reads) == reads
    assert len(house.disk.transactions) == 1
    assert runner.is_available


def test_a_watcher_is_woken_once_when_there_is_something(house: House) -> None:
    """R19: no polling."""
    runner = house.runner()
    house.pass_s()
    woken: list[str] = []
    runner.watch(MAIN_LINE, lambda: woken.append("main"))
    runner.watch(DEAD_LETTER_LINE, lambda: woken.append("dead"))

    house.answer(runner, send_of(b"a"))
    house.answer(runner, send_of(b"b"))

    assert woken == ["main"]


def test_a_watcher_of_a_line_with_messages_is_woken_soon(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    woken: list[str] = []

    runner.watch(MAIN_LINE, lambda: woken.append("main"))
    assert woken == []
    house.pass_s(0)

    assert woken == ["main"]


def test_a_watcher_that_left_is_not_woken(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    woken: list[str] = []

    def wake() -> None:
        woken.append("main")

    runner.watch(MAIN_LINE, wake)
    runner.unwatch(MAIN_LINE, wake)
    runner.unwatch(MAIN_LINE, wake)
    house.answer(runner, send_of(b"a"))

    assert woken == []


def test_a_watcher_survives_a_reload(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    woken: list[str] = []
    runner.watch(MAIN_LINE, lambda: woken.append("main"))
    house.disk.commit_failures.append("after")

    assert unknown(house.answer(runner, send_of(b"a")))
    house.pass_s(1)

    assert woken == ["main"]


def test_a_watcher_of_a_fragment_that_is_away_is_woken_when_it_is_back(house: House) -> None:
    """R17: an unavailable fragment rejoins by itself."""
    house.disk.failing_reads.add("load")
    runner = house.runner()
    house.pass_s()
    woken: list[str] = []
    runner.watch(MAIN_LINE, lambda: woken.append("main"))
    house.disk.failing_reads.clear()
    house.pass_s(1)
    assert woken == []

    house.answer(runner, send_of(b"a"))

    assert woken == ["main"]


def test_what_waits_in_the_store_alone_is_read_before_a_receive(house: House) -> None:
    house.answer(house.runner(), send_of(*[b"%d" % number for number in range(50)]))
    runner = house.runner()

    assert payloads_of(house.receive(runner, 50)) == [b"%d" % number for number in range(50)]


def test_a_long_line_is_received_in_order(house: House) -> None:
    runner = house.runner()
    count = 2 * WINDOW_COUNT_MAX + 7
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        house.answer(runner, send_of(*[b"%d" % number for number in numbers]))

    received: list[bytes | None] = []
    while deliveries := house.receive(runner, 300):
        received += payloads_of(deliveries)
        house.settle(runner, COMPLETE, *deliveries)

    assert received == [b"%d" % number for number in range(count)]
    assert house.disk.kept.load(runner.fragment_id).counters.lines[MAIN_LINE].count == 0


def test_commands_stay_in_line_while_a_page_is_read(house: House) -> None:
    house.answer(house.runner(), send_of(b"a"))
    runner = house.runner()
    house.pass_s()

    received = house.ask(runner, Receive(MAIN_LINE, 1, is_locking=True, token_seed=SEED))
    purged = house.ask(runner, Purge(MAIN_LINE, 1))
    house.pass_s()

    assert isinstance(received[0], Received) and len(received[0].deliveries) == 1
    assert isinstance(purged[0], Purged) and purged[0].count == 0


def test_a_failed_page_read_turns_the_receive_away_and_loads_again(house: House) -> None:
    house.answer(house.runner(), send_of(b"a"))
    runner = house.runner()
    house.disk.failing_reads.add("line")

    answer = house.answer(runner, Receive(MAIN_LINE, 1, is_locking=True, token_seed=SEED))
    house.disk.failing_reads.clear()
    house.pass_s(1)

    assert not unknown(answer)
    assert payloads_of(house.receive(runner)) == [b"a"]


def test_a_message_delivered_again_has_its_payload_again(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))

    house.settle(runner, ABANDON, *house.receive(runner))

    assert payloads_of(house.receive(runner)) == [b"a"]
    assert house.disk.reads.count("payloads") == 1


def test_receive_and_delete_of_what_came_back_hands_it_out_before_it_is_gone(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b", b"c"))
    house.settle(runner, RELEASE, *house.receive(runner, 2))

    deliveries = house.receive(runner, 5, is_locking=False)

    assert payloads_of(deliveries) == [b"a", b"b", b"c"]
    counters = house.disk.kept.load(runner.fragment_id).counters
    assert (counters.lines[MAIN_LINE].count, counters.set_aside) == (0, 0)


def test_a_failed_read_before_receive_and_delete_removes_nothing(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))
    house.settle(runner, RELEASE, *house.receive(runner))
    house.disk.failing_reads.add("payloads")

    answer = house.answer(runner, Receive(MAIN_LINE, 1, is_locking=False, token_seed=SEED))
    house.disk.failing_reads.clear()
    house.pass_s(1)

    assert not unknown(answer)
    assert payloads_of(house.receive(runner, is_locking=False)) == [b"a"]


@pytest.mark.parametrize("is_locking", [True, False])
def test_a_damaged_message_is_set_aside_and_the_rest_delivered(
    house: House, is_locking: bool
) -> None:
    """D4."""
    runner = house.runner()
    sent = house.answer(runner, send_of(b"a", b"b", b"c"))
    assert isinstance(sent, Sent)
    house.settle(runner, RELEASE, *house.receive(runner))
    house.disk.kept.damage(runner.fragment_id, sent.first + 1)

    deliveries = house.receive(runner, is_locking=is_locking)

    assert payloads_of(deliveries) == [b"a", b"c"]
    counters = house.disk.kept.load(runner.fragment_id).counters
    assert counters.set_aside == 1
    assert counters.lines[MAIN_LINE].count == (2 if is_locking else 0)


@pytest.mark.parametrize("is_another_damaged", [False, True])
def test_what_is_let_go_and_removed_before_it_was_read_is_not_damaged(
    house: House, is_another_damaged: bool
) -> None:
    """As when a broker stood still: its gateway gave up and let go, and somebody purges."""
    runner = house.runner()
    sent = house.answer(runner, send_of(b"a", b"b"))
    assert isinstance(sent, Sent)
    house.settle(runner, RELEASE, *house.receive(runner))
    if is_another_damaged:
        house.disk.kept.damage(runner.fragment_id, sent.first + 1)

    received = house.ask(runner, Receive(MAIN_LINE, 1, is_locking=True, token_seed=b"lost one"))
    house.ask(runner, Settle(RELEASE, [token_of_seed(0, b"lost one")]))
    house.ask(runner, Purge(MAIN_LINE, 1))
    others = house.receive(runner)

    [answer] = received
    assert isinstance(answer, Received)
    assert answer.deliveries == []
    assert payloads_of(others) == ([] if is_another_damaged else [b"b"])
    counters = house.disk.kept.load(runner.fragment_id).counters
    assert counters.set_aside == int(is_another_damaged)
    assert counters.lines[MAIN_LINE].count == int(not is_another_damaged)


def test_a_damaged_message_in_a_page_is_set_aside(house: House) -> None:
    """D4."""
    sent = house.answer(house.runner(), send_of(b"a", b"b"))
    assert isinstance(sent, Sent)
    runner = house.runner()
    house.disk.kept.damage(runner.fragment_id, sent.first)

    assert payloads_of(house.receive(runner)) == [b"b"]
    assert house.disk.kept.load(runner.fragment_id).counters.set_aside == 1


def test_new_rules_hold_for_the_next_command_and_after_a_reload(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a"))

    runner.configure(rules(size_bytes_max=1))
    assert isinstance(house.answer(runner, send_of(b"b")), Refused)
    house.disk.commit_failures.append("before")
    house.settle(runner, COMPLETE, *house.receive(runner))
    house.pass_s(1)

    assert isinstance(house.answer(runner, send_of(b"b")), Refused)


def test_browsing_shows_what_is_stored_and_touches_nothing(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(b"a", b"b"))
    house.receive(runner, 1)
    pages: list[Page | Unavailable] = []

    runner.browse(MAIN_LINE, start=0, count_max=10, bytes_max=1_000, then=pages.append)
    house.pass_s()

    [page] = pages
    assert isinstance(page, Page)
    assert [entry.payload for entry in page.entries] == [b"a", b"b"]
    assert payloads_of(house.receive(runner)) == [b"b"]


def test_browsing_a_disk_that_does_not_answer_is_unavailable(house: House) -> None:
    runner = house.runner()
    house.disk.failing_reads.add("browse")
    pages: list[Page | Unavailable] = []

    runner.browse(MAIN_LINE, start=0, count_max=10, bytes_max=1_000, then=pages.append)
    house.pass_s()

    assert isinstance(pages[0], Unavailable)


def stopped_with(house: House, runner: Runner) -> tuple[list[Answer], list[Answer]]:
    applied = house.ask(runner, send_of(b"a"))
    house.pass_s(house.latency_s / 2)
    waiting = house.ask(runner, send_of(b"b"))
    runner.stop()
    return applied, waiting


def test_stopping_answers_everyone_at_once_and_nobody_twice(house: House) -> None:
    runner = house.runner()
    house.pass_s()
    house.latency_s = 1.0

    applied, waiting = stopped_with(house, runner)
    # What was not even begun is certainly not stored.
    assert [unknown(applied[0]), unknown(waiting[0])] == [True, False]
    house.pass_s(10)

    assert (len(applied), len(waiting), runner.state) == (1, 1, UNAVAILABLE)
    assert not unknown(house.ask(runner, send_of(b"c"))[0])
    assert runner.statistics() is None


def test_stopping_before_the_first_load_is_final(house: House) -> None:
    runner = house.runner()
    answers = house.ask(runner, send_of(b"a"))

    runner.stop()
    house.pass_s(60)

    assert isinstance(answers[0], Unavailable) and not unknown(answers[0])
    assert not runner.is_available


def test_deleting_a_busy_fragment_does_not_fail_the_commits_of_others(house: House) -> None:
    """Its last commit may wait in the same transaction, behind the deletion."""
    first, doomed, other = (house.runner(number) for number in range(3))
    house.pass_s()
    house.latency_s = 1.0
    house.ask(first, send_of(b"a"))
    house.pass_s(0.5)
    told = house.ask(doomed, send_of(b"b"))
    answers = house.ask(other, send_of(b"c"))
    house.pass_s(0.1)

    doomed.stop()
    house.storage.write(lambda store: store.delete([doomed.fragment_id]), lambda _: None)
    house.pass_s(20)

    assert unknown(told[0])
    assert isinstance(answers[0], Sent)


def test_receives_of_one_turn_are_read_for_in_pieces(house: House) -> None:
    """However many receivers ask at once, what is read for them is in memory a piece at a time."""
    runner = house.runner()
    size_bytes = PAGE_BYTES_MAX // 2
    for _ in range(20):
        house.answer(runner, send_of(bytes(size_bytes)))
    deliveries: list[Delivery] = []
    while more := house.receive(runner):
        deliveries += more
    house.settle(runner, RELEASE, *deliveries)

    house.disk.payload_reads = []
    command = Receive(MAIN_LINE, 2, is_locking=True, token_seed=SEED)
    answers = [house.ask(runner, command) for _ in range(10)]
    house.pass_s()

    assert sum(house.disk.payload_reads) == 20
    most = LACKING_BYTES_MAX // size_bytes
    assert len(house.disk.payload_reads) > 1 and max(house.disk.payload_reads) <= most
    found = [one for [answer] in answers for one in deliveries_of(answer)]
    assert [one.entry.sequence_number for one in found] == list(range(1, 21))


def test_states_that_many_ask_for_at_once_are_read_in_pieces(house: House) -> None:
    runner = house.runner(fragment_rules=rules(requires_session=True, state_bytes_max=STATE_BYTES))
    tokens: list[bytes] = []
    for number in range(10):
        accepted = house.answer(runner, AcceptSession(str(number), number.to_bytes(8, "big")))
        assert isinstance(accepted, SessionAccepted)
        tokens.append(accepted.token)
        house.answer(runner, SetState(accepted.token, bytes(STATE_BYTES)))

    house.latency_s = 1.0
    answers = [house.ask(runner, GetState(token)) for token in tokens]
    house.pass_s(3)

    assert sum(len(answer) for answer in answers) == LACKING_BYTES_MAX // STATE_BYTES
    house.pass_s(10)
    for [answer] in answers:
        assert isinstance(answer, SessionState) and answer.state == bytes(STATE_BYTES)
