"""Publications in bites: of one runner, of a topic with many copies, of fragments of brokers."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from shardbus.broker.broker import Broker
from shardbus.broker.fragment.outlet import GATHERED_BYTES_MAX, GATHERED_MAX
from shardbus.broker.fragment.publishing import Publisher
from shardbus.broker.fragment.runner import Runner
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.operations.staging import WAIT_MS
from shardbus.core.errors import BEING_PUBLISHED, STAGE_LOST, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import Append
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.fragment.records import PUBLISHING
from shardbus.core.limits import MODIFIED_BYTES_MAX
from shardbus.core.message import Message
from shardbus.core.messages.command import Done, Sent
from shardbus.core.stages.command import (
    AskStages,
    CheckStages,
    Publication,
    Stage,
    StagesChecked,
    StagesHeld,
)
from shardbus.core.transactions.command import Transact, Work
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.faults import Disk
from tests.simulation.payloads import FORMAT
from tests.unit.broker.house import LATENCY_S, House, ScriptedDisk, payloads_of, send_of
from tests.unit.broker.news import Topic, new_publisher, publish_of, sql_rule
from tests.unit.broker.test_staging import QUERY, Lake, payloads
from tests.unit.broker.two_brokers import AFTER, BEFORE
from tests.unit.core.desk import rules

STAGE = b"attempt"
KEY = b"a batch"
SMALL = Bounds(whole_count_max=4, bite_count_max=2)
WINDOW_MS = 60_000
# More commits than publishing in bites in fragments of two brokers takes.
STEPS = 30


def runner_of(house: House, fragment_rules: FragmentRules | None = None) -> Runner:
    fragment = FragmentId(1, 0)
    if fragment not in house.disk.kept.fragments():
        house.disk.create([fragment])
    chosen = fragment_rules or rules()
    return Runner(fragment, chosen, house.storage, house.clock, house.loop, bounds=SMALL)


def staged(house: House, runner: Runner, *messages: Message) -> Transact:
    """What publishes these, which are staged in pieces of two and looked at."""
    for at in range(0, len(messages), 2):
        piece = Stage(STAGE, at + 1, list(messages[at : at + 2]), 60_000)
        assert isinstance(house.answer(runner, piece), Done)
    checked = house.answer(runner, CheckStages([STAGE]))
    assert isinstance(checked, StagesChecked) and checked.left_bytes == 0
    work = Work([], [], [(STAGE, len(messages))], Publication(b"query", 1))
    work.batch_key = KEY
    return Transact(work)


def numbered(count: int) -> list[Message]:
    return [Message(b"%d" % each, message_id=str(each)) for each in range(count)]


def left_bytes(house: House, runner: Runner) -> int:
    answer = house.answer(runner, AskStages([], KEY))
    assert isinstance(answer, StagesHeld)
    return answer.left_bytes


def visible(house: House) -> list[bytes | None]:
    entries = house.disk.kept._fragments[FragmentId(1, 0)].entries
    return [entry.payload for _, entry in sorted(entries.items())]


def begun(house: House, runner: Runner, command: Transact) -> None:
    """Let it be decided: its first bite is stored, and others are not."""
    answers = house.ask(runner, command)
    while not answers:
        house.loop.run_until_complete(asyncio.sleep(LATENCY_S))
    assert isinstance(answers[0], Done)
    assert 0 < len(visible(house)) < 20


# One runner.


@pytest.mark.parametrize("window_ms", [0, WINDOW_MS])
def test_a_runner_sends_one_bite_after_the_other_by_itself(house: House, window_ms: int) -> None:
    runner = runner_of(house, rules(duplicate_window_ms=window_ms))
    command = staged(house, runner, *numbered(20))
    house.disk.transactions.clear()

    begun(house, runner, command)
    house.pass_s()

    assert visible(house) == [b"%d" % each for each in range(20)]
    assert len(house.disk.transactions) == 10
    assert left_bytes(house, runner) == 0


def test_others_have_their_turn_between_two_bites(house: House) -> None:
    runner = runner_of(house)
    command = staged(house, runner, *numbered(20))
    begun(house, runner, command)

    answers = house.ask(runner, send_of(b"by others"))
    while not answers:
        house.loop.run_until_complete(asyncio.sleep(LATENCY_S))

    assert isinstance(answers[0], Sent)
    at = visible(house).index(b"by others")
    assert 0 < at <= 6
    house.pass_s()
    expected: list[bytes | None] = [b"%d" % each for each in range(20)]
    assert visible(house) == [*expected[:at], b"by others", *expected[at:]]
    assert payloads_of(house.receive(runner, 3)) == visible(house)[:3]


@pytest.mark.parametrize("window_ms", [0, WINDOW_MS])
@pytest.mark.parametrize("failure", ["before", "after", "not at all"])
@pytest.mark.parametrize("bites", [0, 1, 4])
def test_a_bite_whose_commit_fails_is_sent_once(
    house: House, bites: int, failure: str, window_ms: int
) -> None:
    runner = runner_of(house, rules(duplicate_window_ms=window_ms))
    command = staged(house, runner, *numbered(20))
    begun(house, runner, command)
    while len(visible(house)) < 2 * bites + 2:
        house.loop.run_until_complete(asyncio.sleep(LATENCY_S))
    house.disk.commit_failures.append(failure)

    house.pass_s(10)

    assert not house.disk.commit_failures
    assert visible(house) == [b"%d" % each for each in range(20)]
    assert left_bytes(house, runner) == 0
    assert house.disk.kept._fragments[runner.fragment_id].stages == {}


def test_a_fragment_that_is_loaded_goes_on_without_whoever_published(house: House) -> None:
    runner = runner_of(house)
    command = staged(house, runner, *numbered(20))
    begun(house, runner, command)
    runner.stop()
    house.pass_s()
    assert len(visible(house)) < 20
    broker = Broker("b", house.storage, house.clock, house.loop)
    assert house.loop.run_until_complete(broker.in_doubt()) == [runner.fragment_id]

    runner_of(house)
    house.pass_s()

    assert visible(house) == [b"%d" % each for each in range(20)]
    records = house.disk.kept.load(runner.fragment_id).records
    assert not any(kind == PUBLISHING for kind, _ in records)


def test_nothing_is_sent_while_the_store_is_short_of_room(house: House) -> None:
    """Else the fragment would fail again and again, and nobody could receive what is in the way."""
    runner = runner_of(house)
    command = staged(house, runner, *numbered(20))
    begun(house, runner, command)
    house.disk.kept.shortage = "the disk is full"
    house.pass_s()
    known = visible(house)
    assert len(known) < 20

    house.pass_s(60)
    assert visible(house) == known
    assert payloads_of(house.receive(runner, 2)) == known[:2]
    house.disk.kept.shortage = ""
    house.pass_s(5)

    assert visible(house) == [b"%d" % each for each in range(20)]


def test_a_fragment_that_is_deleted_publishes_no_more(house: House) -> None:
    broker = Broker("b", house.storage, house.clock, house.loop, bounds=SMALL)
    runner = runner_of(house)
    broker._runners[runner.fragment_id] = runner
    begun(house, runner, staged(house, runner, *numbered(20)))

    house.loop.run_until_complete(broker.delete_fragments(1, [0]))
    house.pass_s(5)

    assert house.disk.kept.fragments() == []


# Topics.


class WatchedDisk(ScriptedDisk):
    """Notes how many copies each transaction stores, and the bytes that were made for them."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[int] = []
        self.made_bytes: list[int] = []

    def before_commit(self, commits: Sequence[FragmentCommit]) -> None:
        super().before_commit(commits)
        entries = [
            entry
            for commit in commits
            for change in commit.changes
            if isinstance(change, Append)
            for entry in change.entries
        ]
        payloads = {id(entry.payload): entry.size_bytes for entry in entries}
        self.copies.append(len(entries))
        modified = sum(len(entry.modified) for entry in entries)
        self.made_bytes.append(modified + sum(payloads.values()))


def watched() -> tuple[House, WatchedDisk]:
    disk = WatchedDisk()
    return House(disk), disk


def test_a_stage_of_a_topic_with_many_actions_is_stored_in_bounded_commits() -> None:
    """One hundred subscriptions with five rules that set properties, ten that make payloads."""
    house, disk = watched()
    topic = Topic(house)
    topic.tell()
    size = MODIFIED_BYTES_MAX // 4
    acting = [sql_rule(f"r{each}", "1=1", f"SET a{each} = color") for each in range(5)]
    making = sql_rule("label", "1=1", "SET sys.label = 'x'")
    for number in range(100):
        topic.subscribe(f"s{number}", *acting, *([making] if number < 10 else []))
    house.pass_s()
    body = b"color=" + b"r" * size + b"|%d"
    messages = [Message(body % each, message_id=str(each)) for each in range(40)]
    command = staged(house, topic.runner(), *messages)
    disk.copies.clear()
    disk.made_bytes.clear()

    answers = house.ask(topic.runner(), command)
    house.pass_s(5)

    assert isinstance(answers[0], Done)
    one_copies = 100 * 5 + 10
    one_bytes = one_copies * (size + 100) + 11 * len(body)
    assert max(disk.copies) < GATHERED_MAX + one_copies
    # And what was read for it.
    assert max(disk.made_bytes) < GATHERED_BYTES_MAX + one_bytes + sum(
        len(message.payload) for message in messages
    )
    assert sum(disk.copies) == 40 * one_copies
    assert len([count for count in disk.copies if count]) >= 5
    for name in ("s0", "s99"):
        copies = topic.stored(topic.subscriptions[name].entity_id)
        told = Counter(payload.rpartition(b"|")[2] for payload in copies if payload is not None)
        assert told == {b"%d" % each: 6 if name == "s0" else 5 for each in range(40)}
    house.close()


def test_a_stage_of_a_topic_with_many_subscriptions_makes_so_many_copies_at_once() -> None:
    house, disk = watched()
    topic = Topic(house)
    topic.tell()
    for number in range(100):
        topic.subscribe(f"s{number}")
    house.pass_s()
    command = staged(house, topic.runner(), *numbered(600))
    disk.copies.clear()

    answers = house.ask(topic.runner(), command)
    house.pass_s(5)

    assert isinstance(answers[0], Done)
    assert max(disk.copies) <= GATHERED_MAX and sum(disk.copies) == 60_000
    assert topic.stored(topic.subscriptions["s42"].entity_id) == [b"%d" % n for n in range(600)]
    house.close()


@pytest.mark.parametrize("failure", ["before", "after"])
def test_copies_of_a_bite_whose_commit_fails_are_made_once(house: House, failure: str) -> None:
    topic = BittenTopic(house)
    topic.tell()
    for number in range(3):
        topic.subscribe(f"s{number}", sql_rule("r", "1=1", "SET a = 'b'"), sql_rule("all", "1=1"))
    house.pass_s()
    command = staged(house, topic.runner(), *numbered(20))
    answers = house.ask(topic.runner(), command)
    while not answers:
        house.loop.run_until_complete(asyncio.sleep(LATENCY_S))
    house.disk.commit_failures.append(failure)
    later = house.ask(topic.runner(), publish_of(b"later"))
    house.pass_s(10)

    assert not house.disk.commit_failures and later
    for number in range(3):
        copies = topic.drain(f"s{number}")
        assert [each for each in copies if each != b"later"] == [
            b"%d" % (each // 2) for each in range(40)
        ]


class BittenTopic(Topic):
    def new_broker(self) -> Broker:
        house = self.house
        return Broker(
            "b",
            house.storage,
            house.clock,
            house.loop,
            new_publisher=new_publisher,
            bounds=SMALL,
        )


def test_who_subscribes_between_two_bites_gets_those_that_come(house: House) -> None:
    topic = BittenTopic(house)
    topic.tell()
    topic.subscribe("all")
    house.pass_s()
    command = staged(house, topic.runner(), *numbered(20))
    answers = house.ask(topic.runner(), command)
    while not answers:
        house.loop.run_until_complete(asyncio.sleep(LATENCY_S))

    topic.subscribe("late")
    house.pass_s()

    expected = [b"%d" % each for each in range(20)]
    late = topic.drain("late")
    assert topic.drain("all") == expected
    assert 0 < len(late) < 20 and late == expected[-len(late) :]


# All fragments of an entity.


class BittenLake(Lake):
    """Where a fragment stores two messages at once, when they are more than four."""

    def _broker(self, name: str, disk: Disk) -> Broker:
        storage = Storage(disk, self._worker(), self._worker(), self.loop)
        publisher = Publisher(bytes(8), payloads=FORMAT)
        return Broker(
            name,
            storage,
            self.clock,
            self.loop,
            new_publisher=lambda: publisher,
            bounds=Bounds(whole_count_max=4, bite_count_max=2, checked_bytes_max=100),
        )

    def fill_large(self, stage: str = "task", pieces: int = 8, key: str | None = None) -> int:
        """A stage whose pieces have ten messages each; how many these are."""
        for piece in range(pieces):
            each = [b"%d" % (10 * piece + number) for number in range(10)]
            self.stage(stage, piece, *each, key=key)
        return 10 * pieces


@pytest.fixture
def lake() -> Iterator[BittenLake]:
    made = BittenLake()
    yield made
    made.close()


@pytest.mark.parametrize("key", [None, "one fragment"])
def test_a_large_batch_is_answered_when_its_last_bite_is_stored(
    lake: BittenLake, key: str | None
) -> None:
    count = lake.fill_large(key=key)

    assert lake.publish(1, {"task": count})

    assert lake.visible() == sorted(payloads(count))
    assert lake.staged() == {}


def test_who_asks_too_early_is_told_so_and_then_that_it_was_published(lake: BittenLake) -> None:
    count = lake.fill_large(pieces=3, key="one fragment")
    holder = lake.runner(lake.holder())
    # A store that takes nothing in: the bites wait.
    disk = next(disk for disk in lake.disks if holder.fragment_id in disk.kept.fragments())

    async def publish() -> bool | BaseException:
        task = asyncio.ensure_future(lake.staging.publish(QUERY, 1, {"task": count}))
        while not lake.visible():  # noqa: ASYNC110 - nobody tells of a commit
            await asyncio.sleep(LATENCY_S)
        disk.kept.shortage = "no room"
        [answer] = await asyncio.gather(task, return_exceptions=True)
        return answer

    began_s = lake.loop.time()
    early = lake.run(publish())
    assert isinstance(early, Refused) and early.kind is BEING_PUBLISHED
    assert "bytes must be stored" in str(early)
    assert WAIT_MS / 1000 <= lake.loop.time() - began_s < WAIT_MS / 1000 + 5
    assert 0 < len(lake.visible()) < count
    # Another attempt at the same batch, by whoever does not know of the first.
    lake.fill("other", 1)
    with pytest.raises(Refused) as again:
        lake.publish(1, {"other": 1})
    assert again.value.kind is BEING_PUBLISHED

    disk.kept.shortage = ""
    lake.pass_s(5)
    assert not lake.publish(1, {"task": count})
    assert lake.visible() == sorted(payloads(count))
    assert not lake.publish(1, {"other": 1})
    assert lake.staged() == {}


def test_a_damaged_piece_of_a_large_batch_is_refused_before_it_is_decided(
    lake: BittenLake,
) -> None:
    count = lake.fill_large(key="one fragment")
    holder = lake.runner(lake.holder())
    disk = next(disk for disk in lake.disks if holder.fragment_id in disk.kept.fragments())
    disk.kept.damage_piece(holder.fragment_id, b"task", 2)

    with pytest.raises(Refused) as refused:
        lake.publish(1, {"task": count})

    assert refused.value.kind is STAGE_LOST
    assert lake.visible() == []
    lake.run(lake.staging.discard(["task"]))
    assert lake.staged() == {}


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS, 2))
@pytest.mark.parametrize("is_crash", [True, False])
def test_a_large_batch_is_visible_once_and_whole_whatever_fails_at_any_step(
    lake: BittenLake, step: int, when: str, is_crash: bool
) -> None:
    """A crash of everything, or a store that fails for a moment; then another attempt."""
    count = lake.fill_large(pieces=4)
    lake.fate.plan(step, when, is_crash=is_crash)

    async def publish() -> None:
        await lake.staging.publish(QUERY, 1, {"task": count})
        assert lake.visible() == sorted(payloads(count))

    failure = lake.attempt(publish())
    lake.pass_s(0.1)
    lake.fate.plan(0, when, is_crash=False)
    if lake.has_died:
        lake.restart()
    lake.settle_down()
    found = lake.visible()
    assert found in ([], sorted(payloads(count)))
    assert failure is not None or found

    is_published = lake.publish(1, {"other": lake.fill_large("other", pieces=4)})

    assert is_published == (found == [])
    assert lake.visible() == sorted(payloads(count))
    lake.pass_s(1)
    assert lake.unfinished() == []
