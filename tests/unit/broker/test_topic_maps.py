"""Topics get other fragments with all their subscriptions, whatever fails in between (P6)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.broker.broker import Broker
from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.namespace.map_change import MapChange
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.operations.staging import EntityStages
from shardbus.core.errors import (
    NOT_ALLOWED,
    Refused,
)
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS, Message
from shardbus.core.messages.command import ABANDON, COMPLETE, DEAD_LETTER, DEFER, Delivery, Settle
from shardbus.core.namespace.entity import Entity, EntitySpec, entity_from_json
from tests.simulation.faults import Disk
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.news import new_publisher, sql_rule
from tests.unit.broker.test_maps import KEYS, Client, Town, are_sent, in_order
from tests.unit.broker.two_brokers import AFTER, BEFORE

NEWS = "news"
ALL, EVEN, ODD = "all", "even", "odd"
# The plan, the records of three subscriptions, the fragments of the topic and of these at two
# brokers, the seal, the switch; counted from 1.
STEPS = 15


HELD = "held"


class TopicTown(Town):
    """A topic on two brokers, with three subscriptions: of all, of even and of odd marks."""

    def _broker(self, name: str, disk: Disk) -> Broker:
        storage = Storage(disk, self._worker(), self._worker(), self.loop)
        return Broker(name, storage, self.clock, self.loop, new_publisher=new_publisher)

    def make(self, *, has_ids: bool = False, requires_session: bool = False) -> None:
        spec = EntitySpec()
        spec.requires_duplicate_detection = has_ids
        self.run(self.namespace.create_topic(NEWS, spec))
        for name in (ALL, EVEN, ODD):
            self.subscribe(name, requires_session=requires_session)

    def subscribe(self, name: str, *, requires_session: bool = False) -> Entity:
        spec = EntitySpec()
        spec.requires_session = requires_session
        rules = [] if name == ALL else [sql_rule("of", f"kind = '{name}'")]
        return self.run(self.namespace.create_subscription(NEWS, name, spec, rules))

    def path(self, name: str) -> str:
        return f"{NEWS}/subscriptions/{name}"

    def topic(self) -> Entity:
        return self.namespace.topic(NEWS)

    def subscription(self, name: str) -> Entity:
        return self.namespace.subscription(self.path(name))

    def remap(self, count: int) -> Entity:
        return self.change(count, NEWS)

    def publish(
        self, *marks: int, at_ms: int = NEVER_MS, session: str | None = None
    ) -> list[Answer]:
        answers: list[Answer] = []
        for mark in marks:
            self.begin_to_publish(mark, answers, at_ms, session)
            self.pass_s(0.05)
        return answers

    def begin_to_publish(
        self,
        mark: int,
        answers: list[Answer],
        at_ms: int = NEVER_MS,
        session: str | None = None,
    ) -> None:
        kind = EVEN if mark % 2 == 0 else ODD
        message = Message(
            b"kind=%s|%d" % (kind.encode(), mark),
            partition_key=None if session else KEYS[mark % len(KEYS)],
            session_id=session,
            message_id=str(mark),
            scheduled_at_ms=at_ms,
        )
        router = self.handle(NEWS).router
        router.send_batch([message], answers.append, keeps_reply=True)

    def subscriber(self, name: str, line: int = MAIN_LINE) -> Client:
        client = Client(self)
        dispatcher = self.handle(self.path(name)).router.dispatcher(line)
        dispatcher.add(client)
        dispatcher.wake(client)
        self.pass_s(0.3)
        return client

    def finish(self, name: str, delivery: Delivery, how: int = COMPLETE) -> None:
        operations = self.handle(self.path(name)).operations
        self.run(operations.settle(Settle(how, [delivery.token])))

    def empty(self) -> None:
        for name in (ALL, EVEN, ODD):
            self.run(self.handle(self.path(name)).operations.purge(MAIN_LINE, count_max=1_000))

    def got(self, client: Client) -> list[int]:
        self.pass_s(0.5)
        return [mark_in(delivery) for delivery in client.deliveries]

    def soon_ms(self, seconds: float) -> int:
        return self.clock.now_ms() + int(seconds * 1000)


def mark_in(delivery: Delivery) -> int:
    return int((delivery.payload or b"").rpartition(b"|")[2])


def expected(name: str, marks: range) -> list[int]:
    return [mark for mark in marks if name == ALL or mark % 2 == (name == ODD)]


@pytest.fixture
def town() -> Iterator[TopicTown]:
    town = TopicTown()
    town.make()
    yield town
    town.close()


@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 3), (3, 1), (2, 16)])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_each_subscription_of_a_topic_keeps_the_order_of_each_key(
    town: TopicTown, before: int, after: int, is_restarted: bool
) -> None:
    """P6, R30: what was published before is received before what was published after."""
    if before > 1:
        town.remap(before)
    answers = town.publish(*range(20))
    topic = town.remap(after)
    if is_restarted:
        town.restart()
    answers += town.publish(*range(20, 40))

    assert are_sent(answers, 40)
    assert (topic.fragment_count(), topic.spec.is_partitioned) == (after, after > 1)
    for name in (ALL, EVEN, ODD):
        assert town.subscription(name).spec.is_partitioned == (after > 1)
        marks = town.got(town.subscriber(name))
        assert sorted(marks) == expected(name, range(40)) and in_order(marks)
        first = expected(name, range(20))
        assert set(marks[: len(first)]) == set(first)


def test_senders_and_receivers_stay_connected(town: TopicTown) -> None:
    """P6: receivers that wait at each subscription, and a sender that does not wait."""
    clients = {name: town.subscriber(name) for name in (ALL, EVEN, ODD)}
    answers: list[Answer] = []
    changing = town.loop.create_task(town.namespace.maps.change(NEWS, 5))
    for mark in range(60):
        town.begin_to_publish(mark, answers)
        town.pass_s(0.0008)
    town.loop.run_until_complete(changing)
    town.pass_s(1)

    assert are_sent(answers, 60)
    for name, client in clients.items():
        marks = town.got(client)
        assert sorted(marks) == expected(name, range(60)) and in_order(marks)


def test_one_slow_subscription_holds_back_its_own_messages_only(town: TopicTown) -> None:
    """P6: newer messages wait for the former fragments of the same subscription alone."""
    town.publish(0, 7)
    client = town.subscriber(ALL)
    client.room = 0
    town.remap(3)
    town.publish(14, 21)

    assert town.got(town.subscriber(EVEN)) == [0, 14]
    returned, kept = client.deliveries
    town.finish(ALL, returned, ABANDON)
    assert town.got(town.subscriber(ALL)) == [0, 14, 21]
    town.finish(ALL, kept)


def test_newer_messages_wait_while_older_ones_are_locked_and_return(town: TopicTown) -> None:
    """P6, R18: the fragment of the subscription is sealed because that of the topic is."""
    town.publish(0)
    town.remap(2)
    town.publish(14)
    client = Client(town)
    client.room = 1
    dispatcher = town.handle(town.path(EVEN)).router.dispatcher(MAIN_LINE)
    dispatcher.add(client)
    for how in (ABANDON, ABANDON, COMPLETE):
        dispatcher.wake(client)
        town.pass_s(0.3)
        town.finish(EVEN, client.deliveries[-1], how)
        town.pass_s(0.3)
        client.room = 1
    dispatcher.wake(client)

    assert town.got(client) == [0, 0, 0, 14]


def test_nothing_newer_is_received_while_a_former_fragment_is_away(town: TopicTown) -> None:
    """P6: it may have what comes first."""
    town.publish(0)
    town.remap(2)
    town.publish(14)
    town.restart()
    town.disk_of(NEWS).is_unreadable = True
    client = town.subscriber(EVEN)
    assert town.got(client) == []

    town.disk_of(NEWS).is_unreadable = False
    town.pass_s(10)

    assert town.got(client) == [0, 14]


def test_locks_deferred_messages_and_dead_letters_stay_where_they_are(town: TopicTown) -> None:
    """P6: by their tokens and numbers they are found in a former fragment."""
    town.publish(0, 14, 28)
    client = town.subscriber(EVEN)
    first, second, third = client.deliveries
    town.remap(3)
    client.room = 0
    town.publish(42)

    town.finish(EVEN, first, ABANDON)
    town.finish(EVEN, second, DEFER)
    town.finish(EVEN, third, DEAD_LETTER)

    assert sorted(town.got(town.subscriber(EVEN))) == [0, 42]
    assert town.got(town.subscriber(EVEN, DEAD_LETTER_LINE)) == [28]
    number = second.entry.sequence_number
    operations = town.handle(town.path(EVEN)).operations
    [deferred] = town.run(operations.receive_deferred(MAIN_LINE, [number], is_locking=True))
    town.finish(EVEN, deferred)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_scheduled_before_is_published_by_the_rules_of_its_moment(
    town: TopicTown, is_restarted: bool
) -> None:
    """P6, R15, R30: also to a subscription that was created, or changed, after the repartition."""
    town.publish(0, 1, at_ms=town.soon_ms(60))
    town.remap(3)
    town.run(town.namespace.create_subscription(NEWS, "new", EntitySpec(), []))
    town.run(town.namespace.add_rule(town.path(EVEN), sql_rule("odd", "kind = 'odd'")))
    town.run(town.namespace.delete(town.path(ODD)))
    if is_restarted:
        town.restart()
    new, even = town.subscriber("new"), town.subscriber(EVEN)
    town.publish(2)
    assert town.got(new) == [2] and town.got(even) == [2]
    town.finish("new", new.deliveries[0])
    town.finish(EVEN, even.deliveries[0])

    town.pass_s(61)

    assert sorted(town.got(new)) == [0, 1, 2]
    assert sorted(town.got(even)) == [0, 1, 2]
    assert [home.number for home in town.subscription("new").fragments] == [0, 1, 2, 3]


def test_ids_of_the_window_are_known_by_the_new_fragments(town: TopicTown) -> None:
    """P6, R24"""
    town.run(town.namespace.delete(NEWS))
    town.make(has_ids=True)
    town.publish(0, 1, 2)
    for count in (3, 1):
        town.empty()
        town.remap(count)
        town.publish(0, 1, 2)
        assert town.got(town.subscriber(ALL)) == []
    town.publish(3)

    assert town.got(town.subscriber(ODD)) == [3]


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("is_crash", [True, False])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_whatever_commit_fails_nothing_is_lost_and_the_topic_accepts_messages(
    town: TopicTown, monkeypatch: pytest.MonkeyPatch, step: int, when: str, is_crash: bool
) -> None:
    """P6: a sweep undoes what is half done for all subscriptions; what is done stays done."""
    town.publish(0, 1, 2)
    town.fate_everywhere(monkeypatch)
    town.fate.plan(step, when, is_crash=is_crash)
    town.attempt(town.namespace.maps.change(NEWS, 3))
    assert town.fate.has_struck
    town.fate.at = 0
    if town.has_died:
        town.restart()
    town.pass_s(1)
    town.run(town.namespace.sweep())

    topic = town.topic()
    assert not topic.coming and not town.namespace.has_leftovers()
    assert are_sent(town.publish(3, 4, 7), 3)
    for name in (ALL, EVEN, ODD):
        assert same_map(town.subscription(name), topic)
        marks = town.got(town.subscriber(name))
        assert sorted(marks) == [m for m in (0, 1, 2, 3, 4, 7) if m in expected(name, range(8))]
        assert in_order(marks)
    assert town.namespace.problems() == []
    assert orphans(town) == []


def same_map(one: Entity, other: Entity) -> bool:
    def shown(entity: Entity) -> tuple[object, ...]:
        homes = [[(home.number, home.broker_index) for home in each] for each in (
            entity.fragments, entity.coming)]  # fmt: skip
        return (homes, entity.hash_starts, entity.former_count, entity.former_starts)

    return shown(one) == shown(other)


def orphans(town: TopicTown) -> list[object]:
    return list(town.run(town.namespace.orphans()))


def prepare(town: TopicTown, count: int) -> Entity:
    """As after a crash between the seal and the switch."""
    maps = town.namespace.maps
    prepared = town.run(maps.plan(town.topic(), count))
    town.run(maps._put(prepared))
    town.run(maps._create_coming(prepared, MapChange(NEWS, count, is_balanced=False)))
    town.run(town.bus.seal(prepared, prepared.present(), prepared.map_number, is_open=False))
    return prepared


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_crash_left_is_undone_for_all_subscriptions(
    town: TopicTown, is_restarted: bool
) -> None:
    """P6: also for one that was created meanwhile, which is in the new fragments as well."""
    prepared = prepare(town, 3)
    town.subscribe("late")
    assert same_map(town.subscription("late"), prepared)
    town.run(town.namespace.delete(town.path(ODD)))
    if is_restarted:
        town.restart()

    town.run(town.namespace.sweep())

    assert are_sent(town.publish(0, 1), 2)
    assert town.got(town.subscriber(EVEN)) == [0]
    held = {fragment for disk in town.disks for fragment in disk.kept.fragments()}
    coming = {home.number for home in prepared.coming}
    ids = [town.topic().entity_id, town.subscription(ALL).entity_id]
    assert not [each for each in held if each.entity_id in ids and each.number in coming]
    assert orphans(town) == [] and town.namespace.problems() == []


def test_only_the_topic_is_cancelled(town: TopicTown) -> None:
    """P6: a subscription has no map of its own that could be given up."""
    prepared = prepare(town, 3)
    maps = town.namespace.maps
    for work in (maps.cancel(town.path(ALL)), maps.change(town.path(ALL), 2)):
        with refusal_of(NOT_ALLOWED, town.subscription(ALL).name, f"repartition '{NEWS}'"):
            town.run(work)
    assert same_map(town.subscription(ALL), prepared)

    town.run(maps.cancel(NEWS))

    assert not town.subscription(ALL).coming and are_sent(town.publish(0), 1)


def test_a_deleted_topic_leaves_nothing(town: TopicTown) -> None:
    """P6: also while it is half repartitioned, and with a broker that is away for a while."""
    town.remap(3)
    prepare(town, 2)
    town.restart()
    town.run(town.namespace.delete(town.path(ODD)))
    town.run(town.namespace.delete(NEWS))

    names = [town.near, town.far]
    kept = {town.namespace.queue(name).entity_id for name in names}
    held = [one for disk in town.disks for one in disk.kept.fragments()]
    queues = {entity.entity_id for entity in town.namespace.page(0, 1000)}
    assert kept <= queues and {fragment.entity_id for fragment in held} <= queues
    assert town.namespace.problems() == []


def test_a_deletion_that_a_crash_interrupted_removes_the_fragments_of_every_map(
    town: TopicTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6, R28: although the record of the subscription still has the map of before."""
    town.remap(3)
    entity_id = town.subscription(EVEN).entity_id
    town.fate_everywhere(monkeypatch)
    town.fate.plan(1, BEFORE, is_crash=True)
    town.attempt(town.namespace.delete(town.path(EVEN)))
    assert town.has_died
    town.fate.at = 0
    town.restart()
    town.run(town.namespace.sweep())

    assert town.namespace.find(town.path(EVEN)) is None
    held = [one for disk in town.disks for one in disk.kept.fragments()]
    assert entity_id not in {fragment.entity_id for fragment in held}
    assert orphans(town) == []


def test_a_repartition_that_cannot_be_exact_is_refused(town: TopicTown) -> None:
    """P6: a clear error, and nothing has changed."""
    with refusal_of(NOT_ALLOWED, town.subscription(ALL).name, f"repartition '{NEWS}'"):
        town.change(4, town.path(ALL))
    assert town.topic().map_number == 0


def test_a_topic_is_not_repartitioned_again_before_all_subscriptions_are_empty(
    town: TopicTown,
) -> None:
    town.publish(0)
    town.remap(2)
    [delivery] = town.subscriber(ALL).deliveries
    town.finish(ALL, delivery)
    with refusal_of(NOT_ALLOWED, town.subscription(EVEN).name, "1 messages"):
        town.remap(3)
    [delivery] = town.subscriber(EVEN).deliveries
    town.finish(EVEN, delivery)

    assert town.remap(3).former_count == 3


def test_what_was_published_before_cannot_be_filled_in(town: TopicTown) -> None:
    """P6, P3: sealed fragments accept nothing; numbers of present ones are accepted."""
    town.publish(0)
    [old] = town.subscriber(ALL).deliveries
    town.remap(2)
    late = town.subscribe("late")
    stages = town.handle(NEWS).staging
    past = Message(b"kind=even|0", subscription_id=late.entity_id)
    past.past_number = old.entry.sequence_number
    with refusal_of(NOT_ALLOWED, str(past.past_number), "repartitioned"):
        town.run(stages.stage("s", 0, [past]))
    fill_in_of_present(town, stages, late)


def fill_in_of_present(town: TopicTown, stages: EntityStages, late: Entity) -> None:
    [answer] = town.publish(2)
    assert not isinstance(answer, Refused)
    past = Message(b"kind=even|2", subscription_id=late.entity_id)
    client = town.subscriber(EVEN)
    past.past_number = client.deliveries[-1].entry.sequence_number
    town.run(stages.stage("s", 0, [past]))
    town.run(stages.discard(["s"]))


def test_a_node_of_an_older_release_cannot_misread_a_subscription(town: TopicTown) -> None:
    """R42, P6: it knows no maps, and refuses the records of the subscriptions, too."""
    older = ["node-2"]
    town.namespace.watch_releases(lambda: older)
    with unavailability(NEWS, "node-2"):
        town.remap(3)
    older.clear()
    town.remap(3)
    of_topic = [text for text in town.catalogue._documents.values() if f'"name":"{NEWS}' in text]

    assert len(of_topic) == 4
    assert all('"version":3' in text for text in of_topic)


def test_the_map_of_a_topic_counts_whatever_the_record_of_a_subscription_says(
    town: TopicTown,
) -> None:
    """P6: so one write switches all of them."""
    town.remap(3)
    subscription = town.subscription(EVEN)
    record = town.catalogue._documents[subscription.entity_id]
    recorded = entity_from_json(record)

    assert not same_map(recorded, town.topic()), "nobody has written it since the switch"
    [found] = [each for each in town.catalogue.entities() if each.name == subscription.name]
    assert same_map(found, town.topic()) and found.spec.is_partitioned


def test_the_namespace_reads_what_it_wrote(town: TopicTown) -> None:
    """P6: after a restart every subscription has the map of its topic."""
    assert isinstance(town.namespace, Namespace)
    town.remap(3)
    town.restart()
    for name in (ALL, EVEN, ODD):
        assert same_map(town.subscription(name), town.topic())
        assert town.subscription(name).fragments is town.topic().fragments
