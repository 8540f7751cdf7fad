"""Duplicate detection: accepted, dropped and counted within the window (R13)."""

import pytest

from shardbus.core.errors import NOT_ALLOWED, QUOTA_EXCEEDED, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import ForgetIds, Remember
from shardbus.core.limits import DIGEST_BYTES
from shardbus.core.message import MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import Send
from tests.support.refusals import refusal_of
from tests.unit.core.desk import START_MS, Desk, rules

WINDOW_MS = 20_000


def desk_with(
    *, is_partitioned: bool = False, requires_session: bool = False, size_bytes_max: int = 1 << 40
) -> Desk:
    return Desk(
        rules(
            duplicate_window_ms=WINDOW_MS,
            is_partitioned=is_partitioned,
            requires_session=requires_session,
            size_bytes_max=size_bytes_max,
        )
    )


def message(
    message_id: str | None, key: str | None = None, scheduled_at_ms: int = NEVER_MS
) -> Message:
    return Message(b"m", message_id=message_id, partition_key=key, scheduled_at_ms=scheduled_at_ms)


def duplicates(desk: Desk, *message_ids: str | None) -> list[int]:
    return desk.send_all([message(each) for each in message_ids]).duplicates


def waiting(desk: Desk) -> int:
    return desk.shelf.counters.lines[MAIN_LINE].count


def test_a_repeated_id_is_accepted_and_dropped() -> None:
    desk = desk_with()
    first = desk.send_all([message("1")])

    second = desk.send_all([message("1")])

    assert (first.count, first.duplicates) == (1, [])
    assert (second.count, second.duplicates, second.numbers()) == (0, [0], [0])
    assert waiting(desk) == 1


def test_a_repeat_is_a_duplicate_until_just_before_the_end_of_the_window() -> None:
    desk = desk_with()
    duplicates(desk, "1")

    desk.now_ms = START_MS + WINDOW_MS - 1
    assert duplicates(desk, "1") == [0]
    desk.now_ms = START_MS + WINDOW_MS
    assert duplicates(desk, "1") == []


def test_the_window_runs_from_the_acceptance_and_not_from_the_last_repeat() -> None:
    desk = desk_with()
    duplicates(desk, "1")
    desk.wait(WINDOW_MS - 1)
    duplicates(desk, "1")

    desk.wait(1)

    assert duplicates(desk, "1") == []


def test_duplicates_within_one_send_count_too_and_the_first_wins() -> None:
    desk = desk_with()

    sent = desk.send_all([message("1"), message("2"), message("1"), message(None), message("2")])

    assert sent.duplicates == [2, 4]
    assert sent.numbers() == [sent.first, sent.first + 1, 0, sent.first + 2, 0]


def test_messages_without_an_id_are_never_duplicates() -> None:
    desk = desk_with()

    assert duplicates(desk, None, None) == []
    assert waiting(desk) == 2


def test_an_id_is_remembered_after_its_message_is_gone() -> None:
    desk = desk_with()
    duplicates(desk, "1")
    desk.receive(is_locking=False)

    assert duplicates(desk, "1") == [0]


def test_ids_are_remembered_across_a_reload() -> None:
    desk = desk_with()
    duplicates(desk, "1", "2")
    desk.wait(WINDOW_MS - 1)
    duplicates(desk, "3")
    desk.reload()

    assert duplicates(desk, "1", "2", "3") == [0, 1, 2]
    desk.wait(1)
    desk.reload()
    assert duplicates(desk, "1", "2", "3") == [2]


def test_duplicates_are_counted_and_the_count_is_stored_at_once() -> None:
    desk = desk_with()
    duplicates(desk, "1")

    duplicates(desk, "1", "1")

    assert desk.shelf.counters.duplicates == 2


def test_the_same_id_with_another_key_is_no_duplicate_where_partitioned() -> None:
    desk = desk_with(is_partitioned=True)
    desk.send_all([message("1", "k")])

    assert desk.send_all([message("1", "m")]).duplicates == []
    assert desk.send_all([message("1", "k")]).duplicates == [0]


def test_a_scheduled_message_is_compared_when_it_is_sent_and_not_when_it_is_activated() -> None:
    desk = desk_with()
    desk.send_all([message("1", scheduled_at_ms=START_MS + 1_000)])

    assert duplicates(desk, "1") == [0]
    desk.wait(1_000)

    assert waiting(desk) == 1


def test_without_a_window_nothing_is_a_duplicate() -> None:
    desk = Desk()

    assert duplicates(desk, "1", "1") == []
    assert desk.shelf.kept.remembered == []


def test_a_refused_send_remembers_nothing() -> None:
    desk = desk_with(requires_session=True)
    with_session = Message(b"m", message_id="1", session_id="s")

    with pytest.raises(Refused) as refusal:
        desk.send_all([with_session, message("2")])

    assert refusal.value.kind is NOT_ALLOWED
    assert desk.send_all([with_session]).duplicates == []


def test_a_full_fragment_refuses_duplicates_too() -> None:
    """The quota is checked first."""
    desk = desk_with(size_bytes_max=1)
    duplicates(desk, "1")

    with pytest.raises(Refused) as refusal:
        desk.send_all([message("1")])

    assert refusal.value.kind is QUOTA_EXCEEDED


def test_there_is_a_most_of_ids() -> None:
    desk = Desk(rules(duplicate_window_ms=WINDOW_MS), bounds=Bounds(remembered_max=3))
    duplicates(desk, "1", "2")
    desk.now_ms += 1

    with refusal_of(QUOTA_EXCEEDED):
        desk.send_all([message("3"), message("4")])

    assert duplicates(desk, "1", "3") == [0]
    desk.now_ms = START_MS + WINDOW_MS
    assert duplicates(desk, "4", "5") == []


def test_a_shorter_window_holds_from_now_on() -> None:
    desk = desk_with()
    duplicates(desk, "1")
    desk.now_ms += 5_000

    desk.fragment.configure(rules(duplicate_window_ms=5_000))

    assert duplicates(desk, "1") == []


def test_new_ids_are_stored_with_their_messages() -> None:
    desk = desk_with()

    changes = desk.fragment.apply(
        Send([message("1"), message(None)]), START_MS, desk.steady_ms
    ).changes

    [remember] = [change for change in changes if isinstance(change, Remember)]
    assert (remember.at_ms, len(remember.digests)) == (START_MS, DIGEST_BYTES)


def test_the_store_is_told_to_forget_now_and_then() -> None:
    desk = desk_with()
    rows = 0
    for number in range(2_000):
        duplicates(desk, str(number))
        desk.now_ms += WINDOW_MS // 100
        rows = max(rows, len(desk.shelf.kept.remembered))

    assert rows <= 110
    assert duplicates(desk, "1999", "1950", "1890") == [0, 1]


def test_when_nobody_sends_any_more_everything_is_given_back() -> None:
    desk = desk_with()
    duplicates(desk, "1")
    desk.wait(1_000)
    duplicates(desk, "2")
    assert desk.wake_at_ms() == START_MS + WINDOW_MS

    desk.wait(WINDOW_MS - 1_000)
    assert desk.wake_at_ms() == START_MS + 1_000 + WINDOW_MS
    desk.wait(1_000)

    assert desk.wake_at_ms() == 0
    assert desk.shelf.kept.remembered == []
    assert len(desk.fragment._entrance._history) == 0


def test_rows_of_nothing_but_expired_ids_are_forgotten_after_a_reload() -> None:
    desk = desk_with()
    duplicates(desk, "1")
    desk.now_ms += WINDOW_MS
    desk.reload()

    outcome = desk.fragment.apply(Send([message("2")]), desk.now_ms, desk.steady_ms)

    assert any(isinstance(change, ForgetIds) for change in outcome.changes)
