"""What a topic publishes is stored with all its subscriptions or not at all (D2)."""

import pytest

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.outlet import GATHERED_MAX
from shardbus.broker.fragment.runner import AVAILABLE
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.change import Append
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.messages.command import (
    COMPLETE,
    DEFER,
    Receive,
    Received,
    ReceiveDeferred,
    Sent,
    Settle,
    Settled,
)
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.sessions.command import AcceptSession, SessionAccepted
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.unit.broker.house import LATENCY_S, SEED, House, send_of
from tests.unit.broker.news import TOPIC_ID, Topic, publish_of, sql_rule


def news(house: House, *names: str, fragments: int = 1) -> Topic:
    topic = Topic(house, fragments)
    topic.tell()
    for name in names:
        topic.subscribe(name)
    house.pass_s()
    topic.publish(b"first")
    for name in names:
        assert topic.drain(name) == [b"first"]
    house.disk.transactions.clear()
    return topic


def ids(topic: Topic, *names: str, number: int = 0) -> list[FragmentId]:
    entities = [topic.subscriptions[name].entity_id for name in names]
    return [FragmentId(entity_id, number) for entity_id in [TOPIC_ID, *entities]]


def unknown(answer: Answer) -> bool:
    assert isinstance(answer, Unavailable), answer
    return answer.is_unknown


def test_a_message_is_stored_with_all_who_get_it_in_one_transaction(house: House) -> None:
    topic = news(house, "a", "b", "c")

    topic.publish(b"x")

    assert house.disk.transactions == [ids(topic, "a", "b", "c")]
    assert [topic.drain(name) for name in "abc"] == [[b"x"]] * 3


def test_only_those_who_match_take_part(house: House) -> None:
    topic = news(house, "all")
    topic.subscribe("red", sql_rule("red", "color = 'red'"))

    topic.publish(b"color=blue|")

    assert house.disk.transactions == [ids(topic, "all")]
    assert (topic.drain("all"), topic.drain("red")) == ([b"color=blue|"], [])


def test_a_message_that_matches_nobody_is_accepted_and_gone(house: House) -> None:
    topic = news(house)

    first, second = topic.publish(b"x"), topic.publish(b"y")

    assert second.first == first.first + 1
    assert topic.stored(TOPIC_ID) == []
    assert house.disk.kept.load(FragmentId(TOPIC_ID, 0)).counters.last_counter == 3


def test_a_hundred_publishes_that_wait_are_one_transaction(house: House) -> None:
    topic = news(house, "a", "b")
    payloads = [b"%d" % number for number in range(100)]

    answers = [house.ask(topic.runner(), publish_of(payload)) for payload in payloads]
    house.pass_s()

    assert house.disk.transactions == [ids(topic, "a", "b")]
    assert all(isinstance(answer, Sent) for [answer] in answers)
    assert topic.drain("a") == topic.drain("b") == payloads


def test_what_comes_while_a_joint_is_stored_goes_into_the_next(house: House) -> None:
    topic = news(house, "a")
    house.latency_s = 1.0

    house.ask(topic.runner(), publish_of(b"x"))
    house.pass_s(0.5)
    answers = [house.ask(topic.runner(), publish_of(b"%d" % number)) for number in range(10)]
    house.pass_s(10)

    assert len(house.disk.transactions) == 2
    assert all(isinstance(answer, Sent) for [answer] in answers)


def test_a_joint_takes_no_more_copies_than_it_should(house: House) -> None:
    topic = news(house, "a", "b")
    count = GATHERED_MAX // 4

    answers = [house.ask(topic.runner(), publish_of(*[b"x"] * count)) for _ in range(5)]
    house.pass_s()

    assert [len(each) for each in house.disk.transactions] == [3, 3, 3]
    assert all(isinstance(answer, Sent) for [answer] in answers)
    assert len(topic.drain("b")) == 5 * count


def test_a_subscription_has_the_numbers_of_the_topic_with_gaps(house: House) -> None:
    topic = news(house, "all")
    topic.subscribe("red", sql_rule("red", "color = 'red'"))

    sent = [topic.publish(payload).first for payload in (b"color=red|", b"x", b"color=red|")]

    def numbers(name: str) -> list[int]:
        found = house.receive(topic.reader(name))
        return [delivery.entry.sequence_number for delivery in found]

    assert numbers("all") == sent
    assert numbers("red") == [sent[0], sent[2]]


def test_further_copies_of_a_message_have_numbers_of_their_own(house: House) -> None:
    topic = news(house)
    topic.subscribe("two", sql_rule("a", "1=1"), sql_rule("b", "x = '1'", "SET y = 2"))
    topic.subscribe("marked", sql_rule("b", "x = '1'", "SET y = 2"))

    sent = topic.publish(b"x=1|", b"x=2|", b"x=1|")
    after = topic.publish(b"later")

    def numbers(name: str) -> list[int]:
        found = house.receive(topic.reader(name))
        return [delivery.entry.sequence_number - sent.first for delivery in found]

    assert numbers("two") == [0, 1, 2, 3, 4, 5]
    assert numbers("marked") == [0, 2]
    assert after.first == sent.first + 5


@pytest.mark.parametrize(("moment", "is_stored"), [("before", False), ("after", True)])
def test_after_a_failed_commit_everyone_reloads_and_nothing_is_half_done(
    house: House, moment: str, is_stored: bool
) -> None:
    topic = news(house, "a", "b")
    runners = [topic.runner(), topic.reader("a"), topic.reader("b")]
    fragments = [runner.statistics() for runner in runners]
    house.disk.commit_failures.append(moment)

    answer = house.answer(topic.runner(), publish_of(b"x"))
    house.pass_s(2)

    assert unknown(answer)
    assert [runner.state for runner in runners] == [AVAILABLE] * 3
    assert all(new.statistics() is not old for new, old in zip(runners, fragments, strict=True))
    assert topic.drain("a") == topic.drain("b") == ([b"x"] if is_stored else [])
    topic.publish(b"y")
    assert topic.drain("a") == topic.drain("b") == [b"y"]


def test_a_subscription_that_is_away_makes_the_publish_unavailable_and_known(house: House) -> None:
    topic = news(house, "a", "b")
    _make_away(house, topic, "a")

    answer = house.answer(topic.runner(), publish_of(b"x"))

    assert not unknown(answer)
    assert topic.drain("b") == []
    house.disk.broken_fragments.clear()
    house.pass_s(10)
    topic.publish(b"y")
    assert (topic.drain("a"), topic.drain("b")) == ([b"y"], [b"y"])


def test_the_outage_of_one_subscription_is_no_outage_for_those_it_does_not_concern(
    house: House,
) -> None:
    topic = news(house, "all")
    topic.subscribe("red", sql_rule("red", "color = 'red'"))
    topic.publish(b"color=red|")
    _make_away(house, topic, "red")

    answer = house.answer(topic.runner(), publish_of(b"color=red|"))
    house.pass_s(1)
    topic.publish(b"color=blue|")

    assert not unknown(answer)
    assert topic.drain("all") == [b"color=red|", b"color=blue|"]


def _make_away(house: House, topic: Topic, name: str) -> None:
    """Lose a subscription's fragment and keep it from being loaded."""
    runner = topic.reader(name)
    house.disk.broken_fragments.add(runner.fragment_id)
    house.disk.commit_failures.append("before")
    house.ask(runner, publish_of(b"lost"))
    house.pass_s(0.02)
    assert not runner.is_available


def test_a_runner_that_is_busy_finishes_first_and_is_served_afterwards(house: House) -> None:
    topic = news(house, "a", "b")
    topic.publish(b"x")
    [delivery] = house.receive(topic.reader("a"))
    house.disk.transactions.clear()

    settled = house.ask(topic.reader("a"), Settle(COMPLETE, [delivery.token]))
    sent = house.ask(topic.runner(), publish_of(b"y"))
    house.pass_s(0.0025)
    late = house.ask(topic.reader("a"), Receive(MAIN_LINE, 10, is_locking=True, token_seed=SEED))
    house.pass_s()

    assert isinstance(settled[0], Settled) and settled[0].lost == [False]
    assert isinstance(sent[0], Sent)
    assert isinstance(late[0], Received)
    assert topic.drain("b") == [b"x", b"y"]
    received = [each.payload for each in late[0].deliveries]
    assert received == [b"y"] or (received == [] and topic.drain("a") == [b"y"])


def test_what_waits_for_a_held_runner_is_decided_in_the_same_transaction(house: House) -> None:
    topic = news(house, "a", "b")
    topic.publish(b"x")
    [first] = house.receive(topic.reader("a"))
    [second] = house.receive(topic.reader("b"))
    house.disk.transactions.clear()
    house.latency_s = 0.1

    # `b` is busy for a while, so `a` is held while its settlement waits.
    house.ask(topic.reader("b"), Settle(COMPLETE, [second.token]))
    house.pass_s(0.05)
    house.ask(topic.runner(), publish_of(b"y"))
    house.pass_s(0.05)
    settled = house.ask(topic.reader("a"), Settle(COMPLETE, [first.token]))
    house.pass_s(2)
    house.latency_s = LATENCY_S

    assert [len(each) for each in house.disk.transactions] == [1, 3]
    assert isinstance(settled[0], Settled)
    assert topic.drain("a") == topic.drain("b") == [b"y"]


def test_commands_that_must_read_first_are_not_starved_by_publishing(house: House) -> None:
    spec = EntitySpec()
    spec.requires_session = True
    topic = news(house)
    topic.subscribe("sessions", spec=spec)
    topic.subscribe("plain")
    topic.publish(b"session=s|")
    [deferred] = house.receive(topic.reader("plain"))
    house.settle(topic.reader("plain"), DEFER, deferred)

    def publish_on(_: object = None) -> None:
        topic.runner().submit(publish_of(b"session=s|again"), publish_on)

    publish_on()
    house.pass_s(0.05)
    numbers = [deferred.entry.sequence_number]
    fetched = house.ask(
        topic.reader("plain"),
        ReceiveDeferred(MAIN_LINE, numbers, is_locking=True, token_seed=SEED),
    )
    accepted = house.ask(topic.reader("sessions"), AcceptSession(None, SEED))
    house.pass_s(0.1)

    assert isinstance(fetched[0], Received)
    assert isinstance(accepted[0], SessionAccepted)
    assert len(house.disk.transactions) > 20


def test_receivers_are_served_while_messages_flow_without_a_pause(house: House) -> None:
    topic = news(house, "a", "b")
    sent: list[bytes] = []
    got: list[bytes | None] = []

    def publish_on(_: object = None) -> None:
        if len(sent) < 200:
            sent.append(b"%d" % len(sent))
            topic.runner().submit(publish_of(sent[-1]), publish_on)

    def receive_on(answer: object = None) -> None:
        if isinstance(answer, Received) and answer.deliveries:
            got.extend(each.payload for each in answer.deliveries)
            tokens = [each.token for each in answer.deliveries]
            topic.reader("a").submit(Settle(COMPLETE, tokens), receive_on)
        else:
            command = Receive(MAIN_LINE, 5, is_locking=True, token_seed=SEED)
            topic.reader("a").watch(
                MAIN_LINE, lambda: topic.reader("a").submit(command, receive_on)
            )

    publish_on()
    receive_on()
    house.pass_s(0.3)
    assert len(got) > 20
    house.pass_s(10)

    assert got == sent == topic.drain("b")


def test_deleting_a_subscription_that_is_awaited_lets_the_others_go_on(house: House) -> None:
    topic = news(house, "a", "b")
    [busy] = [topic.reader("a")]
    house.ask(busy, publish_of(b"own"))
    house.pass_s(0.0005)

    sent = house.ask(topic.runner(), publish_of(b"x"))
    house.pass_s(0.0002)
    topic.unsubscribe("a")
    house.pass_s()

    assert isinstance(sent[0], Sent)
    assert topic.drain("b") == [b"x"]


def test_when_one_who_stood_still_leaves_the_others_are_still_awaited(house: House) -> None:
    topic = news(house, "a", "b")
    topic.publish(b"x")
    [delivery] = house.receive(topic.reader("b"))
    house.latency_s = 0.1

    house.ask(topic.reader("b"), Settle(COMPLETE, [delivery.token]))
    house.pass_s(0.05)
    sent = house.ask(topic.runner(), publish_of(b"y"))
    house.pass_s(0.05)
    topic.unsubscribe("a")
    house.pass_s(0.01)
    busy = topic.reader("b").statistics()
    assert busy is not None and busy.counters.lines[MAIN_LINE].count == 0
    house.pass_s(2)
    house.latency_s = LATENCY_S

    assert isinstance(sent[0], Sent)
    assert topic.drain("b") == [b"y"]


@pytest.mark.parametrize("delay_ms", [0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
def test_a_subscription_can_be_deleted_at_any_moment_of_a_joint(
    house: House, delay_ms: float
) -> None:
    topic = news(house, "a", "b")

    sent = [house.ask(topic.runner(), publish_of(b"%d" % number)) for number in range(3)]
    house.pass_s(delay_ms / 1000)
    gone = topic.unsubscribe("a")
    sent += [house.ask(topic.runner(), publish_of(b"%d" % number)) for number in range(3, 6)]
    house.pass_s(1)

    assert all(isinstance(answer, Sent) for [answer] in sent)
    assert topic.drain("b") == [b"%d" % number for number in range(6)]
    assert FragmentId(gone.entity_id, 0) not in house.disk.fragments()


@pytest.mark.parametrize("delay_ms", [0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
def test_a_topic_can_be_deleted_at_any_moment_of_a_joint(house: House, delay_ms: float) -> None:
    topic = news(house, "a", "b")
    house.ask(topic.reader("b"), Settle(COMPLETE, []))

    sent = house.ask(topic.runner(), publish_of(b"x"))
    house.pass_s(delay_ms / 1000)
    topic.delete(topic.entity)
    house.pass_s(1)

    assert isinstance(sent[0], Sent) or unknown(sent[0])
    found = topic.drain("a")
    assert found == topic.drain("b") and (found == [b"x"] or not isinstance(sent[0], Sent))


def test_a_subscription_gets_all_that_is_accepted_after_its_creation_once(house: House) -> None:
    topic = news(house, "old")
    accepted: list[bytes] = []
    counts: dict[str, int] = {}

    def publish_on(number: int) -> None:
        payload = b"%d" % number

        def then(answer: Answer) -> None:
            assert isinstance(answer, Sent), answer
            accepted.append(payload)
            if number < 300:
                publish_on(number + 1)

        topic.runner().submit(publish_of(payload), then)

    publish_on(0)
    for number in range(20):
        house.pass_s(0.003 + 0.0003 * number)
        topic.subscribe(f"s{number}")
        counts[f"s{number}"] = len(accepted)
        if number % 4 == 3:
            topic.unsubscribe(f"s{number - 1}")
            del counts[f"s{number - 1}"]
    house.pass_s(10)

    assert topic.drain("old") == accepted == [b"%d" % number for number in range(301)]
    for name, count in counts.items():
        found = topic.drain(name)
        # All that was sent afterwards; what was under way then had been decided before.
        assert accepted[-len(found) :] == found
        assert len(accepted) - count - 1 <= len(found) <= len(accepted) - count


def test_fragments_of_a_topic_publish_beside_each_other(house: House) -> None:
    topic = Topic(house, fragments=4)
    topic.subscribe("a")
    house.pass_s()

    for number in range(4):
        house.ask(topic.runner(number), publish_of(b"%d" % number))
    house.pass_s()

    assert [topic.drain("a", number) for number in range(4)] == [[b"0"], [b"1"], [b"2"], [b"3"]]


def test_a_bug_in_one_part_makes_everyone_reload_and_nothing_half(house: House) -> None:
    topic = news(house, "a", "b")
    nonsense = 99

    sent = house.ask(topic.runner(), publish_of(b"x"))
    settled = house.ask(topic.reader("b"), Settle(nonsense, []))
    house.pass_s(2)

    assert not unknown(sent[0])
    assert not unknown(settled[0])
    assert topic.drain("a") == topic.drain("b") == []
    topic.publish(b"y")
    assert topic.drain("a") == topic.drain("b") == [b"y"]


def test_what_a_topic_gathered_before_a_bug_is_published_to_nobody(house: House) -> None:
    topic = news(house, "a")
    nonsense = 99

    sent = house.ask(topic.runner(), publish_of(b"x"))
    house.ask(topic.runner(), Settle(nonsense, []))
    house.pass_s(1)
    topic.publish(b"y")

    assert not unknown(sent[0])
    assert topic.drain("a") == [b"y"]


def test_a_topic_is_not_away_longer_than_the_subscription_that_kept_it(house: House) -> None:
    topic = news(house, "a")
    _make_away(house, topic, "a")
    for number in range(20):
        assert not unknown(house.answer(topic.runner(), publish_of(b"%d" % number)))
        house.pass_s(0.5)
        assert topic.runner().is_available

    house.disk.broken_fragments.clear()
    while not topic.reader("a").is_available:
        house.pass_s(0.1)
    topic.publish(b"x")

    assert topic.drain("a") == [b"x"]


def test_a_damaged_payload_is_set_aside_for_each_subscription_by_itself(house: House) -> None:
    topic = news(house, "a", "b")
    sent = topic.publish(b"x", b"y")
    topic.restart()
    topic.tell()
    house.disk.kept.damage(ids(topic, "a")[1], sent.first)
    house.pass_s()

    assert topic.drain("a") == [b"y"]
    assert topic.drain("b") == [b"x", b"y"]


def spoil_numbers(topic: Topic, name: str, counter: int) -> None:
    """Let a subscription have a number that its topic has not given out, as forwarding once did."""
    fragment = FragmentId(topic.subscriptions[name].entity_id, 0)
    kept = topic.house.disk.kept
    counters = kept.load(fragment).counters
    counters.last_counter = counter
    counters.lines[MAIN_LINE].count += 1
    counters.lines[MAIN_LINE].size_bytes += 1
    entry = Entry(counter, b"o", 1, enqueued_at_ms=1)
    kept.commit([FragmentCommit(fragment, [Append([entry])], counters)])


def test_a_subscription_that_is_ahead_of_its_topic_stops_nothing_after_a_start(
    house: House,
) -> None:
    """R27: such namespaces exist, and nothing of theirs may be lost."""
    topic = news(house, "a", "b")
    spoil_numbers(topic, "b", 7)
    topic.restart()
    topic.tell()

    sent = topic.publish(b"x", b"y")

    assert sent.first == 8
    assert (topic.drain("a"), topic.drain("b")) == ([b"x", b"y"], [b"o", b"x", b"y"])


def test_a_subscription_that_gets_ahead_is_caught_up_with_and_hurts_no_other_fragment(
    house: House,
) -> None:
    """A store error that one member of a group causes is that member's alone."""
    topic = news(house, "a", "b")
    queue = house.runner()
    house.answer(queue, send_of(b"q"))
    [held] = house.receive(queue)
    spoil_numbers(topic, "b", 7)

    sent = house.ask(topic.runner(), publish_of(b"x"))
    beside = house.ask(queue, send_of(b"beside"))
    house.pass_s(1)

    assert isinstance(beside[0], Sent)
    settled = house.settle(queue, COMPLETE, held)
    assert isinstance(settled, Settled) and settled.lost == [False]
    assert not unknown(sent[0])
    assert topic.publish(b"y").first == 8
    assert (topic.drain("a"), topic.drain("b")) == ([b"y"], [b"o", b"y"])


def test_a_publish_is_stored_although_a_subscription_is_deleted_before_it_is_written(
    house: House,
) -> None:
    topic = news(house, "a", "b")
    queue = house.runner()
    house.pass_s()
    house.latency_s = 1.0
    house.ask(queue, send_of(b"being written"))
    house.pass_s(0.5)
    sent = house.ask(topic.runner(), publish_of(b"x"))
    house.pass_s(0.1)

    topic.delete(topic.subscriptions["b"])
    house.pass_s(20)

    assert isinstance(sent[0], Sent)
    house.latency_s = LATENCY_S
    assert topic.drain("a") == [b"x"]
