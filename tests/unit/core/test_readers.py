"""Who may claim: readers, their owners and their leases."""

import pytest

from shardbus.core.errors import (
    CLAIM_COMPLETED,
    CLAIM_LOST,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    READER_IN_USE,
    READER_LOST,
    READER_NOT_FOUND,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.records import CLAIM, READER, READER_ID
from shardbus.core.limits import (
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LOST_RUNS_MAX,
    OWNER_BYTES_MAX,
    OWNER_MS_MAX,
    READER_NAME_CHARACTERS_MAX,
    READERS_MAX,
)
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS
from tests.support.refusals import refusal_of
from tests.unit.core.claims import NAME, ReadingDesk
from tests.unit.core.desk import FRAGMENT, rules

OTHER = b"other"


def kind_of(action: object) -> ErrorKind:
    assert callable(action)
    with pytest.raises(Refused) as refused:
        action()
    return refused.value.kind


def test_a_reader_is_opened_at_the_start_and_answers_the_same_again() -> None:
    desk = ReadingDesk()

    first, second = desk.open(), desk.open()
    desk.reload()
    third = desk.open()

    for opened in (first, second, third):
        assert (opened.completed, opened.last, opened.lost, opened.claims) == (0, 0, 0, [])


def test_opening_again_stores_nothing() -> None:
    desk = ReadingDesk()
    desk.open()
    commits = desk.shelf.commits

    desk.open()
    desk.keep()

    assert desk.shelf.commits == commits


def test_nobody_else_gets_a_reader_whose_owner_was_just_heard_of() -> None:
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    desk.open()
    desk.claim(1, 1)
    desk.now_ms += OWNER_MS_MAX - 1

    assert kind_of(lambda: desk.open(owner=OTHER)) is READER_IN_USE
    desk.keep()
    desk.now_ms += OWNER_MS_MAX - 1
    assert kind_of(lambda: desk.open(owner=OTHER)) is READER_IN_USE


def test_a_silent_owner_is_replaced_and_shut_out() -> None:
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    desk.open()
    desk.claim(1, 1)
    desk.now_ms += OWNER_MS_MAX

    opened = desk.open(owner=OTHER)

    assert [claim.ordinal for claim in opened.claims] == [1]
    desk.reload()
    for use in (
        desk.keep,
        desk.release,
        lambda: desk.claim(1),
        lambda: desk.claim(2),
        lambda: desk.complete(1),
    ):
        assert kind_of(use) is READER_LOST
    assert desk.complete(1, owner=OTHER) == 1
    assert kind_of(desk.open) is READER_IN_USE


def test_after_a_restart_every_owner_counts_as_heard_of() -> None:
    desk = ReadingDesk()
    desk.open()
    desk.now_ms += 10 * OWNER_MS_MAX
    desk.reload()

    assert kind_of(lambda: desk.open(owner=OTHER)) is READER_IN_USE
    desk.now_ms += OWNER_MS_MAX
    desk.open(owner=OTHER)


def test_claims_are_lost_when_the_lease_runs_out() -> None:
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    desk.open(lease_ms=20_000)
    desk.claim(1, 1)
    assert desk.wake_at_ms() == desk.now_ms + 20_000

    desk.wait(19_999)
    assert desk.read(1) == [b"a"]
    desk.wait(1)

    assert kind_of(lambda: desk.read(1)) is CLAIM_LOST
    assert desk.drained() == [b"a", b"b"]
    desk.keep()
    assert desk.open(lease_ms=20_000).lost == 1


@pytest.mark.parametrize("how", ["keep", "claim", "complete", "open"])
def test_whatever_the_owner_says_renews_the_lease(how: str) -> None:
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    desk.open(lease_ms=20_000)
    desk.claim(1, 1)
    desk.claim(2, 1)
    desk.wait(15_000)

    if how == "keep":
        desk.keep()
    elif how == "claim":
        desk.claim(3)
    elif how == "complete":
        desk.complete(1)
    else:
        desk.open(lease_ms=20_000)
    desk.wait(19_999)

    assert desk.read(2) == [b"b"]
    desk.wait(1)
    assert kind_of(lambda: desk.read(2)) is CLAIM_LOST


def test_a_lease_runs_from_the_load_after_a_restart() -> None:
    desk = ReadingDesk()
    desk.send(b"a")
    desk.open(lease_ms=20_000)
    desk.claim(1)
    desk.now_ms += 100_000
    desk.reload()

    desk.wait(19_999)
    assert desk.read(1) == [b"a"]
    desk.wait(1)
    assert kind_of(lambda: desk.read(1)) is CLAIM_LOST


def test_a_reader_without_claims_has_no_lease_to_lose() -> None:
    desk = ReadingDesk()
    desk.send(b"a")
    desk.open()
    desk.claim(1)
    desk.complete(1)

    assert desk.wake_at_ms() == NEVER_MS
    desk.wait(10 * LEASE_MS_DEFAULT)
    assert desk.open().lost == 0


def test_a_reader_keeps_the_id_that_it_was_made_with() -> None:
    """P2: so that a query of one that was dropped is told from that of its successor."""
    desk = ReadingDesk()
    made = desk.open().reader_id
    desk.now_ms += OWNER_MS_MAX
    taken_over = desk.open(owner=OTHER).reader_id
    desk.reload()
    loaded = desk.open(owner=OTHER).reader_id
    desk.drop()
    desk.reload()
    made_again = desk.open().reader_id

    assert (taken_over, loaded) == (made, made)
    assert made and made_again and made_again != made
    assert [reader.reader_id for reader in desk.readers()] == [made_again]


def test_claims_of_another_reader_of_the_name_are_not_shown() -> None:
    """P2"""
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    old = desk.open().reader_id
    desk.claim(1, 1)
    desk.drop()
    new = desk.open().reader_id
    desk.claim(1, 2)

    assert kind_of(lambda: desk.numbers(1, reader_id=old)) is READER_NOT_FOUND
    assert desk.numbers(1, reader_id=new) == desk.numbers(1) == [1, 2]


def test_a_reader_that_is_older_than_ids_has_none() -> None:
    desk = ReadingDesk()
    desk.send(b"a")
    desk.open()
    desk.claim(1)
    del desk.shelf.kept.records[READER_ID, b"\x00" + NAME.encode()]

    desk.reload()

    assert desk.open().reader_id == b""
    assert desk.numbers(1) == [1]


def test_a_dropped_reader_gives_everything_back_and_is_forgotten() -> None:
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    desk.open()
    desk.claim(1, 1)

    desk.drop()

    assert desk.drained() == [b"a", b"b"]
    assert kind_of(lambda: desk.read(1)) is READER_NOT_FOUND
    assert desk.shelf.kept.records == {}
    assert desk.open(owner=OTHER).last == 0


def test_an_unknown_reader_is_told_so() -> None:
    desk = ReadingDesk()
    desk.open("another")
    desk.open(line=DEAD_LETTER_LINE)

    for use in (
        desk.keep,
        desk.release,
        desk.drop,
        lambda: desk.claim(1),
        lambda: desk.complete(1),
        lambda: desk.read(1),
        lambda: desk.numbers(1),
    ):
        assert kind_of(use) is READER_NOT_FOUND


def test_readers_are_listed_with_how_far_they_are_and_what_waits() -> None:
    desk = ReadingDesk()
    desk.send(b"aa", b"b", b"c", b"ddd")
    desk.open("b")
    desk.open("a", OTHER, lease_ms=30_000)
    desk.open("c", line=DEAD_LETTER_LINE)
    desk.claim(1, 1, name="b")
    desk.complete(1, name="b")
    desk.claim(2, 2, name="b")

    listed = desk.readers()

    assert [(each.line, each.name) for each in listed] == [
        (MAIN_LINE, "a"),
        (MAIN_LINE, "b"),
        (DEAD_LETTER_LINE, "c"),
    ]
    first, second, _ = listed
    assert (first.owner, first.lease_ms, first.claims) == (OTHER, 30_000, 0)
    assert (second.completed, second.last, second.lost, second.claims) == (1, 2, 0, 1)
    assert (second.claimed, second.claimed_bytes, second.heard_ms) == (2, 2, desk.now_ms)
    assert (first.waiting, first.waiting_bytes) == (second.waiting, second.waiting_bytes) == (1, 3)
    assert [each.name for each in desk.readers(DEAD_LETTER_LINE)] == ["c"]


def test_a_topic_has_nothing_to_claim() -> None:
    desk = ReadingDesk(rules(is_topic=True))

    with refusal_of(NOT_ALLOWED) as refused:
        desk.open()

    assert refused.value.kind is NOT_ALLOWED


@pytest.mark.parametrize("name", ["", "x" * (READER_NAME_CHARACTERS_MAX + 1), "a\nb", "\ud800"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    assert kind_of(lambda: ReadingDesk().open(name)) is INVALID_ARGUMENT


@pytest.mark.parametrize("owner", [b"", b"x" * (OWNER_BYTES_MAX + 1)])
def test_an_owner_that_is_none_is_refused(owner: bytes) -> None:
    assert kind_of(lambda: ReadingDesk().open(owner=owner)) is INVALID_ARGUMENT


@pytest.mark.parametrize("lease_ms", [LEASE_MS_MIN - 1, LEASE_MS_MAX + 1])
def test_a_lease_is_neither_too_short_nor_too_long(lease_ms: int) -> None:
    assert kind_of(lambda: ReadingDesk().open(lease_ms=lease_ms)) is INVALID_ARGUMENT


def test_readers_are_bounded() -> None:
    desk = ReadingDesk()
    for each in range(READERS_MAX):
        desk.open(str(each))

    assert kind_of(desk.open) is QUOTA_EXCEEDED
    desk.drop("0")
    desk.open()


def test_of_very_many_losses_the_oldest_are_not_remembered() -> None:
    desk = ReadingDesk()
    desk.send(b"a")
    desk.open()
    for loss in range(LOST_RUNS_MAX + 1):
        desk.claim(2 * loss + 1)
        desk.release()
        desk.claim(2 * loss + 2)
        desk.complete(2 * loss + 2)
        desk.send(b"a")
    desk.reload()

    kinds = [kind_of(lambda: desk.read(1)), kind_of(lambda: desk.read(3))]

    assert kinds == [CLAIM_COMPLETED, CLAIM_LOST]
    assert desk.open().lost == 2 * LOST_RUNS_MAX + 1


def test_a_reader_whose_record_was_given_up_keeps_its_claims() -> None:
    """A repair may remove a damaged record of a reader and leave those of its claims."""
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    desk.open()
    desk.claim(1, 1)
    desk.complete(1)
    desk.claim(2, 1)
    del desk.shelf.kept.records[READER, b"\x00" + NAME.encode()]
    desk.reload()

    desk.now_ms += OWNER_MS_MAX
    opened = desk.open()

    assert (opened.completed, opened.last) == (1, 2)
    assert desk.read(2) == [b"b"]


def test_a_claim_whose_record_was_given_up_is_lost() -> None:
    desk = ReadingDesk()
    desk.send(b"a", b"b")
    desk.open()
    desk.claim(1, 1)
    desk.claim(2, 1)
    key = next(key for kind, key in desk.shelf.kept.records if kind == CLAIM)
    del desk.shelf.kept.records[CLAIM, key]
    desk.reload()

    assert desk.payloads(9) == [b"a"]
    assert kind_of(lambda: desk.read(1)) is CLAIM_LOST
    assert kind_of(lambda: desk.complete(1)) is CLAIM_LOST
    assert desk.shelf.store.recorded([READER]) == [FRAGMENT]
