"""Sessions in a runner: what is read before they are given out, and who is woken (R26)."""

import pytest

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.runner import Runner
from shardbus.core.errors import SESSION_LOCK_LOST, Refused, Unavailable
from shardbus.core.message import MAIN_LINE, SESSIONS, Message
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    NO_SESSION,
    Delivery,
    Done,
    Receive,
    Received,
    Send,
    Sent,
    Settle,
    Settled,
)
from shardbus.core.sessions.command import (
    AcceptSession,
    GetState,
    NoSession,
    ReleaseSession,
    SessionAccepted,
    SessionState,
    SetState,
)
from shardbus.core.transactions.command import Decide, Transact, Work
from shardbus.stores.base.store import Page
from tests.unit.broker.house import SEED, House, payloads_of
from tests.unit.core.desk import LOCK_MS, rules

LONG_S = 10.0


def session_runner(house: House) -> Runner:
    runner = house.runner(0, rules(requires_session=True))
    house.pass_s()
    return runner


def send_to(session_id: str, *payloads: bytes, ttl_ms: int = -1) -> Send:
    return Send([Message(each, session_id=session_id, ttl_ms=ttl_ms) for each in payloads])


def sent_to(house: House, runner: Runner, session_id: str, *payloads: bytes) -> int:
    answer = house.answer(runner, send_to(session_id, *payloads))
    assert isinstance(answer, Sent)
    return answer.first


def accepted(house: House, runner: Runner, session_id: str | None = None) -> SessionAccepted:
    answer = house.answer(runner, AcceptSession(session_id, SEED))
    assert isinstance(answer, SessionAccepted)
    return answer


def receive_of(token: bytes, count_max: int = 10, *, is_locking: bool = True) -> Receive:
    return Receive(MAIN_LINE, count_max, is_locking=is_locking, token_seed=SEED, session=token)


def received(house: House, runner: Runner, token: bytes) -> list[Delivery]:
    answer = house.answer(runner, receive_of(token))
    assert isinstance(answer, Received)
    return answer.deliveries


def watched(runner: Runner, line: int, token: bytes = NO_SESSION) -> list[str]:
    woken: list[str] = []
    runner.watch(line, lambda: woken.append("woken"), token)
    return woken


def is_lost(answer: Answer) -> bool:
    return isinstance(answer, Refused) and answer.kind is SESSION_LOCK_LOST


def test_the_next_session_is_read_before_it_is_given_out(house: House) -> None:
    sent_to(house, session_runner(house), "a", b"1", b"2")
    runner = session_runner(house)

    held = accepted(house, runner)

    assert held.session_id == "a"
    assert payloads_of(received(house, runner, held.token)) == [b"1", b"2"]
    assert house.disk.reads.count("sessions") == 1
    assert house.disk.reads.count("session") == 1


def test_no_free_session_is_said_without_reading_when_none_can_be_there(house: House) -> None:
    runner = session_runner(house)

    assert isinstance(house.answer(runner, AcceptSession(None, SEED)), NoSession)
    assert house.disk.reads == ["load"]


def test_several_who_want_the_next_session_get_one_each(house: House) -> None:
    runner = session_runner(house)
    for name in "abc":
        sent_to(house, runner, name, b"m")

    answers = [house.ask(runner, AcceptSession(None, SEED)) for _ in range(4)]
    house.pass_s()

    names = [each.session_id for [each] in answers if isinstance(each, SessionAccepted)]
    assert names == ["a", "b", "c"]
    assert isinstance(answers[3][0], NoSession)


def test_a_session_whose_messages_expired_meanwhile_is_not_given_out(house: House) -> None:
    house.answer(session_runner(house), send_to("a", b"m", ttl_ms=500))
    house.disk.failing_reads.add("due")
    runner = session_runner(house)
    house.pass_s(1)
    house.disk.failing_reads.clear()
    house.pass_s(10)

    assert isinstance(house.answer(runner, AcceptSession(None, SEED)), NoSession)


def test_a_tick_between_reading_and_deciding_waits(house: House) -> None:
    """What was read for a command is good for that command alone."""
    runner = session_runner(house)
    first = accepted(house, runner, "held")
    sent_to(house, runner, "a", b"m")
    house.pass_s(LOCK_MS / 1000 - 0.5)
    house.latency_s = 0.4

    answers = house.ask(runner, AcceptSession(None, SEED))
    house.pass_s(2)

    assert isinstance(answers[0], SessionAccepted) and answers[0].session_id == "a"
    assert house.disk.reads.count("session") == 1
    house.latency_s = 0.001
    house.pass_s(1)
    assert is_lost(house.answer(runner, receive_of(first.token)))


def test_a_failed_read_of_a_session_turns_its_receiver_away_and_loads_again(house: House) -> None:
    sent_to(house, session_runner(house), "a", b"m")
    runner = session_runner(house)
    house.disk.failing_reads.add("session")

    answer = house.answer(runner, AcceptSession(None, SEED))
    house.disk.failing_reads.clear()
    house.pass_s(1)

    assert isinstance(answer, Unavailable) and not answer.is_unknown
    assert accepted(house, runner).session_id == "a"


def test_who_waits_for_a_session_is_woken_once_when_one_has_messages(house: House) -> None:
    """R19: no polling."""
    runner = session_runner(house)
    woken = watched(runner, SESSIONS)

    sent_to(house, runner, "a", b"1")
    sent_to(house, runner, "b", b"2")

    assert woken == ["woken"]


def test_who_waits_for_a_session_is_woken_when_one_with_messages_is_released(house: House) -> None:
    runner = session_runner(house)
    sent_to(house, runner, "a", b"1")
    held = accepted(house, runner)
    woken = watched(runner, SESSIONS)
    house.pass_s()
    assert woken == []

    house.answer(runner, ReleaseSession(held.token))

    assert woken == ["woken"]


def test_who_waits_for_a_session_is_woken_when_a_hold_expires(house: House) -> None:
    runner = session_runner(house)
    sent_to(house, runner, "a", b"1")
    held = accepted(house, runner)
    received(house, runner, held.token)
    woken = watched(runner, SESSIONS)

    house.pass_s(LOCK_MS / 1000 + 1)

    assert woken == ["woken"]


def test_who_waits_for_messages_of_a_session_is_woken_by_those_alone(house: House) -> None:
    runner = session_runner(house)
    held = accepted(house, runner, "a")
    assert received(house, runner, held.token) == []
    woken = watched(runner, MAIN_LINE, held.token)

    sent_to(house, runner, "b", b"other")
    assert woken == []
    sent_to(house, runner, "a", b"mine")

    assert woken == ["woken"]
    assert payloads_of(received(house, runner, held.token)) == [b"mine"]


def test_who_waits_for_messages_of_a_session_is_woken_by_one_that_comes_back(house: House) -> None:
    runner = session_runner(house)
    sent_to(house, runner, "a", b"1")
    held = accepted(house, runner, "a")
    [delivery] = received(house, runner, held.token)
    woken = watched(runner, MAIN_LINE, held.token)
    house.pass_s()
    assert woken == []

    house.settle(runner, ABANDON, delivery)

    assert woken == ["woken"]


def test_who_waits_for_messages_of_a_session_is_woken_when_it_is_lost(house: House) -> None:
    runner = session_runner(house)
    held = accepted(house, runner, "a")
    assert received(house, runner, held.token) == []
    woken = watched(runner, MAIN_LINE, held.token)

    house.pass_s(LOCK_MS / 1000 + 1)

    assert woken == ["woken"]
    assert is_lost(house.answer(runner, receive_of(held.token)))


def test_who_watches_a_session_that_is_not_held_is_woken_soon(house: House) -> None:
    runner = session_runner(house)

    woken = watched(runner, MAIN_LINE, bytes(16))
    house.pass_s(0)

    assert woken == ["woken"]


def test_a_reload_loses_every_session_and_wakes_whoever_waits(house: House) -> None:
    """ADR 0002."""
    runner = session_runner(house)
    held = accepted(house, runner, "a")
    assert received(house, runner, held.token) == []
    woken = watched(runner, MAIN_LINE, held.token)
    house.disk.commit_failures.append("before")

    house.answer(runner, send_to("b", b"fails"))
    house.pass_s(1)

    assert woken == ["woken"]
    assert is_lost(house.answer(runner, receive_of(held.token)))


def test_who_stopped_watching_a_session_is_not_woken(house: House) -> None:
    runner = session_runner(house)
    held = accepted(house, runner, "a")
    assert received(house, runner, held.token) == []
    woken: list[str] = []

    def wake() -> None:
        woken.append("woken")

    runner.watch(MAIN_LINE, wake, held.token)
    runner.unwatch(MAIN_LINE, wake, held.token)
    runner.unwatch(MAIN_LINE, wake, held.token)
    sent_to(house, runner, "a", b"m")

    assert woken == []


def test_a_receive_in_a_session_is_answered_while_a_removal_is_being_stored(house: House) -> None:
    runner = session_runner(house)
    sent_to(house, runner, "a", b"1", b"2")
    held = accepted(house, runner)
    first, second = received(house, runner, held.token)
    house.settle(runner, COMPLETE, second)
    sent_to(house, runner, "a", b"3")
    house.latency_s = LONG_S

    completed = house.ask(runner, Settle(COMPLETE, [first.token]))
    house.pass_s()
    beside = house.ask(runner, receive_of(held.token))
    house.pass_s()

    assert completed == []
    [answer] = beside
    assert isinstance(answer, Received) and payloads_of(answer.deliveries) == [b"3"]
    house.pass_s(3 * LONG_S)
    assert isinstance(completed[0], Settled)


def test_a_lost_session_is_not_received_from_beside_a_removal_either(house: House) -> None:
    runner = session_runner(house)
    sent_to(house, runner, "a", b"1", b"2")
    held = accepted(house, runner)
    answer = house.answer(runner, receive_of(held.token, 1))
    assert isinstance(answer, Received)
    house.latency_s = 2 * LOCK_MS / 1000

    house.ask(runner, Settle(COMPLETE, [answer.deliveries[0].token]))
    house.pass_s(LOCK_MS / 1000 + 1)
    late = house.ask(runner, receive_of(held.token))
    house.pass_s(6 * LOCK_MS / 1000)

    assert is_lost(late[0])


def test_receive_and_delete_in_a_session_reads_what_came_back(house: House) -> None:
    runner = session_runner(house)
    sent_to(house, runner, "a", b"1", b"2")
    held = accepted(house, runner)
    house.settle(runner, ABANDON, *received(house, runner, held.token))

    answer = house.answer(runner, receive_of(held.token, is_locking=False))

    assert isinstance(answer, Received)
    assert payloads_of(answer.deliveries) == [b"1", b"2"]


def test_a_state_is_read_as_it_was_when_it_was_asked_for(house: House) -> None:
    runner = session_runner(house)
    token = accepted(house, runner, "a").token
    house.answer(runner, SetState(token, b"first"))

    before = house.ask(runner, GetState(token))
    changed = house.ask(runner, SetState(token, b"second"))
    after = house.ask(runner, GetState(token))
    house.pass_s()

    assert isinstance(before[0], SessionState) and before[0].state == b"first"
    assert isinstance(changed[0], Done)
    assert isinstance(after[0], SessionState) and after[0].state == b"second"


@pytest.mark.parametrize("is_deciding", [False, True])
def test_a_state_is_read_as_it_was_before_a_transaction_set_it(
    house: House, is_deciding: bool
) -> None:
    runner = session_runner(house)
    token = accepted(house, runner, "a").token
    house.answer(runner, SetState(token, b"first"))
    work = Work([], [])
    work.states.append(SetState(token, b"second"))

    before = house.ask(runner, GetState(token))
    house.ask(runner, Decide(bytes(16), work, []) if is_deciding else Transact(work))
    after = house.ask(runner, GetState(token))
    house.pass_s()

    assert isinstance(before[0], SessionState) and before[0].state == b"first"
    assert isinstance(after[0], SessionState) and after[0].state == b"second"


def test_a_state_that_cannot_be_read_is_unavailable_and_the_fragment_stays(house: House) -> None:
    runner = session_runner(house)
    token = accepted(house, runner, "a").token
    house.answer(runner, SetState(token, b"state"))
    house.disk.kept.damage_state(runner.fragment_id, "a")

    answer = house.answer(runner, GetState(token))

    assert isinstance(answer, Unavailable)
    assert runner.is_available
    assert isinstance(house.answer(runner, SetState(token, b"anew")), Done)
    state = house.answer(runner, GetState(token))
    assert isinstance(state, SessionState) and state.state == b"anew"


def test_a_state_is_not_replaced_while_the_disk_cannot_tell_whether_there_is_one(
    house: House,
) -> None:
    """Otherwise it would be counted twice."""
    runner = session_runner(house)
    token = accepted(house, runner, "a").token
    house.disk.failing_reads.add("state")

    answer = house.answer(runner, SetState(token, b"state"))
    house.disk.failing_reads.clear()
    house.pass_s(1)

    assert isinstance(answer, Unavailable) and not answer.is_unknown
    again = accepted(house, runner, "a").token
    assert isinstance(house.answer(runner, SetState(again, b"state")), Done)
    assert house.disk.kept.load(runner.fragment_id).counters.states == 1


def test_one_session_can_be_browsed(house: House) -> None:
    runner = session_runner(house)
    sent_to(house, runner, "a", b"1")
    sent_to(house, runner, "b", b"2")
    pages: list[Page | Unavailable] = []

    runner.browse(
        MAIN_LINE, start=0, count_max=10, bytes_max=100, then=pages.append, session_id="b"
    )
    house.pass_s()

    [page] = pages
    assert isinstance(page, Page)
    assert [entry.payload for entry in page.entries] == [b"2"]


def test_sessions_are_listed_as_they_are_stored(house: House) -> None:
    runner = session_runner(house)
    sent_to(house, runner, "a", b"1")
    house.answer(runner, SetState(accepted(house, runner, "b").token, b"state"))
    lists: list[list[str] | Unavailable] = []

    for updated_after_ms in (-1, 0):
        runner.list_sessions(
            updated_after_ms=updated_after_ms, skip=0, count_max=10, then=lists.append
        )
    house.pass_s()

    assert lists == [["a", "b"], ["b"]]


def test_a_list_that_cannot_be_read_is_unavailable(house: House) -> None:
    runner = session_runner(house)
    house.disk.failing_reads.add("session list")
    lists: list[list[str] | Unavailable] = []

    runner.list_sessions(updated_after_ms=-1, skip=0, count_max=10, then=lists.append)
    house.pass_s()

    assert isinstance(lists[0], Unavailable)


def test_a_session_whose_time_ran_out_while_another_was_read_is_found_next(house: House) -> None:
    """Found by the simulator (linked clocks, seeds 817 and 927): nobody was told of it."""
    runner = session_runner(house)
    sent_to(house, runner, "overdue", b"1")
    accepted(house, runner)
    sent_to(house, runner, "free", b"2")
    house.pass_s(LOCK_MS / 1000 - 1)
    house.latency_s = 2.0

    answers = [house.ask(runner, AcceptSession(None, seed)) for seed in (SEED, bytes(8))]
    house.pass_s(LONG_S)

    given = [answer.session_id for [answer] in answers if isinstance(answer, SessionAccepted)]
    assert given == ["free", "overdue"]
