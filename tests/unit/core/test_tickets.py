"""What a fragment remembers of numbered sends, for who has lost the answer."""

import pytest

from shardbus.core.errors import QUOTA_EXCEEDED, SERVER_BUSY, Refused
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.records import TICKETS
from shardbus.core.limits import (
    TICKET_GAPS_MAX,
    TICKET_REPLIES_MAX,
    TICKET_SENDERS_MAX,
    TICKETS_ASKED_MS,
    TICKETS_KEPT_MS,
    TICKETS_LOADED_KEPT_MS,
)
from shardbus.core.message import Message
from shardbus.core.messages.command import Send, Sent, Ticket
from shardbus.core.tickets.command import AskTickets, Judged
from shardbus.core.transactions.command import (
    ROLLED_BACK,
    AskDecision,
    Decide,
    Decided,
    Transact,
    Work,
)
from tests.unit.core.desk import Desk, rules

ME = b"me"


def send(
    desk: Desk, number: int, front: int = 1, *, sender: bytes = ME, keeps_reply: bool = False
) -> Sent:
    ticket = Ticket(sender, number, front, keeps_reply=keeps_reply)
    reply = desk.do(Send([Message(b"%d" % number)], ticket))
    assert isinstance(reply, Sent)
    return reply


def ask(desk: Desk, *numbers: int, front: int = 1, sender: bytes = ME) -> list[bool]:
    reply = desk.do(AskTickets(sender, list(numbers), front))
    assert isinstance(reply, Judged)
    return reply.stored


def is_busy(desk: Desk, number: int, front: int = 1, sender: bytes = ME) -> bool:
    with pytest.raises(Refused) as refused:
        send(desk, number, front, sender=sender)
    return refused.value.kind is SERVER_BUSY


def kept(desk: Desk) -> int:
    return sum(kind == TICKETS for kind, _ in desk.shelf.kept.records)


def test_what_was_stored_is_known_after_a_restart() -> None:
    desk = Desk()
    send(desk, 1)
    desk.reload()

    assert ask(desk, 1, 2) == [True, False]


def test_what_was_told_not_to_be_stored_never_will_be() -> None:
    """Its frame may still be on the way, on a connection that is lost already."""
    desk = Desk()

    assert ask(desk, 3) == [False]
    desk.reload()

    assert is_busy(desk, 3)
    # What was given to the same connection before cannot come any more either.
    assert is_busy(desk, 2)
    assert ask(desk, 2, 3) == [False, False]
    send(desk, 4)
    assert ask(desk, 6) == [False]
    assert is_busy(desk, 5)
    assert is_busy(desk, 6)
    assert desk.shelf.counters.lines[0].count == 1


def test_a_refused_send_is_not_stored_and_those_after_it_are() -> None:
    desk = Desk(rules(size_bytes_max=1))
    send(desk, 1)
    with pytest.raises(Refused) as refused:
        send(desk, 2)
    assert refused.value.kind is QUOTA_EXCEEDED
    desk.fragment.configure(rules())
    send(desk, 3)
    desk.reload()

    assert ask(desk, 1, 2, 3) == [True, False, True]


def test_senders_do_not_know_of_each_other() -> None:
    desk = Desk()
    send(desk, 1)
    send(desk, 1, sender=b"other")
    send(desk, 2, sender=b"other")

    assert ask(desk, 1, 2) == [True, False]
    assert ask(desk, 1, 2, sender=b"other") == [True, True]


def test_transactions_have_numbers_too() -> None:
    desk = Desk()
    work = Work([Message(b"x")], [])
    desk.do(Transact(work, Ticket(ME, 1, 1)))
    desk.do(Decide(b"first", work, [(1, 2)], Ticket(ME, 2, 1)))
    desk.reload()

    assert ask(desk, 1, 2, 4) == [True, True, False]
    for late in (Transact(work, Ticket(ME, 3, 3)), Decide(b"2", work, [], Ticket(ME, 4, 3))):
        with pytest.raises(Refused) as refused:
            desk.do(late)
        assert refused.value.kind is SERVER_BUSY
    assert desk.shelf.counters.lines[0].count == 2


def test_a_transaction_that_was_rolled_back_before_its_commit_came_is_not_stored() -> None:
    desk = Desk()
    desk.do(AskDecision(b"first", is_over=True))
    answer = desk.do(Decide(b"first", Work([Message(b"x")], []), [(1, 2)], Ticket(ME, 1, 1)))

    assert isinstance(answer, Decided) and answer.how == ROLLED_BACK
    assert ask(desk, 1) == [False]


def test_a_reply_that_is_kept_is_told_again() -> None:
    desk = Desk(rules(duplicate_window_ms=60_000))
    messages = [Message(b"x", message_id=name) for name in ("a", "b", "a")]
    desk.do(Send(messages, Ticket(ME, 1, 1, keeps_reply=True)))
    desk.reload()

    reply = desk.do(AskTickets(ME, [1], 1))

    assert isinstance(reply, Judged)
    assert reply.replies[1].numbers() == [1, 2, 0]


def test_one_record_of_a_sender_is_written_for_all_sends_of_a_commit() -> None:
    desk = Desk()
    for number in range(1, 101):
        desk.fragment.apply(Send([Message(b"x")], Ticket(ME, number, 1)), desk.now_ms)

    changes = desk.fragment.tickets.changes()

    assert [type(change) for change in changes] == [RecordChange]
    assert desk.fragment.tickets.changes() == []


def test_what_nobody_asks_about_any_more_takes_no_room() -> None:
    desk = Desk()
    for number in range(1, 5_000, 2):
        send(desk, number, number, keeps_reply=True)

    [record] = [data for (kind, _), data in desk.shelf.kept.records.items() if kind == TICKETS]
    assert len(record) < 100


def test_too_much_that_is_not_answered_is_refused_and_not_forgotten() -> None:
    desk = Desk(is_batching=True)
    for number in range(2, 2 * TICKET_GAPS_MAX + 2, 2):
        send(desk, number)

    assert is_busy(desk, 2 * TICKET_GAPS_MAX + 2)
    assert ask(desk, 2, 3, front=2) == [True, False]
    send(desk, 2 * TICKET_GAPS_MAX + 2, 2 * TICKET_GAPS_MAX)


def test_too_many_replies_that_are_not_answered_are_refused() -> None:
    desk = Desk(is_batching=True)
    for number in range(1, TICKET_REPLIES_MAX + 1):
        send(desk, number, keeps_reply=True)

    assert is_busy(desk, TICKET_REPLIES_MAX + 1)
    send(desk, TICKET_REPLIES_MAX + 1, 2)


def test_one_sender_too_many_is_refused_until_others_are_long_silent() -> None:
    desk = Desk(is_batching=True)
    for number in range(TICKET_SENDERS_MAX):
        send(desk, 1, sender=b"%d" % number)
        desk.now_ms += 1

    assert is_busy(desk, 1)
    with pytest.raises(Refused):
        ask(desk, 1)
    desk.now_ms += TICKETS_KEPT_MS - TICKET_SENDERS_MAX
    send(desk, 1)
    desk.flush()
    assert kept(desk) == TICKET_SENDERS_MAX
    desk.now_ms += TICKETS_KEPT_MS
    send(desk, 1, sender=b"last")
    desk.flush()
    assert kept(desk) == 1


def test_a_clock_that_was_set_back_keeps_nobody_for_ever() -> None:
    desk = Desk()
    desk.now_ms += 10 * TICKETS_KEPT_MS
    send(desk, 1)
    desk.now_ms -= 10 * TICKETS_KEPT_MS
    send(desk, 1, sender=b"second")
    desk.now_ms += TICKETS_KEPT_MS
    send(desk, 1, sender=b"third")

    assert kept(desk) == 1


def test_a_clock_that_jumped_before_a_failure_makes_nothing_forgotten() -> None:
    """A commit that fails leaves sends in doubt, and the fragment is loaded by that clock."""
    desk = Desk()
    send(desk, 1)
    desk.set_clock(10 * TICKETS_KEPT_MS)
    desk.reload()
    send(desk, 1, sender=b"other")

    assert ask(desk, 1) == [True]
    desk.wait(TICKETS_ASKED_MS)
    send(desk, 1, sender=b"third")
    assert ask(desk, 1) == [True]


def test_who_was_silent_is_forgotten_soon_after_a_restart() -> None:
    """Or gateways that are started again and again, together with brokers, use up all the room."""
    desk = Desk()
    send(desk, 1)
    desk.now_ms += 10 * TICKETS_KEPT_MS
    desk.reload()
    desk.wait(TICKETS_LOADED_KEPT_MS)
    send(desk, 1, sender=b"other")

    assert kept(desk) == 1


def test_a_damaged_record_is_noticed() -> None:
    desk = Desk()
    send(desk, 1)
    desk.shelf.kept.records[TICKETS, ME] = b"damaged"

    with pytest.raises(ValueError, match="damaged"):
        desk.reload()
