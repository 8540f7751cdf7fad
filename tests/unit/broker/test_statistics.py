"""What a broker says of its fragments, and what an entity makes of it (R29)."""

import pytest

from shardbus.broker.broker import Broker, rules_of
from shardbus.broker.namespace.host import EntityStatistics, FragmentStatistics
from shardbus.broker.remote.host_call import (
    HostCalls,
    count_question,
    read_question,
    read_statistics,
)
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import DEAD_LETTER, DEFER, Send, Settle
from shardbus.core.namespace.entity import Entity, EntitySpec, new_queue_spec, spread_fragments
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.tier import PREMIUM, STANDARD, tier_named
from shardbus.stores.base.store import FragmentId
from tests.unit.broker.house import House, send_of


@pytest.fixture
def broker(house: House) -> Broker:
    return Broker("b0", house.storage, house.clock, house.loop)


def entity_of(house: House) -> Entity:
    spec = EntitySpec()
    spec.requires_duplicate_detection = True
    entity = Entity(3, "orders", spec, house.clock.now_ms())
    entity.fragments = spread_fragments(3, 2, 1)
    entity.hash_starts = even_hash_starts(2)
    house.disk.create([FragmentId(3, number) for number in (0, 1)])
    return entity


def filled(house: House, broker: Broker) -> Entity:
    """In fragment 0: active, deferred, scheduled, dead and dropped messages."""
    entity = entity_of(house)
    runner = broker.runner(entity, 0)
    at_ms = house.clock.now_ms() + 60_000
    house.answer(runner, send_of(*[b"x"] * 9))
    house.answer(runner, Send([Message(b"y", message_id="once") for _ in range(3)]))
    house.answer(runner, Send([Message(b"z", scheduled_at_ms=at_ms) for _ in range(4)]))
    tokens = [delivery.token for delivery in house.receive(runner, 5)]
    house.answer(runner, Settle(DEFER, tokens[:2]))
    house.answer(runner, Settle(DEAD_LETTER, tokens[2:]))
    [dead] = house.receive(runner, 1, line=DEAD_LETTER_LINE)
    house.answer(runner, Settle(DEFER, [dead.token]))
    return entity


def statistics_of(house: House, broker: Broker, entity: Entity) -> list[FragmentStatistics]:
    found = broker.statistics(entity.entity_id, [0, 1])
    return house.loop.run_until_complete(found)


def test_messages_are_counted_by_what_they_wait_for(house: House, broker: Broker) -> None:
    entity = filled(house, broker)

    part, empty = statistics_of(house, broker, entity)

    assert part.counts == [5, 3, 0]
    assert (part.deferred_count, part.scheduled_count, part.duplicate_count) == (2, 4, 2)
    assert (empty.counts, empty.deferred_count, empty.scheduled_count) == ([0, 0, 0], 0, 0)


def test_numbers_count_when_they_are_stored(house: House, broker: Broker) -> None:
    """P2: a reader that is told of them goes on behind them, and never looks back."""
    entity = entity_of(house)
    runner = broker.runner(entity, 0)
    house.answer(runner, send_of(b"stored"))
    house.latency_s = 1.0

    house.ask(runner, send_of(b"a", b"b"))
    house.pass_s(0.5)
    [under_way] = house.loop.run_until_complete(broker.statistics(entity.entity_id, [0]))
    house.pass_s(3)
    [stored] = house.loop.run_until_complete(broker.statistics(entity.entity_id, [0]))

    assert (under_way.sent_total, stored.sent_total) == (1, 3)


def test_numbers_of_a_failed_commit_were_never_told(house: House, broker: Broker) -> None:
    """P2: they are given out again, to other messages."""
    entity = entity_of(house)
    runner = broker.runner(entity, 0)
    house.answer(runner, send_of(b"stored"))
    house.disk.commit_failures.append("before")

    house.answer(runner, send_of(b"lost"))
    [told] = house.loop.run_until_complete(broker.statistics(entity.entity_id, [0]))

    assert told.sent_total == 1


def test_an_entity_counts_deferred_messages_among_the_active_ones(
    house: House, broker: Broker
) -> None:
    statistics = EntityStatistics(statistics_of(house, broker, filled(house, broker)))

    assert (statistics.active_count, statistics.deferred_count) == (7, 2)
    assert (statistics.dead_letter_count, statistics.scheduled_count) == (3, 4)
    assert statistics.message_count() == 14
    assert statistics.duplicate_count == 2


def test_a_fragment_that_does_not_run_is_counted_from_its_store(
    house: House, broker: Broker
) -> None:
    entity = filled(house, broker)
    idle = Broker("b0", house.storage, house.clock, house.loop)

    running, stored = (statistics_of(house, one, entity)[0] for one in (broker, idle))

    assert (stored.counts, stored.deferred_count) == (running.counts, running.deferred_count)
    assert (stored.scheduled_count, stored.duplicate_count) == (4, 2)


def test_the_last_use_is_told_and_a_waiting_receiver_uses_all_the_time(
    house: House, broker: Broker
) -> None:
    entity = entity_of(house)
    runner = broker.runner(entity, 0)
    house.pass_s(10)
    sent_ms = house.clock.now_ms()
    house.answer(runner, send_of(b"x"))
    house.pass_s(50)

    used, unused = statistics_of(house, broker, entity)
    assert (used.last_used_ms, used.unused_ms) == (sent_ms, house.clock.now_ms() - sent_ms)
    assert (unused.last_used_ms, unused.unused_ms) == (0, house.clock.now_ms() - sent_ms + 10_000)

    runner.watch(DEAD_LETTER_LINE, lambda: None)
    house.pass_s(10)
    now_ms = house.clock.now_ms()
    assert statistics_of(house, broker, entity)[0].last_used_ms >= now_ms


def test_statistics_say_the_same_after_the_wire(house: House, broker: Broker) -> None:
    entity = filled(house, broker)
    here = statistics_of(house, broker, entity)

    do, fields = read_question(count_question(entity.entity_id, [0, 1]))
    document = house.loop.run_until_complete(HostCalls(broker).answer(do, fields))

    assert document is not None
    there = read_statistics(document)
    for part, same in zip(there, here, strict=True):
        assert part.unused_ms >= same.unused_ms > 0
        part.unused_ms = same.unused_ms
    assert [vars(part) for part in there] == [vars(part) for part in here]


def test_a_description_becomes_the_rules_of_fragments() -> None:
    spec = new_queue_spec(tier_named(STANDARD), is_partitioned=True)
    spec.requires_session = True
    spec.duplicate_window_ms = 20_000

    rules = rules_of(spec, 0)
    assert (rules.requires_session, rules.is_partitioned) == (True, True)
    assert rules.duplicate_window_ms == 0

    spec.requires_duplicate_detection = True
    assert rules_of(spec, 0).duplicate_window_ms == 20_000


def test_the_state_of_a_session_may_be_larger_in_premium() -> None:
    sizes = [
        rules_of(new_queue_spec(tier_named(tier), is_partitioned=False), 0).state_bytes_max
        for tier in (STANDARD, PREMIUM)
    ]

    assert sizes == [256 * 1024, 1024 * 1024]


def test_lines_are_counted_apart() -> None:
    part = FragmentStatistics(0, [1, 2, 3], 0, "available", "")

    statistics = EntityStatistics([part])

    assert part.counts[MAIN_LINE] == statistics.active_count == 1
    assert (statistics.dead_letter_count, statistics.transfer_dead_letter_count) == (2, 3)
