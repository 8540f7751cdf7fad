"""What a fragment remembers of those who publish: a used number with other rows is told."""

import pytest

from shardbus.core.errors import (
    ALREADY_PUBLISHED,
    BATCH_DIFFERS,
    INVALID_ARGUMENT,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.limits import (
    FINGERPRINT_BYTES_MAX,
    FINGERPRINTS_MAX,
    PRODUCER_ONCE_KEPT_MS,
    PRODUCERS_MAX,
)
from shardbus.core.messages.command import Done
from shardbus.core.stages.command import ForgetProducer, Publication
from shardbus.core.transactions.command import Transact, Work
from tests.unit.core.staged import PRODUCER, StagingDesk


@pytest.fixture
def desk() -> StagingDesk:
    return StagingDesk()


def refusal(desk: StagingDesk, work: Work) -> ErrorKind:
    with pytest.raises(Refused) as refused:
        desk.do(Transact(work))
    return refused.value.kind


def why(desk: StagingDesk, batch: int, fingerprint: bytes) -> ErrorKind:
    """Why a batch with these rows is not published."""
    return refusal(desk, desk.publication(batch=batch, fingerprint=fingerprint))


def test_other_rows_under_a_used_number_are_refused_and_the_same_are_nothing_new(
    desk: StagingDesk,
) -> None:
    desk.publish(batch=7, fingerprint=b"seven")
    desk.publish(batch=9, fingerprint=b"nine")
    desk.stage(b"one")
    desk.reload()

    assert why(desk, 7, b"seven") is ALREADY_PUBLISHED
    assert why(desk, 9, b"nine") is ALREADY_PUBLISHED
    assert why(desk, 9, b"other") is BATCH_DIFFERS
    assert why(desk, 7, b"nine") is BATCH_DIFFERS
    # A number that was left out had no rows.
    assert why(desk, 8, b"eight") is BATCH_DIFFERS
    assert desk.payloads(9) == []
    desk.publish(batch=10, fingerprint=b"other")
    assert desk.payloads(9) == [b"one"]


def test_who_tells_no_fingerprint_is_passed_over(desk: StagingDesk) -> None:
    desk.publish(batch=1)
    desk.publish(batch=2, fingerprint=b"two")

    assert why(desk, 1, b"") is ALREADY_PUBLISHED
    assert why(desk, 2, b"") is ALREADY_PUBLISHED
    assert why(desk, 1, b"one") is ALREADY_PUBLISHED


def test_the_last_batches_are_known_again_and_older_ones_are_not(desk: StagingDesk) -> None:
    for batch in range(FINGERPRINTS_MAX + 2):
        desk.publish(batch=batch, fingerprint=b"%d" % batch)
    desk.reload()

    assert why(desk, 2, b"2") is ALREADY_PUBLISHED
    assert why(desk, FINGERPRINTS_MAX + 1, b"%d" % (FINGERPRINTS_MAX + 1)) is ALREADY_PUBLISHED
    assert why(desk, 1, b"1") is BATCH_DIFFERS


def test_a_batch_that_an_earlier_version_has_published_is_passed_over(desk: StagingDesk) -> None:
    desk.publish(batch=3, fingerprint=b"three")
    [((kind, key), data)] = desk.shelf.kept.records.items()
    # As it was before there were fingerprints: a number and a time.
    desk.shelf.kept.records[kind, key] = data[:16]
    desk.reload()

    assert why(desk, 3, b"other") is ALREADY_PUBLISHED
    desk.publish(batch=4, fingerprint=b"four")
    assert why(desk, 4, b"other") is BATCH_DIFFERS
    assert why(desk, 3, b"three") is BATCH_DIFFERS


def test_a_fingerprint_has_a_bound(desk: StagingDesk) -> None:
    long = b"x" * (FINGERPRINT_BYTES_MAX + 1)

    assert why(desk, 1, long) is INVALID_ARGUMENT
    desk.publish(batch=1, fingerprint=long[1:])
    assert desk.batches() == {PRODUCER: 1}


# Producers that publish once.


def once(name: bytes, batch: int = 1) -> Work:
    return Work([], [], [], Publication(name, batch, b"rows", is_once=True))


def test_who_publishes_once_leaves_nothing_behind(desk: StagingDesk) -> None:
    """More than a fragment remembers, each of which is done when the next one comes."""
    for number in range(10_000):
        name = b"write:%d" % number
        desk.do(Transact(once(name)))
        assert refusal(desk, once(name)) is ALREADY_PUBLISHED
        assert isinstance(desk.do(ForgetProducer(name)), Done)

    assert PRODUCERS_MAX < 10_000
    assert desk.batches() == {}
    desk.reload()
    assert desk.shelf.kept.records == {}


def test_who_published_once_and_died_is_forgotten_after_an_hour(desk: StagingDesk) -> None:
    """Ten seconds apart, as from foreachBatch, with nobody who says that it is done."""
    for number in range(10_000):
        desk.do(Transact(once(b"write:%d" % number)))
        desk.wait(10_000)

    assert len(desk.batches()) == PRODUCER_ONCE_KEPT_MS // 10_000 - 1
    desk.reload()
    desk.wait(PRODUCER_ONCE_KEPT_MS - 1)
    assert len(desk.batches()) == PRODUCER_ONCE_KEPT_MS // 10_000 - 1
    desk.wait(1)
    assert desk.shelf.kept.records == {}


def test_who_published_once_and_asks_is_remembered(desk: StagingDesk) -> None:
    """A batch in bites may take hours, and whoever published it asks whether it is done."""
    for name in (b"asks", b"died"):
        desk.do(Transact(once(name)))
    for _ in range(5):
        desk.wait(PRODUCER_ONCE_KEPT_MS - 1)
        assert desk.batches(b"asks") == {b"asks": 1}

    assert desk.batches() == {b"asks": 1}
    desk.wait(PRODUCER_ONCE_KEPT_MS)
    assert desk.batches() == {}


def test_who_publishes_once_takes_no_room_from_others() -> None:
    desk = StagingDesk(bounds=Bounds(producers_max=2))
    for name in (b"a", b"b"):
        desk.do(Transact(once(name)))

    assert refusal(desk, once(b"c")) is SERVER_BUSY
    desk.publish(producer=b"stream", batch=1)
    desk.publish(producer=b"replay", batch=1)
    assert refusal(desk, desk.publication(producer=b"other", batch=1)) is QUOTA_EXCEEDED
    desk.do(ForgetProducer(b"a"))
    desk.do(Transact(once(b"c")))
    assert desk.batches() == {b"stream": 1, b"replay": 1, b"b": 1, b"c": 1}


def test_only_who_publishes_once_can_be_forgotten(desk: StagingDesk) -> None:
    desk.publish(batch=1)

    assert isinstance(desk.do(ForgetProducer(PRODUCER)), Done)
    assert isinstance(desk.do(ForgetProducer(b"nobody")), Done)
    assert refusal(desk, once(PRODUCER)) is ALREADY_PUBLISHED
    desk.do(Transact(once(PRODUCER, 2)))
    desk.do(ForgetProducer(PRODUCER))

    assert desk.batches() == {PRODUCER: 2}


def test_who_goes_on_after_it_published_once_is_remembered_like_others() -> None:
    """What was to be forgotten after an hour was its record as a whole: repeated, its batches were
    published twice.
    """
    desk = StagingDesk(bounds=Bounds(producers_max=1))
    desk.do(Transact(once(PRODUCER)))
    desk.publish(batch=2)
    desk.do(ForgetProducer(PRODUCER))
    desk.wait(PRODUCER_ONCE_KEPT_MS)
    desk.reload()

    assert refusal(desk, desk.publication(batch=2)) is ALREADY_PUBLISHED
    desk.do(Transact(once(b"other")))
    assert refusal(desk, desk.publication(producer=b"other", batch=2)) is QUOTA_EXCEEDED
