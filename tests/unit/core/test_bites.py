"""What is large is decided as a whole and stored in bites (docs/adr/0057-bites.md)."""

import pytest

from shardbus.core.errors import (
    ALREADY_PUBLISHED,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    STAGE_LOST,
    Refused,
)
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import Adopt, Append
from shardbus.core.fragment.command import Command, FragmentRules, Tick
from shardbus.core.fragment.records import PUBLISHING
from shardbus.core.limits import REMEMBERED_MAX, STAGE_MS_MIN
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import Done
from shardbus.core.stages.command import (
    AskStages,
    CheckStages,
    ProlongStages,
    Publication,
    PublishOn,
    Stage,
    StagesChecked,
    StagesHeld,
)
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
from tests.unit.core.desk import FRAGMENT, rules
from tests.unit.core.staged import NAME, PRODUCER, StagingDesk

TRANSACTION = b"transaction"
DECIDER = (9, 9)
KEY = b"a batch"
LATER_MS = 10_000
WINDOW_MS = 60_000

KINDS = {
    "plain": rules(),
    "duplicates": rules(duplicate_window_ms=WINDOW_MS),
    "sessions": rules(requires_session=True),
    "topic": rules(is_topic=True),
}


class BitingDesk(StagingDesk):
    """More than three messages are published in bites of two, when somebody says so."""

    def __init__(self, fragment_rules: FragmentRules | None = None, **more: int) -> None:
        bounds = Bounds(whole_count_max=3, bite_count_max=2, admitted_max=1, **more)
        super().__init__(fragment_rules, bounds=bounds)
        self.publishes_on = False
        self.copies: list[bytes | None] = []

    def fill(self, count: int = 7, name: bytes = NAME) -> list[bytes]:
        """A stage in pieces of one message, then of three."""
        payloads = [b"%s %d" % (name, number) for number in range(count)]
        self.stage_all([self.message(payloads[0])], name, 1)
        for at in range(1, count, 3):
            self.stage_all([self.message(each) for each in payloads[at : at + 3]], name, at + 1)
        return payloads

    def message(self, payload: bytes) -> Message:
        return Message(payload, message_id=payload.decode(), session_id="s")

    def begin(self, *names: bytes, batch: int = 1) -> None:
        """Look at the stages, and publish them: the first bite is stored then."""
        work = self.publication(*names, batch=batch)
        work.batch_key = KEY
        self.check(*names)
        assert isinstance(self.do(Transact(work)), Done)

    def check(self, *names: bytes) -> None:
        while self.checked(*names):
            pass

    def checked(self, *names: bytes) -> int:
        answer = self.do(CheckStages(list(names) or [NAME]))
        assert isinstance(answer, StagesChecked)
        return answer.left_bytes

    def left_bytes(self) -> int:
        answer = self.do(AskStages([], KEY))
        assert isinstance(answer, StagesHeld)
        return answer.left_bytes

    def bite(self) -> None:
        assert self.fragment.is_publishing
        before = self.shelf.commits
        self.publish_on()
        assert self.shelf.commits == before + 1

    def finish(self) -> int:
        """All that is left; how many bites it took."""
        bites = 0
        while self.fragment.is_publishing:
            self.bite()
            bites += 1
            assert bites < 100
        return bites

    def sent(self) -> list[bytes | None]:
        """What can be received, or was published to subscriptions."""
        self.copies += [entry.payload for entry in self.fragment.published()]
        return self.copies or [entry.payload for _, entry in sorted(self.shelf.entries.items())]


@pytest.fixture(params=KINDS)
def desk(request: pytest.FixtureRequest) -> BitingDesk:
    return BitingDesk(KINDS[request.param])


def refusal(desk: BitingDesk, command: Command) -> Refused:
    with pytest.raises(Refused) as refused:
        desk.do(command)
    return refused.value


def test_what_is_large_is_stored_in_bites_in_the_order_of_its_pieces(desk: BitingDesk) -> None:
    expected = desk.fill(10)

    desk.begin()
    assert desk.sent() == expected[:4]
    desk.bite()
    assert desk.sent() == expected[:7]
    desk.send_all([desk.message(b"by others")])
    assert desk.finish() == 1

    assert desk.sent() == [*expected[:7], b"by others", *expected[7:]]
    assert desk.held() == {} and desk.shelf.kept.stages == {}
    assert desk.fragment.size_bytes() == desk.fragment.counters.total_bytes()


def test_what_is_small_is_one_commit_and_leaves_no_record(desk: BitingDesk) -> None:
    expected = desk.fill(3)
    before = desk.shelf.commits

    desk.publish(batch=1)

    assert desk.shelf.commits == before + 1
    assert desk.sent() == expected
    assert not desk.fragment.is_publishing
    assert not any(kind == PUBLISHING for kind, _ in desk.shelf.kept.records)


@pytest.mark.parametrize("bites", range(5))
def test_after_a_reload_it_goes_on_where_the_last_bite_ended(desk: BitingDesk, bites: int) -> None:
    """A piece is no bound: a bite of a topic may end within one."""
    expected = desk.fill(10, b"a") + desk.fill(5, b"b")
    desk.begin(b"a", b"b")
    for _ in range(bites):
        desk.bite()
    desk.sent()

    desk.reload()

    assert desk.batches() == {PRODUCER: 1}
    desk.finish()
    assert desk.sent() == expected
    assert desk.held(b"a", b"b") == {} and desk.shelf.kept.stages == {}
    assert not any(kind == PUBLISHING for kind, _ in desk.shelf.kept.records)


@pytest.mark.parametrize("sent", range(1, 8))
def test_a_bite_that_ends_within_a_piece_is_gone_on_with_there(sent: int) -> None:
    """As that of a topic does, when there are copies enough for one commit."""
    desk = BitingDesk(rules(is_topic=True))
    expected = desk.fill(8)
    desk.check()
    work = desk.publication(batch=1)
    desk._read_what_is_lacking(Transact(work))
    desk._pending += desk.fragment.apply(Transact(work), desk.now_ms, desk.steady_ms).changes
    for _ in range(sent):
        desk._pending += desk.fragment.decide_on(1 if desk.fragment.is_unfinished else 0)
    desk._pending += desk.fragment.decide_on(0)
    desk._commit()
    first = desk.sent()
    assert first == expected[: min(sent, 4)]
    staged_bytes = desk.fragment.size_bytes()

    desk.reload()
    assert desk.fragment.size_bytes() == staged_bytes
    desk.finish()

    assert desk.sent() == expected
    assert desk.fragment.size_bytes() == 0


def test_what_is_staged_becomes_less_with_every_bite_and_is_the_same_when_loaded(
    desk: BitingDesk,
) -> None:
    desk.fill(10)
    all_bytes = desk.fragment._ledger.staged_bytes
    desk.begin()
    staged = [all_bytes, desk.fragment._ledger.staged_bytes]
    assert desk.left_bytes() == staged[-1]
    while desk.fragment.is_publishing:
        desk.reload()
        assert desk.fragment._ledger.staged_bytes == desk.left_bytes() == staged[-1]
        desk.bite()
        staged.append(desk.fragment._ledger.staged_bytes)

    assert staged == sorted(staged, reverse=True) and len(set(staged)) == len(staged)
    assert staged[-1] == desk.left_bytes() == 0


def test_a_batch_that_is_being_published_is_published(desk: BitingDesk) -> None:
    desk.fill(10)
    desk.begin(batch=4)
    desk.stage_all([desk.message(b"again")], b"other")

    work = desk.publication(b"other", batch=4)
    assert refusal(desk, Transact(work)).kind is ALREADY_PUBLISHED


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_nothing_but_its_end_ends_a_stage_that_is_being_published(
    desk: BitingDesk, is_reloaded: bool
) -> None:
    expected = desk.fill(10)
    desk.begin()
    desk.sent()
    if is_reloaded:
        desk.reload()

    desk.drop(NAME)
    assert isinstance(desk.do(ProlongStages([NAME])), Done)
    desk.wait(24 * 60 * STAGE_MS_MIN)
    desk.do(Tick())
    added = Stage(NAME, 99, [desk.message(b"x")], STAGE_MS_MIN)
    assert refusal(desk, added).kind is NOT_ALLOWED
    assert refusal(desk, Transact(desk.publication(batch=2))).kind is SERVER_BUSY
    if is_reloaded:
        desk.reload()
    desk.finish()

    assert desk.sent() == expected


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_the_name_of_a_stage_that_is_sent_is_free_when_all_of_the_publication_is(
    desk: BitingDesk, is_reloaded: bool
) -> None:
    """A stage of that name would be taken for a part of it when the fragment is loaded."""
    expected = desk.fill(4, b"a") + desk.fill(4, b"b") + desk.fill(4, b"c")
    desk.begin(b"a", b"b", b"c")
    desk.bite()
    assert desk.held(b"a", b"b") == {}
    desk.sent()
    if is_reloaded:
        desk.reload()

    again = Stage(b"b", 1, [desk.message(b"again")], STAGE_MS_MIN)
    assert refusal(desk, again).kind is NOT_ALLOWED
    desk.finish()
    assert isinstance(desk.do(again), Done)

    assert desk.sent() == expected


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_what_was_promised_is_finished_in_bites(desk: BitingDesk, is_reloaded: bool) -> None:
    expected = desk.fill(10)
    desk.check()
    work = desk.publication()
    work.batch_key = KEY
    desk.do(Prepare(TRANSACTION, work, DECIDER, LATER_MS))
    promised_bytes = desk.left_bytes()
    assert promised_bytes == desk.fragment._ledger.staged_bytes
    if is_reloaded:
        desk.reload()
        assert desk.left_bytes() == promised_bytes

    assert isinstance(desk.do(Finish(TRANSACTION, is_commit=True)), Done)
    assert isinstance(desk.do(Finish(TRANSACTION, is_commit=True)), Done)
    assert 0 < desk.left_bytes() < promised_bytes
    desk.finish()

    assert desk.sent() == expected


def test_the_first_bite_is_stored_with_the_decision(desk: BitingDesk) -> None:
    expected = desk.fill(10)
    desk.check()
    before = desk.shelf.commits
    decided = desk.do(Decide(TRANSACTION, desk.publication(batch=1), [(1, 2)]))
    assert isinstance(decided, Decided) and decided.how == COMMITTED
    assert desk.shelf.commits == before + 1
    desk.sent()

    desk.reload()
    asked = desk.do(AskDecision(TRANSACTION, is_over=False))
    assert isinstance(asked, Decided) and asked.how == COMMITTED
    desk.finish()

    assert desk.sent() == expected


def test_what_is_small_does_not_wait_for_what_is_large(desk: BitingDesk) -> None:
    large = desk.fill(10, b"large")
    desk.begin(b"large", batch=1)
    small = desk.fill(3, b"small")

    desk.publish(b"small", batch=2)
    assert desk.sent() == large[:4] + small
    desk.reload()
    desk.finish()

    assert desk.sent() == large[:4] + small + large[4:]


def test_one_large_publication_is_sent_after_the_other(desk: BitingDesk) -> None:
    first, second = desk.fill(8, b"first"), desk.fill(8, b"second")
    desk.begin(b"first", batch=1)
    desk.begin(b"second", batch=2)
    desk.sent()
    desk.reload()
    desk.bite()
    desk.sent()
    desk.reload()
    desk.finish()

    sent = desk.sent()
    assert [each for each in sent if each in first] == first
    assert [each for each in sent if each in second] == second
    assert sent[-4:] == second[-4:]


def test_a_piece_that_is_damaged_since_is_lost_alone(desk: BitingDesk) -> None:
    expected = desk.fill(10)
    desk.begin()
    desk.shelf.store.damage_piece(FRAGMENT, NAME, 5)

    desk.finish()

    assert desk.sent() == expected[:4] + expected[7:]
    assert desk.held() == {}
    assert desk.fragment.size_bytes() == desk.fragment.counters.total_bytes()


# Whether everything is whole.


def test_what_is_large_is_looked_at_before_it_is_promised(desk: BitingDesk) -> None:
    desk.fill(10)
    work = desk.publication(batch=1)

    assert refusal(desk, Transact(work)).kind is SERVER_BUSY
    assert refusal(desk, Prepare(TRANSACTION, desk.publication(), DECIDER, 1)).kind is SERVER_BUSY
    assert desk.checked() == 0
    desk.stage_all([desk.message(b"more")], NAME, 99)
    assert refusal(desk, Transact(desk.publication(batch=1))).kind is SERVER_BUSY
    assert desk.checked() == 0
    desk.reload()

    # Who has it in memory anew does not know.
    assert refusal(desk, Transact(desk.publication(batch=1))).kind is SERVER_BUSY
    desk.begin()


def test_many_bytes_are_looked_at_a_part_at_a_time() -> None:
    desk = BitingDesk(checked_bytes_max=1_000)
    for piece in range(1, 11):
        desk.stage(bytes(400), piece=piece)
    held = desk.do(AskStages([NAME]))
    assert isinstance(held, StagesHeld) and held.unchecked_bytes > 4_000 and held.takes_bites

    left: list[int] = []
    while not left or left[-1]:
        left.append(desk.checked())

    assert len(left) == 4 and left == sorted(left, reverse=True)


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_damaged_piece_of_what_is_large_is_refused(is_beside: bool) -> None:
    desk = BitingDesk()
    desk.fill(10)
    desk.reload()
    if is_beside:
        desk.shelf.store.damage_staged(FRAGMENT, NAME, 8)
    else:
        desk.shelf.store.damage_piece(FRAGMENT, NAME, 8)

    damaged = refusal(desk, CheckStages([NAME]))

    assert damaged.kind is STAGE_LOST and "damaged" in str(damaged)
    assert refusal(desk, Transact(desk.publication(batch=1))).kind is SERVER_BUSY
    desk.drop(NAME)
    assert desk.checked() == 0


# Ids.


def test_a_million_ids_can_be_promised() -> None:
    assert REMEMBERED_MAX >= 1_000_000


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_ids_that_are_promised_have_their_room(is_reloaded: bool) -> None:
    desk = BitingDesk(rules(duplicate_window_ms=WINDOW_MS), remembered_max=12)
    desk.fill(10)
    desk.check()
    desk.do(Prepare(TRANSACTION, desk.publication(), DECIDER, LATER_MS))
    if is_reloaded:
        desk.reload()

    desk.send_all([desk.message(b"one"), desk.message(b"two")])
    with pytest.raises(Refused) as refused:
        desk.send_all([desk.message(b"three")])
    assert refused.value.kind is QUOTA_EXCEEDED
    desk.do(Finish(TRANSACTION, is_commit=True))
    if is_reloaded:
        desk.reload()
    desk.finish()

    assert len(desk.fragment._entrance._history) == 12
    assert desk.fragment._ledger.promised_ids == 0


def test_more_ids_than_there_is_room_for_are_not_promised() -> None:
    desk = BitingDesk(rules(duplicate_window_ms=WINDOW_MS), remembered_max=12)
    desk.fill(10, b"a")
    desk.fill(10, b"b")
    desk.check(b"a", b"b")
    desk.do(Prepare(TRANSACTION, desk.publication(b"a"), DECIDER, LATER_MS))

    second = Prepare(b"second", desk.publication(b"b"), DECIDER, LATER_MS)
    assert refusal(desk, second).kind is QUOTA_EXCEEDED
    desk.do(Finish(TRANSACTION, is_commit=False))
    assert isinstance(desk.do(second), Done)


def test_duplicates_are_told_across_bites() -> None:
    desk = BitingDesk(rules(duplicate_window_ms=WINDOW_MS))
    desk.stage_all([Message(b"%d" % each, message_id="same") for each in range(4)], NAME, 1)
    desk.stage_all(
        [Message(b"last", message_id="same"), Message(b"new", message_id="new")], NAME, 2
    )
    desk.begin()
    desk.reload()
    desk.finish()

    assert desk.sent() == [b"0", b"new"]


def test_a_publication_without_stages_is_over_at_once() -> None:
    desk = BitingDesk()

    desk.do(Transact(Work([], [], [], Publication(PRODUCER, 3))))

    assert not desk.fragment.is_publishing and desk.batches() == {PRODUCER: 3}


def test_a_bite_has_so_many_messages(desk: BitingDesk) -> None:
    desk.fill(30)
    desk.begin()
    desk.fragment.published()
    counts: list[int] = []
    while desk.fragment.is_publishing:
        desk._read_what_is_lacking(command := PublishOn())
        changes = desk.fragment.apply(command, desk.now_ms, desk.steady_ms).changes
        while desk.fragment.is_unfinished:
            changes += desk.fragment.decide_on(1)
        counts.append(
            sum(each.count for each in changes if isinstance(each, Adopt))
            + sum(len(each.entries) for each in changes if isinstance(each, Append))
            + len(desk.fragment.published())
        )
        desk._pending += changes
        desk._commit()

    # Two and the rest of a piece.
    assert max(counts) <= 4 and sum(counts) == 26
    count = desk.fragment.counters.lines[MAIN_LINE].count
    assert count == (0 if desk.rules.is_topic else 30)
