"""Stages: messages that are durable and invisible until they are published, all or nothing."""

import pytest

from shardbus.core.errors import (
    ALREADY_PUBLISHED,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    STAGE_LOST,
    TOO_LARGE,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.command import Tick
from shardbus.core.limits import (
    PRODUCER_KEPT_MS,
    PRODUCER_NAME_BYTES_MAX,
    STAGE_MS_DEFAULT,
    STAGE_MS_MAX,
    STAGE_MS_MIN,
    STAGE_NAME_BYTES_MAX,
    STAGE_PIECE_BYTES_MAX,
)
from shardbus.core.message import MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import Done, Purge, Purged
from shardbus.core.stages.command import ProlongStages, Publication, Stage, StageShare
from shardbus.core.transactions.command import (
    COMMITTED,
    AskDecision,
    Decide,
    Decided,
    Finish,
    Prepare,
    Transact,
    Work,
)
from tests.support.refusals import refusal_of
from tests.unit.core.desk import FRAGMENT, rules
from tests.unit.core.staged import NAME, PRODUCER, StagingDesk

TRANSACTION = b"transaction"
DECIDER = (9, 9)
LATER_MS = 10_000


@pytest.fixture
def desk() -> StagingDesk:
    return StagingDesk()


def prepare(desk: StagingDesk, work: Work) -> None:
    command = Prepare(TRANSACTION, work, DECIDER, LATER_MS)
    assert isinstance(desk.do(command), Done)


def finish(desk: StagingDesk, *, is_commit: bool) -> None:
    assert isinstance(desk.do(Finish(TRANSACTION, is_commit=is_commit)), Done)


def refusal(desk: StagingDesk, work: Work) -> ErrorKind:
    with pytest.raises(Refused) as refused:
        desk.do(Transact(work))
    return refused.value.kind


# What is staged.


def test_staged_messages_are_invisible_until_they_are_published(desk: StagingDesk) -> None:
    desk.stage(b"one", b"two")

    assert desk.receive(9) == []
    assert desk.fragment.counters.lines[MAIN_LINE].count == 0
    assert not desk.fragment.is_ready(MAIN_LINE)
    purged = desk.do(Purge(MAIN_LINE, 9))
    assert isinstance(purged, Purged) and purged.count == 0

    desk.publish()

    assert desk.payloads(9) == [b"one", b"two"]
    assert desk.held() == {}


def test_a_stage_survives_a_restart_and_so_does_its_end(desk: StagingDesk) -> None:
    desk.stage(b"one")
    desk.reload()
    assert desk.held() == {NAME: 1}

    desk.publish()
    desk.reload()

    assert desk.held() == {}
    assert desk.payloads(9) == [b"one"]
    assert desk.shelf.kept.stages == {}


def test_the_pieces_of_a_stage_are_published_in_the_order_of_their_numbers(
    desk: StagingDesk,
) -> None:
    desk.stage(b"5", piece=9)
    desk.stage(b"1", b"2", piece=1)
    desk.stage(b"3", b"4", piece=2)

    desk.publish()

    assert desk.payloads(9) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_piece_that_is_there_is_not_staged_again(desk: StagingDesk) -> None:
    desk.stage(b"one")
    desk.stage(b"one")
    desk.reload()
    desk.stage(b"one")

    assert desk.held() == {NAME: 1}


def test_only_the_chosen_stages_are_published(desk: StagingDesk) -> None:
    desk.stage(b"loser", name=b"first attempt")
    desk.stage(b"winner", name=b"second attempt")

    desk.publish(b"second attempt")

    assert desk.payloads(9) == [b"winner"]
    assert desk.held(b"first attempt") == {b"first attempt": 1}


def test_dropped_stages_are_gone(desk: StagingDesk) -> None:
    desk.stage(b"one", name=b"a")
    desk.stage(b"two", name=b"b")

    desk.drop(b"a", b"never there")

    assert desk.held(b"a", b"b") == {b"b": 1}
    assert list(desk.shelf.kept.stages) == [b"b"]
    desk.reload()
    assert desk.held(b"a", b"b") == {b"b": 1}


def test_numbers_and_times_are_given_at_publishing(desk: StagingDesk) -> None:
    """A message that lives a second is not expired by having been staged for a minute."""
    now_ms = desk.now_ms
    desk.stage_all([Message(b"brief", ttl_ms=1_000), Message(b"due", scheduled_at_ms=now_ms + 50)])
    desk.stage_all([Message(b"later", scheduled_at_ms=now_ms + 90_000)], piece=2)
    [sent] = desk.send(b"sent meanwhile")
    desk.wait(60_000)

    desk.publish()

    deliveries = desk.receive(9)
    found = [delivery.entry for delivery in deliveries]
    assert [delivery.payload for delivery in deliveries] == [b"sent meanwhile", b"brief", b"due"]
    assert [entry.sequence_number for entry in found] == [sent, sent + 1, sent + 2]
    assert found[1].enqueued_at_ms == desk.now_ms
    assert found[1].expires_at_ms == desk.now_ms + 1_000
    assert desk.fragment.counters.lines[MAIN_LINE].scheduled == 1


def test_duplicates_are_detected_at_publishing() -> None:
    desk = StagingDesk(rules(duplicate_window_ms=60_000))
    desk.stage_all([Message(b"staged", message_id="same"), Message(b"new", message_id="new")])
    desk.send_all([Message(b"sent", message_id="same")])

    desk.publish()

    assert desk.payloads(9) == [b"sent", b"new"]


def test_more_ids_than_can_be_remembered_are_refused_at_publishing() -> None:
    desk = StagingDesk(rules(duplicate_window_ms=60_000), bounds=Bounds(remembered_max=1))
    desk.stage_all([Message(b"a", message_id="a"), Message(b"b", message_id="b")])

    assert refusal(desk, desk.publication()) is QUOTA_EXCEEDED
    assert desk.held() == {NAME: 2}


def test_a_staged_message_goes_to_its_session() -> None:
    desk = StagingDesk(rules(requires_session=True))
    desk.stage_all([Message(b"one", session_id="s"), Message(b"two", session_id="s")])

    desk.publish()

    accepted = desk.accept("s")
    assert desk.payloads(9, session=accepted.token) == [b"one", b"two"]


def test_a_message_without_a_session_is_refused_when_it_is_staged() -> None:
    desk = StagingDesk(rules(requires_session=True))

    with pytest.raises(Refused) as refused:
        desk.stage(b"one")

    assert refused.value.kind is NOT_ALLOWED


def test_a_topic_publishes_what_was_staged_to_those_who_subscribe() -> None:
    desk = StagingDesk(rules(is_topic=True))
    desk.stage(b"one", b"two")
    assert desk.fragment.published() == []

    desk.publish()

    assert [entry.payload for entry in desk.fragment.published()] == [b"one", b"two"]


# Size and bounds.


def test_what_is_staged_counts_towards_the_size_of_the_fragment() -> None:
    desk = StagingDesk(rules(size_bytes_max=100))
    desk.stage(bytes(200))
    assert desk.fragment.size_bytes() > 200

    with pytest.raises(Refused) as staged:
        desk.stage(b"more", piece=2)
    with pytest.raises(Refused) as sent:
        desk.send(b"more")

    assert staged.value.kind is QUOTA_EXCEEDED and sent.value.kind is QUOTA_EXCEEDED
    desk.reload()
    assert desk.fragment.is_full()
    desk.drop(NAME)
    assert desk.fragment.size_bytes() == 0


def test_a_full_fragment_can_still_publish_what_it_has() -> None:
    desk = StagingDesk(rules(size_bytes_max=100))
    desk.stage(bytes(200))

    desk.publish()

    assert desk.payloads(9) == [bytes(200)]
    assert desk.fragment.size_bytes() == 200


def test_a_fragment_has_so_many_stages() -> None:
    desk = StagingDesk(bounds=Bounds(stages_max=2))
    desk.stage(bytes(600))
    desk.stage(b"other", name=b"b")

    with refusal_of(SERVER_BUSY) as many:
        desk.stage(b"x", name=b"c")

    assert many.value.kind is SERVER_BUSY
    assert desk.held() == {NAME: 1}


def test_a_stage_has_so_many_pieces_and_a_piece_so_many_bytes() -> None:
    desk = StagingDesk(bounds=Bounds(stage_pieces_max=3))
    for piece in range(1, 4):
        desk.stage(b"x", piece=2 * piece)
    half = bytes(STAGE_PIECE_BYTES_MAX // 2)

    with refusal_of(TOO_LARGE) as many:
        desk.stage(b"x", piece=1)
    with refusal_of(TOO_LARGE) as large:
        desk.stage(half, half, name=b"other")
    desk.stage(half + half + half, name=b"alone")

    assert many.value.kind is TOO_LARGE and large.value.kind is TOO_LARGE


@pytest.mark.parametrize(
    "command",
    [
        Stage(b"", 1, [Message(b"x")], STAGE_MS_DEFAULT),
        Stage(bytes(STAGE_NAME_BYTES_MAX + 1), 1, [Message(b"x")], STAGE_MS_DEFAULT),
        Stage(NAME, 0, [Message(b"x")], STAGE_MS_DEFAULT),
        Stage(NAME, 1, [], STAGE_MS_DEFAULT),
        Stage(NAME, 1, [Message(b"x")], STAGE_MS_MIN - 1),
        Stage(NAME, 1, [Message(b"x")], STAGE_MS_MAX + 1),
    ],
)
def test_a_stage_that_makes_no_sense_is_refused(desk: StagingDesk, command: Stage) -> None:
    with pytest.raises(Refused) as refused:
        desk.do(command)

    assert refused.value.kind is INVALID_ARGUMENT


# Time.


def test_a_stage_ends_when_its_time_is_over(desk: StagingDesk) -> None:
    desk.stage(b"brief", name=b"a", lifetime_ms=60_000)
    desk.stage(b"long", name=b"b", lifetime_ms=120_000)
    assert desk.wake_at_ms() == desk.now_ms + 60_000
    desk.reload()

    desk.wait(59_999)
    assert desk.held(b"a", b"b") == {b"a": 1, b"b": 1}
    desk.wait(1)

    assert desk.held(b"a", b"b") == {b"b": 1}
    assert list(desk.shelf.kept.stages) == [b"b"]
    assert desk.wake_at_ms() == desk.now_ms + 60_000
    desk.wait(60_000)
    assert desk.wake_at_ms() == NEVER_MS
    assert desk.fragment.size_bytes() == 0


def test_every_piece_gives_its_stage_more_time(desk: StagingDesk) -> None:
    desk.stage(b"one", lifetime_ms=60_000)
    desk.wait(50_000)
    desk.stage(b"two", piece=2, lifetime_ms=60_000)

    desk.wait(59_999)

    assert desk.held() == {NAME: 2}


def test_a_promised_stage_does_not_expire(desk: StagingDesk) -> None:
    desk.stage(b"one", lifetime_ms=60_000)
    prepare(desk, desk.publication())
    desk.wait(60_001)
    desk.reload()
    desk.wait(60_000)

    finish(desk, is_commit=True)

    assert desk.payloads(9) == [b"one"]
    assert desk.held() == {}


def test_a_stage_whose_promise_is_rolled_back_expires_then(desk: StagingDesk) -> None:
    desk.stage(b"one", lifetime_ms=60_000)
    prepare(desk, desk.publication())
    desk.wait(60_001)

    finish(desk, is_commit=False)
    assert desk.wake_at_ms() <= desk.now_ms
    desk.do(Tick())

    assert desk.held() == {}
    assert desk.receive(9) == []


# Publishing in several fragments.


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_promised_stage_is_published_when_the_transaction_is_finished(
    desk: StagingDesk, is_reloaded: bool
) -> None:
    desk.stage(b"one", b"two")
    prepare(desk, desk.publication())
    assert desk.receive(9) == []
    if is_reloaded:
        desk.reload()

    finish(desk, is_commit=True)
    finish(desk, is_commit=True)
    desk.reload()

    assert desk.payloads(9) == [b"one", b"two"]
    assert desk.held() == {}


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_promised_stage_belongs_to_one_transaction(desk: StagingDesk, is_reloaded: bool) -> None:
    desk.stage(b"one")
    work = desk.publication()
    prepare(desk, work)
    if is_reloaded:
        desk.reload()

    desk.drop(NAME)
    assert desk.held() == {NAME: 1}
    assert refusal(desk, work) is SERVER_BUSY
    with refusal_of(NOT_ALLOWED):
        desk.stage(b"two", piece=2)

    finish(desk, is_commit=False)
    desk.stage(b"two", piece=2)
    desk.publish()
    assert desk.payloads(9) == [b"one", b"two"]


@pytest.mark.parametrize("shares", [[(NAME, 1)], [(NAME, 3)], [(b"other", 2)], [(b"other", 0)]])
def test_a_stage_with_another_number_of_messages_is_not_published(
    desk: StagingDesk, shares: list[StageShare]
) -> None:
    desk.stage(b"one", b"two")

    assert refusal(desk, Work([], [], shares)) is STAGE_LOST
    with pytest.raises(Refused):
        prepare(desk, Work([], [], shares))
    assert desk.receive(9) == []


def test_a_stage_is_named_once(desk: StagingDesk) -> None:
    desk.stage(b"one")

    assert refusal(desk, Work([], [], [(NAME, 1), (NAME, 1)])) is INVALID_ARGUMENT


def test_a_name_that_ends_in_a_slash_is_all_that_begin_so(desk: StagingDesk) -> None:
    for name in (b"a/1", b"a/2", b"ab", b"b/1"):
        desk.stage(b"one", name=name, lifetime_ms=STAGE_MS_MIN)
    with refusal_of(INVALID_ARGUMENT, "'a/'"):
        desk.stage(b"one", name=b"a/")
    desk.wait(STAGE_MS_MIN - 1)
    assert isinstance(desk.do(ProlongStages([b"a/", b"ab", b"nobody"])), Done)
    desk.wait(1)
    assert desk.held(b"a/1", b"a/2", b"ab", b"b/1") == {b"a/1": 1, b"a/2": 1, b"ab": 1}

    desk.drop(b"a/")
    assert desk.held(b"a/1", b"a/2", b"ab") == {b"ab": 1}
    desk.wait(STAGE_MS_MIN - 2)
    assert desk.held(b"ab") == {b"ab": 1}
    desk.wait(1)
    assert desk.held(b"ab") == {}


# Batches of producers.


def test_a_batch_is_published_once(desk: StagingDesk) -> None:
    desk.stage(b"one", name=b"a")
    desk.publish(b"a", batch=7)
    desk.stage(b"again", name=b"b")
    desk.reload()

    for batch in (0, 6, 7):
        work = desk.publication(b"b", batch=batch)
        assert refusal(desk, work) is ALREADY_PUBLISHED
    desk.publish(b"b", batch=8)

    assert desk.payloads(9) == [b"one", b"again"]
    assert desk.batches() == {PRODUCER: 8}
    assert desk.batches(b"nobody") == {}


def test_producers_count_their_own_batches(desk: StagingDesk) -> None:
    desk.publish(batch=5)
    desk.publish(producer=b"other", batch=1)

    assert desk.batches() == {PRODUCER: 5, b"other": 1}
    assert desk.batches(b"other") == {b"other": 1}


@pytest.mark.parametrize(
    "publication",
    [(b"", 1), (bytes(PRODUCER_NAME_BYTES_MAX + 1), 1), (b"p", -1), (b"p", 1 << 63)],
)
def test_a_publication_that_makes_no_sense_is_refused(
    desk: StagingDesk, publication: tuple[bytes, int]
) -> None:
    assert refusal(desk, Work([], [], [], Publication(*publication))) is INVALID_ARGUMENT


def test_the_decision_and_the_batch_are_stored_together(desk: StagingDesk) -> None:
    desk.stage(b"one")
    work = desk.publication(batch=3)

    decided = desk.do(Decide(TRANSACTION, work, [(1, 2)]))
    desk.reload()
    asked = desk.do(AskDecision(TRANSACTION, is_over=False))

    assert isinstance(decided, Decided) and decided.how == COMMITTED
    assert isinstance(asked, Decided) and asked.how == COMMITTED
    assert desk.batches() == {PRODUCER: 3}
    assert desk.payloads(9) == [b"one"]
    repeated = desk.do(Decide(TRANSACTION, work, [(1, 2)]))
    assert isinstance(repeated, Decided) and repeated.how == COMMITTED


def test_a_batch_that_was_published_before_is_not_decided_again(desk: StagingDesk) -> None:
    desk.publish(batch=3)
    desk.stage(b"one")
    work = desk.publication(batch=3)

    with pytest.raises(Refused) as refused:
        desk.do(Decide(TRANSACTION, work, [(1, 2)]))

    assert refused.value.kind is ALREADY_PUBLISHED
    assert desk.held() == {NAME: 1}


def test_a_batch_is_remembered_only_where_it_is_decided(desk: StagingDesk) -> None:
    with pytest.raises(Refused) as refused:
        prepare(desk, desk.publication(batch=1))

    assert refused.value.kind is INVALID_ARGUMENT


def test_a_producer_that_is_idle_for_a_month_makes_room() -> None:
    desk = StagingDesk(bounds=Bounds(producers_max=2))
    desk.publish(producer=b"a", batch=1)
    desk.wait(1)
    desk.publish(producer=b"b", batch=1)
    desk.wait(PRODUCER_KEPT_MS - 2)
    full = Work([], [], [], Publication(b"c", 1))

    assert refusal(desk, full) is QUOTA_EXCEEDED
    desk.publish(producer=b"b", batch=2)
    desk.wait(1)
    desk.do(Transact(full))
    desk.reload()

    assert desk.batches() == {b"b": 2, b"c": 1}


# Damage.


def test_a_damaged_piece_makes_its_stage_alone_unpublishable(desk: StagingDesk) -> None:
    desk.stage(b"one", name=b"bad")
    desk.stage(b"two", name=b"bad", piece=2)
    desk.stage(b"three", name=b"good")
    desk.shelf.store.damage_piece(FRAGMENT, b"bad", 2)

    with refusal_of(STAGE_LOST, "'bad'") as refused:
        desk.publish(b"bad")
    with refusal_of(STAGE_LOST, "'bad'"):
        prepare(desk, desk.publication(b"bad"))
    desk.publish(b"good")

    assert refused.value.kind is STAGE_LOST
    assert desk.payloads(9) == [b"three"]
    desk.drop(b"bad")
    assert desk.fragment.size_bytes() == len(b"three")


def test_a_piece_that_is_missing_is_a_damaged_one(desk: StagingDesk) -> None:
    desk.stage(b"one")
    desk.stage(b"two", piece=2)
    del desk.shelf.kept.stages[NAME][1]

    with refusal_of(STAGE_LOST):
        desk.publish()


def test_what_is_damaged_after_the_promise_is_lost_and_nothing_else(desk: StagingDesk) -> None:
    desk.stage(b"one")
    desk.stage(b"two", piece=2)
    prepare(desk, desk.publication())
    desk.shelf.store.damage_piece(FRAGMENT, NAME, 1)

    finish(desk, is_commit=True)

    assert desk.payloads(9) == [b"two"]
    assert desk.held() == {}
