"""Databases become a cluster, or are refused with a word about what to do, and nothing changed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.app.server.store_kinds import cluster_of, stores_of
from shardbus.core.namespace.entity import EntitySpec, FragmentHome, new_subscription
from shardbus.core.namespace.property import TOPIC
from shardbus.stores.base.cluster import Making, SharedStores
from shardbus.stores.base.store import FragmentId, OtherBuild, StoreError
from shardbus.stores.postgres import cluster as postgres_cluster
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import prepare
from shardbus.stores.postgres.slots import make_slot
from shardbus.stores.postgres.store import PostgresStore
from tests.support.postgres import LOCKED, server
from tests.unit.stores.test_catalogue import entity

MINE = "a" * 32
OTHER = "b" * 32


@pytest.fixture
def databases() -> Iterator[list[str]]:
    names = [server().new_database() for _ in range(2)]
    yield names
    for name in names:
        server().drop_database(name)


def urls(databases: list[str]) -> list[str]:
    return [server().url(name) for name in databases]


def made(where: list[str], new_id: str = MINE, slots: int = 3) -> SharedStores:
    return cluster_of(where, Making("full", slots, new_id, b"secret"))


def ask(database: str, sql: str) -> list[tuple[object, ...]]:
    link = Link(Address(server().url(database)), {"search_path": "shardbus"})
    try:
        return [tuple(row) for row in link.fetch(sql)]
    finally:
        link.close()


def test_slots_are_numbered_through_all_databases(databases: list[str]) -> None:
    """R39"""
    cluster = made(urls(databases))

    assert cluster.slot_count == 6
    assert ask(databases[0], "SELECT slot FROM slot ORDER BY 1") == [(0,), (2,), (4,)]
    assert ask(databases[1], "SELECT slot FROM slot ORDER BY 1") == [(1,), (3,), (5,)]


def test_whoever_comes_later_joins_whatever_it_would_have_made(databases: list[str]) -> None:
    """R41"""
    first = made(urls(databases))
    # The order in which they are named does not matter either.
    later = made(urls(databases[::-1]), OTHER, slots=7)

    assert (later.cluster_id, later.slot_count, later.secret) == (MINE, 6, first.secret)
    assert [store.shown for store in later.stores] == [store.shown for store in first.stores]


def test_two_nodes_that_make_a_cluster_at_once_make_the_same_one(
    databases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R41: the other node claims the first database after this one has found both of them free."""
    claim = postgres_cluster._claim
    making = Making("full", 5, OTHER, b"other")

    def late(address: Address, cluster_id: str, index: int, stores: int, own: Making) -> None:
        if index == 0:
            claim(address, OTHER, index, stores, making)
        claim(address, cluster_id, index, stores, own)

    monkeypatch.setattr(postgres_cluster, "_claim", late)

    cluster = made(urls(databases))

    assert cluster.cluster_id == OTHER
    for name in databases:
        assert ask(name, "SELECT cluster_id, slots FROM cluster") == [(OTHER, 5)]


def test_a_cluster_that_was_half_made_is_completed(databases: list[str]) -> None:
    made(urls(databases))
    server().execute("DELETE FROM shardbus.cluster; DELETE FROM shardbus.slot", databases[1])

    again = made(urls(databases), OTHER, slots=7)

    assert (again.cluster_id, again.slot_count) == (MINE, 6)
    assert ask(databases[1], "SELECT slot FROM slot ORDER BY 1") == [(1,), (3,), (5,)]


def test_slots_of_an_empty_single_server_are_not_those_of_other_stores(
    databases: list[str],
) -> None:
    """R39, R43: they were leased in the wrong database, and a copy of the cluster had two files of
    one name. The tests made clusters of new databases only.
    """
    first = Address(server().url(databases[0]))
    prepare(first, is_full=True)
    for slot in range(8):
        make_slot(first, slot)

    made(urls(databases))

    assert ask(databases[0], "SELECT slot FROM slot ORDER BY 1") == [(0,), (2,), (4,)]


def test_slots_with_messages_that_are_being_deleted_are_alone(databases: list[str]) -> None:
    """R39: their rows cannot be removed before the messages are."""
    first = Address(server().url(databases[0]))
    prepare(first, is_full=True)
    make_slot(first, 1)
    store = PostgresStore(first, 1)
    store.create([FragmentId(7, 0)])
    store.delete([FragmentId(7, 0)])
    store.close()

    with pytest.raises(StoreError, match=databases[0]):
        made(urls(databases))
    with pytest.raises(StoreError, match=databases[0]):
        made(urls(databases[::-1]))

    assert ask(databases[0], "SELECT count(*) FROM cluster") == [(0,)]


def test_databases_of_two_clusters(databases: list[str]) -> None:
    """R41"""
    made(urls(databases[:1]))
    made(urls(databases[1:]), OTHER)

    with pytest.raises(StoreError, match=OTHER):
        made(urls(databases))


def test_another_number_of_databases_than_the_cluster_has(databases: list[str]) -> None:
    made(urls(databases[:1]))

    with pytest.raises(StoreError, match=databases[0]):
        made(urls(databases))
    assert ask(databases[1], "SELECT to_regnamespace('shardbus') IS NULL") == [(True,)]


def test_one_database_twice(databases: list[str]) -> None:
    made(urls(databases))

    with pytest.raises(StoreError, match=databases[0]):
        made([server().url(databases[0])] * 2)


def test_a_single_server_does_not_take_the_slots_of_a_cluster(
    databases: list[str], tmp_path: Path
) -> None:
    """R41"""
    [url] = urls(databases[:1])
    made([url])
    stores = stores_of(tmp_path, url)

    for attempt in (
        stores.check_start,
        lambda: stores.open_catalogue(now_ms=1, new_id=OTHER),
        lambda: stores.open_store("broker-0"),
    ):
        with pytest.raises(StoreError, match=MINE):
            attempt()


def test_the_database_of_a_single_server_becomes_a_cluster(
    databases: list[str], tmp_path: Path
) -> None:
    """R39"""
    [url] = urls(databases[:1])
    catalogue = stores_of(tmp_path, url).open_catalogue(now_ms=1, new_id=MINE)
    catalogue.put(entity(1, "orders"))
    catalogue.close()

    cluster = made([url], OTHER)
    shared = cluster.open_catalogue(2)

    assert cluster.cluster_id == MINE
    assert [each.name for each in shared.entities()] == ["orders"]
    shared.close()


def test_a_schema_of_a_later_build(databases: list[str]) -> None:
    made(urls(databases[:1]))
    server().execute("UPDATE shardbus.version SET number = 99, oldest = 99", databases[0])

    with pytest.raises(OtherBuild):
        made(urls(databases[:1]))


def test_no_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(StoreError, match=str(port)):
            made([f"postgresql://bus@127.0.0.1:{port}/bus"])


def test_a_wrong_password(databases: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "wrong")

    with pytest.raises(StoreError, match=LOCKED):
        made([server().tcp_url(databases[0], LOCKED)])


def test_a_kind_of_store_that_nodes_cannot_share() -> None:
    with pytest.raises(StoreError, match="sqlite"):
        made(["sqlite:"])


def test_two_gateways_change_the_catalogue_one_after_the_other(databases: list[str]) -> None:
    """R41"""
    cluster = made(urls(databases[:1]))
    one, two = cluster.open_catalogue(1), cluster.open_catalogue(1)
    one.entities()
    two.entities()

    assert one.take_turn() is not None
    assert two.take_turn() is None
    one.put(entity(1, "orders"))
    one.end_turn()
    turn = two.take_turn()
    assert turn is not None and turn[1] == one.known_version != two.known_version

    # Who has not read what the other wrote changes nothing, turn or not.
    with pytest.raises(StoreError, match="gateway"):
        two.put(entity(2, "payments"))
    assert [each.name for each in two.entities()] == ["orders"]
    two.put(entity(2, "payments"))
    assert [each.name for each in one.entities()] == ["orders", "payments"]
    one.close()
    two.close()


def test_gateways_and_brokers_read_the_map_of_a_topic_for_its_subscriptions(
    databases: list[str],
) -> None:
    """P6, R40: one write switches all of them, whatever was read before."""
    cluster = made(urls(databases[:1]))
    sight, gateway = cluster.catalogue_sight("a"), cluster.open_catalogue(1)
    assert gateway.take_turn() is not None
    gateway.entities()
    topic = entity(1, "news")
    topic.kind = TOPIC
    gateway.put(topic)
    gateway.put(new_subscription(2, topic, "all", EntitySpec(), 1))
    gateway.end_turn()
    seen = []
    for is_switched in (False, True):
        if is_switched:
            assert gateway.take_turn() is not None
            coming = [FragmentHome(16, 0)]
            gateway.put(topic.preparing(coming, [0], 2).switched(EntitySpec(), 3))
            gateway.end_turn()
        settled = sight.hold()
        assert settled is not None
        sight.let_go()
        for entities in (settled.entities, gateway.entities()):
            seen.append([(len(each.fragments), each.former_count) for each in entities])
    gateway.close()
    sight.close()

    assert seen == [[(16, 0)] * 2] * 2 + [[(17, 16)] * 2] * 2


def test_a_broker_reads_the_catalogue_when_no_gateway_is_changing_it(databases: list[str]) -> None:
    """R28, R41"""
    cluster = made(urls(databases[:1]))
    broker, another = cluster.catalogue_sight("a"), cluster.catalogue_sight("b")
    assert broker.glance(1_000) == (0, 0)
    assert broker.hold() is None, "there is no namespace yet"
    gateway = cluster.open_catalogue(1)
    gateway.entities()

    turn = gateway.take_turn()
    assert turn is not None and broker.hold() is None
    gateway.put(entity(1, "orders"))
    gateway.end_turn()

    first, same = broker.hold(), another.hold()
    assert first is not None and same is not None
    assert (
        (first.version, first.turn)
        == (same.version, same.turn)
        == (broker.glance(1_000)[0], turn[0])
    )
    assert gateway.take_turn() is None
    another.let_go()
    assert gateway.take_turn() is None
    broker.let_go()
    assert gateway.take_turn() is not None
    gateway.put(entity(2, "payments"))
    gateway.end_turn()

    second = broker.hold()
    assert second is not None and [each.name for each in second.entities] == ["orders", "payments"]
    assert second.entities[0] is first.entities[0], "what has not changed is the same object"
    # As the server does with a broker that hangs.
    server().execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid IN "
        "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock')",
        databases[0],
    )
    with pytest.raises(StoreError):
        broker.let_go()
    for each in (broker, another, gateway):
        each.close()
