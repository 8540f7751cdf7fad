"""Messages that are promised to transactions: nothing overtakes them, and their numbers are known.

R49: a batch of several keys is such a transaction.
"""

import pytest

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.records import FINISHED, PREPARED
from shardbus.core.limits import FINISHED_KEPT_MS, FINISHED_MAX, KEYS_BARRED_MS, PROMISE_LATE_MS
from shardbus.core.message import Message
from shardbus.core.messages.command import Done, Sent, Ticket
from shardbus.core.transactions.command import (
    Decide,
    Finish,
    ForgetDecision,
    Prepare,
    Transact,
    Work,
)
from tests.unit.core.desk import Desk, rules

TXN = bytes(range(16))
OTHER = bytes(16)
DECIDER = (7, 3)


def promise(desk: Desk, *messages: Message, keeps_reply: bool = False) -> None:
    command = Prepare(TXN, Work(list(messages), []), DECIDER, 10_000, keeps_reply=keeps_reply)
    assert isinstance(desk.do(command), Done)


def keyed(key: str, payload: bytes = b"x") -> Message:
    return Message(payload, partition_key=key)


def records(desk: Desk) -> list[int]:
    return sorted(kind for kind, _ in desk.shelf.kept.records)


# Order.


def test_what_has_the_key_of_a_late_promise_is_busy_until_that_is_kept() -> None:
    desk = Desk()
    promise(desk, keyed("a", b"first"))
    desk.wait(PROMISE_LATE_MS)

    with pytest.raises(Refused) as refused:
        desk.send_all([keyed("b"), keyed("a", b"second")])

    assert refused.value.kind is SERVER_BUSY and "'a'" in refused.value.message
    assert desk.shelf.entries == {}
    desk.do(Finish(TXN, is_commit=True))
    desk.send_all([keyed("a", b"second")])
    assert desk.payloads(10) == [b"first", b"second"]


def test_other_keys_and_messages_without_pass_a_late_promise() -> None:
    desk = Desk()
    promise(desk, keyed("a"), Message(b"without"))
    desk.wait(PROMISE_LATE_MS)

    assert desk.send_all([keyed("b"), Message(b"y")]).count == 2


def test_a_promise_that_is_not_late_keeps_nobody() -> None:
    """Whoever sends meanwhile has not heard that the batch is stored."""
    desk = Desk()
    promise(desk, keyed("a"))
    desk.wait(PROMISE_LATE_MS - 1)

    assert desk.send_all([keyed("a")]).count == 1


def test_a_promise_that_was_loaded_is_late_at_once() -> None:
    desk = Desk()
    promise(desk, keyed("a"))
    desk.reload()

    with pytest.raises(Refused) as refused:
        desk.send_all([keyed("a")])

    assert refused.value.kind is SERVER_BUSY


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_key_is_not_kept_for_ever(is_loaded: bool) -> None:
    desk = Desk()
    promise(desk, keyed("a"))
    if is_loaded:
        desk.reload()
    desk.wait(KEYS_BARRED_MS)

    assert desk.send_all([keyed("a")]).count == 1


def test_what_is_rolled_back_keeps_nobody() -> None:
    desk = Desk()
    promise(desk, keyed("a"))
    desk.reload()
    desk.do(Finish(TXN, is_commit=False))

    assert desk.send_all([keyed("a")]).count == 1


@pytest.mark.parametrize("command", ["transact", "prepare", "decide"])
def test_transactions_do_not_overtake_either(command: str) -> None:
    desk = Desk()
    promise(desk, keyed("a"))
    desk.reload()
    work = Work([keyed("a")], [])
    commands: dict[str, Command] = {
        "transact": Transact(work),
        "prepare": Prepare(OTHER, work, DECIDER, 10_000),
        "decide": Decide(OTHER, work, [DECIDER]),
    }

    with pytest.raises(Refused) as refused:
        desk.do(commands[command])

    assert refused.value.kind is SERVER_BUSY


@pytest.mark.parametrize(
    ("promised", "sent"),
    [
        (Message(b"x", session_id="s"), Message(b"y", session_id="s")),
        (Message(b"x", message_id="m"), Message(b"y", message_id="m")),
    ],
)
def test_a_session_and_where_duplicates_are_detected_an_id_is_a_key(
    promised: Message, sent: Message
) -> None:
    desk = Desk(rules(duplicate_window_ms=60_000, is_partitioned=True))
    promise(desk, promised)
    desk.reload()

    with pytest.raises(Refused) as refused:
        desk.send_all([sent])

    assert refused.value.kind is SERVER_BUSY


# Numbers.


def test_the_numbers_of_what_was_promised_are_told_however_often() -> None:
    desk = Desk(rules(duplicate_window_ms=60_000))
    desk.send_all([Message(b"old", message_id="m")])
    promise(desk, Message(b"a"), Message(b"b", message_id="m"), Message(b"c"), keeps_reply=True)
    desk.reload()

    for _ in range(3):
        answer = desk.do(Finish(TXN, is_commit=True))
        assert isinstance(answer, Sent) and answer.numbers() == [2, 0, 3]
        desk.reload()

    assert [entry.payload for entry in desk.shelf.entries.values()] == [b"old", b"a", b"c"]


def test_numbers_are_forgotten_by_who_has_them() -> None:
    desk = Desk()
    promise(desk, Message(b"a"), keeps_reply=True)
    desk.do(Finish(TXN, is_commit=True))
    assert records(desk) == [FINISHED]

    assert isinstance(desk.do(ForgetDecision(TXN)), Done)

    assert isinstance(desk.do(Finish(TXN, is_commit=True)), Done)
    assert records(desk) == []


@pytest.mark.parametrize(("keeps_reply", "is_commit"), [(False, True), (True, False)])
def test_numbers_are_kept_only_where_they_are_wanted(keeps_reply: bool, is_commit: bool) -> None:
    desk = Desk()
    promise(desk, Message(b"a"), keeps_reply=keeps_reply)
    assert records(desk) == [PREPARED]

    assert isinstance(desk.do(Finish(TXN, is_commit=is_commit)), Done)

    assert records(desk) == []


def test_numbers_that_nobody_asks_for_make_room() -> None:
    desk = Desk()

    def batch(number: int) -> None:
        name = number.to_bytes(16, "big")
        desk.do(Prepare(name, Work([Message(b"x")], []), DECIDER, 10_000, keeps_reply=True))
        desk.do(Finish(name, is_commit=True))

    for number in range(FINISHED_MAX):
        batch(number)
    with pytest.raises(Refused) as refused:
        batch(FINISHED_MAX)
    desk.wait(FINISHED_KEPT_MS)
    batch(FINISHED_MAX)

    assert refused.value.kind is SERVER_BUSY
    assert records(desk) == [FINISHED]


def test_who_decides_tells_numbers_if_they_are_wanted() -> None:
    desk = Desk()
    ticket = Ticket(b"me", 1, 1, keeps_reply=True)

    answer = desk.do(Decide(TXN, Work([Message(b"a"), Message(b"b")], []), [DECIDER], ticket))

    assert isinstance(answer, Sent) and answer.numbers() == [1, 2]
