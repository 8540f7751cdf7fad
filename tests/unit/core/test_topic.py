"""A topic numbers what is sent and keeps only what is scheduled; a subscription takes over what
comes.
"""

import pytest

from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.fragment.change import Append, Change, RecordChange, Update
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.message import ACTIVE, DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS, Entry, Message
from shardbus.core.messages.command import Cancel, Send, Sent
from tests.unit.core.desk import START_MS, Desk, rules


def topic(**options: int) -> Desk:
    return Desk(
        rules(
            is_topic=True,
            duplicate_window_ms=options.get("duplicate_window_ms", 0),
            default_ttl_ms=options.get("default_ttl_ms", -1),
            size_bytes_max=options.get("size_bytes_max", 1 << 40),
        )
    )


def entry(
    number: int,
    payload: bytes = b"a",
    *,
    session_id: str | None = None,
    expires_at_ms: int = NEVER_MS,
    reason: str | None = None,
) -> Entry:
    return Entry(
        number,
        payload,
        len(payload),
        enqueued_at_ms=START_MS,
        expires_at_ms=expires_at_ms,
        session_id=session_id,
        reason=reason,
        description=None if reason is None else f"because of {reason}",
    )


def deliver(desk: Desk, *entries: Entry) -> list[Change]:
    changes = desk.deliver(list(entries))
    desk.go_on()
    return changes


def published(desk: Desk) -> list[tuple[int, bytes | None]]:
    return [(each.sequence_number, each.payload) for each in desk.fragment.published()]


def test_what_is_sent_to_a_topic_is_numbered_and_published_but_not_kept() -> None:
    desk = topic()

    numbers = desk.send(b"a", b"b")

    assert published(desk) == [(numbers[0], b"a"), (numbers[1], b"b")]
    assert published(desk) == []
    assert desk.shelf.entries == {}
    assert desk.receive(10) == []


def test_numbers_go_on_after_a_reload_although_nothing_was_kept() -> None:
    desk = topic()
    first = desk.send(b"a")

    desk.reload()

    assert desk.send(b"b") == [first[0] + 1]


def test_further_copies_get_numbers_that_nothing_else_has() -> None:
    desk = topic()
    [number] = desk.send(b"a")

    first = desk.fragment.number_copies(2)

    assert first == number + 1
    assert desk.send(b"b") == [number + 3]


def test_a_scheduled_message_is_published_when_its_moment_comes() -> None:
    desk = topic()
    [number] = desk.send(b"later", session_id="s", scheduled_at_ms=START_MS + 1_000)
    assert published(desk) == [] and len(desk.shelf.entries) == 1
    desk.reload()

    desk.wait(1_000)
    [due] = desk.fragment.published()

    assert due.sequence_number == number + 1
    assert (due.payload, due.session_id, due.state) == (b"later", "s", ACTIVE)
    assert due.enqueued_at_ms == START_MS + 1_000
    assert desk.shelf.entries == {}
    assert desk.shelf.counters.lines[MAIN_LINE].scheduled == 0


def test_a_scheduled_message_of_a_topic_can_be_cancelled() -> None:
    desk = topic()
    numbers = desk.send(b"later", scheduled_at_ms=START_MS + 1_000)

    desk.do(Cancel(numbers))
    desk.wait(2_000)

    assert published(desk) == []


def test_a_duplicate_is_published_once_even_if_nobody_kept_it() -> None:
    desk = topic(duplicate_window_ms=60_000)

    first = desk.send_all([Message(b"a", message_id="1")])
    again = desk.send_all([Message(b"a", message_id="1"), Message(b"b", message_id="2")])
    desk.reload()
    late = desk.send_all([Message(b"b", message_id="2")])

    assert (first.count, again.duplicates, late.duplicates) == (1, [0], [0])
    assert desk.shelf.counters.duplicates == 2


def test_what_subscriptions_hold_counts_towards_the_size_of_the_topic() -> None:
    desk = topic(size_bytes_max=10)
    desk.send(b"12345")
    assert not desk.fragment.is_full()

    desk.fragment.note_subscribed(10)

    assert desk.fragment.is_full()
    with pytest.raises(Refused) as refusal:
        desk.send(b"1")
    assert refusal.value.kind is QUOTA_EXCEEDED
    assert [payload for _, payload in published(desk)] == [b"12345"]


def test_the_time_to_live_of_what_is_published_wakes_nobody_at_the_topic() -> None:
    desk = topic(default_ttl_ms=5_000)

    desk.send(b"a")
    [due] = desk.fragment.published()

    assert due.expires_at_ms == START_MS + 5_000
    assert desk.wake_at_ms() == NEVER_MS


def test_delivered_messages_keep_their_numbers_and_wait_in_order() -> None:
    desk = Desk()

    deliver(desk, entry(3, b"a"), entry(7, b"b"))
    deliver(desk, entry(8, b"c"))

    found = desk.receive(10)
    assert [(one.entry.sequence_number, one.payload) for one in found] == [
        (3, b"a"),
        (7, b"b"),
        (8, b"c"),
    ]
    assert desk.shelf.counters.lines[MAIN_LINE].count == 3
    assert desk.shelf.counters.last_counter == 8


def test_delivered_messages_are_there_after_a_reload() -> None:
    desk = Desk()
    deliver(desk, entry(3, b"a"), entry(7, b"b"))

    desk.reload()

    assert desk.payloads(10) == [b"a", b"b"]


def test_the_time_to_live_of_the_subscription_ends_that_of_the_topic() -> None:
    """The topic's default caps at publishing, then the subscription's again."""
    desk = Desk(rules(default_ttl_ms=5_000, dead_letters_on_expiration=True))
    long, short = entry(1, b"long"), entry(2, b"short", expires_at_ms=START_MS + 1_000)

    deliver(desk, long, short, entry(3, b"longer", expires_at_ms=START_MS + 9_000))

    assert [each.expires_at_ms - START_MS for each in (long, short)] == [5_000, 1_000]
    desk.wait(1_000)
    assert desk.payloads(10, line=DEAD_LETTER_LINE) == [b"short"]
    desk.wait(4_000)
    assert desk.payloads(10, line=DEAD_LETTER_LINE) == [b"long", b"longer"]
    assert desk.receive(10) == []


def test_a_message_without_session_is_a_dead_letter_of_a_session_subscription() -> None:
    desk = Desk(rules(requires_session=True))

    deliver(desk, entry(1, b"a", session_id="s"), entry(2, b"lost"), entry(3, b"b", session_id="s"))

    held = desk.accept("s")
    assert desk.payloads(10, session=held.token) == [b"a", b"b"]
    [dead] = desk.receive(10, line=DEAD_LETTER_LINE)
    assert dead.payload == b"lost"
    assert dead.entry.reason == "Session id is null."
    assert dead.entry.description is not None and dead.entry.description.startswith("Session en")


def test_a_held_session_gets_what_is_delivered_to_it() -> None:
    desk = Desk(rules(requires_session=True))
    held = desk.accept("s")

    deliver(desk, entry(1, b"a", session_id="s"))

    assert desk.fragment.stirred() == [held.token]
    assert desk.payloads(10, session=held.token) == [b"a"]


def test_a_subscription_without_sessions_does_not_remember_them() -> None:
    desk = Desk()

    deliver(desk, entry(1, b"a", session_id="s"))

    assert desk.receive()[0].entry.session_id is None


def test_a_copy_that_comes_with_a_reason_is_a_dead_letter() -> None:
    desk = Desk(rules(default_ttl_ms=1_000))

    changes = deliver(desk, entry(1, b"a"), entry(2, b"bad", reason="FilterException"))

    assert [type(change) for change in changes] == [RecordChange, Append, Update]
    assert desk.payloads(10) == [b"a"]
    desk.wait(10_000)
    [dead] = desk.receive(10, line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.entry.reason) == (b"bad", "FilterException")
    assert dead.entry.description == "because of FilterException"
    assert [line.count for line in desk.shelf.counters.lines] == [1, 1, 0]


def test_a_delivery_beyond_the_window_is_read_from_the_store_in_order() -> None:
    desk = Desk()
    count = 5_000

    for start in range(1, count, 100):
        deliver(desk, *(entry(2 * number, b"%d" % number) for number in range(start, start + 100)))

    received: list[bytes | None] = []
    while found := desk.payloads(500):
        received += found
    assert received == [b"%d" % number for number in range(1, count + 1)]


def test_a_refused_send_publishes_nothing() -> None:
    desk = topic(size_bytes_max=0)

    with pytest.raises(Refused):
        desk.send(b"a")

    assert published(desk) == []


def test_a_plain_queue_publishes_nothing() -> None:
    fragment = Fragment(0, rules(), Desk().shelf.counters.copy(), NEVER_MS)

    outcome = fragment.apply(Send([Message(b"a")]), START_MS)

    assert isinstance(outcome.reply, Sent)
    assert fragment.published() == []


# What was published before a subscription existed (P5).


def past(
    number: int, payload: bytes, *, session_id: str | None = None, reason: str | None = None
) -> Entry:
    made = entry(number, payload, session_id=session_id, reason=reason)
    made.past_number = number
    return made


def filled(*, requires_session: bool = False) -> Desk:
    """A subscription that began with number 8, and was filled with 2, 4 and 6, in two parts."""
    desk = Desk(rules(requires_session=requires_session))
    deliver(desk, entry(8, b"8", session_id="s"))
    deliver(desk, past(2, b"2", session_id="t"), past(4, b"4", session_id="s"))
    deliver(desk, past(6, b"6", session_id="u"), entry(9, b"9", session_id="s"))
    return desk


def test_earlier_messages_come_at_their_places_in_the_order() -> None:
    desk = filled()

    assert desk.payloads(10) == [b"2", b"4", b"6", b"8", b"9"]


def test_earlier_messages_are_at_their_places_after_a_reload() -> None:
    desk = filled()

    desk.reload()

    assert desk.payloads(10) == [b"2", b"4", b"6", b"8", b"9"]
    assert desk.shelf.counters.lines[MAIN_LINE].count == 5


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_no_earlier_message_comes_twice(is_reloaded: bool) -> None:
    """Neither what was filled in, nor what came as it was published."""
    desk = filled()
    desk.payloads(10)
    if is_reloaded:
        desk.reload()

    deliver(desk, past(4, b"4"), past(6, b"6"), past(7, b"7"), past(8, b"8"), past(9, b"9"))

    assert desk.shelf.counters.lines[MAIN_LINE].count == 6
    assert [each.payload for each in desk.shelf.entries.values()].count(b"7") == 1


def test_further_copies_of_earlier_messages_come_with_the_first_or_not_at_all() -> None:
    """Of 4, 7 and 9 only 7 was not here before; its further copy has a new number."""
    desk = filled()
    again = [past(4, b"4"), past(7, b"7"), past(9, b"9")]
    further = [past(20, b"4'"), past(21, b"7'"), past(22, b"9'")]
    for first, other in zip(again, further, strict=True):
        other.past_number = first.sequence_number

    deliver(desk, *again, *further, entry(23, b"23"))

    assert desk.payloads(10) == [b"2", b"4", b"6", b"7", b"8", b"9", b"7'", b"23"]


def test_earlier_messages_come_first_where_none_came_yet() -> None:
    desk = Desk()
    deliver(desk, past(3, b"3"))
    deliver(desk, past(5, b"5"), entry(7, b"7"))
    deliver(desk, past(6, b"6"), past(7, b"again"))

    assert desk.payloads(10) == [b"3", b"5", b"6", b"7"]


def test_earlier_messages_belong_to_their_sessions() -> None:
    desk = filled(requires_session=True)
    desk.reload()

    assert [desk.accept().session_id for _ in range(3)] == ["t", "s", "u"]
    assert desk.shelf.counters.lines[MAIN_LINE].count == 5


def test_an_earlier_message_that_cannot_be_received_is_a_dead_letter() -> None:
    desk = filled()

    deliver(desk, past(7, b"bad", reason="FilterException"))

    [dead] = desk.receive(10, line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.entry.reason) == (b"bad", "FilterException")
    assert [line.count for line in desk.shelf.counters.lines] == [5, 1, 0]


def test_a_subscription_that_did_not_note_its_beginning_is_not_filled() -> None:
    """One of a build that did not know of this."""
    desk = Desk()
    deliver(desk, entry(8, b"8"))
    desk.shelf.kept.records.clear()
    desk.reload()

    deliver(desk, past(4, b"4"))

    assert desk.payloads(10) == [b"8"]


def test_a_topic_publishes_earlier_messages_under_their_numbers() -> None:
    desk = topic()
    [first, second] = desk.send(b"a", b"b")
    published(desk)

    past_message = Message(b"a", subscription_id=5, past_number=first)
    desk.send_all([past_message, Message(b"c", subscription_id=5)])

    again, only = desk.fragment.published()
    assert (again.sequence_number, again.past_number, again.subscription_id) == (first, first, 5)
    assert (only.sequence_number, only.past_number, only.subscription_id) == (second + 1, 0, 5)


def test_a_message_for_one_subscription_is_no_duplicate() -> None:
    desk = topic(duplicate_window_ms=10_000)
    for payload, message_id, only in (
        (b"a", "x", 0),
        (b"b", "x", 5),
        (b"c", "y", 5),
        (b"d", "y", 0),
    ):
        desk.send_all([Message(payload, message_id=message_id, subscription_id=only)])

    assert [payload for _, payload in published(desk)] == [b"a", b"b", b"c", b"d"]
