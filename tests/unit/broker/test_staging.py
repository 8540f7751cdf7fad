"""Stages over all fragments of an entity: placed, published together, each batch once."""

import asyncio
from collections.abc import Iterator

import pytest

from shardbus.broker.broker import Broker, rules_of
from shardbus.broker.bus import EntityHandle
from shardbus.broker.fragment.publishing import Publisher
from shardbus.broker.fragment.runner import Runner
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.operations.asking import ask
from shardbus.broker.operations.staging import DECIDE_MS, PIECE_MAX, EntityStages, _batch_key
from shardbus.core.errors import (
    BATCH_DIFFERS,
    BEING_PUBLISHED,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    STAGE_LOST,
    Refused,
    Unavailable,
)
from shardbus.core.limits import STAGE_MS_DEFAULT, STAGE_MS_MIN
from shardbus.core.message import Message
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.stages.command import AskStages, DropStages, Publication, Stage, StagesHeld
from shardbus.core.transactions.command import Prepare, Work
from shardbus.stores.base.store import FragmentId
from tests.simulation.faults import Disk
from tests.simulation.payloads import FORMAT
from tests.support.refusals import refusal_of
from tests.unit.broker.two_brokers import AFTER, BEFORE, TwoBrokers

LAKE = "lake"
QUERY = "query"
# More commits than publishing in fragments of two brokers takes.
STEPS = 16


class Lake(TwoBrokers):
    """And a queue with fragments on both."""

    def __init__(self) -> None:
        super().__init__()
        spec = EntitySpec()
        spec.is_partitioned = True
        self.run(self.namespace.create_queue(LAKE, spec))

    def _broker(self, name: str, disk: Disk) -> Broker:
        storage = Storage(disk, self._worker(), self._worker(), self.loop)
        publisher = Publisher(bytes(8), payloads=FORMAT)
        return Broker(name, storage, self.clock, self.loop, new_publisher=lambda: publisher)

    @property
    def queue(self) -> EntityHandle:
        return self.handle(LAKE)

    @property
    def staging(self) -> EntityStages:
        return self.queue.staging

    def stage(self, stage: str, piece: int, *payloads: bytes, key: str | None = None) -> None:
        messages = [Message(payload, partition_key=key) for payload in payloads]
        self.run(self.staging.stage(stage, piece, messages))

    def fill(self, stage: str = "task", count: int = 6) -> dict[str, int]:
        """A stage with so many pieces, each in another fragment."""
        for piece in range(count):
            self.stage(stage, piece, b"%d" % piece)
        return {stage: count}

    def publish(self, batch: int, stages: dict[str, int], producer: str = QUERY) -> bool:
        return self.run(self.staging.publish(producer, batch, stages))

    def visible(self, name: str = LAKE) -> list[bytes]:
        """All that an entity holds on disk, and nobody can have received."""
        return [payload for _, payload in self.placed(name)]

    def placed(self, name: str = LAKE) -> list[tuple[int, bytes]]:
        """With the positions of the fragments, by payload."""
        entity = self.handle(name).entity
        found: list[tuple[int, bytes]] = []
        for index, home in enumerate(entity.fragments):
            fragment = FragmentId(entity.entity_id, home.number)
            kept = self.disks[home.broker_index].kept._fragments[fragment]
            found += [(index, kept.payload(number) or b"") for number in kept.entries]
        return sorted(found, key=lambda one: one[1])

    def staged(self) -> dict[int, int]:
        """How many messages are staged in which fragments, by position."""
        names = [b"task", b"other"]
        found: dict[int, int] = {}
        for index, runner in enumerate(self.queue.runners):
            answer = self.run(ask(runner, AskStages(names)))
            assert isinstance(answer, StagesHeld)
            if answer.stages:
                found[index] = sum(held.count for held in answer.stages)
        return found

    def holder(self) -> int:
        """The position of the one fragment that has something staged."""
        [index] = self.staged()
        return index

    def runner(self, index: int) -> Runner:
        runner = self.queue.runners[index]
        assert isinstance(runner, Runner)
        return runner

    def stop(self, index: int) -> None:
        """A fragment is away from now on."""
        self.runner(index).stop()

    def settle_down(self) -> None:
        # What was promised waits for its decision from when it is in memory again.
        self.run(self.recovery.recover())
        self.pass_s(DECIDE_MS / 1000 + 1)
        for _ in range(3):
            self.run(self.recovery.recover())
            self.pass_s(1)


@pytest.fixture
def lake() -> Iterator[Lake]:
    made = Lake()
    yield made
    made.close()


def payloads(count: int) -> list[bytes]:
    return [b"%d" % piece for piece in range(count)]


def test_a_batch_is_visible_as_a_whole_once_it_is_published(lake: Lake) -> None:
    stages = lake.fill() | lake.fill("other")
    assert lake.visible() == []
    assert len(lake.staged()) > 2

    assert lake.publish(1, stages)

    assert lake.visible() == sorted(payloads(6) * 2)
    assert lake.staged() == {}
    assert lake.run(lake.staging.producers()).missing == {}


def test_messages_with_a_key_are_staged_where_they_would_be_sent(lake: Lake) -> None:
    router = lake.queue.router
    messages = [Message(b"%d" % each, partition_key=f"key {each}") for each in range(9)]
    lake.run(lake.staging.stage("task", 0, messages))
    lake.run(lake.staging.stage("task", 0, messages))

    assert lake.publish(1, {"task": 9})

    expected = [(router.index_of_key(f"key {each}"), b"%d" % each) for each in range(9)]
    assert lake.placed() == expected


def test_pieces_without_keys_go_round_and_the_same_one_to_the_same_fragment(lake: Lake) -> None:
    count = len(lake.queue.runners)
    lake.fill(count=count)
    lake.fill(count=count)

    assert lake.staged() == dict.fromkeys(range(count), 1)


def test_a_batch_is_published_once(lake: Lake) -> None:
    """Also when it was staged anew, by other tasks, as after a restart."""
    lake.publish(7, lake.fill())

    assert not lake.publish(7, {"task": 6})
    again = lake.fill("other", 3)
    assert not lake.publish(7, again)
    assert not lake.publish(6, again)

    assert lake.visible() == payloads(6)
    assert lake.staged() == {}
    producers = lake.run(lake.staging.producers()).found
    assert [(p.name, p.batch) for some in producers.values() for p in some] == [(b"query", 7)]
    assert lake.publish(8, lake.fill("other", 3))


def test_an_empty_batch_is_published_too(lake: Lake) -> None:
    assert lake.publish(1, {})
    assert lake.publish(2, {"of nothing": 0})

    assert not lake.publish(2, lake.fill())
    assert lake.visible() == []


def test_two_publish_the_same_batch_at_the_same_moment(lake: Lake) -> None:
    """Attempts of two drivers that do not know of each other."""
    mine, theirs = lake.fill("task", 5), lake.fill("other", 4)

    async def both() -> tuple[bool | BaseException, ...]:
        staging = lake.staging
        first, second = staging.publish(QUERY, 1, mine), staging.publish(QUERY, 1, theirs)
        return await asyncio.gather(first, second, return_exceptions=True)

    published = lake.run(both())
    lake.settle_down()

    assert sorted(map(bool, published)) == [False, True]
    assert lake.visible() == (payloads(5) if published[0] else payloads(4))
    assert lake.staged() == {}


def test_somebody_publishes_the_same_stages_twice_at_the_same_moment(lake: Lake) -> None:
    stages = lake.fill()

    async def both() -> tuple[bool | BaseException, ...]:
        staging = lake.staging
        first, second = staging.publish(QUERY, 1, stages), staging.publish(QUERY, 1, stages)
        return await asyncio.gather(first, second, return_exceptions=True)

    answers = lake.run(both())
    lake.settle_down()
    assert not lake.publish(1, stages) or True not in answers

    assert lake.visible() == payloads(6)


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize("is_crash", [True, False])
def test_a_batch_is_visible_once_and_whole_whatever_fails_at_any_step(
    lake: Lake, step: int, when: str, is_crash: bool
) -> None:
    """A crash of everything, or a store that fails for a moment; then another attempt."""
    stages = lake.fill()
    lake.fate.plan(step, when, is_crash=is_crash)

    async def publish() -> None:
        await lake.staging.publish(QUERY, 1, stages)

    failure = lake.attempt(publish())
    lake.pass_s(0.1)
    lake.fate.plan(0, when, is_crash=False)
    if lake.has_died:
        lake.restart()
    lake.settle_down()
    found = lake.visible()
    assert found in ([], payloads(6))
    assert failure is not None or found == payloads(6)

    is_published = lake.publish(1, lake.fill("other", 6))

    assert is_published == (found == [])
    assert lake.visible() == payloads(6)
    lake.pass_s(1)
    assert lake.unfinished() == []


@pytest.mark.parametrize("count", [0, 5, 7])
def test_a_stage_that_has_not_as_many_messages_is_not_published(lake: Lake, count: int) -> None:
    lake.fill()

    with refusal_of(STAGE_LOST):
        lake.publish(1, {"task": count})
    assert lake.visible() == []
    assert lake.publish(1, {"task": 6})


def test_a_stage_whose_time_was_over_is_not_published(lake: Lake) -> None:
    lake.run(lake.staging.stage("task", 0, [Message(b"one")], lifetime_ms=STAGE_MS_MIN))
    lake.pass_s(STAGE_MS_MIN / 1000 + 1)

    with refusal_of(STAGE_LOST):
        lake.publish(1, {"task": 1})


def test_the_time_of_a_stage_goes_on_after_a_restart_though_nobody_comes(lake: Lake) -> None:
    lake.run(lake.staging.stage("task", 0, [Message(b"one")], lifetime_ms=STAGE_MS_MIN))
    lake.restart()

    lake.run(lake.bus.open_timed())
    lake.pass_s(STAGE_MS_MIN / 1000 + 1)

    kept = [kept for disk in lake.disks for kept in disk.kept._fragments.values()]
    assert [each.stages for each in kept if each.stages] == []


def test_a_stage_can_be_discarded(lake: Lake) -> None:
    lake.fill()

    discarded = lake.run(lake.staging.discard(["task", "never there"]))

    assert len(discarded.found) == len(lake.queue.runners)
    assert lake.staged() == {}
    assert lake.visible() == []


def test_what_has_no_key_is_staged_elsewhere_while_its_fragment_is_away(lake: Lake) -> None:
    lake.stage("task", 0, b"one")
    away = lake.holder()
    lake.run(lake.staging.discard(["task"]))
    lake.stop(away)

    lake.stage("task", 0, b"one")

    ports = [port for index, port in enumerate(lake.queue.runners) if index != away]
    answers = [lake.run(ask(port, AskStages([b"task"]))) for port in ports]
    assert sum(len(each.stages) for each in answers if isinstance(each, StagesHeld)) == 1


def test_what_has_a_key_waits_for_its_fragment(lake: Lake) -> None:
    index = lake.queue.router.index_of_key("red")
    lake.stop(index)

    with pytest.raises(Unavailable):
        lake.stage("task", 0, b"one", key="red")


def test_a_piece_that_is_staged_in_two_fragments_is_not_published_twice(lake: Lake) -> None:
    """It was repeated, because it was not known whether it was staged, while its own was away."""
    stages = lake.fill()
    own = set(lake.staged())
    other = next(index for index in range(len(lake.queue.runners)) if index not in own)
    again = Stage(b"task", 1, [Message(b"0")], STAGE_MS_DEFAULT)
    lake.run(ask(lake.queue.runners[other], again))

    for count in (6, 7):
        with refusal_of(STAGE_LOST):
            lake.publish(1, {"task": count})

    lake.run(ask(lake.queue.runners[other], DropStages([b"task"])))
    assert lake.publish(1, stages)


def test_a_stage_that_is_promised_is_not_called_lost(lake: Lake) -> None:
    """A gateway that did not see the second copy of a piece has promises for the first, and may
    commit yet: whoever asks another gateway must not be told that nothing will come of it.
    """
    lake.stage("task", 0, b"0")
    own = lake.holder()
    again = Stage(b"task", 1, [Message(b"0")], STAGE_MS_DEFAULT)
    lake.run(ask(lake.queue.runners[own - 1], again))
    work = Work([], [], [(b"task", 1)], batch_key=_batch_key(Publication(QUERY.encode(), 1)))
    home = (lake.queue.entity.entity_id, lake.queue.entity.fragments[own - 2].number)
    lake.run(ask(lake.queue.runners[own], Prepare(bytes(16), work, home, DECIDE_MS)))

    with refusal_of(BEING_PUBLISHED):
        lake.publish(1, {"task": 1})

    lake.settle_down()
    with refusal_of(STAGE_LOST):
        lake.publish(1, {"task": 1})
    assert lake.visible() == []


def test_a_fragment_that_is_away_matters_only_if_it_is_needed(lake: Lake) -> None:
    lake.stage("task", 0, b"one")
    holder, decider = lake.holder(), lake.queue.router.index_of_key(QUERY)
    count = len(lake.queue.runners)
    others = [index for index in range(count) if index not in (holder, decider)]
    lake.stop(others[0])

    with pytest.raises(Unavailable) as missing:
        lake.publish(1, {"task": 2})
    assert lake.publish(1, {"task": 1})

    assert not missing.value.is_unknown
    assert lake.visible() == [b"one"]


def test_the_fragment_that_decides_is_needed(lake: Lake) -> None:
    stages = lake.fill()
    lake.stop(lake.queue.router.index_of_key(QUERY))

    with pytest.raises(Unavailable):
        lake.publish(1, stages)

    assert lake.visible() == []


def test_a_piece_goes_to_the_next_fragment_when_its_own_is_full(lake: Lake) -> None:
    spec = EntitySpec()
    spec.is_partitioned = True
    lake.stage("task", 0, b"one")
    full = lake.holder()
    lake.runner(full).configure(rules_of(spec, 1))

    lake.stage("task", len(lake.queue.runners), b"two")

    assert lake.staged() == {full: 1, (full + 1) % len(lake.queue.runners): 1}


def test_what_is_staged_to_a_topic_goes_to_its_subscriptions(lake: Lake) -> None:
    spec = EntitySpec()
    spec.is_partitioned = True
    lake.run(lake.namespace.create_topic("news", spec))
    for name in ("one", "two"):
        lake.run(lake.namespace.create_subscription("news", name, EntitySpec(), ()))
    staging = lake.handle("news").staging
    for piece in range(6):
        lake.run(staging.stage("task", piece, [Message(b"%d" % piece)]))

    assert lake.run(staging.publish(QUERY, 1, {"task": 6}))
    assert not lake.run(staging.publish(QUERY, 1, {"task": 6}))

    assert lake.visible("news") == []
    assert lake.visible("news/subscriptions/one") == payloads(6)
    assert lake.visible("news/subscriptions/two") == payloads(6)


@pytest.mark.parametrize("name", ["", "x" * 129, "\ud800"])
def test_a_stage_has_a_name(lake: Lake, name: str) -> None:
    for work in (lake.staging.stage(name, 0, [Message(b"x")]), lake.staging.discard([name])):
        with pytest.raises(Refused) as refused:
            lake.run(work)
        assert refused.value.kind is INVALID_ARGUMENT


@pytest.mark.parametrize("producer", ["", "x" * 257, "\ud800"])
def test_a_producer_has_a_name(lake: Lake, producer: str) -> None:
    with pytest.raises(Refused) as refused:
        lake.publish(1, {}, producer)

    assert refused.value.kind is INVALID_ARGUMENT


def test_numbers_have_bounds(lake: Lake) -> None:
    with refusal_of(INVALID_ARGUMENT):
        lake.publish(-1, {})
    with refusal_of(INVALID_ARGUMENT):
        lake.publish(1 << 63, {})
    with refusal_of(INVALID_ARGUMENT):
        lake.stage("task", PIECE_MAX + 1, b"x")
    with refusal_of(INVALID_ARGUMENT):
        lake.publish(1, {f"{each}": 1 for each in range(20_000)})


def test_a_message_that_could_not_be_sent_cannot_be_staged(lake: Lake) -> None:
    message = Message(b"x", partition_key="one", session_id="another")

    with pytest.raises(Refused) as refused:
        lake.run(lake.staging.stage("task", 0, [message]))

    assert refused.value.kind is NOT_ALLOWED


def test_other_rows_under_a_used_number_are_refused_aloud(lake: Lake) -> None:
    """As after a checkpoint was restored: without a word these rows would be lost."""
    assert lake.run(lake.staging.publish(QUERY, 7, lake.fill(), fingerprint="6:a"))
    again = lake.fill("other", 3)

    with refusal_of(BATCH_DIFFERS):
        lake.run(lake.staging.publish(QUERY, 7, again, fingerprint="3:b"))
    assert sum(lake.staged().values()) == 3

    assert not lake.run(lake.staging.publish(QUERY, 7, again, fingerprint="6:a"))
    assert lake.staged() == {}
    assert lake.visible() == payloads(6)


def test_writes_without_an_id_leave_nothing_behind(lake: Lake) -> None:
    for number in range(20):
        name = f"write:{number}"
        stages = lake.fill("task", 2)
        assert lake.run(lake.staging.publish(name, 1, stages, is_once=True))
        # The answer was lost, and it is asked once more.
        assert not lake.run(lake.staging.publish(name, 1, stages, is_once=True))
        lake.run(lake.staging.forget(name))

    assert len(lake.visible()) == 40
    assert [some for some in lake.run(lake.staging.producers()).found.values() if some] == []


def test_a_job_of_two_hours_publishes_what_its_first_task_has_staged(lake: Lake) -> None:
    """Somebody says now and then that it lives; the stages of another job end in an hour."""
    stages = lake.fill("job/first")
    lake.fill("other/first", 2)
    for _ in range(12):
        lake.pass_s(600)
        prolonged = lake.run(lake.staging.prolong(["job/"]))
        assert prolonged.missing == {}
    stages |= lake.fill("job/last")

    with refusal_of(STAGE_LOST):
        lake.publish(1, {"other/first": 2})
    assert lake.publish(1, stages)
    assert lake.visible() == sorted(payloads(6) * 2)


def test_what_a_job_has_staged_and_not_published_is_forgotten_at_one_word(lake: Lake) -> None:
    """Attempts that were denied: nobody knows their names."""
    chosen = lake.fill("job/chosen", 3)
    lake.fill("job/denied", 4)
    other = lake.fill("job2/chosen", 2)
    assert lake.publish(1, chosen)

    assert lake.run(lake.staging.discard(["job/"])).missing == {}

    with refusal_of(STAGE_LOST):
        lake.publish(2, {"job/denied": 4})
    assert lake.publish(2, other)


def test_a_job_of_more_tasks_than_a_fragment_once_took_is_one_batch(lake: Lake) -> None:
    async def tasks() -> dict[str, int]:
        names = [f"job/{number}" for number in range(4_200)]
        for name in names:
            await lake.staging.stage(name, 0, [Message(name.encode(), partition_key="red")])
        return dict.fromkeys(names, 1)

    stages = lake.run(tasks())

    assert lake.publish(1, stages)

    assert len(lake.visible()) == 4_200


# Other maps.


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_is_published_once_whatever_map_the_queue_has(lake: Lake, count: int) -> None:
    """P6, P3: former fragments remember what a producer published."""

    def publish(batch: int, stages: dict[str, int], fingerprint: str) -> bool:
        work = lake.staging.publish(QUERY, batch, stages, fingerprint=fingerprint)
        return lake.run(work)

    for batch in (6, 7):
        assert publish(batch, lake.fill(), f"rows {batch}")
    lake.run(lake.namespace.maps.change(LAKE, count))
    assert not publish(7, lake.fill("other", 3), "rows 7")
    with refusal_of(BATCH_DIFFERS):
        publish(7, lake.fill("other", 3), "other rows")
    lake.run(lake.staging.discard(["other"]))
    lake.restart()
    first = lake.queue.router.former_count
    assert publish(8, lake.fill(), "rows 8")
    for batch in (6, 7, 8):
        assert not publish(batch, lake.fill("other", 3), f"rows {batch}")
    with refusal_of(BATCH_DIFFERS):
        publish(7, {}, "other rows")

    assert lake.visible() == sorted(payloads(6) * 3)
    places = [index for index, _ in lake.placed()]
    assert sum(index >= first for index in places) == 6, "what has no key is in present fragments"


def test_who_publishes_once_is_forgotten_by_former_fragments_too(lake: Lake) -> None:
    """P6"""
    lake.run(lake.staging.publish("once", 0, lake.fill(), is_once=True))
    lake.run(lake.namespace.maps.change(LAKE, 2))

    lake.run(lake.staging.forget("once"))

    producers = lake.run(lake.staging.producers())
    assert not any(producers.found.values()) and not producers.missing


def test_a_queue_with_stages_is_not_repartitioned(lake: Lake) -> None:
    """P6: they would be lost. The queue accepts messages again at once."""
    stages = lake.fill()
    with refusal_of(NOT_ALLOWED, LAKE, "stages"):
        lake.run(lake.namespace.maps.change(LAKE, 2))

    assert lake.publish(1, stages)
