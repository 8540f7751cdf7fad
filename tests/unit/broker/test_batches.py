"""Batches of several keys on partitioned entities: each message in its fragment, all or none."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.operations.recovering import RECOVER_MS
from shardbus.broker.routing.batches import BatchSpread
from shardbus.broker.routing.key_turns import KeyTurns, Turn
from shardbus.broker.routing.outbox import DOUBT_MS_MAX
from shardbus.core.errors import QUOTA_EXCEEDED, Refused, Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.records import DECISION, FINISHED, PREPARED
from shardbus.core.limits import PROMISE_LATE_MS
from shardbus.core.message import Message
from shardbus.core.messages.command import NO_SESSION, Send, Sent
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.sequence import fragment_of
from shardbus.core.transactions.command import Finish
from shardbus.stores.base.store import FragmentId
from tests.unit.broker.house import House
from tests.unit.broker.ports import Heard
from tests.unit.broker.queues import Queue, queue_rules
from tests.unit.broker.two_brokers import AFTER, BEFORE, TwoBrokers

FRAGMENTS = 4


def keys_of(queue: Queue, *fragments: int) -> list[str]:
    """A key for each of these fragments."""
    return [queue.session_ids(fragment, 1)[0] for fragment in fragments]


def messages_of(keys: list[str | None], count: int = 1) -> list[Message]:
    return [
        Message(b"%s-%d" % ((key or "none").encode(), turn), partition_key=key)
        for turn in range(count)
        for key in keys
    ]


def batch(queue: Queue, messages: list[Message], *, keeps_reply: bool = False) -> list[Answer]:
    answers: list[Answer] = []
    queue.router.send_batch(messages, answers.append, keeps_reply=keeps_reply)
    return answers


def contents(queue: Queue) -> list[list[bytes]]:
    """What each fragment has on disk, in order."""
    kept = [queue.house.disk.kept._fragments[runner.fragment_id] for runner in queue.runners]
    return [[each.payload(number) or b"" for number in sorted(each.entries)] for each in kept]


def records(queue: Queue) -> list[int]:
    kept = [queue.house.disk.kept._fragments[runner.fragment_id] for runner in queue.runners]
    kinds = [kind for each in kept for kind, _ in each.records]
    return [kind for kind in kinds if kind in (PREPARED, DECISION, FINISHED)]


# Placing.


def test_each_message_is_in_the_fragment_of_its_key_in_the_order_of_the_batch(
    house: House,
) -> None:
    queue = Queue(house, FRAGMENTS)
    keys: list[str | None] = [*keys_of(queue, 0, 1, 3)]

    answers = batch(queue, messages_of(keys, count=3))
    house.pass_s(1)

    assert [type(answer) for answer in answers] == [Sent]
    found = contents(queue)
    assert found[2] == []
    for fragment, key in zip((0, 1, 3), keys, strict=True):
        assert key is not None
        assert found[fragment] == [b"%s-%d" % (key.encode(), turn) for turn in range(3)]
    assert records(queue) == []


def test_keys_of_one_fragment_need_one_commit(house: House) -> None:
    """No promise, no decision: it is stored as any other batch."""
    queue = Queue(house, FRAGMENTS)
    keys: list[str | None] = [*queue.session_ids(1, 3), None]
    known = len(house.disk.transactions)

    answers = batch(queue, messages_of(keys))
    house.pass_s(1)

    assert isinstance(answers[0], Sent)
    assert house.disk.transactions[known:] == [[FragmentId(1, 1)]]
    assert len(contents(queue)[1]) == 4


@pytest.mark.parametrize("keys", [["a"], [None]])
def test_a_batch_of_one_key_or_none_is_one_command(house: House, keys: list[str | None]) -> None:
    queue = Queue(house, FRAGMENTS)
    known = len(house.disk.transactions)

    batch(queue, messages_of(keys, count=50))
    house.pass_s(1)

    assert [len(each) for each in house.disk.transactions[known:]] == [1]
    assert sorted(map(len, contents(queue))) == [0, 0, 0, 50]


def test_what_has_no_key_goes_along_to_a_fragment_that_is_needed_anyway(house: House) -> None:
    queue = Queue(house, FRAGMENTS)
    queue.runners[2].stop()
    queue.runners[3].stop()

    for _ in range(4):
        batch(queue, messages_of([*keys_of(queue, 0, 1), None, None]))
        house.pass_s(1)

    sizes = [len(found) for found in contents(queue)]
    assert sizes == [8, 8, 0, 0]


def test_shares_are_in_the_order_of_the_batch() -> None:
    keys = ["a", None, "b", "a", None, "b"]
    spread = BatchSpread([Message(b"x")] * 6, keys)

    spread.place({"a": 5, "b": 9}.__getitem__, free=1)

    assert spread.shares == {5: [0, 3], 9: [1, 2, 4, 5]}
    assert spread.different_keys() == ["a", "b"]


# All or none.


def test_an_unavailable_fragment_fails_the_whole_batch_and_nothing_of_it_appears(
    house: House,
) -> None:
    queue = Queue(house, FRAGMENTS)
    queue.runners[3].stop()

    answers = batch(queue, messages_of([*keys_of(queue, 0, 1, 3)]))
    house.pass_s(60)

    [answer] = answers
    assert isinstance(answer, Unavailable) and not answer.is_unknown
    assert contents(queue) == [[], [], [], []]
    assert records(queue) == []


def test_a_full_fragment_refuses_the_whole_batch(house: House) -> None:
    rules = queue_rules()
    rules.size_bytes_max = 10
    queue = Queue(house, FRAGMENTS, rules)
    queue.send(0, Message(b"0123456789"))

    answers = batch(queue, messages_of([*keys_of(queue, 0, 1)]))
    house.pass_s(5)

    [answer] = answers
    assert isinstance(answer, Refused) and answer.kind is QUOTA_EXCEEDED
    assert contents(queue)[1:] == [[], [], []]


def test_a_message_at_odds_with_itself_refuses_the_whole_batch(house: House) -> None:
    """R12."""
    queue = Queue(house, FRAGMENTS)
    bad = Message(b"bad", session_id="s", partition_key="k")

    [answer] = batch(queue, [*messages_of(["a", "b", "c"]), bad])

    assert isinstance(answer, Refused)
    assert contents(queue) == [[], [], [], []]


def test_a_batch_of_which_nothing_can_be_learned_is_unknown(house: House) -> None:
    """The one that decides is lost with the answer, and does not come back in 15 s."""
    queue = Queue(house, 2)
    keys = keys_of(queue, 0, 1)
    messages = [
        Message(b"long enough to decide", partition_key=keys[0]),
        Message(b"short", partition_key=keys[1]),
    ]
    house.disk.commit_failures.extend(["fine", "after"])
    house.pass_s()

    answers = batch(queue, messages)
    while not house.disk.transactions or len(house.disk.commit_failures):
        house.pass_s(0.001)
    house.disk.broken_fragments.add(FragmentId(1, 0))
    house.pass_s(DOUBT_MS_MAX / 1000 - 1)
    assert answers == []
    house.pass_s(2)

    [answer] = answers
    assert isinstance(answer, Unavailable) and answer.is_unknown


# Numbers and duplicates.


def test_numbers_are_told_in_the_order_of_the_batch(house: House) -> None:
    queue = Queue(house, FRAGMENTS)
    keys = keys_of(queue, 3, 0, 1)
    messages = messages_of([*keys], count=2)

    answers = batch(queue, messages, keeps_reply=True)
    house.pass_s(1)

    [sent] = answers
    assert isinstance(sent, Sent) and sent.count == 6
    assert [fragment_of(number) for number in sent.numbers()] == [3, 0, 1, 3, 0, 1]
    assert len(set(sent.numbers())) == 6
    assert records(queue) == []


@pytest.mark.parametrize("failing", range(1, 12))
@pytest.mark.parametrize("when", ["before", "after"])
def test_numbers_are_told_after_a_lost_answer(house: House, failing: int, when: str) -> None:
    """Whichever commit fails: all is there with the numbers that were told, or nothing is."""
    queue = Queue(house, FRAGMENTS)
    messages = messages_of([*keys_of(queue, 0, 1, 2)], count=2)
    house.disk.commit_failures.extend(["fine"] * (failing - 1) + [when])

    answers = batch(queue, messages, keeps_reply=True)
    house.pass_s(60)

    [answer] = answers
    found = [payload for each in contents(queue) for payload in each]
    if isinstance(answer, Sent):
        for message, number in zip(messages, answer.numbers(), strict=True):
            kept = house.disk.kept._fragments[FragmentId(1, fragment_of(number))]
            assert kept.payload(number) == message.payload
        assert len(found) == 6
    else:
        assert isinstance(answer, Unavailable) and not answer.is_unknown
        assert found == []


def test_duplicates_are_dropped_in_their_fragments_once(house: House) -> None:
    """R13, R49: where there is no other key the id is one, so every batch has several."""
    queue = Queue(house, FRAGMENTS, queue_rules(duplicate_window_ms=60_000))
    first = [Message(b"%d" % n, message_id=f"id-{n}") for n in range(20)]
    again = [Message(b"again", message_id=f"id-{n}") for n in range(10, 20)]
    new = [Message(b"new", message_id=f"new-{n % 5}") for n in range(10)]

    batch(queue, first)
    house.pass_s(1)
    answers = batch(queue, [*again, *new], keeps_reply=True)
    house.pass_s(1)

    [sent] = answers
    assert isinstance(sent, Sent)
    assert sent.count == 5 and sent.duplicates == [*range(10), *range(15, 20)]
    stored = sorted(payload for each in contents(queue) for payload in each)
    assert stored == sorted([*(b"%d" % n for n in range(20)), *[b"new"] * 5])


# Order.


def test_what_is_sent_with_a_key_of_a_batch_waits_for_it(house: House) -> None:
    queue = Queue(house, FRAGMENTS)
    one, two = keys_of(queue, 0, 1)
    heard = Heard()
    answers: list[Answer] = []

    queue.router.send_batch(messages_of([one, two]), answers.append)
    queue.router.send_each([Message(b"second", partition_key=two)], heard)
    queue.router.send_batch([Message(b"third", partition_key=two)] * 2, answers.append)
    queue.router.send_batch(
        [Message(b"fourth", partition_key=key) for key in (two, one)], answers.append
    )
    queue.router.send_each([Message(b"fifth", partition_key=key) for key in (one, two)], heard)
    house.pass_s(2)

    assert all(isinstance(answer, Sent) for answer in [*answers, *heard.answers.values()])
    found = contents(queue)
    assert found[0] == [b"%s-0" % one.encode(), b"fourth", b"fifth"]
    assert found[1] == [b"%s-0" % two.encode(), b"second", b"third", b"third", b"fourth", b"fifth"]


def test_keys_of_one_fragment_wait_for_a_batch_with_one_of_them(house: House) -> None:
    queue = Queue(house, FRAGMENTS)
    one, two = keys_of(queue, 0, 1)
    beside = queue.session_ids(1, 2)[1]

    batch(queue, messages_of([one, two]))
    answers = batch(queue, [Message(b"b", partition_key=beside), Message(b"c", partition_key=two)])
    house.pass_s(2)

    assert isinstance(answers[0], Sent)
    assert contents(queue)[1] == [b"%s-0" % two.encode(), b"b", b"c"]


def test_other_keys_do_not_wait(house: House) -> None:
    queue = Queue(house, FRAGMENTS)
    one, two, three = keys_of(queue, 0, 1, 2)
    house.latency_s = 1.0
    answers = batch(queue, messages_of([one, two]))
    heard = Heard()

    queue.router.send_each([Message(b"x", partition_key=three)], heard)
    house.pass_s(2.5)

    assert isinstance(heard.answers[0], Sent)
    assert answers == []


def test_turns_are_taken_in_order_and_for_all_keys_at_once() -> None:
    turns = KeyTurns()
    begun: list[str] = []
    taken: dict[str, Turn] = {}

    def begin(name: str, turn: Turn) -> None:
        begun.append(name)
        taken[name] = turn

    for name, keys in {"a": "xy", "b": "yz", "c": "z", "d": "xz", "e": "w"}.items():
        turns.take(keys, partial(begin, name))

    assert begun == ["a", "e"]
    turns.end(taken["a"])
    assert begun == ["a", "e", "b"]
    turns.end(taken["b"])
    assert begun == ["a", "e", "b", "c"]
    turns.end(taken["c"])
    turns.end(taken["d"])
    turns.end(taken["e"])
    assert begun == ["a", "e", "b", "c", "d"]
    assert turns.held == {}


# Over two brokers that die.

STEPS = 16


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    brokers = TwoBrokers()
    spec = EntitySpec()
    spec.is_partitioned = True
    brokers.run(brokers.namespace.create_queue("parted", spec))
    yield brokers
    brokers.close()


def parted(brokers: TwoBrokers) -> dict[str, list[bytes]]:
    """What is on disk, by key, in order."""
    handle = brokers.handle("parted")
    found: dict[str, list[bytes]] = {}
    for home in handle.entity.fragments:
        fragment = FragmentId(handle.entity.entity_id, home.number)
        kept = brokers.disks[home.broker_index].kept._fragments[fragment]
        for number in sorted(kept.entries):
            payload = kept.payload(number) or b""
            found.setdefault(payload.decode().partition(":")[0], []).append(payload)
    return found


def send(brokers: TwoBrokers, turn: int, keys: list[str]) -> list[Answer]:
    messages = [Message(f"{key}:{turn}".encode(), partition_key=key) for key in keys]
    answers: list[Answer] = []
    brokers.handle("parted").router.send_batch(messages, answers.append)
    return answers


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize("is_crash", [True, False])
def test_a_batch_is_there_whole_or_not_at_all_whatever_fails_at_any_step(
    brokers: TwoBrokers, step: int, when: str, is_crash: bool
) -> None:
    keys = [f"key-{number}" for number in range(6)]
    brokers.fate.plan(step, when, is_crash=is_crash)

    answers = send(brokers, 1, keys)
    brokers.pass_s(3)
    if brokers.has_died:
        brokers.restart()
    brokers.fate.plan(0, when, is_crash=is_crash)
    # Somebody sends on as soon as they can; nothing overtakes what was sent before.
    second = send(brokers, 2, keys)
    brokers.pass_s(0.5)
    for _ in range(12):
        brokers.run(brokers.recovery.recover())
        brokers.pass_s(RECOVER_MS / 1000)
        if not second or not isinstance(second[0], Sent):
            second = send(brokers, 2, keys)
            brokers.pass_s(0.5)

    found = parted(brokers)
    assert isinstance(second[0], Sent)
    is_stored = len(found[keys[0]]) == 2
    for key in keys:
        expected = [f"{key}:1", f"{key}:2"] if is_stored else [f"{key}:2"]
        assert found[key] == [payload.encode() for payload in expected]
    for answer in answers:
        is_unknown = isinstance(answer, Unavailable) and answer.is_unknown
        assert is_unknown or is_stored == isinstance(answer, Sent)


def test_the_steps_cover_the_whole_batch(brokers: TwoBrokers) -> None:
    """The test above is worth nothing if it stops too soon."""
    brokers.fate.plan(100, AFTER, is_crash=True)

    answers = send(brokers, 1, [f"key-{number}" for number in range(6)])
    brokers.pass_s(3)

    assert isinstance(answers[0], Sent)
    assert 6 < brokers.fate.commits < STEPS


def test_a_batch_is_accepted_when_a_fragment_cannot_finish_and_nothing_overtakes_it(
    house: House,
) -> None:
    """It is decided, so it is stored; the fragment sees to the order of its keys."""
    queue = Queue(house, 2)
    keys = keys_of(queue, 0, 1)
    ports = queue.router.ports
    messages = [Message(b"long enough to decide", partition_key=keys[0])]
    messages.append(Message(b"short", partition_key=keys[1]))
    began_ms = house.clock.steady_ms()
    deaf = _DeafToFinish(queue)
    ports[1] = deaf

    answers = batch(queue, messages)
    while not answers:
        house.pass_s(0.1)

    assert isinstance(answers[0], Sent) and deaf.asked > 1
    assert house.clock.steady_ms() - began_ms >= PROMISE_LATE_MS
    answer = house.answer(queue.runners[1], Send([Message(b"next", partition_key=keys[1])]))
    assert isinstance(answer, Refused) and "try again" in answer.message
    assert records(queue) == [DECISION, PREPARED]


class _DeafToFinish:
    """A FragmentPort over which nothing is finished: it is away just then."""

    def __init__(self, queue: Queue) -> None:
        self._runner = queue.runners[1]
        self.asked = 0

    @property
    def is_available(self) -> bool:
        return True

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        if isinstance(command, Finish):
            self.asked += 1
            reply_to(Unavailable("away"))
        else:
            self._runner.submit(command, reply_to)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        raise AssertionError("nobody receives here")

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        raise AssertionError("nobody receives here")
