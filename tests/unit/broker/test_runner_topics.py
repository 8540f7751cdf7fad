"""Topics and subscriptions at a broker: all that queues have, and who gets what (D2, R30)."""

import pytest

from shardbus.broker.broker import Broker
from shardbus.broker.fragment.outlet import Outlet
from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE
from shardbus.core.errors import NOT_IMPLEMENTED, QUOTA_EXCEEDED, Refused, Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import ABANDON, Cancel, Send, Sent
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.properties import unpack
from shardbus.stores.base.store import FragmentId
from tests.unit.broker.house import House, payloads_of
from tests.unit.broker.news import TOPIC_ID, Topic, publish_of, sql_rule


def news(house: House, *names: str, spec: EntitySpec | None = None) -> Topic:
    topic = Topic(house, spec=spec)
    topic.tell()
    for name in names:
        topic.subscribe(name)
    house.pass_s()
    return topic


def test_a_topic_accepts_nothing_before_its_subscriptions_are_told(house: House) -> None:
    """A broker that starts again does not know them, and would lose what it accepts for them."""
    topic = news(house, "a")
    topic.publish(b"x")
    topic.restart()

    early = house.answer(topic.runner(), publish_of(b"y"))
    topic.tell()
    topic.publish(b"z")

    assert isinstance(early, Unavailable) and not early.is_unknown
    assert topic.drain("a") == [b"x", b"z"]


def test_a_scheduled_message_goes_to_those_who_match_when_it_becomes_active(house: House) -> None:
    """Topics evaluate filters when the message activates."""
    topic = news(house, "early")
    at_ms = house.clock.now_ms() + 60_000

    sent = house.answer(topic.runner(), publish_of(b"x", scheduled_at_ms=at_ms))
    assert isinstance(sent, Sent)
    assert topic.drain("early") == []
    topic.unsubscribe("early")
    topic.subscribe("late")
    house.pass_s(61)

    [delivery] = house.receive(topic.reader("late"))
    assert delivery.payload == b"x"
    assert delivery.entry.sequence_number > sent.first
    assert delivery.entry.enqueued_at_ms >= at_ms


def test_what_is_scheduled_becomes_active_although_nobody_publishes_after_a_restart(
    house: House,
) -> None:
    topic = news(house, "a")
    at_ms = house.clock.now_ms() + 60_000
    house.answer(topic.runner(), publish_of(b"x", scheduled_at_ms=at_ms))
    topic.restart()

    topic.tell()
    house.pass_s(61)

    assert topic.stored(topic.subscriptions["a"].entity_id) == [b"x"]
    assert topic.stored(TOPIC_ID) == []


def test_a_scheduled_message_that_cannot_be_stored_with_its_subscriptions_stays_scheduled(
    house: House,
) -> None:
    topic = news(house, "a", "b")
    at_ms = house.clock.now_ms() + 60_000
    house.answer(topic.runner(), publish_of(b"x", scheduled_at_ms=at_ms))
    house.disk.is_full = True

    house.pass_s(70)
    assert topic.stored(TOPIC_ID) == [b"x"]
    house.disk.is_full = False
    house.pass_s(10)

    assert topic.drain("a") == topic.drain("b") == [b"x"]


def test_a_scheduled_message_at_which_a_bug_strikes_stays_scheduled(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a decision would be in memory: the message would be hidden, and counts wrong."""
    topic = news(house, "a")
    at_ms = house.clock.now_ms() + 60_000
    house.answer(topic.runner(), publish_of(b"x", scheduled_at_ms=at_ms))

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(Outlet, "publish", fail)
        house.pass_s(61)
    house.pass_s(20)

    assert topic.drain("a") == [b"x"]
    assert topic.stored(TOPIC_ID) == []


def test_scheduled_messages_of_a_topic_can_be_cancelled(house: House) -> None:
    topic = news(house, "a")
    at_ms = house.clock.now_ms() + 60_000
    sent = house.answer(topic.runner(), publish_of(b"x", b"y", scheduled_at_ms=at_ms))
    assert isinstance(sent, Sent)

    house.answer(topic.runner(), Cancel([sent.first]))
    house.pass_s(61)

    assert topic.drain("a") == [b"y"]


def test_a_duplicate_is_accepted_and_published_to_nobody(house: House) -> None:
    spec = EntitySpec()
    spec.requires_duplicate_detection = True
    topic = news(house, "a", spec=spec)

    topic.publish(b"x")
    assert topic.drain("a") == [b"x"]
    again = topic.publish(b"x", b"y")
    topic.restart()
    topic.tell()
    house.pass_s()
    late = topic.publish(b"y")

    assert (again.duplicates, late.duplicates) == ([0], [0])
    assert topic.drain("a") == [b"y"]


def test_a_subscription_with_sessions_keeps_their_order_and_buries_what_has_none(
    house: House,
) -> None:
    spec = EntitySpec()
    spec.requires_session = True
    topic = news(house, "plain")
    topic.subscribe("sessions", spec=spec)

    topic.publish(b"session=s|1", b"x", b"session=s|2")

    [dead] = house.receive(topic.reader("sessions"), line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.entry.reason) == (b"x", "Session id is null.")
    assert topic.drain("plain") == [b"session=s|1", b"x", b"session=s|2"]
    stored = topic.stored(topic.subscriptions["sessions"].entity_id)
    assert stored == [b"session=s|1", b"session=s|2"]


def test_a_rule_that_fails_is_a_dead_letter_of_its_subscription_only(house: House) -> None:
    quiet = EntitySpec()
    quiet.dead_letters_on_filter_errors = False
    topic = news(house, "good")
    topic.subscribe("bad", sql_rule("r", "1/0 = 1"))
    topic.subscribe("quiet", sql_rule("r", "1/0 = 1"), spec=quiet)

    topic.publish(b"x")

    assert topic.drain("good") == [b"x"]
    [dead] = house.receive(topic.reader("bad"), line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.entry.reason) == (b"x", "FilterException")
    assert house.receive(topic.reader("bad")) == []
    assert topic.drain("quiet") == topic.drain("quiet", line=DEAD_LETTER_LINE) == []


def test_what_an_action_changed_survives_a_reload(house: House) -> None:
    topic = news(house, "plain")
    topic.subscribe("marked", sql_rule("m", "1=1", "SET mark = 'yes'; SET sys.Label = 'new'"))
    topic.publish(b"label=old|body")
    topic.restart()
    topic.tell()

    [delivery] = house.receive(topic.reader("marked"))

    assert delivery.payload == b"label=new|body"
    assert unpack(delivery.entry.modified) == {"mark": b"yes", "RuleName": b"m"}
    assert topic.drain("plain") == [b"label=old|body"]


def test_each_subscription_counts_deliveries_of_its_own(house: House) -> None:
    topic = news(house, "a", "b")
    topic.publish(b"x")

    for _ in range(10):
        [delivery] = house.receive(topic.reader("a"))
        house.settle(topic.reader("a"), ABANDON, delivery)

    assert payloads_of(house.receive(topic.reader("a"), line=DEAD_LETTER_LINE)) == [b"x"]
    [untouched] = house.receive(topic.reader("b"))
    assert (untouched.payload, untouched.delivery_count) == (b"x", 0)


def test_the_time_to_live_of_topic_and_subscription_both_end_a_message(house: House) -> None:
    long, short = EntitySpec(), EntitySpec()
    long.default_ttl_ms = 60_000
    short.default_ttl_ms = 5_000
    short.dead_letters_on_expiration = True
    topic = news(house, spec=long)
    topic.subscribe("long")
    topic.subscribe("short", spec=short)

    topic.publish(b"x")
    house.pass_s(6)

    assert payloads_of(house.receive(topic.reader("short"), line=DEAD_LETTER_LINE)) == [b"x"]
    house.pass_s(60)
    assert topic.drain("long") == []


def test_the_size_of_a_topic_is_that_of_all_its_subscriptions(house: House) -> None:
    topic = news(house, "a", "b", spec=small())
    large = bytes(300_000)

    topic.publish(large)
    answers = [house.ask(topic.runner(), Send([Message(large)])) for _ in range(3)]
    house.pass_s()

    assert [type(answer) for [answer] in answers] == [Sent, Refused, Refused]
    [refusal] = answers[1]
    assert isinstance(refusal, Refused) and refusal.kind is QUOTA_EXCEEDED
    topic.drain("a")
    topic.publish(b"x")
    assert len(topic.drain("b")) == 3


def test_the_size_of_a_topic_is_known_again_after_a_restart(house: House) -> None:
    topic = news(house, "a", spec=small())
    topic.publish(bytes(1 << 20))
    topic.restart()
    topic.tell()
    topic.reader("a")
    house.pass_s()

    refused = house.answer(topic.runner(), publish_of(b"x"))
    topic.drain("a")
    topic.publish(b"y")

    assert isinstance(refused, Refused)
    assert topic.drain("a") == [b"y"]


def test_the_size_of_a_topic_is_known_again_as_soon_as_it_is_loaded_again(house: House) -> None:
    topic = news(house, "a", spec=small())
    at_ms = house.clock.now_ms() + 60_000
    later = house.answer(topic.runner(), publish_of(b"later", scheduled_at_ms=at_ms))
    assert isinstance(later, Sent)
    topic.publish(bytes(1 << 20))
    assert isinstance(house.answer(topic.runner(), publish_of(b"x")), Refused)

    house.disk.commit_failures.append("before")
    house.answer(topic.runner(), Cancel([later.first]))
    house.pass_s()

    assert topic.runner().is_available
    assert isinstance(house.answer(topic.runner(), publish_of(b"x")), Refused)


def small() -> EntitySpec:
    spec = EntitySpec()
    spec.size_mb = 1
    return spec


def test_a_changed_rule_holds_for_what_is_published_after_it(house: House) -> None:
    topic = news(house)
    old = topic.subscribe("a", sql_rule("r", "color = 'red'"))
    topic.publish(b"color=red|1", b"color=blue|2")

    topic.subscriptions["a"] = old.with_rules([sql_rule("r", "color = 'blue'")], 2)
    topic.tell()
    topic.publish(b"color=red|3", b"color=blue|4")

    assert topic.drain("a") == [b"color=red|1", b"color=blue|4"]


def test_a_changed_description_reaches_the_fragments_of_a_subscription(house: House) -> None:
    topic = news(house, "a")
    old = topic.subscriptions["a"]
    topic.publish(b"x")
    spec = old.spec.copy()
    spec.delivery_count_max = 1

    topic.subscriptions["a"] = old.updated(spec, 2)
    topic.tell()
    [delivery] = house.receive(topic.reader("a"))
    house.settle(topic.reader("a"), ABANDON, delivery)

    assert payloads_of(house.receive(topic.reader("a"), line=DEAD_LETTER_LINE)) == [b"x"]


def test_statistics_tell_what_topics_and_subscriptions_hold(house: House) -> None:
    topic = news(house, "a")
    at_ms = house.clock.now_ms() + 60_000
    topic.publish(b"12", b"345")
    house.answer(topic.runner(), publish_of(b"later", scheduled_at_ms=at_ms))

    async def counted() -> None:
        subscription = topic.subscriptions["a"]
        [own] = await topic.broker.statistics(TOPIC_ID, [0])
        [copies] = await topic.broker.statistics(subscription.entity_id, [0])
        assert (own.counts[MAIN_LINE], own.scheduled_count, own.size_bytes) == (0, 1, 5)
        assert (copies.counts[MAIN_LINE], copies.size_bytes) == (2, 5)
        assert own.sent_total == 3
        assert own.state == copies.state == FRAGMENT_AVAILABLE

    house.loop.run_until_complete(counted())


def test_a_deleted_topic_is_forgotten_with_its_rules(house: House) -> None:
    topic = news(house, "a")
    topic.delete(topic.entity)
    house.pass_s()

    answer = house.answer(topic.runner(), publish_of(b"x"))

    assert isinstance(answer, Unavailable)
    assert FragmentId(TOPIC_ID, 0) not in house.disk.fragments()


def test_a_broker_without_a_publisher_runs_no_topics(house: House) -> None:
    topic = Topic(house)
    broker = Broker("plain", house.storage, house.clock, house.loop)

    with pytest.raises(Refused) as refusal:
        broker.runner(topic.entity, 0)

    assert refusal.value.kind is NOT_IMPLEMENTED


def test_another_description_of_a_topic_caps_what_actions_may_set(house: House) -> None:
    topic = news(house, "a")
    spec = topic.entity.spec.copy()
    spec.default_ttl_ms = 5_000
    work = topic.broker.update_fragments(topic.entity.updated(spec, 2), [0])
    house.loop.run_until_complete(work)

    topic.publish(b"x")

    [delivery] = house.receive(topic.reader("a"))
    assert delivery.entry.expires_at_ms == delivery.entry.enqueued_at_ms + 5_000
    assert topic.broker._publishers[TOPIC_ID].default_ttl_ms == 5_000
