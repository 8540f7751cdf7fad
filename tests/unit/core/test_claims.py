"""What a claim is: messages set aside for a reader until they are completed or given back."""

import pytest

from shardbus.core.errors import (
    CLAIM_COMPLETED,
    CLAIM_LOST,
    INVALID_ARGUMENT,
    SERVER_BUSY,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import Remove
from shardbus.core.fragment.command import SetAside
from shardbus.core.limits import CLAIM_COUNT_MAX, CLAIMS_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, SET_ASIDE
from shardbus.core.messages.command import COMPLETE, DEAD_LETTER, RELEASE, Purge, Purged, Received
from shardbus.core.readers.command import Claim, Claimed, CompleteClaim
from shardbus.core.transfers.command import TakeTransfers
from tests.unit.core.claims import NAME, OWNER, ReadingDesk, facts
from tests.unit.core.desk import rules


def sent(desk: ReadingDesk, count: int, ttl_ms: int = -1) -> list[int]:
    return desk.send(*[b"%d" % each for each in range(count)], ttl_ms=ttl_ms)


def refusal(desk: ReadingDesk, ordinal: int, count_max: int = 1) -> ErrorKind:
    with pytest.raises(Refused) as refused:
        desk.claim(ordinal, count_max)
    return refused.value.kind


def counts(desk: ReadingDesk, line: int = MAIN_LINE) -> tuple[int, int]:
    counters = desk.fragment.counters.lines[line]
    return counters.count, counters.size_bytes


def claimed(desk: ReadingDesk) -> int:
    return sum(standing.claimed for standing in desk.fragment.reader_standings())


def test_a_claim_takes_the_next_messages_from_everybody_else() -> None:
    desk = ReadingDesk()
    sent(desk, 5)
    desk.open()

    assert desk.claim(1, 3) == [1, 2, 3]

    assert desk.payloads(10) == [b"3", b"4"]
    assert desk.claim(2) == []
    assert claimed(desk) == 3
    assert counts(desk) == (5, 5)


def test_a_claim_tells_what_it_has_and_whether_more_waits() -> None:
    desk = ReadingDesk()
    sent(desk, 3)
    desk.open()

    some = desk.claimed(1, 2)
    rest = desk.claimed(2, 2)
    none = desk.claimed(3, 2)

    assert some.claim is not None and rest.claim is not None
    assert (facts(some.claim), some.is_more) == ((1, 2, 2, 1, 2), True)
    assert (facts(rest.claim), rest.is_more) == ((2, 1, 1, 3, 3), False)
    assert (none.claim, none.is_more) == (None, False)


def test_a_claim_that_found_nothing_leaves_its_ordinal_free() -> None:
    desk = ReadingDesk()
    desk.open()
    commits = desk.shelf.commits

    assert desk.claim(1) == []
    assert desk.shelf.commits == commits
    sent(desk, 1)
    assert desk.claim(1) == [1]


def test_a_repeated_claim_answers_what_it_answered() -> None:
    desk = ReadingDesk()
    sent(desk, 4)
    desk.open()
    desk.claim(1, 2)
    desk.claim(2, 1)

    assert desk.claim(1, 9) == [1, 2]
    assert claimed(desk) == 3


def test_a_claim_of_few_bytes_has_at_least_one_message() -> None:
    desk = ReadingDesk()
    desk.send(b"a" * 50, b"b" * 50, b"c" * 10, b"d" * 30)
    desk.open()

    assert desk.claim(1, bytes_max=1) == [1]
    assert desk.claim(2, bytes_max=60) == [2, 3]
    assert desk.claim(3, bytes_max=60) == [4]


def test_locked_messages_are_claimed_by_a_later_ordinal() -> None:
    desk = ReadingDesk()
    sent(desk, 5)
    desk.open()
    [first] = desk.receive(1)
    [second] = desk.receive(1)
    desk.settle(RELEASE, first)

    assert desk.claim(1) == [1, 3, 4, 5]
    desk.settle(RELEASE, second)
    assert desk.claim(2) == [2]


@pytest.mark.parametrize("page_count", [2, 1024])
def test_claims_survive_a_restart(page_count: int) -> None:
    desk = ReadingDesk(page_count=page_count)
    sent(desk, 9)
    desk.open()
    desk.claim(1, 4)
    [locked] = desk.receive(1)
    desk.claim(2, 2)
    desk.settle(RELEASE, locked)

    desk.reload()

    assert [desk.numbers(ordinal) for ordinal in (1, 2)] == [[1, 2, 3, 4], [6, 7]]
    assert desk.drained() == [b"4", b"7", b"8"]
    assert desk.claim(1) == [1, 2, 3, 4]
    assert claimed(desk) == 6


def test_what_is_claimed_is_read_again_and_again() -> None:
    desk = ReadingDesk()
    sent(desk, 5)
    desk.open()
    desk.claim(1, 4)

    before = desk.read(1, bytes_max=2)
    desk.reload()

    assert before == [b"0", b"1", b"2", b"3"]
    assert desk.read(1) == before


def test_a_completed_claim_is_gone_for_good() -> None:
    desk = ReadingDesk()
    sent(desk, 4)
    desk.open()
    desk.claim(1, 2)
    desk.claim(2, 1)

    assert desk.complete(1) == 1
    desk.reload()

    assert sorted(desk.shelf.entries) == [3, 4]
    assert counts(desk) == (2, 2)
    assert desk.payloads(9) == [b"3"]
    opened = desk.open()
    assert (opened.completed, opened.last, opened.lost) == (1, 2, 0)
    assert [facts(claim) for claim in opened.claims] == [(2, 1, 1, 3, 3)]


def test_claims_are_completed_oldest_first_one_for_each_command() -> None:
    desk = ReadingDesk()
    sent(desk, 3)
    desk.open()
    for ordinal in (1, 2, 3):
        desk.claim(ordinal, 1)

    assert [desk.complete(2), desk.complete(2), desk.complete(2), desk.complete(1)] == [1, 2, 2, 2]
    assert sorted(desk.shelf.entries) == [3]


def test_a_claim_is_completed_in_one_small_commit() -> None:
    desk = ReadingDesk()
    sent(desk, 100)
    desk.open()
    desk.claim(1)

    changes = desk.fragment.apply(
        CompleteClaim(MAIN_LINE, NAME, OWNER, 1), desk.now_ms, desk.steady_ms
    ).changes

    assert [len(c.sequence_numbers) for c in changes if isinstance(c, Remove)] == [100]
    assert len(changes) == 3


def test_the_next_claim_completes_the_oldest_in_the_same_commit() -> None:
    """P2: a driver that is done with a batch asks for the next one, and both are stored at once."""
    desk = ReadingDesk()
    sent(desk, 5)
    desk.open()
    desk.claim(1, 2)

    outcome = desk.fragment.apply(
        Claim(MAIN_LINE, NAME, OWNER, 2, 2, 1 << 30, 1), desk.now_ms, desk.steady_ms
    )

    assert isinstance(outcome.reply, Claimed)
    assert (outcome.reply.completed, outcome.reply.is_more) == (1, True)
    assert outcome.reply.claim is not None
    assert facts(outcome.reply.claim) == (2, 2, 2, 3, 4)
    removed = [c.sequence_numbers for c in outcome.changes if isinstance(c, Remove)]
    assert removed == [[1, 2]]
    assert len(outcome.changes) == 4


def test_a_claim_that_completes_may_be_repeated_and_may_find_nothing() -> None:
    desk = ReadingDesk()
    sent(desk, 3)
    desk.open()
    desk.claim(1, 2)

    first = desk.claimed(2, done=1)
    again = desk.claimed(2, done=1)
    nothing = desk.claimed(3, done=2)

    assert first.claim is not None and again.claim is not None
    assert facts(first.claim) == facts(again.claim) == (2, 1, 1, 3, 3)
    assert [each.completed for each in (first, again, nothing)] == [1, 1, 2]
    assert nothing.claim is None
    assert sorted(desk.shelf.entries) == []
    assert counts(desk) == (0, 0)


def test_a_claim_completes_one_claim_the_oldest() -> None:
    desk = ReadingDesk()
    sent(desk, 4)
    desk.open()
    for ordinal in (1, 2, 3):
        desk.claim(ordinal, 1)

    assert desk.claimed(4, done=3).completed == 1
    assert desk.claimed(4, done=3).completed == 2
    assert desk.numbers(3) == [3]


def test_a_claim_that_cannot_complete_claims_nothing() -> None:
    """A lost claim is not passed over: its messages may have been received by others."""
    desk = ReadingDesk()
    sent(desk, 3)
    desk.open()
    desk.claim(1, 1)
    desk.release()

    for ordinal, done, kind in ((2, 1, CLAIM_LOST), (2, 2, INVALID_ARGUMENT)):
        with pytest.raises(Refused) as refused:
            desk.claimed(ordinal, done=done)
        assert refused.value.kind is kind

    assert desk.fragment.claims() is None
    assert desk.claim(2) == [1, 2, 3]


def test_what_was_never_claimed_cannot_be_completed_or_read() -> None:
    desk = ReadingDesk()
    sent(desk, 2)
    desk.open()
    desk.claim(1, 1)

    for use in (desk.complete, desk.read, desk.numbers):
        with pytest.raises(Refused) as refused:
            use(2)
        assert refused.value.kind is INVALID_ARGUMENT
    assert desk.numbers(1) == [1]


def test_released_messages_wait_again_at_their_own_places() -> None:
    desk = ReadingDesk()
    sent(desk, 5)
    desk.open()
    desk.claim(1, 2)
    desk.claim(2, 2)
    assert desk.payloads(1) == [b"4"]

    desk.release()

    received = [*desk.receive(9), *desk.receive(9)]
    assert [(each.payload, each.delivery_count) for each in received] == [
        (b"%d" % each, 0) for each in range(4)
    ]
    assert counts(desk) == (5, 5)
    assert claimed(desk) == 0


def test_released_messages_are_received_once_with_those_that_came_later() -> None:
    desk = ReadingDesk(
        bounds=Bounds(
            window_count_max=4, window_count_low=2, page_count_max=2, page_bytes_max=1 << 16
        )
    )
    sent(desk, 6)
    desk.open()
    desk.claim(1, 3)
    [held] = desk.receive(1)
    desk.settle(RELEASE, held)
    desk.release()
    desk.send(b"new")

    received: list[bytes | None] = []
    while deliveries := desk.receive(3):
        received += [each.payload for each in deliveries]
        desk.settle(COMPLETE, *deliveries)
    assert received == [b"0", b"1", b"2", b"3", b"4", b"5", b"new"]


def test_a_lost_claim_is_told_from_a_completed_one() -> None:
    desk = ReadingDesk()
    sent(desk, 4)
    desk.open()
    for ordinal in (1, 2, 3):
        desk.claim(ordinal, 1)
    desk.complete(1)
    desk.release()
    desk.reload()

    kinds: list[ErrorKind] = []
    for ordinal in (1, 2, 3):
        with pytest.raises(Refused) as refused:
            desk.read(ordinal)
        kinds.append(refused.value.kind)

    assert kinds == [CLAIM_COMPLETED, CLAIM_LOST, CLAIM_LOST]
    assert (desk.open().completed, desk.open().last, desk.open().lost) == (1, 3, 3)


def test_a_lost_claim_cannot_be_completed_but_a_later_one_can() -> None:
    desk = ReadingDesk()
    sent(desk, 3)
    desk.open()
    desk.claim(1, 1)
    desk.release()

    with pytest.raises(Refused) as refused:
        desk.complete(1)
    assert refused.value.kind is CLAIM_LOST
    assert desk.claim(2) == [1, 2, 3]
    assert desk.complete(2) == 2
    with pytest.raises(Refused) as refused:
        desk.read(1)
    assert refused.value.kind is CLAIM_LOST
    assert desk.complete(1) == 2


def test_an_ordinal_is_used_once() -> None:
    desk = ReadingDesk()
    sent(desk, 9)
    desk.open()
    desk.claim(1, 1)
    desk.claim(2, 1)
    desk.complete(1)

    assert refusal(desk, 1) is CLAIM_COMPLETED
    assert refusal(desk, 4) is INVALID_ARGUMENT
    desk.release()
    assert refusal(desk, 2) is CLAIM_LOST
    assert desk.claim(3, 1) == [2]


def test_a_claimed_message_does_not_expire_until_it_is_given_back() -> None:
    desk = ReadingDesk(rules(dead_letters_on_expiration=True))
    sent(desk, 4, ttl_ms=1_000)
    desk.open()
    desk.claim(1, 2)

    desk.wait(2_000)

    assert counts(desk) == (2, 2)
    assert counts(desk, DEAD_LETTER_LINE) == (2, 2)
    assert desk.read(1) == [b"0", b"1"]
    desk.reload()
    desk.wait(1)
    assert desk.read(1) == [b"0", b"1"]
    desk.release()
    assert counts(desk, DEAD_LETTER_LINE) == (4, 4)


def test_others_expire_beside_many_claimed_ones() -> None:
    """The claimed ones are due too, more of them than are looked at together."""
    desk = ReadingDesk(bounds=Bounds(due_count_max=2))
    sent(desk, 20, ttl_ms=1_000)
    desk.open()
    desk.claim(1, 10)
    sent(desk, 2, ttl_ms=5_000)

    desk.wait(1_000)

    assert counts(desk)[0] == 12
    assert desk.wake_at_ms() == desk.now_ms + 4_000


def test_a_claimed_message_is_neither_purged_nor_transferred() -> None:
    desk = ReadingDesk()
    sent(desk, 4)
    desk.open()
    desk.claim(1, 2)

    transferred = desk.do(TakeTransfers(MAIN_LINE, 1, 7))
    purged = desk.do(Purge(MAIN_LINE, 10))

    assert isinstance(transferred, Received)
    assert [each.entry.sequence_number for each in transferred.deliveries] == [3]
    assert isinstance(purged, Purged) and purged.count == 1
    assert desk.read(1) == [b"0", b"1"]


def test_dead_letters_are_claimed_like_all_others() -> None:
    desk = ReadingDesk()
    sent(desk, 3)
    desk.settle(DEAD_LETTER, *desk.receive(2))
    desk.open(line=DEAD_LETTER_LINE)
    desk.open()

    assert desk.claim(1, line=DEAD_LETTER_LINE) == [1, 2]
    assert desk.claim(1) == [3]
    assert desk.payloads(9, line=DEAD_LETTER_LINE) == []
    assert desk.read(1, line=DEAD_LETTER_LINE) == [b"0", b"1"]
    desk.release(line=DEAD_LETTER_LINE)
    assert desk.payloads(9, line=DEAD_LETTER_LINE) == [b"0", b"1"]
    assert desk.complete(1) == 1
    assert counts(desk) == (0, 0)


def test_two_readers_never_have_the_same_message() -> None:
    desk = ReadingDesk()
    sent(desk, 6)
    desk.open("one")
    desk.open("two")

    assert desk.claim(1, 2, name="one") == [1, 2]
    assert desk.claim(1, 2, name="two") == [3, 4]
    desk.release("one")
    assert desk.claim(2, 3, name="two") == [1, 2, 5]
    desk.complete(1, name="two")
    desk.complete(2, name="two")
    assert desk.payloads(9) == [b"5"]


def test_a_damaged_message_leaves_its_claim() -> None:
    desk = ReadingDesk()
    sent(desk, 4)
    desk.open()
    desk.claim(1, 3)
    desk.shelf.damaged = {2}

    assert desk.read(1) == [b"0", b"2"]

    assert desk.numbers(1) == [1, 3]
    assert desk.shelf.entries[2].state == SET_ASIDE
    assert (desk.fragment.counters.set_aside, counts(desk)[0]) == (1, 3)
    desk.reload()
    assert desk.numbers(1) == [1, 3]
    desk.complete(1)
    assert sorted(desk.shelf.entries) == [2, 4]
    assert counts(desk)[0] == 1


def test_a_claim_of_which_everything_is_damaged_can_still_be_completed() -> None:
    desk = ReadingDesk()
    sent(desk, 2)
    desk.open()
    desk.claim(1, 2)
    desk.do(SetAside([1, 2]))

    again = desk.claimed(1)

    assert again.claim is not None and facts(again.claim)[:2] == (1, 0)
    assert desk.read(1) == []
    assert desk.complete(1) == 1
    assert sorted(desk.shelf.entries) == [1, 2]


def test_a_large_claim_reads_no_payloads_and_keeps_nothing_in_memory() -> None:
    desk = ReadingDesk()
    for _ in range(5):
        sent(desk, 1_000)
    desk.reload()
    desk.open()

    assert desk.claim(1) == list(range(1, CLAIM_COUNT_MAX + 1))
    assert len(desk.fragment._lines[MAIN_LINE]) == 0
    desk.release()
    assert len(desk.fragment._lines[MAIN_LINE]) == 0


def test_receivers_page_over_what_is_claimed_in_one_step() -> None:
    desk = ReadingDesk(page_count=10)
    sent(desk, 1_000)
    desk.open()
    desk.claim(1, 990)
    desk.reload()

    assert desk.payloads(1) == [b"990"]
    assert desk.fragment.reads.page(MAIN_LINE).after >= 990


@pytest.mark.parametrize(
    ("count_max", "bytes_max"), [(0, 1), (CLAIM_COUNT_MAX + 1, 1), (1, 0), (-1, 1)]
)
def test_a_claim_of_nothing_or_too_much_is_refused(count_max: int, bytes_max: int) -> None:
    desk = ReadingDesk()
    sent(desk, 1)
    desk.open()

    with pytest.raises(Refused) as refused:
        desk.do(Claim(MAIN_LINE, NAME, OWNER, 1, count_max, bytes_max))

    assert refused.value.kind is INVALID_ARGUMENT


def test_claims_that_nobody_completes_are_bounded() -> None:
    desk = ReadingDesk()
    desk.open()
    for ordinal in range(1, CLAIMS_MAX + 1):
        sent(desk, 1)
        desk.claimed(ordinal, 1)
    sent(desk, 1)

    assert refusal(desk, CLAIMS_MAX + 1) is SERVER_BUSY
    desk.complete(1)
    assert len(desk.claim(CLAIMS_MAX + 1)) == 1
    sent(desk, 1)
    assert desk.claimed(CLAIMS_MAX + 2, 1, done=2).completed == 2


def test_the_pieces_of_all_claims_are_bounded() -> None:
    desk = ReadingDesk(bounds=Bounds(claim_runs_max=3))
    sent(desk, 9)
    desk.open()
    held = desk.receive(9)
    desk.settle(RELEASE, *held[::2])

    assert desk.claim(1, 2) == [1, 3]
    assert desk.claim(2, 9) == [5]
    assert refusal(desk, 3) is SERVER_BUSY
    assert desk.claimed(3, 9, done=1).completed == 1
    assert desk.numbers(3) == [7, 9]


def test_the_lag_of_a_reader_is_what_nobody_has_claimed() -> None:
    desk = ReadingDesk()
    sent(desk, 6)
    desk.open()
    desk.claim(1, 3)
    desk.open(name="other")
    desk.claim(1, 2, name="other")

    standings = desk.fragment.reader_standings()

    told = [(one.line, one.name, one.waiting, one.claimed) for one in standings]
    assert told == [(MAIN_LINE, NAME, 1, 3), (MAIN_LINE, "other", 1, 2)]
