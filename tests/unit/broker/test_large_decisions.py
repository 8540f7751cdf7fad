"""A large decision is taken in many turns of the loop, and is still one decision (D1, D2)."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from shardbus.broker.broker import Broker
from shardbus.broker.fragment.publishing import (
    COPY_STEPS,
    MESSAGE_WEIGHT,
    RULES_PER_STEP,
    STEPS_MAX,
    Publisher,
)
from shardbus.broker.fragment.reading import PIECES_PER_STEP, Reading, ReadStages
from shardbus.broker.fragment.runner import Runner
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.change import StagePut, new_counters
from shardbus.core.fragment.need import NeedStages
from shardbus.core.limits import ADMITTED_MAX
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import Done, Sent
from shardbus.core.stages.command import Stage
from shardbus.core.stages.record import packed_piece
from shardbus.core.transactions.command import Transact, Work
from shardbus.message.rule_view import PayloadFormat
from shardbus.stores.base.store import FragmentCommit, FragmentId, StoreError
from tests.unit.broker.house import LATENCY_S, House, ScriptedDisk, send_of
from tests.unit.broker.news import (
    SEED,
    TOPIC_ID,
    TextView,
    Topic,
    packed,
    publish_of,
    rewritten,
    sql_rule,
)
from tests.unit.core.desk import rules

STAGE = b"attempt"
TURNS_MAX = 1_000
RULES = 40
MESSAGES = 3_000
DELIVERED_MAX = STEPS_MAX // COPY_STEPS


class Turns:
    """Counts turns of the loop while something is under way, and what is done in each."""

    def __init__(self, house: House, is_on: Callable[[], bool]) -> None:
        self.number = 0
        self.done: Counter[int] = Counter()
        self._loop = house.loop
        self._is_on = is_on

    def begin(self) -> None:
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.number += 1
        if self._is_on() and self.number < TURNS_MAX:
            self._loop.call_soon(self._turn)


def is_half_way(runner: Runner) -> bool:
    """Whether a decision takes more than one turn of the loop, and is not complete yet."""
    outlet, fragment = runner._outlet, runner._fragment
    if outlet is not None and outlet.is_unfinished:
        return True
    return fragment is not None and fragment.is_unfinished


class SlowTopic(Topic):
    """A topic with so many rules that a batch cannot be matched in one turn."""

    def __init__(self, house: House) -> None:
        self.turns = Turns(house, lambda: is_half_way(self.runner()))
        super().__init__(house)
        self.tell()
        self.subscribe("all")
        for number in range(RULES):
            self.subscribe(f"s{number}", sql_rule("r", f"number = '{number}'"))
        self.publish(b"number=x|")
        assert self.drain("all") == [b"number=x|"]

    def new_broker(self) -> Broker:
        house = self.house
        return Broker("b", house.storage, house.clock, house.loop, new_publisher=self.publisher)

    def publisher(self) -> Publisher:
        def view_of(payload: bytes) -> TextView:
            self.turns.done[self.turns.number] += 1
            return TextView(payload)

        return Publisher(SEED, payloads=PayloadFormat(view_of, rewritten, packed))

    def is_half_way(self) -> bool:
        return is_half_way(self.runner())


def large_batch() -> list[bytes]:
    return [b"number=%d|%d" % (number % (RULES + 1), number) for number in range(MESSAGES)]


def one_turn(house: House) -> None:
    house.loop.run_until_complete(asyncio.sleep(0))


def half_way(house: House, topic: SlowTopic) -> None:
    """Let the loop turn until a decision has been begun."""
    for _ in range(10):
        if topic.is_half_way():
            return
        one_turn(house)
    raise AssertionError("nothing is published in pieces")


def being_delivered(house: House, topic: Topic) -> None:
    """Let the loop turn until the first subscription has some of what is published, not all."""
    for _ in range(1_000):
        fragment = topic.reader("a").statistics()
        if fragment is not None and fragment.counters.lines[MAIN_LINE].count > 1:
            return
        one_turn(house)
    raise AssertionError("nothing is taken over in pieces")


def test_a_large_publish_is_matched_in_many_turns(house: House) -> None:
    topic = SlowTopic(house)
    topic.turns.done.clear()

    answers = house.ask(topic.runner(), publish_of(*large_batch()))
    topic.turns.begin()
    house.pass_s()

    [answer] = answers
    assert isinstance(answer, Sent) and answer.count == MESSAGES
    in_a_turn = STEPS_MAX // (MESSAGE_WEIGHT + RULES)
    assert len(topic.turns.done) >= MESSAGES // in_a_turn
    assert max(topic.turns.done.values()) <= in_a_turn + 1
    assert topic.drain("all") == large_batch()
    assert topic.drain("s7") == [each for each in large_batch() if each.startswith(b"number=7|")]


def test_others_are_answered_while_a_large_publish_is_decided(house: House) -> None:
    topic = SlowTopic(house)
    queue = house.runner()
    house.pass_s()

    answers = house.ask(topic.runner(), publish_of(*large_batch()))
    half_way(house, topic)
    decided: list[bool] = []
    queue.submit(send_of(b"a"), lambda answer: None)
    house.loop.call_soon(lambda: decided.append(topic.is_half_way()))
    one_turn(house)

    # A turn later the queue has decided, and the topic has not.
    assert decided == [True] and answers == []
    fragment = queue.statistics()
    assert fragment is not None and fragment.counters.last_counter == 1


def test_many_small_publishes_share_turns_and_the_transaction(house: House) -> None:
    topic = SlowTopic(house)
    topic.turns.done.clear()
    house.disk.transactions.clear()

    answers = [house.ask(topic.runner(), publish_of(each)) for each in large_batch()[:1_000]]
    topic.turns.begin()
    house.pass_s()

    assert all(isinstance(answer, Sent) for [answer] in answers)
    assert len(house.disk.transactions) == 1


def test_nothing_is_stored_or_told_half_way(house: House) -> None:
    topic = SlowTopic(house)
    house.disk.transactions.clear()

    answers = house.ask(topic.runner(), publish_of(*large_batch()))
    half_way(house, topic)
    later = house.ask(topic.runner(), publish_of(b"number=later|"))
    one_turn(house)

    assert house.disk.transactions == [] and answers == [] == later
    assert topic.stored(topic.subscriptions["all"].entity_id) == []
    house.pass_s()
    assert len(house.disk.transactions) == 1
    assert topic.drain("all")[-1] == b"number=later|"


def test_a_publish_that_ends_half_way_leaves_nothing(house: House) -> None:
    topic = SlowTopic(house)

    answers = house.ask(topic.runner(), publish_of(*large_batch()))
    half_way(house, topic)
    topic.restart()
    house.pass_s()

    [answer] = answers
    assert isinstance(answer, Unavailable)
    topic.tell()
    assert topic.publish(b"number=1|").first
    assert topic.drain("all") == topic.drain("s1") == [b"number=1|"]


def test_who_subscribes_half_way_gets_none_of_it(house: House) -> None:
    """A batch is published by the rules by which it was begun: nobody gets a part of it."""
    topic = SlowTopic(house)

    answers = house.ask(topic.runner(), publish_of(*large_batch()))
    half_way(house, topic)
    # Another that waits is not begun before the rules have changed.
    next_one = house.ask(topic.runner(), publish_of(*[b"number=2|"] * MESSAGES))
    topic.subscribe("late")
    house.pass_s()
    topic.publish(b"number=1|")

    assert isinstance(answers[0], Sent) and isinstance(next_one[0], Sent)
    assert topic.drain("late") == [b"number=2|"] * MESSAGES + [b"number=1|"]
    assert len(topic.drain("all")) == 2 * MESSAGES + 1


def test_copies_are_taken_over_in_many_turns(house: House) -> None:
    topic = Topic(house)
    topic.tell()
    topic.subscribe("a")
    topic.subscribe("b")
    house.pass_s()
    batch = [b"%d" % number for number in range(3 * DELIVERED_MAX)]

    topic.publish(*batch)

    assert topic.drain("a") == topic.drain("b") == batch


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_subscription_that_goes_while_copies_are_taken_over_is_left_out(
    house: House, gone: str
) -> None:
    topic = Topic(house)
    topic.tell()
    topic.subscribe("a")
    topic.subscribe("b")
    house.pass_s()
    topic.publish(b"x")
    batch = [b"%d" % number for number in range(2 * DELIVERED_MAX)]

    answers = house.ask(topic.runner(), publish_of(*batch))
    being_delivered(house, topic)
    topic.reader(gone).stop()
    topic.unsubscribe(gone)
    house.pass_s()

    [answer] = answers
    assert isinstance(answer, Sent)
    [left] = topic.subscriptions
    assert topic.drain(left) == [b"x", *batch]


def test_a_topic_that_goes_while_copies_are_taken_over_leaves_nothing(
    house: House,
) -> None:
    topic = Topic(house)
    topic.tell()
    topic.subscribe("a")
    topic.subscribe("b")
    house.pass_s()
    topic.publish(b"x")

    answers = house.ask(topic.runner(), publish_of(*[b"y"] * 2 * DELIVERED_MAX))
    being_delivered(house, topic)
    runner = topic.runner()
    runner.stop()
    house.pass_s(5)

    assert isinstance(answers[0], Unavailable)
    assert topic.drain("a") == topic.drain("b") == [b"x"]
    assert topic.stored(TOPIC_ID) == []


def staged(house: House, runner: Runner, count: int) -> Transact:
    """What publishes a stage of so many messages."""
    per_piece = ADMITTED_MAX // 4
    for piece in range(count // per_piece):
        ids = range(piece * per_piece, (piece + 1) * per_piece)
        messages = [Message(b"%d" % each, message_id=str(each)) for each in ids]
        assert isinstance(house.answer(runner, Stage(STAGE, piece + 1, messages, 60_000)), Done)
    return Transact(Work([], [], [(STAGE, count)], None))


def test_a_large_stage_is_published_in_many_turns(house: House) -> None:
    runner = house.runner(fragment_rules=rules(duplicate_window_ms=60_000))
    count = 5 * ADMITTED_MAX
    command = staged(house, runner, count)
    turns = Turns(house, lambda: is_half_way(runner))
    house.disk.transactions.clear()

    answers = house.ask(runner, command)
    later = house.ask(runner, send_of(b"later"))
    while not is_half_way(runner):
        house.loop.run_until_complete(asyncio.sleep(LATENCY_S))
    turns.begin()
    one_turn(house)
    assert answers == [] == later and house.disk.transactions == []
    house.pass_s()

    assert turns.number >= 4
    assert isinstance(answers[0], Done) and isinstance(later[0], Sent)
    page = house.disk.kept.browse(
        runner.fragment_id, MAIN_LINE, start=0, count_max=count + 1, bytes_max=1 << 30
    )
    assert [entry.payload for entry in page.entries] == [
        *[b"%d" % each for each in range(count)],
        b"later",
    ]
    # The stage and what came after it are not stored in pieces.
    assert len(house.disk.transactions) <= 2


def test_who_subscribes_while_a_stage_is_published_gets_none_of_it(house: House) -> None:
    """Nor do rules change between two steps in which nothing is left to be matched."""
    topic = Topic(house)
    topic.tell()
    topic.subscribe("all")
    house.pass_s()
    count = 3 * ADMITTED_MAX
    command = staged(house, topic.runner(), count)

    answers = house.ask(topic.runner(), command)
    while not is_half_way(topic.runner()):
        house.loop.run_until_complete(asyncio.sleep(LATENCY_S))
    topic.subscribe("late")
    house.pass_s()
    topic.publish(b"after")

    assert isinstance(answers[0], Done)
    assert topic.drain("late") == [b"after"]
    assert len(topic.drain("all")) == count + 1


def test_what_comes_due_while_rules_are_learnt_is_published_by_all_of_them(house: House) -> None:
    """Half of the rules are none: who had them before and after would get nothing."""
    topic = Topic(house)
    topic.tell()
    count = 3 * RULES_PER_STEP
    filters = [f"number = '{number}'" for number in range(count)]
    made = topic.subscribe("a", *[sql_rule(f"r{n}", each) for n, each in enumerate(filters)])
    house.pass_s()
    at_ms = house.clock.now_ms() + 10_000
    due = [b"number=%d|" % number for number in range(count)]
    house.answer(topic.runner(), publish_of(*due, scheduled_at_ms=at_ms))
    changed = made.with_rules(
        [sql_rule(f"n{n}", each) for n, each in enumerate(filters)], house.clock.now_ms()
    )
    publisher = topic.broker._publishers[TOPIC_ID]

    # The former rules are gone, and of the new ones some are known, when the messages come due.
    publisher.hold()
    lesson = publisher.lesson(topic.entity, [changed])
    while publisher.subscriptions[made.entity_id] is made:
        next(lesson)
    house.pass_s(20)
    for _ in lesson:
        house.pass_s(1)
    publisher.let_go()
    house.pass_s(20)

    assert sorted(filter(None, topic.drain("a"))) == sorted(due)


def test_a_stage_that_is_half_published_is_whole_after_a_restart(house: House) -> None:
    runner = house.runner(fragment_rules=rules(duplicate_window_ms=60_000))
    count = 3 * ADMITTED_MAX
    command = staged(house, runner, count)

    answers = house.ask(runner, command)
    while not is_half_way(runner):
        house.loop.run_until_complete(asyncio.sleep(LATENCY_S))
    runner.stop()
    house.pass_s()
    again = Runner(
        runner.fragment_id,
        rules(duplicate_window_ms=60_000),
        house.storage,
        house.clock,
        house.loop,
    )

    assert isinstance(answers[0], Unavailable)
    assert isinstance(house.answer(again, command), Done)
    fragment = again.statistics()
    assert fragment is not None and fragment.counters.lines[MAIN_LINE].count == count


def test_a_large_stage_reaches_the_subscriptions_of_a_topic_whole(house: House) -> None:
    topic = SlowTopic(house)
    count = 2 * ADMITTED_MAX
    command = staged(house, topic.runner(), count)
    house.disk.transactions.clear()

    answer = house.answer(topic.runner(), command)

    assert isinstance(answer, Done)
    assert len(house.disk.transactions) == 1
    assert topic.drain("all") == [b"%d" % each for each in range(count)]


def many_rules(topic: Topic, count: int) -> None:
    """A subscription with so many rules, of which the broker has not been told."""
    made = topic.subscribe("many", sql_rule("r", "color = 'red'"))
    rules_of_all = [sql_rule(f"r{number}", f"color = '{number}'") for number in range(count)]
    topic.subscriptions["many"] = made.with_rules(rules_of_all, 1)


def test_many_rules_are_learnt_in_many_turns(house: House) -> None:
    """A broker that starts again is told thousands at once, and must not seem to be dead."""
    topic = Topic(house)
    topic.tell()
    many_rules(topic, 10 * RULES_PER_STEP)
    topic.restart()
    work = topic.broker.update_topic(topic.entity, list(topic.subscriptions.values()), [0])
    task = house.loop.create_task(work)
    turns = Turns(house, lambda: not task.done())

    turns.begin()
    house.loop.run_until_complete(task)
    house.pass_s()

    assert turns.number >= 10
    topic.publish(b"color=7|", b"color=red|")
    assert topic.drain("many") == [b"color=7|"]


def test_nothing_is_published_by_half_of_the_rules(house: House) -> None:
    topic = Topic(house)
    topic.tell()
    many_rules(topic, 10 * RULES_PER_STEP)
    work = topic.broker.update_topic(topic.entity, list(topic.subscriptions.values()), [0])
    task = house.loop.create_task(work)
    for _ in range(4):
        one_turn(house)

    answers = house.ask(topic.runner(), publish_of(b"color=999|"))
    house.loop.run_until_complete(task)
    house.pass_s()

    assert isinstance(answers[0], Sent)
    assert topic.drain("many") == [b"color=999|"]


def test_rules_are_learnt_although_the_one_who_tells_them_is_gone(house: House) -> None:
    topic = Topic(house)
    topic.tell()
    many_rules(topic, 10 * RULES_PER_STEP)
    work = topic.broker.update_topic(topic.entity, list(topic.subscriptions.values()), [0])
    task = house.loop.create_task(work)
    for _ in range(4):
        one_turn(house)

    task.cancel()
    house.pass_s()
    topic.publish(b"color=999|", b"color=red|")

    assert topic.drain("many") == [b"color=999|"]


def test_others_read_between_the_pieces_of_a_large_stage(house: House) -> None:
    """A store has one reader: all that is needed of a stage would take its whole time."""
    runner, other = house.runner(), house.runner(1)
    house.pass_s()
    house.answer(other, send_of(b"a"))
    pieces = 4 * PIECES_PER_STEP
    for piece in range(1, pieces + 1):
        assert isinstance(house.answer(runner, Stage(STAGE, piece, [Message(b"x")], 60_000)), Done)

    done: list[str] = []
    seen: list[int | StoreError] = []
    runner.submit(Transact(Work([], [], [(STAGE, pieces)], None)), lambda _: done.append("t"))
    one_turn(house)
    reads = house.disk.reads
    house.storage.read(lambda store: reads.count("stage"), seen.append)
    house.pass_s()

    assert done == ["t"]
    assert isinstance(seen[0], int) and seen[0] < reads.count("stage")
    fragment = runner.statistics()
    assert fragment is not None and fragment.counters.lines[MAIN_LINE].count == pieces


def test_a_stage_is_read_in_pieces_whole_and_in_order() -> None:
    disk = ScriptedDisk()
    fragment = FragmentId(1, 0)
    disk.create([fragment])
    numbers = list(range(3, 3 + 2 * PIECES_PER_STEP + 1))
    puts = [StagePut(STAGE, each, packed_piece([Message(b"%d" % each)])) for each in numbers]
    disk.commit([FragmentCommit(fragment, list(puts), new_counters())])

    need = NeedStages([STAGE, b"none"], [numbers, []], is_unpacked=True, is_checked=True)
    reading = Reading(fragment, need)
    steps = [reading.step(disk) for _ in range(3)]

    assert steps[:2] == [None, None]
    assert isinstance(steps[2], ReadStages)
    found = steps[2].stages[STAGE]
    assert [message.payload for message in found.messages()] == [b"%d" % each for each in numbers]
    assert list(found.pieces) == numbers and not found.damaged
    assert steps[2].stages[b"none"].pieces == {}
