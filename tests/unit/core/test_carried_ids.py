"""Fragments of a new map take over the message ids that those of the former one remember (P6)."""

import pytest

from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.entrance import IDS_AGES
from shardbus.core.message import Message
from shardbus.core.messages.command import Send, Sent
from shardbus.core.sealing.command import IdsTold, LearnIds, Seal, Sealed, TellIds
from tests.unit.core.desk import Desk, rules

WINDOW_MS = 60_000
MANY = 9_000


def desk(*, is_partitioned: bool = False, remembered_max: int = 100_000) -> Desk:
    found = rules(duplicate_window_ms=WINDOW_MS, is_partitioned=is_partitioned)
    return Desk(found, bounds=Bounds(remembered_max=remembered_max))


def duplicates(at: Desk, *ids: str, key: str | None = None) -> int:
    messages = [Message(b"", message_id=each, partition_key=key) for each in ids]
    sent = at.do(Send(messages))
    assert isinstance(sent, Sent)
    return len(sent.duplicates)


def carry(source: Desk, target: Desk, *, has_both_forms: bool = False) -> int:
    """Take all ids over; returns in how many pages."""
    start = pages = 0
    while True:
        told = source.do(TellIds(start))
        assert isinstance(told, IdsTold)
        target.do(LearnIds(told.page, has_both_forms or told.has_both_forms))
        pages += 1
        if told.following == 0:
            return pages
        start = told.following


def test_all_ids_are_taken_over_page_by_page() -> None:
    source, target = desk(), desk()
    ids = [str(number) for number in range(MANY)]
    assert duplicates(source, *ids) == 0
    sealed = source.do(Seal(1))
    assert isinstance(sealed, Sealed) and sealed.ids == MANY

    assert carry(source, target) > 2

    assert duplicates(target, *ids, "new") == MANY


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_an_id_is_remembered_for_the_rest_of_its_window(is_reloaded: bool) -> None:
    """R24: at most a hundredth longer."""
    source, target = desk(), desk()
    duplicates(source, "old")
    for each in (source, target):
        each.now_ms += WINDOW_MS // 2
    duplicates(source, "young")
    carry(source, target)
    if is_reloaded:
        target.reload()

    target.now_ms += WINDOW_MS // 2 - 1
    assert duplicates(target, "old", "young") == 2
    target.now_ms += WINDOW_MS // IDS_AGES + 2
    assert duplicates(target, "old") == 0
    assert duplicates(target, "young") == 1


def test_expired_ids_are_not_taken_over() -> None:
    source, target = desk(), desk()
    duplicates(source, "old")
    source.now_ms += WINDOW_MS

    carry(source, target)

    assert duplicates(target, "old") == 0


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_ids_alone_and_ids_with_keys_are_both_found(is_reloaded: bool) -> None:
    """R24: through several maps."""
    first, second, third = desk(), desk(is_partitioned=True), desk(is_partitioned=True)
    duplicates(first, "x", key="a")
    carry(first, second, has_both_forms=True)
    duplicates(second, "y", key="a")
    carry(second, third)
    if is_reloaded:
        third.reload()

    assert duplicates(third, "x", key="a") == 1
    assert duplicates(third, "y", key="a") == 1
    assert duplicates(third, "y", key="b") == 0


def test_a_fragment_does_not_take_over_more_ids_than_it_can_remember() -> None:
    source, target = desk(), desk(remembered_max=2)
    duplicates(source, "a", "b", "c")

    with pytest.raises(Refused) as refused:
        carry(source, target)

    assert refused.value.kind is QUOTA_EXCEEDED
    assert duplicates(target, "a", "b") == 0
