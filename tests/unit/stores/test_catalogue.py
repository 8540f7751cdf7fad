"""The catalogue's contract, over memory and SQLite; and what only a file can suffer."""

import sqlite3
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from shardbus.core.namespace.access import LISTEN, AccessRule
from shardbus.core.namespace.entity import (
    Entity,
    EntitySpec,
    FragmentHome,
    new_subscription,
    spread_fragments,
)
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.property import TOPIC
from shardbus.stores.base.store import StoreError
from shardbus.stores.memory.catalogue import MemoryCatalogue
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.examine.catalogue_repair import check_catalogue

AnyCatalogue = MemoryCatalogue | SqliteCatalogue


def entity(entity_id: int, name: str) -> Entity:
    made = Entity(entity_id, name, EntitySpec(), 1000)
    made.fragments = spread_fragments(entity_id, 16, 4)
    made.hash_starts = even_hash_starts(16)
    return made


@pytest.fixture(params=["memory", "sqlite"])
def catalogue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyCatalogue]:
    made: AnyCatalogue = MemoryCatalogue(created_at_ms=5)
    if request.param == "sqlite":
        made = SqliteCatalogue(tmp_path / "catalogue.db", now_ms=5)
    yield made
    made.close()


def test_what_was_put_is_listed_until_it_is_removed(catalogue: AnyCatalogue) -> None:
    catalogue.put(entity(1, "Orders"))
    catalogue.put(entity(2, "other"))
    catalogue.remove(2)
    catalogue.remove(3)

    assert [known.to_json() for known in catalogue.entities()] == [entity(1, "Orders").to_json()]
    assert catalogue.damaged() == []


def test_putting_an_entity_again_replaces_its_record(catalogue: AnyCatalogue) -> None:
    catalogue.put(entity(1, "q"))
    changed = entity(1, "q")
    changed.spec.lock_ms = 5000

    catalogue.put(changed)
    changed.spec.lock_ms = 7000

    assert [known.spec.lock_ms for known in catalogue.entities()] == [5000]


def with_other_map(catalogue: AnyCatalogue) -> tuple[Entity, Entity]:
    """A topic that was repartitioned after the records of two subscriptions were written, of
    which one is being deleted.
    """
    topic = entity(1, "news")
    topic.kind = TOPIC
    catalogue.put(topic)
    for entity_id in (2, 3):
        catalogue.put(new_subscription(entity_id, topic, f"s{entity_id}", EntitySpec(), 1000))
    spec = EntitySpec()
    spec.is_partitioned = True
    coming = [FragmentHome(16, 0), FragmentHome(17, 1)]
    switched = topic.preparing(coming, even_hash_starts(2), 2000).switched(spec, 3000)
    catalogue.put(switched)
    catalogue.remove(3)
    return topic, switched


def maps_of(entities: Sequence[Entity]) -> list[tuple[list[int], int, bool]]:
    return [
        ([home.number for home in each.fragments], each.former_count, each.spec.is_partitioned)
        for each in entities
    ]


def test_a_subscription_has_the_map_of_its_topic(catalogue: AnyCatalogue) -> None:
    """P6: whatever its record says, also while its deletion is unfinished."""
    with_other_map(catalogue)

    assert maps_of(catalogue.entities()) == [(list(range(18)), 16, True)] * 2
    deleted = [each.entity for each in catalogue.unfinished() if each.is_final]
    assert maps_of(deleted) == [(list(range(18)), 16, True)]


def test_a_subscription_without_a_topic_keeps_the_map_of_its_record(
    catalogue: AnyCatalogue,
) -> None:
    """P6: as when the record of the topic is damaged."""
    with_other_map(catalogue)
    catalogue.remove(1)
    catalogue.finish(1)

    assert maps_of(catalogue.entities()) == [(list(range(16)), 0, False)]


def test_an_examination_finds_the_map_of_the_topic_too(tmp_path: Path) -> None:
    """P6: otherwise the fragments of its present map would be called orphans."""
    path = tmp_path / "catalogue.db"
    catalogue = SqliteCatalogue(path, now_ms=5, namespace_id="n")
    with_other_map(catalogue)
    catalogue.close()

    report = check_catalogue(path)

    assert maps_of(report.entities) == [(list(range(18)), 16, True)] * 2
    assert maps_of([each.entity for each in report.unfinished]) == [(list(range(18)), 16, True)]


def test_an_id_is_given_out_once(catalogue: AnyCatalogue) -> None:
    assert [catalogue.reserve_id() for _ in range(3)] == [1, 2, 3]


def test_rules_are_kept_as_a_whole(catalogue: AnyCatalogue) -> None:
    assert catalogue.rules() == []

    catalogue.set_rules([AccessRule("a", LISTEN, "one", "two")])
    catalogue.set_rules([AccessRule("b", LISTEN, "three")])

    assert [(rule.name, rule.primary_key) for rule in catalogue.rules()] == [("b", "three")]


def test_a_namespace_remembers_when_it_began(catalogue: AnyCatalogue) -> None:
    assert catalogue.created_at_ms() == 5


def test_everything_survives_reopening(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    first = SqliteCatalogue(path, now_ms=5)
    first.put(entity(first.reserve_id(), "q"))
    first.set_rules([AccessRule("a", LISTEN, "key")])
    first.close()

    second = SqliteCatalogue(path, now_ms=9)

    assert [known.name for known in second.entities()] == ["q"]
    assert [rule.name for rule in second.rules()] == ["a"]
    assert second.reserve_id() == 2
    assert second.created_at_ms() == 5
    second.close()


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    """It holds keys."""
    path = tmp_path / "catalogue.db"
    catalogue = SqliteCatalogue(path, now_ms=0)
    catalogue.reserve_id()

    modes = {stat.S_IMODE(found.stat().st_mode) for found in tmp_path.iterdir()}

    assert modes == {0o600}
    catalogue.close()


def test_a_second_process_is_told_that_the_file_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    first = SqliteCatalogue(path, now_ms=0)

    with pytest.raises(StoreError, match="in use by another process"):
        SqliteCatalogue(path, now_ms=0)

    first.close()
    SqliteCatalogue(path, now_ms=0).close()


def test_a_damaged_record_is_set_aside_and_the_rest_is_served(tmp_path: Path) -> None:
    """D4."""
    path = tmp_path / "catalogue.db"
    catalogue = SqliteCatalogue(path, now_ms=0)
    for number, name in enumerate(["a", "b", "c"], start=1):
        catalogue.put(entity(number, name))
    catalogue.close()
    with sqlite3.connect(path) as direct:
        direct.execute(
            "UPDATE entity SET document = replace(document, '60000', '60001') WHERE id=2"
        )
    direct.close()

    catalogue = SqliteCatalogue(path, now_ms=0)

    assert [known.name for known in catalogue.entities()] == ["a", "c"]
    assert catalogue.damaged() == [2]
    catalogue.close()


def test_damaged_rules_are_reported_and_never_taken_for_none(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    SqliteCatalogue(path, now_ms=0).close()
    with sqlite3.connect(path) as direct:
        direct.execute("UPDATE namespace SET rules = '[{}]'")
    direct.close()
    catalogue = SqliteCatalogue(path, now_ms=0)

    with pytest.raises(StoreError, match="access rules"):
        catalogue.rules()

    catalogue.close()


def test_a_database_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    with sqlite3.connect(path) as direct:
        direct.execute("CREATE TABLE invoice (number INTEGER)")
    direct.close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match="not a catalogue of Shardbus"):
        SqliteCatalogue(path, now_ms=0)

    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    path.write_bytes(b"dear diary " * 500)

    with pytest.raises(StoreError, match="not a catalogue"):
        SqliteCatalogue(path, now_ms=0)

    assert path.read_bytes() == b"dear diary " * 500


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    SqliteCatalogue(path, now_ms=0).close()
    with sqlite3.connect(path) as direct:
        direct.execute("PRAGMA user_version = 99")
    direct.close()

    with pytest.raises(StoreError, match="later build"):
        SqliteCatalogue(path, now_ms=0)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing/catalogue\.db"):
        SqliteCatalogue(tmp_path / "missing" / "catalogue.db", now_ms=0)


def test_what_was_begun_is_known_until_it_is_recorded_or_finished(catalogue: AnyCatalogue) -> None:
    for number in (1, 2):
        catalogue.begin(entity(number, f"q{number}"))
    assert [(u.entity.name, u.is_final) for u in catalogue.unfinished()] == [
        ("q1", False),
        ("q2", False),
    ]

    catalogue.put(entity(1, "q1"))
    catalogue.finish(2, 3)

    assert catalogue.unfinished() == []
    assert [known.name for known in catalogue.entities()] == ["q1"]


def test_what_was_removed_is_known_with_its_fragments_until_it_is_finished(
    catalogue: AnyCatalogue,
) -> None:
    catalogue.put(entity(1, "q"))
    catalogue.remove(1)

    [gone] = catalogue.unfinished()
    assert gone.is_final and gone.entity.to_json() == entity(1, "q").to_json()
    catalogue.finish(1)
    assert catalogue.unfinished() == []


def test_ids_go_on_above_what_a_store_knows(catalogue: AnyCatalogue) -> None:
    catalogue.raise_ids(40)
    catalogue.raise_ids(7)

    assert catalogue.reserve_id() == 41


def test_an_id_that_was_begun_is_not_given_out_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    first = SqliteCatalogue(path, now_ms=5)
    first.begin(entity(first.reserve_id(), "q"))
    first.close()

    second = SqliteCatalogue(path, now_ms=5)
    assert second.reserve_id() == 2
    second.close()


def test_a_namespace_keeps_the_id_that_it_was_made_with(tmp_path: Path) -> None:
    for given in ("a" * 32, "b" * 32):
        opened = SqliteCatalogue(tmp_path / "catalogue.db", now_ms=7, namespace_id=given)
        assert opened.namespace_id() == "a" * 32
        opened.close()


def test_the_name_of_a_damaged_record_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    made = SqliteCatalogue(path, now_ms=5)
    made.put(entity(1, "q"))

    with pytest.raises(StoreError, match="check --repair"):
        made.put(entity(2, "q"))
    made.close()
